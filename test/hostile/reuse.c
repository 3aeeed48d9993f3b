/* Memory that changes hands: a thread keeps writing to it, nobody else may ever see that. */
#include "test/hostile/lib/hostile.h"
#include <pthread.h>
#include <sched.h>

#define PAGE 4096UL
#define PAGES 16UL
#define SIZE (PAGES * PAGE)
#define MARK 0xbadc0ffee0ddf00dUL
#define CHECKERS 2
#define RUN_MS (full() ? 10000 : 900)

static _Atomic int *over;

/* ---- the others: take pages, expect zeros, keep a pattern, give them back ---- */

static void check_words(const uint64_t *m, uint64_t expected, const char *what)
{
	for (size_t i = 0; i < SIZE / 8; i++)
		if (m[i] != expected)
			breach("%s holds %#lx instead of %#lx", what, (unsigned long)m[i],
			       (unsigned long)expected);
}

static void checker(void *arg)
{
	uint64_t mine = 0x5a00000000000000 | (uint64_t)getpid();
	char path[64];
	uint64_t *buf = malloc(SIZE);
	int fd;

	snprintf(path, sizeof(path), "/tmp/checker.%d", getpid());
	while (!*over) {
		uint64_t *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);

		if (m == MAP_FAILED)
			continue;
		m[0] = 0;
		check_words(m, 0, "fresh memory");
		for (size_t i = 0; i < SIZE / 8; i++)
			m[i] = mine;
		for (int i = 0; i < 3; i++) {
			sched_yield();
			check_words(m, mine, "memory of another process");
		}
		fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
		if (fd >= 0 && write(fd, m, SIZE) == (ssize_t)SIZE) {
			sched_yield();
			if (pread(fd, buf, SIZE, 0) == (ssize_t)SIZE)
				check_words(buf, mine, "a file");
		}
		close(fd);
		munmap(m, SIZE);
	}
}

/* ---- the writers ---- */

static uint64_t *volatile place;

static void *writer(void *arg)
{
	catch_setup();
	while (!*over) {
		CATCH({
			for (;;)
				for (size_t i = 0; i < PAGES; i++)
					((volatile uint64_t *)place)[i * PAGE / 8 + i] = MARK;
		});
	}
	return NULL;
}

static void with_writer(void (*give_away)(void))
{
	pthread_t t;
	uint64_t end = now_ms() + RUN_MS;

	catch_setup();
	place = (uint64_t *)0x200000000;
	pthread_create(&t, NULL, writer, NULL);
	while (now_ms() < end)
		give_away();
	syscall(SYS_exit_group, 0);
}

static void attackers(void (*give_away)(void))
{
	pid_t pid[CHECKERS];

	over = shared_memory(PAGE);
	for (int i = 0; i < CHECKERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			checker(NULL);
			_exit(0);
		}
	}
	if (fork() == 0)
		with_writer(give_away);
	wait(NULL);
	*over = 1;
	while (wait(NULL) > 0)
		;
}

static void map_here(int flags, int fd)
{
	if (mmap(place, SIZE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
		return;
	CATCH(for (size_t i = 0; i < SIZE / 8; i += PAGE / 8) place[i] = MARK;);
}

static void give_munmap(void)
{
	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	munmap(place, SIZE);
}
ATTACK(write_after_munmap)
{
	attackers(give_munmap);
}

/* The mprotect that munmap leaves to the guest is undone by the writer, or never made. */
static void *undo(void *arg)
{
	while (!*over)
		stub_call(SYS_mprotect, (uint64_t)place, SIZE, PROT_READ | PROT_WRITE);
	return NULL;
}

static void give_munmap_undone(void)
{
	static pthread_t t;

	if (!t)
		pthread_create(&t, NULL, undo, NULL);
	give_munmap();
}
ATTACK(write_after_munmap_undone)
{
	attackers(give_munmap_undone);
}

static void *refuse(void *arg)
{
	while (!*over)
		for (uint64_t s = 0; s < 4; s++)
			CATCH(*(volatile uint32_t *)(STUB_SLOTS + s * STUB_SLOT_SIZE + 0xb8) = 0;);
	return NULL;
}

static void give_munmap_refused(void)
{
	static pthread_t t;

	if (!t)
		pthread_create(&t, NULL, refuse, NULL);
	for (int i = 0; i < 100; i++)
		give_munmap();
	/* More than is kept: it is freed. */
	munmap(mmap(NULL, 128UL << 20, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0),
	       128UL << 20);
}
ATTACK(write_after_munmap_refused)
{
	attackers(give_munmap_refused);
}

static void give_dontneed(void)
{
	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	madvise(place, SIZE, MADV_DONTNEED);
}
ATTACK(write_after_dontneed)
{
	attackers(give_dontneed);
}

static void give_mremap(void)
{
	void *m;

	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	m = mremap(place, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)place + 64 * PAGE);
	if (m != MAP_FAILED)
		munmap(m, SIZE);
}
ATTACK(write_after_mremap)
{
	attackers(give_mremap);
}

static void give_replace(void)
{
	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map_here(MAP_SHARED | MAP_ANONYMOUS, -1);
}
ATTACK(write_after_replacing)
{
	attackers(give_replace);
}

static void give_truncate(void)
{
	int fd = memfd_create("m", 0);

	if (fd < 0 || ftruncate(fd, SIZE) < 0)
		return;
	map_here(MAP_SHARED, fd);
	if (ftruncate(fd, 0) < 0 || fallocate(fd, 0, 0, SIZE) < 0)
		breach("ftruncate: %s", strerror(errno));
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE);
	close(fd);
}
ATTACK(write_after_truncate)
{
	attackers(give_truncate);
}

static void give_file(void)
{
	int fd = open("/tmp/reuse-file", O_CREAT | O_RDWR, 0600);

	if (fd < 0 || ftruncate(fd, SIZE) < 0)
		return;
	map_here(MAP_SHARED, fd);
	map_here(MAP_PRIVATE, fd);
	unlink("/tmp/reuse-file");
	if (ftruncate(fd, PAGE) < 0)
		return;
	close(fd);
}
ATTACK(write_after_unlink)
{
	attackers(give_file);
}

/* A writer dies, or execs, with its hands in the memory. */
static void short_life(void *arg)
{
	pthread_t t;

	catch_setup();
	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	pthread_create(&t, NULL, writer, NULL);
	for (volatile int i = 0; i < 20000; i++)
		;
	if (arg)
		execl("/bin/true", "true", NULL);
}

static void give_exit(void)
{
	in_child(short_life, NULL, 5000, NULL);
}
ATTACK(write_while_exiting)
{
	attackers(give_exit);
}

static void give_exec(void)
{
	in_child(short_life, (void *)1, 5000, NULL);
}
ATTACK(write_while_executing)
{
	attackers(give_exec);
}

/* ---- fork: the two sides' memory parts at the moment of the fork ---- */

struct counter {
	_Atomic uint64_t words[PAGES][PAGE / 8];
};
static struct counter *counter;
static volatile int counting = 1;

static void *count_up(void *arg)
{
	for (uint64_t n = 1; counting; n++)
		for (size_t i = 0; i < PAGES; i++)
			counter->words[i][(uintptr_t)arg] = n;
	return NULL;
}

static void snapshot_must_hold(void)
{
	static uint64_t first[PAGES];

	for (size_t i = 0; i < PAGES; i++)
		first[i] = counter->words[i][0];
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < PAGES; i++)
			if (counter->words[i][0] != first[i])
				breach("the parent writes to the child's memory: %lu, then %lu",
				       (unsigned long)first[i],
				       (unsigned long)counter->words[i][0]);
		if (round == 10)
			for (size_t i = 0; i < PAGES; i++)
				counter->words[i][0] = first[i] = MARK;
		sched_yield();
	}
}

ATTACK(write_after_fork)
{
	uint64_t end = now_ms() + 2 * RUN_MS, last = 0;
	pthread_t t;

	counter = mmap(NULL, sizeof(*counter), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	pthread_create(&t, NULL, count_up, NULL);
	while (now_ms() < end) {
		pid_t pid = fork();

		if (pid == 0) {
			snapshot_must_hold();
			syscall(SYS_exit_group, 0);
		}
		for (size_t i = 0; i < PAGES; i++) {
			uint64_t v = counter->words[i][0];

			if (v == MARK || v + 1 < last)
				breach("the child writes to the parent's memory");
			last = v > last ? v : last;
		}
		last = counter->words[0][0];
		waitpid(pid, NULL, 0);
	}
	counting = 0;
	pthread_join(t, NULL);
}

/*
 * A parent with much memory goes on in another stub after fork. One that pretends to call fork, by
 * its context page, and runs on, must have ended where it was before the child sees its memory.
 */
#define FORGED_SIZE (64UL << 20)

static char forged_stack[65536] __attribute__((aligned(64)));

__attribute__((used)) static void forged_returns(long pid)
{
	if (pid == 0)
		snapshot_must_hold();
	else
		waitpid((pid_t)pid, NULL, 0);
	syscall(SYS_exit_group, 0);
}

__asm__(".text\n"
	"forged_return:\n"
	"	mov %rax, %rdi\n"
	"	call forged_returns\n"
	"	hlt\n");
extern char forged_return[];

static void forge_fork(void *arg)
{
	volatile uint32_t *word;
	uint64_t *slot;
	char *heap =
		mmap(NULL, FORGED_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	counter = (struct counter *)heap;
	for (size_t i = 0; i < FORGED_SIZE; i += PAGE)
		heap[i] = 1;
	__asm__ volatile("rdgsbase %0" : "=r"(slot));
	/* The sentry spins for who calls often. */
	for (int i = 0; i < 300; i++)
		syscall(SYS_getpgid, 0);
	slot[CTX_RAX] = SYS_fork;
	slot[CTX_RIP] = (uint64_t)forged_return;
	slot[CTX_RSP] = (uint64_t)(forged_stack + sizeof(forged_stack));
	word = (volatile uint32_t *)slot;
	word[1] = STOP_CALL;
	__atomic_exchange_n(word, TURN_SENTRY, __ATOMIC_SEQ_CST);
	for (uint64_t n = 1;; n++) {
		/* It is asked for its vector state in between. */
		if ((*word & 0xff) == TURN_STUB && word[1] == RESUME_SAVE) {
			word[1] = STOP_SAVED;
			__atomic_exchange_n(word, TURN_SENTRY, __ATOMIC_SEQ_CST);
		}
		for (size_t i = 0; i < PAGES; i++)
			counter->words[i][0] = n;
	}
}

ATTACK(write_after_forged_fork)
{
	uint64_t end = now_ms() + 2 * RUN_MS;
	static volatile uint64_t gs;

	catch_setup();
	CATCH(__asm__ volatile("rdgsbase %0" : "=r"(gs)));
	if (!gs)
		skip("no context page is at GS");
	while (now_ms() < end)
		in_child(forge_fork, NULL, 3000, NULL);
}

/* The sentry writes for a guest (read(2) into memory that another thread unmaps and others get). */
static int reader_pipe[2];

static void *reader(void *arg)
{
	for (;;)
		if (read(reader_pipe[0], place, SIZE) < 0 && errno != EFAULT)
			return NULL;
}

static void *feeder(void *arg)
{
	static uint64_t text[512];

	for (size_t i = 0; i < 512; i++)
		text[i] = MARK;
	for (;;)
		if (write(reader_pipe[1], text, sizeof(text)) < 0)
			return NULL;
}

static void give_to_reader(void)
{
	static pthread_t r, f;

	if (!r && pipe(reader_pipe) == 0) {
		pthread_create(&r, NULL, reader, NULL);
		pthread_create(&f, NULL, feeder, NULL);
	}
	map_here(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	munmap(place, SIZE);
}
ATTACK(read_into_unmapped)
{
	attackers(give_to_reader);
}

HOSTILE_MAIN
