/*
 * Random memory operations of many processes against shadow copies.
 *
 * Each process plays in an arena of its own and keeps a shadow of each page: how it is mapped
 * and a number for each half, from which its words follow (0: zeros). Some pages map objects
 * (memfds and shared anonymous memory) that all processes share: their numbers are in shared
 * memory, under a lock for each object. A fork's child goes on with the arena and the shadow
 * as they were; a process also plays with threads, each in a part of the arena. What nobody
 * did must not show, and when all processes are gone so is their memory.
 *
 * Where Linux's answer depends on how it merged vmas, nothing is asked: pages with the same
 * `run` are certainly in one vma.
 */
#include "test/random/memory/shadow.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define MAX_GENERATION 24
#define CLAIM 64 /* operations that a process claims at a time */

static _Noreturn void play_process(void);

/* ---- processes and threads ---- */

static void open_pipe(struct player *p)
{
	EXPECT_EQ(&p->rs, pipe2(p->pipe, O_CLOEXEC), 0);
}

/* The calling process is a player from now on. */
static void begin(struct player *p, uint64_t seed)
{
	me = p;
	random_seed(&p->rs, seed, (unsigned)getpid());
	open_pipe(p);
}

static _Noreturn void go_on_as_child(struct player p, uint64_t seed)
{
	struct player child = { .count = PAGES, .generation = p.generation + 1 };

	close(p.pipe[0]);
	close(p.pipe[1]);
	begin(&child, seed);
	child.rs.doing = "after fork";
	/* The others were in the middle of something in their parts. */
	EXPECT_EQ(&child.rs, munmap(at(0), p.first * PAGE) == 0 || !p.first, true);
	forget(0, p.first);
	if (p.first + p.count < PAGES) {
		size_t end = p.first + p.count;

		EXPECT_EQ(&child.rs, munmap(at(end), (PAGES - end) * PAGE), 0);
		forget(end, PAGES - end);
	}
	for (size_t i = 0; i < PAGES; i++) {
		if (shadow[i].dontfork)
			forget(i, 1);
		if (shadow[i].wipe) {
			shadow[i].value[0] = shadow[i].value[1] = 0;
			shadow[i].lazy = false;
		}
	}
	if (!random_below(&child.rs, 4))
		check_all();
	play_process();
}

static void op_fork(void)
{
	uint64_t seed = random_below(&me->rs, UINT64_MAX);
	pid_t pid;

	me->rs.doing = "fork";
	if (me->generation == MAX_GENERATION)
		return;
	if (shared->live++ >= shared->most_live) {
		shared->live--;
		return;
	}
	pid = fork();
	EXPECT(&me->rs, pid >= 0);
	if (pid == 0)
		go_on_as_child(*me, seed);
}

/* The child writes to its parent's memory. */
static __attribute__((noinline)) void op_vfork(void)
{
	size_t page = pick(1).first;
	int status = 0;
	pid_t pid;

	me->rs.doing = "vfork";
	pid = vfork();
	if (pid == 0) {
		check_page(page);
		write_page(page);
		_exit(0);
	}
	EXPECT(&me->rs, pid > 0);
	EXPECT_EQ(&me->rs, waitpid(pid, &status, 0), pid);
	EXPECT_EQ(&me->rs, status, 0);
	check_page(page);
}

static void one_operation(void)
{
	uint64_t op = random_below(&me->rs, 1000);
	struct range r;

	me->rs.op++;
	if (op < 400) {
		r = pick(random_below(&me->rs, 8) ? 2 : 40);
		for (size_t i = r.first; i < r.first + r.count; i++)
			write_page(i);
	} else if (op < 640) {
		r = pick(random_below(&me->rs, 8) ? 2 : 40);
		for (size_t i = r.first; i < r.first + r.count; i++)
			check_page(i);
	} else if (op < 700) {
		pass_page(pick(1).first);
	} else if (op < 770) {
		op_map();
	} else if (op < 800) {
		op_unmap();
	} else if (op < 850) {
		op_protect();
	} else if (op < 900) {
		op_advise();
	} else if (op < 910) {
		op_populate();
	} else if (op < 920) {
		op_remove();
	} else if (op < 980) {
		op_remap();
	} else if (op < 996) {
		op_fork();
	} else {
		op_vfork();
	}
}

static void *play_thread(void *arg)
{
	uint64_t n;

	me = arg;
	n = 16 + random_below(&me->rs, 64);
	open_pipe(me);
	for (uint64_t i = 0; i < n && !*random_stop; i++)
		one_operation();
	shared->claimed += n;
	check_all();
	close(me->pipe[0]);
	close(me->pipe[1]);
	return NULL;
}

static void op_threads(void)
{
	struct player part[THREADS], *self = me;
	pthread_t thread[THREADS];

	me->rs.doing = "threads";
	for (size_t i = 0; i < THREADS; i++) {
		part[i] = (struct player){ .first = i * (PAGES / THREADS),
					   .count = PAGES / THREADS,
					   .generation = me->generation };
		cut(part[i].first);
		random_seed(&part[i].rs, random_below(&me->rs, UINT64_MAX), me->rs.process);
	}
	for (size_t i = 1; i < THREADS; i++)
		EXPECT_EQ(&me->rs, pthread_create(&thread[i], NULL, play_thread, &part[i]), 0);
	play_thread(&part[0]);
	me = self;
	for (size_t i = 1; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static void reap(void)
{
	int status;

	while (waitpid(-1, &status, WNOHANG) > 0)
		if (status)
			random_fail(&me->rs, "a child ended with status %#x", status);
}

static _Noreturn void play_process(void)
{
	while (!*random_stop && (shared->claimed += CLAIM) < shared->ops + CLAIM) {
		for (unsigned i = 0; i < CLAIM; i++)
			one_operation();
		reap();
		if (!random_below(&me->rs, 8))
			op_threads();
		if (!random_below(&me->rs, 64))
			break;
	}
	check_all();
	shared->live--;
	_exit(0);
}

/* ---- the program ---- */

static void start_process(uint64_t seed)
{
	struct player p = { .count = PAGES };

	shared->live++;
	if (fork() != 0)
		return;
	begin(&p, seed);
	play_process();
}

int main(int argc, char **argv)
{
	struct random_options o = { .seed = 1, .ops = 20000, .processes = 64 };
	uint64_t free_before, seeds = 0;
	int status, bad = 0;

	random_options(argc, argv, "memory", &o);
	shadow_set_up(&o);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	free_before = random_meminfo("MemFree");
	do {
		while (!bad && shared->live < shared->most_live * 3 / 4 &&
		       shared->claimed < shared->ops)
			start_process(o.seed + ++seeds * 0x9e3779b97f4a7c15);
		status = 0;
		if (wait(&status) < 0 && (bad || shared->claimed >= shared->ops))
			break;
		*random_stop |= status != 0;
		bad |= bad ? 0 : status;
	} while (true);
	if (bad) {
		printf("not ok memory: a process ended with status %#x, seed %llu\n", bad,
		       (unsigned long long)o.seed);
		return 1;
	}
	shadow_fill_objects();
	printf("ok memory (%llu operations, %lld kB)\n", (unsigned long long)shared->claimed,
	       (long long)(free_before - random_meminfo("MemFree")));
	return 0;
}
