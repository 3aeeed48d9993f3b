/*
 * test/random/memory/shadow.h: what the memory program expects of each page of a
 * process's arena, and checks, stores and calls that keep it true.
 *
 * A process sets `me` to its player, calls shadow_set_up() once before the first, and
 * then plays: check_page, write_page, pass_page, and the calls of calls.c.
 */
#ifndef MINISENTRY_TEST_RANDOM_SHADOW_H
#define MINISENTRY_TEST_RANDOM_SHADOW_H

#include "test/random/lib/random.h"
#include <pthread.h>

#define ARENA 0x10000000000UL
#define PAGES 256UL
#define HALF (PAGE / 2)
#define OBJECTS 6
#define MEMFDS 4 /* the first objects; the others are shared anonymous memory */
#define OBJECT_PAGES 64UL

enum kind { ANON, SHARED, PRIVATE };

struct page {
	uint32_t run; /* 0: not mapped */
	uint8_t kind, prot;
	bool dontfork, wipe;
	bool own;  /* PRIVATE: written, no longer the object's content */
	bool lazy; /* MADV_FREE: its old content or zeros, until the next store */
	uint16_t object, object_page;
	uint32_t value[2];
};

struct object {
	pthread_mutex_t lock;
	uint32_t value[OBJECT_PAGES][2];
};

struct shared {
	_Atomic uint64_t claimed;
	_Atomic int live;
	uint64_t ops;
	int most_live;
	struct object object[OBJECTS];
};

/* A thread that plays in pages [first, first + count). */
struct player {
	struct random_stream rs;
	size_t first, count;
	unsigned generation;
	bool threaded; /* others play elsewhere in the arena */
	int pipe[2];
};

extern struct shared *shared;
extern struct page shadow[PAGES];
extern __thread struct player *me;

/* shared, the objects with their locks, and the handler of faults. */
void shadow_set_up(const struct random_options *o);
/* Every object as it must be: all of their memory is there. */
void shadow_fill_objects(void);
char *at(size_t page);
/* Its content, or that a load is refused. */
void check_page(size_t page);
void check_all(void); /* of the player's part */
void write_page(size_t page);
/* The kernel reads the page. */
void pass_page(size_t page);

struct range {
	size_t first, count;
};

/* Pages of the player's part, 1 to most. */
struct range pick(size_t most);
/* What ends here and what begins here may be two vmas from now on. */
void cut(size_t page);
void cut_range(struct range r);
/* The part of one vma that begins with the range. */
struct range in_one_run(struct range r);
bool unmapped(size_t first, size_t count);
void forget(size_t first, size_t count);
/* Pages as `like` would be when mapped anew, its object's pages going on. */
void set_fresh(struct range r, struct page like);
/* The object that decides what the page shows, locked; NULL: the page's own numbers do. */
struct object *lock_object(const struct page *p);
void unlock_object(struct object *o);
/* The next number for page.run. */
uint32_t new_run(void);

/* An object's descriptor (-1: shared anonymous memory) and where the first process has it mapped.
 */
int object_descriptor(size_t object);
char *object_memory(size_t object);

/* ---- calls.c: one call each, and what it does to the shadow ---- */

void op_map(void);
void op_unmap(void);
void op_protect(void);
void op_advise(void);
void op_populate(void);
void op_remove(void);
void op_remap(void);

#endif
