/*
 * A forked child begins in the stub of an earlier child of the same parent, and a parent comes back
 * to a stub that it left for a fork. Whoever was there before has done what it could to the
 * mappings, or does not leave: the heir has its own memory, with its own rights, and nobody else's.
 */
#include "test/hostile/lib/hostile.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#define PAGE 4096UL
#define PIECES 24
#define PIECE (4 * PAGE)
#define STRIDE (8 * PAGE)
#define BIG (32UL << 20)
#define MARK 0xbadc0ffee0ddf00dUL
#define RUN_MS (full() ? 10000 : 1200)
#define CODE 64 /* where each page has a return instruction */
#define OWN 128 /* what children write is from here on */

/* What a piece is: cow memory, read-only memory, a file's pages, memory that every child writes. */
enum kind { PLAIN, CONSTANT, FROM_FILE, HOT, KINDS };

static char *family;		 /* pieces, and nothing mapped between them */
static uint32_t version[PIECES]; /* of what is in each; the file has them, too */
static char *big;		 /* or NULL */
static int file;

static char *piece(int i)
{
	return family + (size_t)i * STRIDE;
}

#define VERSIONS ((off_t)(PIECES * PIECE)) /* where in the file */

static void change_version(int i)
{
	version[i]++;
	if (pwrite(file, &version[i], sizeof(version[i]),
		   VERSIONS + i * (off_t)sizeof(version[i])) != sizeof(version[i]))
		skip("no file in /tmp");
}

static uint64_t word_of(int i, size_t page)
{
	return ((uint64_t)version[i] << 32 | (uint64_t)(i + 1) << 16 | page) * 0x9e3779b97f4a7c15;
}

static void write_piece(int i)
{
	char *p = piece(i);

	change_version(i);
	if (i % KINDS == FROM_FILE) {
		uint64_t w;

		for (size_t page = 0; page < PIECE / PAGE; page++) {
			off_t at = (off_t)((size_t)i * PIECE + page * PAGE);

			w = word_of(i, page);
			if (pwrite(file, &w, 8, at) != 8 || pwrite(file, "\xc3", 1, at + CODE) != 1)
				skip("no file in /tmp");
		}
		return;
	}
	mprotect(p, PIECE, PROT_READ | PROT_WRITE);
	for (size_t page = 0; page < PIECE / PAGE; page++) {
		*(volatile uint64_t *)(p + page * PAGE) = word_of(i, page);
		p[page * PAGE + CODE] = (char)0xc3;
	}
	if (i % KINDS == CONSTANT)
		mprotect(p, PIECE, PROT_READ);
}

static void map_piece(int i)
{
	bool from_file = i % KINDS == FROM_FILE;

	if (mmap(piece(i), PIECE, from_file ? PROT_READ : PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED | (from_file ? 0 : MAP_ANONYMOUS), from_file ? file : -1,
		 (off_t)(from_file ? (size_t)i * PIECE : 0)) == MAP_FAILED)
		skip("no memory");
	write_piece(i);
}

static void begin_family(bool large)
{
	if (!stub_calls_work())
		skip("no stub code in sight that makes deferred calls");
	file = open("/tmp/heir", O_CREAT | O_RDWR | O_TRUNC, 0600);
	unlink("/tmp/heir");
	if (file < 0 || ftruncate(file, VERSIONS + PAGE) < 0)
		skip("no file in /tmp");
	family = mmap(NULL, PIECES * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(family, PIECES * STRIDE);
	for (int i = 0; i < PIECES; i++)
		map_piece(i);
	if (large) {
		big = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(big, 1, BIG);
	}
}

/* ---- what each member of the family must find ---- */

static void check_rights(const char *who, int i)
{
	char *p = piece(i) + rnd() % (PIECE / PAGE) * PAGE;

	if ((i % KINDS == CONSTANT || i % KINDS == FROM_FILE) &&
	    CATCH(*(volatile char *)(p + OWN) = 1))
		breach("%s can write to piece %d", who, i);
	if (CATCH((void)*(volatile char *)(piece(i) + PIECE + rnd() % 4 * PAGE)))
		breach("%s finds something behind piece %d", who, i);
}

static void check(const char *who, bool rights)
{
	if (pread(file, version, sizeof(version), VERSIONS) != sizeof(version))
		breach("%s cannot read the file", who);
	for (int i = 0; i < PIECES; i++) {
		for (size_t page = 0; page < PIECE / PAGE; page++) {
			uint64_t got = *(volatile uint64_t *)(piece(i) + page * PAGE);

			if (got != word_of(i, page))
				breach("%s: piece %d, page %zu holds %#lx instead of %#lx", who, i,
				       page, (unsigned long)got, (unsigned long)word_of(i, page));
		}
		if (rights)
			check_rights(who, i);
	}
	for (size_t at = 0; big && at < BIG; at += 16 * PAGE)
		if (big[at] != 1)
			breach("%s: another's %#x is in large memory", who, big[at]);
}

static void write_hot(void)
{
	for (int i = HOT; i < PIECES; i += KINDS)
		for (size_t page = 0; page < PIECE / PAGE; page++)
			*(volatile uint64_t *)(piece(i) + page * PAGE + OWN) = (uint64_t)getpid();
}

static void be_heir(void)
{
	check("a child", rnd() % 4 == 0);
	write_hot();
	check("a child that has written", false);
	syscall(SYS_exit_group, 0);
}

/* fn in a child; NULL: an honest one, which must end well. */
static void have_child(void (*fn)(void), bool wait)
{
	uint64_t seed = rnd();
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return;
	if (pid == 0) {
		rnd_seed(seed);
		if (fn)
			fn();
		be_heir();
	}
	if (!wait)
		return;
	while (waitpid(pid, &status, 0) != pid)
		;
	if (!fn && status)
		breach("a child ends with %#x", (unsigned)status);
}

static void end_children(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/* The parent, too, changes what it has. */
static void live_on(void)
{
	int i = (int)(rnd() % PIECES);

	check("the parent", false);
	if (rnd() % 3 == 0) {
		munmap(piece(i), PIECE);
		map_piece(i);
	} else if (i % KINDS != FROM_FILE) {
		write_piece(i);
	}
}

/* ---- children that do what they can to mappings ---- */

static void tamper(void)
{
	for (int i = 0; i < PIECES; i++) {
		char *p = piece(i) + rnd() % 4 * PAGE;
		uint64_t len = (1 + rnd() % 4) * PAGE;

		if (rnd() % 3)
			stub_call(SYS_mprotect, (uint64_t)p, len, rnd() % 8);
		else if (rnd() % 2)
			stub_call(SYS_munmap, (uint64_t)p, len, 0);
	}
}

static void try_to_write(char *p, uint64_t what)
{
	CATCH(*(volatile uint64_t *)p = what);
}

static void write_all(uint64_t what)
{
	for (int i = 0; i < PIECES; i++)
		for (size_t page = 0; page < PIECE / PAGE; page++)
			try_to_write(piece(i) + page * PAGE, what);
	for (size_t at = 0; big && at < BIG; at += BIG / 64)
		try_to_write(big + at, what);
}

static void tamper_and_end(void)
{
	catch_setup();
	write_hot();
	tamper();
	if (rnd() % 2)
		write_all(MARK);
	tamper();
	if (rnd() % 4 == 0)
		raise(SIGKILL);
	syscall(SYS_exit_group, 0);
}

struct reign {
	bool large; /* the parent moves */
	void (*bad)(void);
	bool wait; /* for each of these */
};

static void reign(void *arg)
{
	const struct reign *r = arg;
	uint64_t end = now_ms() + (uint64_t)RUN_MS;

	begin_family(r->large);
	catch_setup();
	for (int i = 0; i < 4; i++)
		have_child(NULL, true);
	while (now_ms() < end) {
		have_child(r->bad, r->wait);
		have_child(NULL, true);
		live_on();
		if (!r->wait && rnd() % 8 == 0)
			end_children();
	}
	end_children();
}

/* The parent must live to its end, or nothing is shown. */
static void in_parent(void (*fn)(void *), void *arg)
{
	int status = in_child_unshared(fn, arg, 40000, NULL);

	if (status)
		breach("the parent ends with %#x", (unsigned)status);
}

static void rule(bool large, void (*bad)(void), bool wait)
{
	in_parent(reign, &(struct reign){ large, bad, wait });
}

ATTACK(mappings_tampered_with)
{
	rule(false, tamper_and_end, true);
}

ATTACK(mappings_tampered_with_by_several)
{
	rule(false, tamper_and_end, false);
}

/* Else the stub's calls are the sentry's. */
static void need_gs(void)
{
	static volatile uint64_t gs;

	catch_setup();
	CATCH(__asm__ volatile("rdgsbase %0" : "=r"(gs)));
	if (!gs)
		skip("no context page is at GS");
}

/* The parent's own, before it moves for a fork and after. */
static void change_own(void *arg)
{
	uint64_t end = now_ms() + (uint64_t)RUN_MS;

	begin_family(true);
	catch_setup();
	while (now_ms() < end) {
		for (int i = 0; i < PIECES; i++)
			if (rnd() % 2)
				stub_call(SYS_munmap, (uint64_t)piece(i), PIECE, 0);
			else
				stub_call(SYS_mprotect, (uint64_t)piece(i), PIECE,
					  rnd() % 2 ? PROT_NONE : PROT_READ | PROT_WRITE);
		have_child(tamper_and_end, true);
		check("the parent", false);
		have_child(NULL, true);
		live_on();
	}
}

ATTACK(home_tampered_with)
{
	need_gs();
	in_parent(change_own, NULL);
}

/*
 * Data that one child has made executable, natively, is not executable in the next where Linux
 * protects that one from it.
 */
static void give_up_rights(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &allow };

	switch (rnd() % 3) {
	case 0:
		if (setuid(4711) == 0)
			return;
		/* fall through */
	case 1:
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0)
			return;
		/* fall through */
	default: prctl(PR_SET_DUMPABLE, 0);
	}
}

static bool executes(int i)
{
	return CATCH(((void (*)(void))(piece(i) + CODE))());
}

static void make_executable(void)
{
	catch_setup();
	give_up_rights();
	write_hot();
	for (int i = 0; i < PIECES; i++) {
		for (size_t page = 0; page < PIECE / PAGE; page++)
			(void)*(volatile char *)(piece(i) + page * PAGE);
		stub_call(SYS_mprotect, (uint64_t)piece(i), PIECE,
			  i % KINDS == HOT ? PROT_READ | PROT_WRITE | PROT_EXEC
					   : PROT_READ | PROT_EXEC);
		if (!executes(i))
			breach("a child could not make piece %d executable: no attack", i);
	}
	syscall(SYS_exit_group, 0);
}

static void execute_nothing(void)
{
	catch_setup();
	for (int i = 0; i < PIECES; i++)
		if (executes(i))
			breach("a child can execute piece %d", i);
	syscall(SYS_exit_group, 0);
}

static void have_executable(void *arg)
{
	begin_family(false);
	catch_setup();
	for (int round = 0; round < (full() ? 200 : 40); round++) {
		have_child(make_executable, true);
		usleep(2000); /* what it leaves is left by now, most likely */
		have_child(execute_nothing, true);
	}
}

ATTACK(data_made_executable)
{
	in_parent(have_executable, NULL);
}

/* ---- children that write to all they can reach, to the end and beyond ---- */

static volatile int over;

static void *scribble(void *arg)
{
	catch_setup();
	while (!over)
		write_all(MARK);
	return NULL;
}

static void write_while_ending(void)
{
	pthread_t t;

	for (int i = 0; i < 3; i++)
		pthread_create(&t, NULL, scribble, NULL);
	tamper_and_end();
}

ATTACK(writes_while_ending)
{
	rule(false, write_while_ending, true);
}

ATTACK(writes_while_ending_in_several)
{
	rule(false, write_while_ending, false);
}

ATTACK(writes_while_a_large_parent_forks)
{
	rule(true, write_while_ending, false);
}

static uint64_t ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

/*
 * Tells the sentry by the context page that it ends, and runs on. Told to leave, it does so `late`
 * ticks later, or never.
 */
static void pretend_to_end(uint64_t nr, uint64_t late)
{
	volatile uint32_t *word;
	uint64_t *slot, told = 0;
	void *anew = NULL;

	catch_setup();
	for (int i = 0; i < PIECES; i++) /* no fault later: nobody would serve it */
		if (i % KINDS == PLAIN || i % KINDS == HOT)
			memset(piece(i), 3, PIECE);
	tamper();
	for (int i = 0; i < PIECES; i++)
		if (i % KINDS == PLAIN || i % KINDS == HOT)
			stub_call(SYS_mprotect, (uint64_t)piece(i), PIECE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < PIECES; i++)
		if (i % KINDS == PLAIN || i % KINDS == HOT)
			memset(piece(i), 4, PIECE);
	for (int i = 0; i < 300; i++)
		syscall(SYS_getpgid, 0);
	__asm__ volatile("rdgsbase %0" : "=r"(slot));
	slot[CTX_RAX] = nr;
	slot[CTX_RIP] = (uint64_t)pretend_to_end;
	slot[CTX_RSP] = (uint64_t)&anew;
	word = (volatile uint32_t *)slot;
	word[1] = STOP_CALL;
	__atomic_exchange_n(word, TURN_SENTRY, __ATOMIC_SEQ_CST);
	for (;;) {
		uint32_t turn = *word & TURN_MASK;

		if (turn == TURN_STUB && word[1] == RESUME_SAVE) {
			word[1] = STOP_SAVED;
			__atomic_exchange_n(word, TURN_SENTRY, __ATOMIC_SEQ_CST);
		}
		if (turn == TURN_EXIT && !told)
			told = ticks();
		if (late && told && ticks() - told > late)
			stub_exit();
		for (int i = 0; i < PIECES; i++)
			if (i % KINDS == PLAIN || i % KINDS == HOT)
				for (size_t at = 0; at < PIECE; at += PAGE)
					*(volatile uint64_t *)(piece(i) + at) = MARK;
	}
}

static void never_leave(void)
{
	pretend_to_end(SYS_exit_group, 0);
}

static void leave_late(void)
{
	pretend_to_end(SYS_exit_group, 1 + rnd() % 20000000);
}

ATTACK(thread_stays)
{
	need_gs();
	rule(false, never_leave, true);
}

ATTACK(threads_stay)
{
	need_gs();
	rule(false, never_leave, false);
}

ATTACK(thread_leaves_late)
{
	need_gs();
	rule(false, leave_late, true);
}

ATTACK(threads_leave_late)
{
	need_gs();
	rule(true, leave_late, false);
}

HOSTILE_MAIN
