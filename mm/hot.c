#include "mm/hot.h"
#include "base/lock.h"
#include "base/refs.h"

#include <stdlib.h>
#include <string.h>

#define HOT_FORKS 24
/* How long a second note is waited for. */
#define NOTED_FORKS 8
#define PIECES_MAX (2 * HOT_MAX)

struct hot_set {
	struct refs refs;
	struct mutex lock; /* RANK_LEAF */
	/* protected by lock */
	struct hot_piece pieces[PIECES_MAX];
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

void hot_note(struct hot_set *h, u64 page, u64 start, u64 end, bool away)
{
	if (!h)
		return;
	MUTEX_GUARD(&h->lock);
	for (int i = 0; i < h->count; i++) {
		struct hot_piece *p = &h->pieces[i];

		if (page < p->start || page >= p->end)
			continue;
		if (p->hot || !p->forks)
			return;
		p->away = away;
		p->hot = !away;
		p->forks = away ? p->forks : 0;
		return;
	}
	if (h->count < PIECES_MAX)
		h->pieces[h->count++] =
			(struct hot_piece){ .start = start, .end = end, .away = away };
}

/* What was noted by a parent that was away counts now, or never. False: forget p. */
static bool settle_away(struct hot_piece *p, bool spared)
{
	bool confirmed = p->away && p->forks;

	if (p->away && !p->forks && spared)
		return false;
	p->away = false;
	if (confirmed && !spared) {
		p->hot = true;
		p->forks = 0;
	}
	return true;
}

int hot_take(struct hot_set *h, bool spared, struct hot_piece ret[HOT_MAX])
{
	int count = 0, kept = 0;

	if (!h)
		return 0;
	MUTEX_GUARD(&h->lock);
	for (int i = 0; i < h->count; i++) {
		struct hot_piece *p = &h->pieces[i];

		if (!settle_away(p, spared))
			continue;
		if (p->hot && count < HOT_MAX)
			ret[count++] = *p;
		if (++p->forks < (p->hot ? HOT_FORKS : NOTED_FORKS))
			h->pieces[kept++] = *p;
	}
	h->count = kept;
	return count;
}
