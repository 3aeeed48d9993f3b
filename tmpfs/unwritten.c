/* Pages that fallocate(2) has made and nobody has written to or mapped since: to SEEK_DATA and
 * mincore they are a hole, as pages that are not up to date are in Linux's mm/filemap.c. Where
 * memory for the notes is short, pages count as written: a hole that is told as data harms nobody.
 */
#include "tmpfs/internal.h"
#include <stdlib.h>

struct unwritten {
	struct knode node; /* key: file offset */
	u64 end;
};

static struct unwritten *to_unwritten(struct knode *n)
{
	return n ? container_of(n, struct unwritten, node) : NULL;
}

/* The range that holds off or the first one after it. */
static struct unwritten *find(const struct tmpfs_data *d, u64 off)
{
	struct unwritten *u = to_unwritten(ktree_floor(&d->unwritten, off));

	return u && u->end > off ? u : to_unwritten(ktree_ceil(&d->unwritten, off));
}

void unwritten_add(struct tmpfs_data *d, u64 start, u64 end)
{
	struct unwritten *u = start ? find(d, start - 1) : NULL;

	rwlock_assert_write_held(&d->lock);
	if (u && u->end == start) {
		u->end = end;
		return;
	}
	u = malloc(sizeof(*u));
	if (!u)
		return;
	*u = (struct unwritten){ .node.key = start, .end = end };
	ktree_insert(&d->unwritten, &u->node);
}

void unwritten_clear_slow(struct tmpfs_data *d, u64 start, u64 end)
{
	struct unwritten *u;

	rwlock_assert_write_held(&d->lock);
	while ((u = find(d, start)) && u->node.key < end) {
		u64 u_end = u->end;

		if (u->node.key < start) {
			u->end = start;
			if (u_end > end)
				unwritten_add(d, end, u_end);
		} else if (u_end > end) {
			/* Moving the key up inside its own range keeps the order. */
			u->node.key = end;
		} else {
			ktree_remove(&d->unwritten, &u->node);
			free(u);
		}
	}
}

bool unwritten_next(const struct tmpfs_data *d, u64 off, u64 *ret_start, u64 *ret_end)
{
	struct unwritten *u = find(d, off);

	if (!u)
		return false;
	*ret_start = MAX(u->node.key, off);
	*ret_end = u->end;
	return true;
}

void unwritten_free(struct tmpfs_data *d)
{
	struct knode *n;

	while ((n = ktree_pop_any(&d->unwritten)))
		free(to_unwritten(n));
}
