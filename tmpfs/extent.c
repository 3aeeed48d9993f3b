#include "tmpfs/internal.h"
#include "base/log.h"
#include <stdlib.h>

static struct extent *to_extent(struct knode *n)
{
	return n ? container_of(n, struct extent, node) : NULL;
}

struct extent *data_extent_find(struct tmpfs_data *d, u64 off)
{
	struct extent *e = to_extent(ktree_floor(&d->extents, off));

	if (e && extent_end(e) > off)
		return e;
	return to_extent(ktree_ceil(&d->extents, off));
}

u64 data_extent_hint(struct tmpfs_data *d, u64 off, bool large)
{
	struct extent *e = off ? to_extent(ktree_floor(&d->extents, off - 1)) : NULL;

	return e && extent_end(e) == off && e->large == large ? e->mem + e->len : 0;
}

int data_extent_insert(struct tmpfs_data *d, u64 off, u64 len, u64 mem, bool large)
{
	struct extent *prev, *next, *e;

	rwlock_assert_write_held(&d->lock);
	prev = off ? to_extent(ktree_floor(&d->extents, off - 1)) : NULL;
	next = to_extent(ktree_ceil(&d->extents, off));
	ASSERT(!prev || extent_end(prev) <= off);
	ASSERT(!next || next->node.key >= off + len);
	if (prev &&
	    (extent_end(prev) != off || prev->mem + prev->len != mem || prev->large != large))
		prev = NULL;
	if (next && (next->node.key != off + len || next->mem != mem + len || next->large != large))
		next = NULL;
	if (prev) {
		prev->len += len;
		if (next) {
			ktree_remove(&d->extents, &next->node);
			prev->len += next->len;
			free(next);
		}
	} else if (next) {
		/* Nothing lies between off and next, so the key may move without moving the node.
		 */
		next->node.key = off;
		next->mem = mem;
		next->len += len;
	} else {
		e = malloc(sizeof(*e));
		if (!e)
			return -ENOMEM;
		*e = (struct extent){ .node.key = off, .len = len, .mem = mem, .large = large };
		ktree_insert(&d->extents, &e->node);
	}
	d->page_count += len >> PAGE_SHIFT;
	return 0;
}

int data_extent_remove(struct tmpfs_data *d, u64 start, u64 end, struct ktree *removed)
{
	struct extent *e = data_extent_find(d, start), *spare;

	rwlock_assert_write_held(&d->lock);
	if (e && e->node.key < start) {
		u64 e_end = extent_end(e);

		spare = malloc(sizeof(*spare));
		if (!spare)
			return -ENOMEM;
		if (e_end > end) {
			struct extent *tail = malloc(sizeof(*tail));

			if (!tail) {
				free(spare);
				return -ENOMEM;
			}
			*tail = (struct extent){ .node.key = end,
						 .len = e_end - end,
						 .mem = e->mem + (end - e->node.key),
						 .large = e->large };
			ktree_insert(&d->extents, &tail->node);
		}
		*spare = (struct extent){ .node.key = start,
					  .len = MIN(e_end, end) - start,
					  .mem = e->mem + (start - e->node.key),
					  .large = e->large };
		e->len = start - e->node.key;
		ktree_insert(removed, &spare->node);
		d->page_count -= spare->len >> PAGE_SHIFT;
		e = to_extent(ktree_ceil(&d->extents, start));
	}
	for (; e && e->node.key < end; e = to_extent(ktree_ceil(&d->extents, start))) {
		if (extent_end(e) > end) {
			u64 cut = end - e->node.key;

			spare = malloc(sizeof(*spare));
			if (!spare)
				return -ENOMEM;
			*spare = (struct extent){ .node.key = e->node.key,
						  .len = cut,
						  .mem = e->mem,
						  .large = e->large };
			/* Moving the key up inside its own range keeps the order. */
			e->node.key += cut;
			e->mem += cut;
			e->len -= cut;
			e = spare;
		} else {
			ktree_remove(&d->extents, &e->node);
		}
		ktree_insert(removed, &e->node);
		d->page_count -= e->len >> PAGE_SHIFT;
	}
	return 0;
}

void data_extents_release(struct tmpfs_data *d, struct ktree *removed)
{
	struct tmpfs_sb *s = data_sb(d);
	struct knode *n;

	while ((n = ktree_pop_any(removed))) {
		struct extent *e = to_extent(n);

		memfile_put(sb_memory(s, e->large), (struct mem_range){ e->mem, e->mem + e->len });
		data_uncharge(d, e->len >> PAGE_SHIFT);
		free(e);
	}
}
