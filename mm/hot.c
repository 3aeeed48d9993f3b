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

/* Where there are too many, the oldest goes: rather what is waited for in vain than what is hot. */
static bool make_room(struct hot_set *h)
{
	int victim = -1;

	if (h->count < PIECES_MAX)
		return true;
	for (int i = 0; i < h->count; i++) {
		const struct hot_piece *p = &h->pieces[i], *v = &h->pieces[MAX(victim, 0)];

		if (p->forks && (victim < 0 || (v->hot && !p->hot) ||
				 (v->hot == p->hot && p->forks > v->forks)))
			victim = i;
	}
	if (victim < 0)
		return false;
	h->count--;
	memmove(&h->pieces[victim], &h->pieces[victim + 1],
		(size_t)(h->count - victim) * sizeof(h->pieces[0]));
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
	if (make_room(h))
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
		h->pieces[kept++] = *p;
	}
	h->count = kept;
	/* The newest first. */
	for (int i = kept - 1; i >= 0 && count < HOT_MAX; i--)
		if (h->pieces[i].hot)
			ret[count++] = h->pieces[i];
	kept = 0;
	for (int i = 0; i < h->count; i++)
		if (age(&h->pieces[i]))
			h->pieces[kept++] = h->pieces[i];
	h->count = kept;
	return count;
}
