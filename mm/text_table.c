#include "mm/text_table.h"
#include "mm/mm_impl.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ARENA_SIZE (1UL << 30)
#define ARENA_RANDOM (ARENA_SIZE / 4)
/* Larger images take part in nothing. */
#define IMAGE_MAX (256UL << 20)

_Static_assert(TEXT_CHUNKS_MAX == MM_TEXT_CHUNKS, "an mm has a bit for each");

struct image_place {
	struct list node;  /* bucket */
	struct list order; /* oldest first */
	struct file_id id;
	u64 addr, len;
};

int text_new(struct platform *platform, struct pgalloc *memory, struct text **ret)
{
	struct text *t;
	u64 start, random = 0;

	*ret = NULL;
	if (!platform_patcher(platform))
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->patcher = platform_patcher(platform);
	t->memory = memory;
	t->memfile = pgalloc_file(memory);
	t->next_owner = 1;
	mutex_init(&t->lock, RANK_TEXT, "text");
	for (size_t i = 0; i < TEXT_BUCKETS; i++) {
		list_init(&t->chunks[i]);
		list_init(&t->places[i]);
	}
	list_init(&t->dropped);
	list_init(&t->place_order);
	patch_reach(t->patcher, &start, &t->arena_end);
	t->arena_start = MAX(start, t->arena_end - ARENA_SIZE);
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = 0;
	t->arena_next = t->arena_end - page_down(random % ARENA_RANDOM) - PAGE_SIZE;
	*ret = t;
	return 0;
}

static void chunk_free(struct text *t, struct chunk *c)
{
	if (c->patched && !c->empty)
		memfile_put(t->memfile, c->range);
	free(c->edits);
	free(c);
}

void text_free(struct text *t)
{
	struct image_place *p, *next;

	if (!t)
		return;
	for (size_t i = 0; i < TEXT_CHUNKS_MAX; i++)
		if (t->slots[i])
			chunk_free(t, t->slots[i]);
	list_for_each_safe (p, next, &t->place_order, order)
		free(p);
	mutex_destroy(&t->lock);
	free(t);
}

struct file_id text_identify(struct mappable *m)
{
	struct file_id id;

	m->ops->identify(m, &id.major, &id.minor, &id.ino);
	return id;
}

static bool same_file(const struct file_id *a, const struct file_id *b)
{
	return a->ino == b->ino && a->major == b->major && a->minor == b->minor;
}

static size_t bucket(const struct file_id *id, u64 offset)
{
	return (id->ino * 31 + id->minor * 7 + offset / TEXT_CHUNK) % TEXT_BUCKETS;
}

/* ---- places ---- */

u64 text_arena_start(const struct text *t)
{
	return t->arena_start;
}

static bool is_image(struct mappable *m)
{
	Elf64_Ehdr eh;

	return text_read(m, 0, &eh, sizeof(eh)) == 0 && memcmp(eh.e_ident, ELFMAG, SELFMAG) == 0 &&
	       eh.e_type == ET_DYN;
}

static void forget_oldest_place(struct text *t)
{
	struct image_place *p = list_first(&t->place_order, struct image_place, order);

	list_del(&p->order);
	list_del(&p->node);
	free(p);
	t->place_count--;
}

/* The address in the arena of an image of len bytes; 0: none. */
static u64 place_locked(struct text *t, const struct file_id *id, u64 len)
{
	struct list *b = &t->places[bucket(id, 0)];
	struct image_place *p;

	list_for_each (p, b, node)
		if (same_file(&p->id, id) && p->len == len)
			return p->addr;
	p = malloc(sizeof(*p));
	if (!p)
		return 0;
	if (t->place_count >= TEXT_PLACES_MAX)
		forget_oldest_place(t);
	/* Round again when it is full: an address that is taken is not used. */
	if (t->arena_next - t->arena_start < len + PAGE_SIZE)
		t->arena_next = t->arena_end - PAGE_SIZE;
	t->arena_next -= len;
	*p = (struct image_place){ .id = *id, .addr = t->arena_next, .len = len };
	t->arena_next -= PAGE_SIZE; /* a gap, so that images never touch */
	list_push_back(b, &p->node);
	list_push_back(&t->place_order, &p->order);
	t->place_count++;
	return p->addr;
}

u64 text_place(struct text *t, struct mappable *m, u64 len)
{
	struct file_id id;

	if (len > IMAGE_MAX || !m->ops->identify || !is_image(m))
		return 0;
	id = text_identify(m);
	MUTEX_GUARD(&t->lock);
	return place_locked(t, &id, len);
}

/* ---- chunks ---- */

struct chunk *chunk_find(struct text *t, const struct file_id *id, u64 offset, u64 bias, u64 owner)
{
	struct chunk *c;

	list_for_each (c, &t->chunks[bucket(id, offset)], node)
		if (c->offset == offset && c->bias == bias && c->owner == owner &&
		    same_file(&c->id, id))
			return c;
	return NULL;
}

struct chunk *chunk_patched(struct text *t, const struct file_id *id, u64 offset, u64 bias,
			    u64 owner)
{
	struct chunk *c = owner ? chunk_find(t, id, offset, bias, owner) : NULL;

	if (!c || !c->patched)
		c = chunk_find(t, id, offset, bias, 0);
	return c && c->patched ? c : NULL;
}

static bool holds(const struct chunk *c, u64 mem)
{
	return c->patched && !c->empty && c->range.start <= mem && mem < c->range.end;
}

struct chunk *chunk_at(struct text *t, const struct file_id *id, u64 offset, u64 mem)
{
	struct chunk *c;

	list_for_each (c, &t->chunks[bucket(id, offset)], node)
		if (holds(c, mem))
			return c;
	list_for_each (c, &t->dropped, node)
		if (holds(c, mem))
			return c;
	return NULL;
}

/* Not in a list, without users. */
static void release(struct text *t, struct chunk *c)
{
	for (size_t i = 0; i < c->edit_count; i++)
		if (!c->edits[i].inherited)
			patch_forget(t->patcher, c->edits[i].entry);
	t->slots[c->slot] = NULL;
	t->chunk_count--;
	if (c->parent)
		chunk_user_gone(t, c->parent);
	chunk_free(t, c);
}

void chunk_user_gone(struct text *t, struct chunk *c)
{
	ASSERT(c->users > 0);
	if (--c->users || !c->dropped)
		return;
	list_del(&c->node);
	release(t, c);
}

/* Memory of dropped chunks that nobody maps any more. */
static void empty_dropped(struct text *t)
{
	struct chunk *c;

	list_for_each (c, &t->dropped, node) {
		if (c->empty || !c->patched || !pgalloc_exclusive(t->memory, c->range))
			continue;
		memfile_put(t->memfile, c->range);
		c->empty = true;
	}
}

void chunk_drop(struct text *t, struct chunk *c)
{
	list_del(&c->node);
	if (!c->users) {
		release(t, c);
		return;
	}
	c->dropped = true;
	list_push_back(&t->dropped, &c->node);
	empty_dropped(t);
}

/* Drops what nobody maps, so that there is room for one more. */
static void evict(struct text *t)
{
	struct chunk *c, *next;

	for (size_t i = 0; i < TEXT_BUCKETS && t->chunk_count >= TEXT_CHUNKS_MAX; i++)
		list_for_each_safe (c, next, &t->chunks[i], node)
			if (!c->patched || pgalloc_exclusive(t->memory, c->range))
				chunk_drop(t, c);
}

struct chunk *chunk_get(struct text *t, const struct file_id *id, u64 offset, u64 bias, u64 owner)
{
	struct chunk *c = chunk_find(t, id, offset, bias, owner);
	u32 slot = 0;

	if (c)
		return c;
	evict(t);
	c = t->chunk_count < TEXT_CHUNKS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c)
		return NULL;
	while (t->slots[slot])
		slot++;
	t->slots[slot] = c;
	c->slot = slot;
	c->id = *id;
	c->offset = offset;
	c->bias = bias;
	c->owner = owner;
	list_push_back(&t->chunks[bucket(id, offset)], &c->node);
	t->chunk_count++;
	return c;
}

/* ---- users ---- */

void chunk_use(struct mm *mm, struct chunk *c)
{
	u64 *word = &mm->text_used[c->slot / 64], bit = 1UL << c->slot % 64;

	if (*word & bit)
		return;
	*word |= bit;
	c->users++;
	mm->text_user = true;
}

/* Ends the uses of chunks that mm does not map; of all when it maps nothing. */
static void end_uses(struct mm *mm, bool all)
{
	struct text *t = mm->text;

	for (u32 slot = 0; slot < TEXT_CHUNKS_MAX; slot++) {
		struct chunk *c = t->slots[slot];
		u64 *word = &mm->text_used[slot / 64], bit = 1UL << slot % 64;

		if (!(*word & bit) || !(all || (c->dropped && c->empty)))
			continue;
		*word &= ~bit;
		chunk_user_gone(t, c);
	}
}

void text_table_outside(struct mm *mm)
{
	struct text *t = mm->text;

	MUTEX_GUARD(&t->lock);
	if (list_empty(&t->dropped))
		return;
	empty_dropped(t);
	end_uses(mm, false);
}

void text_table_leave(struct mm *mm)
{
	struct text *t = mm->text;
	struct chunk *c, *next;

	if (!mm->text_user && !mm->text_private)
		return;
	MUTEX_GUARD(&t->lock);
	for (size_t i = 0; mm->text_private && i < TEXT_BUCKETS; i++)
		list_for_each_safe (c, next, &t->chunks[i], node)
			if (c->owner == mm->text_owner)
				chunk_drop(t, c);
	end_uses(mm, true);
}
