#include "platform/arch/x86_64/flags.h"

#define STATUS                                                                                     \
	(ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF |               \
	 ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF)
#define SYSCALL_LEN 2
/* Instructions in all, and branches that are followed to both sides on one path. */
#define STEPS_MAX 64
#define DEPTH_MAX 4

struct scan {
	const ZydisDecoder *decoder;
	const struct patch_site *site;
	unsigned int steps;
};

/* Flags that have a new value behind the instruction, whatever its operands are. */
static ZydisAccessedFlagsMask written(const ZydisDecodedInstruction *insn)
{
	const ZydisAccessedFlags *f = insn->cpu_flags;

	/* A count of 0 leaves them alone. */
	if (!f || insn->meta.category == ZYDIS_CATEGORY_SHIFT ||
	    insn->meta.category == ZYDIS_CATEGORY_ROTATE ||
	    (insn->attributes &
	     (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)))
		return 0;
	return f->modified | f->set_0 | f->set_1 | f->undefined;
}

/* Where the branch, whose end is at `end`, goes to. False: that is not in its bytes. */
static bool target(const ZydisDecodedInstruction *insn, s64 end, s64 *ret)
{
	if (!(insn->attributes & ZYDIS_ATTRIB_IS_RELATIVE) || !insn->raw.imm[0].size)
		return false;
	*ret = end + insn->raw.imm[0].value.s;
	return true;
}

/* at: relative to `syscall`; live: the flags that still are those before the call. */
static bool reads(struct scan *s, s64 at, ZydisAccessedFlagsMask live, unsigned int depth)
{
	const struct patch_site *site = s->site;
	ZydisDecodedInstruction insn;
	s64 to;

	while (live && s->steps++ < STEPS_MAX) {
		if (at < -(s64)site->before || at >= (s64)site->size ||
		    !ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(s->decoder, NULL, site->code + at,
								site->size - (size_t)at, &insn)))
			return false;
		at += insn.length;
		/* Linux keeps them; what the instruction does to them comes to nothing. */
		if (insn.meta.category == ZYDIS_CATEGORY_SYSCALL)
			continue;
		if (insn.cpu_flags && (insn.cpu_flags->tested & live))
			return true;
		live &= ~written(&insn);
		switch (insn.meta.category) {
		case ZYDIS_CATEGORY_CALL:
		case ZYDIS_CATEGORY_RET:
		case ZYDIS_CATEGORY_SYSRET:
		case ZYDIS_CATEGORY_INTERRUPT: return false;
		case ZYDIS_CATEGORY_UNCOND_BR:
			if (!target(&insn, at, &at))
				return false;
			break;
		case ZYDIS_CATEGORY_COND_BR:
			if (depth < DEPTH_MAX && target(&insn, at, &to) &&
			    reads(s, to, live, depth + 1))
				return true;
			break;
		default: break;
		}
	}
	return false;
}

bool flags_are_read(const ZydisDecoder *decoder, const struct patch_site *site)
{
	struct scan s = { .decoder = decoder, .site = site };

	return reads(&s, SYSCALL_LEN, STATUS, 0);
}
