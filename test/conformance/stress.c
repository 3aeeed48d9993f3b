/*
 * Many threads make short calls, whose sites are patched, while others of their process signal
 * them, fork, execute programs and kill processes that do the same. Natively and in `make check`
 * for some seconds, in `make stress` for $STRESS_SECONDS.
 */
#include "conf.h"

#include <linux/futex.h>
#include <link.h>
#include <pthread.h>
#include <time.h>
#include <ucontext.h>

#define WORKERS 32
#define FILE_WORDS 8192UL
#define MAX_CODE 32

static _Atomic bool over;
static int data_fd;
static pid_t own_pid, parent_pid;
static struct {
	uintptr_t start, end;
} code[MAX_CODE];
static size_t code_count;
static __thread volatile unsigned handled;
static _Atomic unsigned long calls, signals, children, execs, kills;

struct worker {
	pthread_t thread;
	_Atomic pid_t tid;
	struct worker *peer;
	_Atomic uint32_t turn; /* futex */
	int to_peer[2];
	unsigned index;
};

static struct worker workers[WORKERS];

static unsigned next_random(unsigned *seed)
{
	return *seed = *seed * 1103515245 + 12345;
}

/* ---- what a signal may find ---- */

static int note_code(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum && code_count < MAX_CODE; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		code[code_count].start = info->dlpi_addr + p->p_vaddr;
		code[code_count++].end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
	return 0;
}

static void on_signal(int sig, siginfo_t *si, void *arg)
{
	const ucontext_t *uc = arg;
	uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	int saved = errno;
	size_t i = 0;

	while (i < code_count && (rip < code[i].start || rip >= code[i].end))
		i++;
	if (i == code_count)
		conf_fail(__FILE__, __LINE__, "a signal interrupts %#lx", (unsigned long)rip);
	CHECK_EQ(syscall(SYS_getpid), own_pid);
	handled++;
	errno = saved;
}

/* ---- calls, each with a known result ---- */

static void do_pread(struct worker *w, unsigned *seed)
{
	uint64_t got[2], at = next_random(seed) % (FILE_WORDS - 2);

	CHECK_EQ(pread(data_fd, got, 16, (off_t)(at * 8)), 16);
	CHECK_EQ(got[0], at * 0x9e3779b97f4a7c15);
	CHECK_EQ(got[1], (at + 1) * 0x9e3779b97f4a7c15);
}

static void do_ids(struct worker *w, unsigned *seed)
{
	CHECK_EQ(syscall(SYS_getppid), parent_pid);
	CHECK_EQ(syscall(SYS_getpid), own_pid);
	if (w->tid)
		CHECK_EQ(syscall(SYS_gettid), w->tid);
	CHECK_EQ(syscall(SYS_getuid), getuid());
}

static void do_clock(struct worker *w, unsigned *seed)
{
	struct timespec a, b, c;

	OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &a));
	clock_gettime(CLOCK_MONOTONIC, &b);
	OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &c));
	CHECK(b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
	CHECK(c.tv_sec > b.tv_sec || (c.tv_sec == b.tv_sec && c.tv_nsec >= b.tv_nsec));
}

static void do_mmap(struct worker *w, unsigned *seed)
{
	size_t size = (next_random(seed) >> 16) % 8 * 4096 + 4096;
	uint64_t *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(m != MAP_FAILED);
	for (size_t i = 0; i < size / 8; i += 256) {
		CHECK_EQ(m[i], 0);
		m[i] = (uint64_t)m + i;
	}
	for (size_t i = 0; i < size / 8; i += 256)
		CHECK_EQ(m[i], (uint64_t)m + i);
	OK(munmap(m, size));
}

static void do_pipe(struct worker *w, unsigned *seed)
{
	uint32_t out = next_random(seed), in = 0;

	CHECK_EQ(write(w->to_peer[1], &out, 4), 4);
	CHECK_EQ(read(w->to_peer[0], &in, 4), 4);
	CHECK_EQ(in, out);
}

static void do_futex(struct worker *w, unsigned *seed)
{
	struct timespec limit = { .tv_nsec = 2000000 };
	struct worker *p = w->peer;
	uint32_t seen = w->turn;
	long ret;

	p->turn++;
	OK(syscall(SYS_futex, &p->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	ret = syscall(SYS_futex, &w->turn, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
	CHECK(ret == 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR);
	CHECK_ERR(syscall(SYS_futex, &w->turn, FUTEX_WAIT_PRIVATE, ~w->turn, NULL, NULL, 0),
		  EAGAIN);
}

static void do_errors(struct worker *w, unsigned *seed)
{
	CHECK_ERR(syscall(SYS_pread64, -1, NULL, 1, 0), EBADF);
	CHECK_ERR(syscall(SYS_getpgid, 0x7fffffff), ESRCH);
	CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 8), EFAULT);
}

static void (*const kinds[])(struct worker *, unsigned *) = {
	do_pread, do_ids, do_clock, do_mmap, do_pipe, do_futex, do_errors,
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void open_pipe(struct worker *w)
{
	OK(pipe2(w->to_peer, O_CLOEXEC));
}

/* All kinds, in a process that has just begun. */
static void some_of_each(unsigned rounds)
{
	struct worker w = { .peer = &w };
	unsigned seed = rounds;

	own_pid = getpid();
	parent_pid = getppid();
	open_pipe(&w);
	for (unsigned i = 0; i < rounds; i++)
		kinds[i % KINDS](&w, &seed);
	close(w.to_peer[0]);
	close(w.to_peer[1]);
}

static void open_data(void)
{
	uint64_t *words = malloc(FILE_WORDS * 8);

	for (uint64_t i = 0; i < FILE_WORDS; i++)
		words[i] = i * 0x9e3779b97f4a7c15;
	data_fd = OK(open(conf_path("data"), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	CHECK_EQ(write(data_fd, words, FILE_WORDS * 8), FILE_WORDS * 8);
	free(words);
}

/* ---- threads ---- */

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned seed = w->index + 1;

	w->tid = (pid_t)syscall(SYS_gettid);
	while (!over) {
		for (unsigned i = 0; i < 64 && !over; i++)
			kinds[(i < 60 ? w->index : i) % KINDS](w, &seed);
		calls += 64;
	}
	return NULL;
}

static void *send_signals(void *arg)
{
	unsigned seed = 5;

	while (!over) {
		const struct worker *w = &workers[(next_random(&seed) >> 16) % WORKERS];

		if (w->tid && syscall(SYS_tgkill, own_pid, w->tid, SIGUSR1) == 0)
			signals++;
		usleep((next_random(&seed) >> 16) % 500);
	}
	return NULL;
}

static void *fork_children(void *arg)
{
	while (!over) {
		pid_t pid = OK(fork());

		if (pid == 0) {
			some_of_each(128);
			_exit(7);
		}
		CHECK_EQ(conf_wait_status(pid), 7 << 8);
		children++;
	}
	return NULL;
}

static void *execute_programs(void *arg)
{
	while (!over) {
		pid_t pid = OK(vfork());

		if (pid == 0) {
			execl("/proc/self/exe", "stress", "each", NULL);
			_exit(9);
		}
		CHECK_EQ(conf_wait_status(pid), 0);
		execs++;
	}
	return NULL;
}

static void *until_killed(void *arg)
{
	for (unsigned i = 64;; i++)
		some_of_each(i % 512);
	return NULL;
}

static void *kill_processes(void *arg)
{
	unsigned seed = 9;

	while (!over) {
		pid_t pid = OK(fork());

		if (pid == 0) {
			pthread_t t[3];

			own_pid = getpid();
			parent_pid = getppid();
			for (size_t i = 0; i < 3; i++)
				pthread_create(&t[i], NULL, until_killed, NULL);
			until_killed(NULL);
		}
		usleep((next_random(&seed) >> 16) % 20000);
		OK(kill(pid, SIGKILL));
		CHECK_EQ(conf_wait_status(pid), SIGKILL);
		kills++;
	}
	return NULL;
}

/* ---- cases ---- */

static unsigned seconds(void)
{
	const char *given = getenv("STRESS_SECONDS");

	if (given)
		return (unsigned)atoi(given);
	return conf_in_sandbox() ? 10 : 2;
}

CASE(each)
{
	open_data();
	some_of_each(512);
}

CASE(calls_under_fire)
{
	void *(*const others[])(void *) = { send_signals, send_signals, fork_children,
					    execute_programs, kill_processes };
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	pthread_t other[sizeof(others) / sizeof(others[0])];
	int null = OK(open("/dev/null", O_WRONLY | O_CLOEXEC)), out = OK(dup(STDOUT_FILENO));

	own_pid = getpid();
	parent_pid = getppid();
	dl_iterate_phdr(note_code, NULL);
	open_data();
	OK(sigaction(SIGUSR1, &sa, NULL));
	OK(dup2(null, STDOUT_FILENO)); /* what executed programs report there */
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *w = &workers[i];

		w->index = i;
		w->peer = &workers[i ^ 1];
		open_pipe(w);
		CHECK_EQ(pthread_create(&w->thread, NULL, work, w), 0);
	}
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		CHECK_EQ(pthread_create(&other[i], NULL, others[i], NULL), 0);
	sleep(seconds());
	over = true;
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		pthread_join(other[i], NULL);
	if (getenv("STRESS_SECONDS"))
		dprintf(out, "%u s: %lu calls, %lu signals, %lu forks, %lu execs, %lu kills\n",
			seconds(), calls, signals, children, execs, kills);
	CHECK(calls && signals && children && execs && kills);
}

CONF_MAIN
