/*
 * No wake-up may be lost: threads that block in every way there is pass tokens
 * to each other, while others send them signals and waits time out. What has been
 * put must be had by somebody, or the case runs into its time limit.
 */
#include "conf.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>

#define TAKERS 4
#define GIVERS 3
#define TOKENS 700 /* of each giver */
#define ENDS TAKERS
#define TIMEOUT_US 300

/* Something that tokens go through. take: false when interrupted, timed out, or another was faster.
 */
struct channel {
	void (*open)(struct channel *c);
	void (*give)(struct channel *c);
	bool (*take)(struct channel *c);
	int in, out, epoll;
	_Atomic uint32_t count;
};

static bool got(ssize_t n)
{
	CHECK(n > 0 || errno == EINTR || errno == EAGAIN || errno == ETIMEDOUT);
	return n > 0;
}

/* ---- bytes through descriptors ---- */

static void open_pipe(struct channel *c)
{
	int fds[2];

	OK(pipe(fds));
	OK(fcntl(fds[1], F_SETPIPE_SZ, 4096));
	c->out = fds[0];
	c->in = fds[1];
}

static void open_sockets(struct channel *c, int type)
{
	int fds[2];

	OK(socketpair(AF_UNIX, type, 0, fds));
	c->out = fds[0];
	c->in = fds[1];
}

static void open_stream(struct channel *c)
{
	open_sockets(c, SOCK_STREAM);
}

static void open_seqpacket(struct channel *c)
{
	open_sockets(c, SOCK_SEQPACKET);
}

static void open_dgram(struct channel *c)
{
	open_sockets(c, SOCK_DGRAM);
}

static void give_byte(struct channel *c)
{
	while (!got(write(c->in, "x", 1)))
		;
}

static bool take_byte(struct channel *c)
{
	char b;

	return got(read(c->out, &b, 1));
}

static void set_nonblocking(struct channel *c)
{
	OK(fcntl(c->out, F_SETFL, O_NONBLOCK));
}

static void open_polled(struct channel *c)
{
	open_pipe(c);
	set_nonblocking(c);
}

static bool take_polled(struct channel *c)
{
	struct pollfd p = { c->out, POLLIN, 0 };
	struct timespec limit = { 0, TIMEOUT_US * 1000 };
	int r = ppoll(&p, 1, &limit, NULL);

	CHECK(r >= 0 || errno == EINTR);
	return r > 0 && take_byte(c);
}

static void open_epoll(struct channel *c, uint32_t flags)
{
	struct epoll_event ev = { EPOLLIN | flags, { 0 } };

	open_stream(c);
	set_nonblocking(c);
	c->epoll = OK(epoll_create1(0));
	OK(epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->out, &ev));
}

static void open_epoll_level(struct channel *c)
{
	open_epoll(c, 0);
}

static void open_epoll_edge(struct channel *c)
{
	open_epoll(c, EPOLLET);
}

static bool take_epoll(struct channel *c)
{
	struct epoll_event ev;
	int r = epoll_wait(c->epoll, &ev, 1, -1);

	CHECK(r >= 0 || errno == EINTR);
	return r > 0 && take_byte(c);
}

/* ---- counters ---- */

static void open_eventfd(struct channel *c)
{
	c->in = c->out = OK(eventfd(0, EFD_SEMAPHORE));
}

static void give_count(struct channel *c)
{
	uint64_t one = 1;

	while (!got(write(c->in, &one, sizeof(one))))
		;
}

static bool take_count(struct channel *c)
{
	uint64_t one;

	return got(read(c->out, &one, sizeof(one)));
}

static void open_futex(struct channel *c)
{
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
	return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

static void give_futex(struct channel *c)
{
	atomic_fetch_add(&c->count, 1);
	OK(futex(&c->count, FUTEX_WAKE, 1, NULL));
}

static bool take_futex_within(struct channel *c, const struct timespec *limit)
{
	uint32_t n = atomic_load(&c->count);

	while (n)
		if (atomic_compare_exchange_strong(&c->count, &n, n - 1))
			return true;
	got(futex(&c->count, FUTEX_WAIT, 0, limit) == 0 ? 1 : -1);
	return false;
}

static bool take_futex(struct channel *c)
{
	return take_futex_within(c, NULL);
}

static bool take_futex_timed(struct channel *c)
{
	return take_futex_within(c, &(struct timespec){ 0, TIMEOUT_US * 1000 });
}

/* ---- the stress ---- */

static struct channel channel;
static _Atomic int taken, running;
static pthread_t takers[TAKERS];

static void on_signal(int sig)
{
}

static void *giver(void *arg)
{
	for (int i = 0; i < TOKENS; i++)
		channel.give(&channel);
	return NULL;
}

static void *taker(void *arg)
{
	for (;;)
		if (channel.take(&channel) && atomic_fetch_add(&taken, 1) >= GIVERS * TOKENS)
			break;
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void *pest(void *arg)
{
	for (unsigned i = 0; atomic_load(&running); i++) {
		CHECK_EQ(pthread_kill(takers[i % TAKERS], SIGUSR1), 0);
		usleep(200);
	}
	return NULL;
}

static void stress(struct channel c, bool signals)
{
	pthread_t givers[GIVERS], p;

	/* No SA_RESTART: calls come back. */
	OK(sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = on_signal }, NULL));
	channel = c;
	channel.open(&channel);
	running = TAKERS;
	for (int i = 0; i < TAKERS; i++)
		CHECK_EQ(pthread_create(&takers[i], NULL, taker, NULL), 0);
	if (signals)
		CHECK_EQ(pthread_create(&p, NULL, pest, NULL), 0);
	for (int i = 0; i < GIVERS; i++)
		CHECK_EQ(pthread_create(&givers[i], NULL, giver, NULL), 0);
	for (int i = 0; i < GIVERS; i++)
		CHECK_EQ(pthread_join(givers[i], NULL), 0);
	for (int i = 0; i < ENDS; i++)
		channel.give(&channel);
	if (signals)
		CHECK_EQ(pthread_join(p, NULL), 0);
	for (int i = 0; i < TAKERS; i++)
		CHECK_EQ(pthread_join(takers[i], NULL), 0);
	CHECK_EQ(taken, GIVERS * TOKENS + ENDS);
}

#define STRESS(name_, open_, give_, take_)                                                         \
	CASE(name_)                                                                                \
	{                                                                                          \
		stress((struct channel){ open_, give_, take_, -1, -1, -1, 0 }, false);             \
	}                                                                                          \
	CASE(name_##_with_signals)                                                                 \
	{                                                                                          \
		stress((struct channel){ open_, give_, take_, -1, -1, -1, 0 }, true);              \
	}
STRESS(pipe, open_pipe, give_byte, take_byte)
STRESS(unix_stream, open_stream, give_byte, take_byte)
STRESS(unix_seqpacket, open_seqpacket, give_byte, take_byte)
STRESS(unix_dgram, open_dgram, give_byte, take_byte)
STRESS(poll, open_polled, give_byte, take_polled)
STRESS(epoll_level, open_epoll_level, give_byte, take_epoll)
STRESS(eventfd, open_eventfd, give_count, take_count)
STRESS(futex, open_futex, give_futex, take_futex)
STRESS(futex_timed, open_futex, give_futex, take_futex_timed)

/* Edge-triggered: each arrival is an event, and whoever gets it takes all there is. */
static _Atomic int drained;

static bool take_all(struct channel *c)
{
	struct epoll_event ev;
	int r = epoll_wait(c->epoll, &ev, 1, -1);

	CHECK(r >= 0 || errno == EINTR);
	while (r > 0 && take_byte(c))
		atomic_fetch_add(&drained, 1);
	return false;
}

static void *edge_taker(void *arg)
{
	while (atomic_load(&drained) < GIVERS * TOKENS)
		take_all(&channel);
	return NULL;
}

CASE(epoll_edge)
{
	pthread_t givers[GIVERS], one;

	channel = (struct channel){ open_epoll_edge, give_byte, NULL, -1, -1, -1, 0 };
	channel.open(&channel);
	CHECK_EQ(pthread_create(&one, NULL, edge_taker, NULL), 0);
	for (int i = 0; i < GIVERS; i++)
		CHECK_EQ(pthread_create(&givers[i], NULL, giver, NULL), 0);
	for (int i = 0; i < GIVERS; i++)
		CHECK_EQ(pthread_join(givers[i], NULL), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(drained, GIVERS * TOKENS);
}

/* ---- sleepers that are killed ---- */

#define VICTIMS 60

static void sleep_forever(void *arg)
{
	struct channel *c = arg;

	for (;;)
		c->take(c);
}

/* One process of several that wait dies; what is given then reaches the others. */
static void kill_sleepers(struct channel c)
{
	pid_t pids[VICTIMS];
	struct channel *shared =
		mmap(NULL, sizeof(c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(shared != MAP_FAILED);
	*shared = c;
	shared->open(shared);
	for (int i = 0; i < VICTIMS; i++) {
		pids[i] = conf_fork(sleep_forever, shared);
		shared->give(shared);
		if (i < 4)
			continue;
		OK(kill(pids[i - 4], SIGKILL));
		shared->give(shared);
		CHECK_EQ(conf_wait_status(pids[i - 4]), SIGKILL);
	}
	for (int i = VICTIMS - 4; i < VICTIMS; i++) {
		OK(kill(pids[i], SIGKILL));
		CHECK_EQ(conf_wait_status(pids[i]), SIGKILL);
	}
}

CASE(killed_in_pipe)
{
	kill_sleepers((struct channel){ open_pipe, give_byte, take_byte, -1, -1, -1, 0 });
}
CASE(killed_in_socket)
{
	kill_sleepers((struct channel){ open_stream, give_byte, take_byte, -1, -1, -1, 0 });
}
CASE(killed_in_epoll)
{
	kill_sleepers((struct channel){ open_epoll_level, give_byte, take_epoll, -1, -1, -1, 0 });
}
CASE(killed_in_futex)
{
	kill_sleepers((struct channel){ open_futex, give_futex, take_futex, -1, -1, -1, 0 });
}
CONF_MAIN
