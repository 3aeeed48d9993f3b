#include "mm/hot.h"
#include "base/lock.h"
#include "base/refs.h"

#include <stdlib.h>
#include <string.h>

#define HOT_FORKS 64

struct hot_set {
	struct refs refs;
	struct mutex lock; /* RANK_LEAF */
	/* protected by lock */
	struct hot_piece pieces[HOT_MAX];
	int count;
};

struct hot_set *hot_new(void)
{
	struct hot_set *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	refs_init(&h->refs, "hot_set");
	mutex_init(&h->lock, RANK_LEAF, "hot set");
	return h;
}

struct hot_set *hot_get(struct hot_set *h)
{
	if (h)
		refs_get(&h->refs);
	return h;
}

void hot_put(struct hot_set *h)
{
	if (!h || !refs_put(&h->refs))
		return;
	mutex_destroy(&h->lock);
	free(h);
}

void hot_note(struct hot_set *h, u64 page, u64 start, u64 end)
{
	if (!h)
		return;
	MUTEX_GUARD(&h->lock);
	for (int i = 0; i < h->count; i++)
		if (h->pieces[i].start <= page && page < h->pieces[i].end)
			return;
	if (h->count < HOT_MAX)
		h->pieces[h->count++] = (struct hot_piece){ .start = start, .end = end };
}

int hot_take(struct hot_set *h, struct hot_piece ret[HOT_MAX])
{
	int count, kept = 0;

	if (!h)
		return 0;
	MUTEX_GUARD(&h->lock);
	count = h->count;
	memcpy(ret, h->pieces, sizeof(h->pieces));
	for (int i = 0; i < count; i++)
		if (++h->pieces[i].forks < HOT_FORKS)
			h->pieces[kept++] = h->pieces[i];
	h->count = kept;
	return count;
}
