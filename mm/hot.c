#include "mm/hot.h"
#include "base/lock.h"
#include "base/refs.h"

#include <stdlib.h>
#include <string.h>

/* Hot for so many forks, and twice as many each time that it turns out to be still. */
#define HOT_FORKS 24
#define HOT_FORKS_MAX 384
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

static void heat(struct hot_piece *p)
{
	p->span = p->span ? MIN(p->span * 2, HOT_FORKS_MAX) : HOT_FORKS;
	p->forks = 0;
	p->hot = true;
}

/* Another fork. False: it does not count any more. */
static bool age(struct hot_piece *p)
{
	if (++p->forks < (p->hot ? p->span : NOTED_FORKS))
		return true;
	if (!p->hot)
		return false;
	/* It does without once: one note is enough then. */
	p->hot = false;
	p->forks = 1;
	return true;
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
		if (!away)
			heat(p);
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
	if (confirmed && !spared)
		heat(p);
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
		if (age(p))
			h->pieces[kept++] = *p;
	}
	h->count = kept;
	return count;
}
