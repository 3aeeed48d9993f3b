/*
 * cow: what breaking copy-on-write costs, in time and in memory.
 *
 * Every repetition has a process of its own, the subject: it touches a fresh heap, forks, and then
 * either side writes while the other lives. Subjects and their children stay until the row is over,
 * so nothing is freed before `end`: the growth that the driver samples around the last repetition
 * is not met from (or hidden by) pages that an earlier one gave back. The value is the median of
 * all repetitions, timed by the side that writes; only the last lies in the phase, so ops is 1.
 *
 * Growth to expect is what was written, and the child's page tables: 4 MiB where 1024 pages were,
 * 64 MiB dense, 128 KiB for 32 pages.
 */
#include "bench/guest/groups.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAP_SIZE (64 * MIB)
/* 32 evenly spaced writes; each touched stride divides this, so they hit touched pages. */
#define FEW_STRIDE (HEAP_SIZE / 32)
#define REPS_MAX 5
#define REPS_DENSE 5 /* touching takes long, and each keeps up to twice the heap */

/* A row's arg is the stride at which the heap is touched, and these. */
#define FEW 1UL	      /* 32 pages are written; otherwise all that were touched */
#define CHILD 2UL     /* the child writes; otherwise the parent */
#define WITH_FORK 4UL /* the time holds the fork, too */
#define STRIDE(arg) ((arg) & ~7UL)

struct subject {
	int pid;
	int go;	    /* written by the row, read by the subject */
	int report; /* the subject writes a double: ready, then ms; less than 0 is an errno */
};

static int send_double(int fd, double value)
{
	return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
}

/* Negative when the other side has failed, or is gone. */
static double receive_double(int fd)
{
	double value;
	ssize_t n = read(fd, &value, sizeof(value));

	if (n == sizeof(value))
		return value;
	return n < 0 ? -errno : -EPIPE;
}

static void wait_for_end(int life)
{
	char c;

	while (read(life, &c, 1) < 0 && errno == EINTR)
		;
}

/* Writes as the row asks; the time since `start`, or since now if that is 0, in ms. */
static double write_heap(char *heap, uintptr_t arg, uint64_t start)
{
	if (!start)
		start = bench_now();
	bench_touch(heap, HEAP_SIZE, arg & FEW ? FEW_STRIDE : STRIDE(arg));
	return (double)(bench_now() - start) / 1e6;
}

/* What is measured: the fork, and then one side's writes while the other lives. */
static double fork_and_write(char *heap, uintptr_t arg, int life)
{
	int fds[2], pid;
	uint64_t start;
	double ms;

	if (pipe(fds))
		return -errno;
	start = bench_now();
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		ms = arg & CHILD ? write_heap(heap, arg, arg & WITH_FORK ? start : 0) : 0;
		if (!send_double(fds[1], ms))
			wait_for_end(life);
		_exit(0);
	}
	if (!(arg & CHILD) && arg & WITH_FORK)
		return write_heap(heap, arg, start);
	/* The child has written; or it is up, and its start is not in the parent's time. */
	ms = receive_double(fds[0]);
	if (ms < 0 || arg & CHILD)
		return ms;
	return write_heap(heap, arg, 0);
}

static _Noreturn void be_subject(uintptr_t arg, int go, int report, int life)
{
	char *heap = bench_map(HEAP_SIZE), c;

	bench_touch(heap, HEAP_SIZE, STRIDE(arg));
	if (send_double(report, 0) || read(go, &c, 1) != 1)
		_exit(1);
	if (!send_double(report, fork_and_write(heap, arg, life)))
		wait_for_end(life);
	/* Its child's memory must be gone before the next row's growth is measured. */
	while (wait(NULL) > 0 || errno == EINTR)
		;
	_exit(0);
}

/* `life` reads end of file once the row is over; its write end is the row's alone. */
static int start_subject(struct subject *subject, uintptr_t arg, const int life[2])
{
	int go[2], report[2];

	if (pipe(go))
		return -1;
	if (pipe(report)) {
		close(go[0]);
		close(go[1]);
		return -1;
	}
	subject->pid = fork();
	if (subject->pid == 0) {
		close(life[1]);
		close(go[1]);
		close(report[0]);
		be_subject(arg, go[0], report[1], life[0]);
	}
	close(go[0]);
	close(report[1]);
	subject->go = go[1];
	subject->report = report[0];
	return subject->pid < 0 ? -1 : 0;
}

/* One repetition's ms, or negative with errno set. */
static double run_subject(const struct bench_row *row, struct subject *subject, bool last)
{
	double ms = receive_double(subject->report);

	if (ms == 0 && last)
		bench_begin(row->name);
	if (ms == 0)
		ms = write(subject->go, "", 1) == 1 ? receive_double(subject->report) : -errno;
	if (ms < 0)
		errno = (int)-ms;
	return ms;
}

/*
 * The host may itself be virtual, and take free memory away: then the first use of a page costs
 * several times what is measured here. Fetches once what the dense rows will use.
 */
static int warm_memory(void)
{
	static bool done;
	int pid;

	if (done)
		return 0;
	pid = fork();
	if (pid == 0) {
		bench_touch(bench_map(2 * HEAP_SIZE * REPS_DENSE), 2 * HEAP_SIZE * REPS_DENSE,
			    PAGE_SIZE);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		return -1;
	done = true;
	return 0;
}

static void run_cow(const struct bench_row *row)
{
	struct subject subjects[REPS_MAX];
	double ms[REPS_MAX];
	bool dense = STRIDE(row->arg) <= 8 * KIB;
	int reps = dense ? REPS_DENSE : REPS_MAX, started = 0, life[2];

	if ((dense && warm_memory()) || pipe(life)) {
		bench_fail(row->name, "set-up");
		return;
	}
	for (int i = 0; i < reps; i++) {
		if (start_subject(&subjects[i], row->arg, life)) {
			bench_fail(row->name, "starting a process");
			break;
		}
		started++;
		ms[i] = run_subject(row, &subjects[i], i == reps - 1);
		if (ms[i] < 0) {
			bench_fail(row->name, "repetition %d", i);
			break;
		}
		if (i == reps - 1)
			bench_end(row->name, bench_median(ms, (size_t)reps), 1);
	}
	close(life[1]);
	close(life[0]);
	for (int i = 0; i < started; i++) {
		close(subjects[i].go);
		close(subjects[i].report);
		while (waitpid(subjects[i].pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
}

static const struct bench_row rows[] = {
	{ "SparseHeapForkParentWrites", run_cow, 64 * KIB | WITH_FORK },
	{ "SparseHeapForkChildWrites", run_cow, 64 * KIB | CHILD | WITH_FORK },
	{ "DenseHeapForkParentWrites", run_cow, 4 * KIB | WITH_FORK },
	{ "CopyOnWriteBreaks/1page-per-64k", run_cow, 64 * KIB | FEW | WITH_FORK },
	{ "CopyOnWriteBreaks/1page-per-8k", run_cow, 8 * KIB | FEW | WITH_FORK },
	{ "CopyOnWriteBreaks/1page-per-4k", run_cow, 4 * KIB | FEW | WITH_FORK },
	{ "cow64M_1per64k_parent32", run_cow, 64 * KIB | FEW },
	{ "cow64M_1per8k_parent32", run_cow, 8 * KIB | FEW },
	{ "cow64M_1per4k_parent32", run_cow, 4 * KIB | FEW },
	{ "cow64M_1per64k_child32", run_cow, 64 * KIB | FEW | CHILD },
	{ "cow64M_dense_parentall", run_cow, 4 * KIB },
	{ "cow64M_dense_childall", run_cow, 4 * KIB | CHILD },
	{ "cow64M_sparse_parentall", run_cow, 64 * KIB },
};
BENCH_GROUP(cow, rows);
