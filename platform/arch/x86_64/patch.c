/* Trampolines: their room, their code, and what they stand for. See patch.h. */
#include "platform/patch.h"
#include "base/lock.h"
#include "base/log.h"
#include "platform/arch/x86_64/flags.h"
#include "platform/internal.h"
#include <Zydis/Zydis.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_SIZE 32
#define OP_JMP 0xe9
#define SYSCALL_LEN 2
#define JMP_LEN 5
#define BEHIND_MIN (JMP_LEN - SYSCALL_LEN)
#define BEHIND_MAX 14
#define REACH 0x60000000UL

enum form { FORM_NONE, FORM_BEFORE, FORM_BEHIND, FORM_BOTH };

/* What an entry stands for. Immutable while `syscall` is set. */
struct tramp {
	_Atomic u64 syscall; /* its address; 0: free */
	u8 form;
	u8 prev_len; /* displaced before it */
	u8 behind;   /* offset of what was displaced behind it, 0: nothing */
	u8 behind_len;
	u32 next_free; /* protected by lock */
};

struct zone {
	u64 base, size;
	u8 *mem;	      /* the sentry's mapping */
	struct tramp *tramps; /* [size / ENTRY_SIZE] */
	u32 first, next;  /* entries for FORM_BEFORE: [next, split) is free; protected by lock */
	u32 free;	  /* entries below next that were given back, a list; 0: none */
	u32 split, count; /* from split on: for the other forms */
};

struct patcher {
	struct mutex lock;
	struct zone high, low;
	ZydisDecoder decoder, lengths;
};

/* Bytes that raise #UD as an opcode in 64-bit mode, on every processor and with every prefix to
 * come (not 62, c4, c5, d5, which are prefixes). */
static bool never_executes(u8 byte)
{
	static const u8 invalid[] = { 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f,
				      0x37, 0x3f, 0x60, 0x61, 0x82, 0xce, 0xd4, 0xd6 };

	return memchr(invalid, byte, sizeof(invalid)) != NULL;
}

static int zone_init(struct zone *z, u64 base, u64 size, u8 *mem, u64 call_entry)
{
	z->base = base;
	z->size = size;
	z->mem = mem;
	z->count = (u32)(size / ENTRY_SIZE);
	z->split = z->count / 2;
	/* The first entry holds the address for zones that no relative jump leaves. */
	z->first = z->next = 1;
	memcpy(mem, &call_entry, sizeof(call_entry));
	z->tramps = calloc(z->count, sizeof(*z->tramps));
	return z->tramps ? 0 : -ENOMEM;
}

int patcher_new(u8 *high, u8 *low, u64 call_entry, struct patcher **ret)
{
	struct patcher *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	if (zone_init(&p->high, STUB_ZONE, STUB_ZONE_SIZE, high, call_entry) < 0 ||
	    zone_init(&p->low, STUB_LOW_ZONE, STUB_LOW_ZONE_SIZE, low, call_entry) < 0) {
		free(p->high.tramps);
		free(p);
		return -ENOMEM;
	}
	mutex_init(&p->lock, RANK_LEAF, "patcher");
	ZydisDecoderInit(&p->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	p->lengths = p->decoder;
	ZydisDecoderEnableMode(&p->lengths, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
	*ret = p;
	return 0;
}

void patcher_free(struct patcher *p)
{
	if (!p)
		return;
	free(p->high.tramps);
	free(p->low.tramps);
	mutex_destroy(&p->lock);
	free(p);
}

void patch_reach(const struct patcher *p, u64 *ret_start, u64 *ret_end)
{
	*ret_start = STUB_AREA - REACH;
	*ret_end = STUB_DEFER_END;
}

/* ---- instructions ---- */

size_t patch_insn_length(struct patcher *p, const u8 *code, size_t size)
{
	ZydisDecodedInstruction insn;

	if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&p->lengths, NULL, code, size, &insn)))
		return 0;
	return insn.length;
}

/* Length of the instruction at code if it does the same anywhere; else 0. */
static size_t movable(struct patcher *p, const u8 *code, size_t size)
{
	ZydisDecodedInstruction insn;

	if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&p->decoder, NULL, code, size, &insn)))
		return 0;
	if (insn.attributes & ZYDIS_ATTRIB_IS_RELATIVE)
		return 0;
	switch (insn.meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
	case ZYDIS_CATEGORY_SYSTEM:
	case ZYDIS_CATEGORY_INTERRUPT: return 0;
	default: return insn.length;
	}
}

/* ---- room ---- */

static struct zone *zone_for(struct patcher *p, u64 addr)
{
	if (addr >= STUB_AREA - REACH && addr < STUB_AREA)
		return &p->high;
	if (addr < 0x70000000)
		return &p->low;
	return NULL;
}

static u64 entry_addr(const struct zone *z, u32 i)
{
	return z->base + (u64)i * ENTRY_SIZE;
}

/* An entry to which a jump at `from` may go in this form. 0: none. */
static u32 take_entry(struct zone *z, enum form form, u64 from)
{
	if (form == FORM_BEFORE && z->free) {
		u32 i = z->free;

		z->free = z->tramps[i].next_free;
		return i;
	}
	if (form == FORM_BEFORE)
		return z->next < z->split ? z->next++ : 0;
	for (u32 i = z->split; i < z->count; i++) {
		u32 rel = (u32)(entry_addr(z, i) - (from + JMP_LEN));
		/* The second or the third byte of the displacement begins what was an instruction.
		 */
		u8 guard = (u8)(rel >> (form == FORM_BEHIND ? 8 : 16));

		if (!atomic_load_explicit(&z->tramps[i].syscall, memory_order_relaxed) &&
		    never_executes(guard))
			return i;
	}
	return 0;
}

/* ---- code ---- */

struct emit {
	u64 addr; /* of what is emitted next, in the stub */
	u8 *p;
};

static void emit_bytes(struct emit *e, const void *bytes, size_t n)
{
	memcpy(e->p, bytes, n);
	e->p += n;
	e->addr += n;
}

static void emit_relative(struct emit *e, const u8 *op, size_t n, u64 target)
{
	s32 rel = (s32)(target - (e->addr + n + sizeof(rel)));

	emit_bytes(e, op, n);
	emit_bytes(e, &rel, sizeof(rel));
}

/* lea behind(%rip), %rcx; jmp call_entry */
static void emit_call(struct emit *e, const struct zone *z, u64 behind, u64 call_entry)
{
	static const u8 lea[] = { 0x48, 0x8d, 0x0d }, jmp[] = { OP_JMP },
			jmp_mem[] = { 0xff, 0x25 };
	s64 distance = (s64)(call_entry - e->addr);

	emit_relative(e, lea, sizeof(lea), behind);
	if (distance == (s32)distance)
		emit_relative(e, jmp, sizeof(jmp), call_entry);
	else
		emit_relative(e, jmp_mem, sizeof(jmp_mem), z->base);
}

static void write_entry(struct zone *z, u32 i, const struct patch_site *site, struct tramp *t)
{
	static const u8 jmp[] = { OP_JMP };
	struct emit e = { entry_addr(z, i), z->mem + (size_t)i * ENTRY_SIZE };
	u8 *start = e.p;
	u64 after = site->addr + SYSCALL_LEN, call_entry;

	memcpy(&call_entry, z->mem, sizeof(call_entry));
	emit_bytes(&e, site->code - t->prev_len, t->prev_len);
	if (!t->behind_len) {
		emit_call(&e, z, after, call_entry);
	} else {
		u64 distance = call_entry - e.addr;
		bool near = (s64)distance == (s32)distance;

		t->behind = (u8)(7 + (near ? JMP_LEN : JMP_LEN + 1));
		emit_call(&e, z, e.addr + t->behind, call_entry);
		emit_bytes(&e, site->code + SYSCALL_LEN, t->behind_len);
		emit_relative(&e, jmp, sizeof(jmp), after + t->behind_len);
	}
	ASSERT(e.p - start <= ENTRY_SIZE);
}

/* Fills in a form that fits the site. */
static enum form choose(struct patcher *p, const struct patch_site *site, struct tramp *t)
{
	size_t before =
		site->prev_len ? movable(p, site->code - site->prev_len, site->prev_len) : 0;
	size_t behind;

	if (before != site->prev_len)
		before = 0;
	if (before >= JMP_LEN) {
		t->prev_len = (u8)before;
		return FORM_BEFORE;
	}
	behind = site->size > SYSCALL_LEN
			 ? movable(p, site->code + SYSCALL_LEN, site->size - SYSCALL_LEN)
			 : 0;
	if (behind >= BEHIND_MIN && behind <= BEHIND_MAX) {
		t->behind_len = (u8)behind;
		return FORM_BEHIND;
	}
	if (before == JMP_LEN - SYSCALL_LEN) {
		t->prev_len = (u8)before;
		return FORM_BOTH;
	}
	return FORM_NONE;
}

int patch_site(struct patcher *p, const struct patch_site *site, struct patch_edit *ret)
{
	struct zone *z = zone_for(p, site->addr);
	struct tramp t = { 0 };
	enum form form = choose(p, site, &t);
	u64 from = site->addr - t.prev_len;
	u32 i, rel;

	if (form == FORM_NONE || !z || flags_are_read(&p->decoder, site))
		return -ENOTSUP;
	MUTEX_GUARD(&p->lock);
	i = take_entry(z, form, from);
	if (i == 0)
		return -ENOSPC;
	t.form = (u8)form;
	write_entry(z, i, site, &t);
	z->tramps[i].form = t.form;
	z->tramps[i].prev_len = t.prev_len;
	z->tramps[i].behind = t.behind;
	z->tramps[i].behind_len = t.behind_len;
	atomic_store_explicit(&z->tramps[i].syscall, site->addr, memory_order_release);

	*ret = (struct patch_edit){
		.start = -(int)t.prev_len,
		.bytes = { OP_JMP },
		.entry = entry_addr(z, i),
	};
	rel = (u32)(entry_addr(z, i) - (from + JMP_LEN));
	memcpy(ret->bytes + 1, &rel, sizeof(rel));
	if (form == FORM_BEHIND) {
		ret->landing = SYSCALL_LEN;
		ret->landing_to = entry_addr(z, i) + t.behind;
	} else if (form == FORM_BOTH) {
		ret->landing_to = entry_addr(z, i) + t.prev_len;
	}
	return 0;
}

static struct zone *zone_of(struct patcher *p, u64 addr)
{
	if (addr - p->high.base < p->high.size)
		return &p->high;
	return addr - p->low.base < p->low.size ? &p->low : NULL;
}

void patch_forget(struct patcher *p, u64 entry)
{
	struct zone *z = zone_of(p, entry);
	u32 i;

	ASSERT(z);
	i = (u32)((entry - z->base) / ENTRY_SIZE);
	MUTEX_GUARD(&p->lock);
	ASSERT(atomic_load_explicit(&z->tramps[i].syscall, memory_order_relaxed));
	atomic_store_explicit(&z->tramps[i].syscall, 0, memory_order_release);
	if (i >= z->split)
		return; /* take_entry() looks for it */
	z->tramps[i].next_free = z->free;
	z->free = i;
}

/* ---- what is shown ---- */

u64 patch_show(struct patcher *p, u64 rip)
{
	struct zone *z;
	const struct tramp *t;
	u64 syscall, offset;

	if (!p)
		return rip;
	z = zone_of(p, rip);
	if (!z)
		return rip;
	t = &z->tramps[(rip - z->base) / ENTRY_SIZE];
	offset = (rip - z->base) % ENTRY_SIZE;
	syscall = atomic_load_explicit(&t->syscall, memory_order_acquire);
	if (!syscall)
		return rip;
	if (offset == 0)
		return syscall - t->prev_len;
	if (t->behind && offset >= t->behind)
		return syscall + SYSCALL_LEN + MIN(offset - t->behind, t->behind_len);
	return syscall;
}
