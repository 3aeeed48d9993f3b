/* Two processes or threads that hand a byte, a wake-up or a stream to each other. */
#include "bench/guest/groups.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define US 1000.0
#define CHUNK (64 * KIB)

/* The parent's end of a pair, and the child at the other end, which leaves at the end of file. */
struct peer {
	int in, out; /* the same descriptor for a socket */
	int pid;
};

static void echo(int in, int out)
{
	char c;

	while (read(in, &c, 1) == 1)
		if (write(out, &c, 1) != 1)
			break;
}

static void swallow(int in)
{
	static char buf[CHUNK];

	while (read(in, buf, sizeof(buf)) > 0)
		;
}

/* Two pipes; fds[0] and fds[3] are the child's. -1 with errno. */
static int peer_pipes(struct peer *peer, bool echoes)
{
	int fds[4];

	if (pipe(fds))
		return -1;
	if (pipe(fds + 2)) {
		close(fds[0]);
		close(fds[1]);
		return -1;
	}
	peer->pid = fork();
	if (peer->pid == 0) {
		close(fds[1]);
		close(fds[2]);
		if (echoes)
			echo(fds[0], fds[3]);
		else
			swallow(fds[0]);
		_exit(0);
	}
	close(fds[0]);
	close(fds[3]);
	peer->out = fds[1];
	peer->in = fds[2];
	return peer->pid < 0 ? -1 : 0;
}

static int peer_sockets(struct peer *peer)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return -1;
	peer->pid = fork();
	if (peer->pid == 0) {
		close(fds[1]);
		echo(fds[0], fds[0]);
		_exit(0);
	}
	close(fds[0]);
	peer->in = peer->out = fds[1];
	return peer->pid < 0 ? -1 : 0;
}

/* A peer that died gives EPIPE then, not a signal that ends all rows. */
static void peer_end(struct peer *peer)
{
	close(peer->out);
	if (peer->in != peer->out)
		close(peer->in);
	while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int op_pingpong(void *arg, uint64_t n)
{
	struct peer *peer = arg;
	char c = 'x';

	while (n--)
		if (write(peer->out, &c, 1) != 1 || read(peer->in, &c, 1) != 1)
			return -1;
	return 0;
}

static void run_pipe_pingpong(const struct bench_row *row)
{
	struct peer peer;

	signal(SIGPIPE, SIG_IGN);
	if (peer_pipes(&peer, true)) {
		bench_fail(row->name, "pipe, fork");
		return;
	}
	bench_loop_row(row->name, op_pingpong, &peer, US);
	peer_end(&peer);
}

static void run_unix_pingpong(const struct bench_row *row)
{
	struct peer peer;

	signal(SIGPIPE, SIG_IGN);
	if (peer_sockets(&peer)) {
		bench_fail(row->name, "socketpair, fork");
		return;
	}
	bench_loop_row(row->name, op_pingpong, &peer, US);
	peer_end(&peer);
}

static int op_pipe_write(void *arg, uint64_t n)
{
	static char buf[CHUNK];
	struct peer *peer = arg;

	while (n--)
		if (write(peer->out, buf, sizeof(buf)) != sizeof(buf))
			return -1;
	return 0;
}

/* The reader takes what there is, up to 64 KiB at a time. */
static void run_pipe_bw(const struct bench_row *row)
{
	struct peer peer;
	uint64_t ops;
	double ns;

	signal(SIGPIPE, SIG_IGN);
	if (peer_pipes(&peer, false)) {
		bench_fail(row->name, "pipe, fork");
		return;
	}
	ns = bench_loop(row->name, op_pipe_write, &peer, &ops);
	if (ns >= 0)
		bench_end(row->name, (double)CHUNK * 1000 / ns, ops);
	peer_end(&peer);
}

/* Whose turn it is; each side waits until it is its own. */
enum { MINE, PEERS, OVER };

static int futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	if (syscall(__NR_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0) < 0 &&
	    errno != EAGAIN && errno != EINTR)
		return -1;
	return 0;
}

static int futex_pass(_Atomic uint32_t *word, uint32_t turn)
{
	atomic_store(word, turn);
	return syscall(__NR_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) < 0 ? -1 : 0;
}

static void *futex_peer(void *arg)
{
	_Atomic uint32_t *word = arg;
	uint32_t turn;

	while ((turn = atomic_load(word)) != OVER) {
		if (turn == MINE && futex_wait(word, MINE))
			abort();
		if (turn == PEERS && futex_pass(word, MINE))
			abort();
	}
	return NULL;
}

static int op_futex(void *arg, uint64_t n)
{
	_Atomic uint32_t *word = arg;

	while (n--) {
		if (futex_pass(word, PEERS))
			return -1;
		while (atomic_load(word) == PEERS)
			if (futex_wait(word, PEERS))
				return -1;
	}
	return 0;
}

static void run_futex_pingpong(const struct bench_row *row)
{
	_Atomic uint32_t word = MINE;
	pthread_t thread;

	errno = pthread_create(&thread, NULL, futex_peer, &word);
	if (errno) {
		bench_fail(row->name, "pthread_create");
		return;
	}
	bench_loop_row(row->name, op_futex, &word, US);
	futex_pass(&word, OVER);
	pthread_join(thread, NULL);
}

static const struct bench_row rows[] = {
	{ "pipe_pingpong_proc", run_pipe_pingpong, 0 },
	{ "pipe_bw_64K", run_pipe_bw, 0 },
	{ "unix_pingpong_proc", run_unix_pingpong, 0 },
	{ "futex_pingpong_thr", run_futex_pingpong, 0 },
};
BENCH_GROUP(ipc, rows);
