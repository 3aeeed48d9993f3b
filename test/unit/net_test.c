/* unit: sentry tmpfs mm platform pgalloc vfs base */
/* Sockets and epoll below the system calls: queues, rights, the collector, nesting, races. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sentry/fd/epoll.h"
#include "sentry/fd/eventfd.h"
#include "sentry/fd/timerfd.h"
#include "sentry/kernel/kernel.h"
#include "sentry/net/socket.h"
#include "sentry/net/unix_gc.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct kernel kernel;
static struct thread_group group;
static struct task task;

static int setup(void **state)
{
	task.cred = cred_new(0, 0, ~0ULL);
	task.kernel = &kernel;
	task.tg = &group;
	group.tgid = 1;
	mutex_init(&group.limit_lock, RANK_LEAF, "limits");
	group.limits[RLIMIT_NOFILE].rlim_cur = 1024;
	kernel.timers = timer_service_new();
	current_task = &task;
	return kernel.timers ? 0 : -1;
}

static int teardown(void **state)
{
	timer_service_free(kernel.timers);
	return 0;
}

static void make_pair(int type, struct file *f[2])
{
	struct socket *s[2];

	assert_int_equal(unix_pair(&task, type, s), 0);
	assert_int_equal(socket_file_new(&task, s[0], 0, &f[0]), 0);
	assert_int_equal(socket_file_new(&task, s[1], 0, &f[1]), 0);
}

static ssize_t put_bytes(struct file *f, const void *buf, size_t len)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, (void *)buf, len);
	return f->ops->write(f, &k, 0, 0);
}

static ssize_t get_bytes(struct file *f, void *buf, size_t len)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, buf, len);
	return f->ops->read(f, &k, 0, 0);
}

/* Sends one byte with a file. */
static ssize_t put_file(struct file *over, struct file *what)
{
	struct socket *s = socket_of_file(over);
	struct sock_msg m = { .cred = sock_msg_cred(&task) };
	struct iovec one;
	struct kiov k;
	ssize_t ret = 0;

	m.fds = malloc(sizeof(*m.fds) + sizeof(what));
	m.fds->count = 1;
	m.fds->file[0] = file_get(what);
	kiov_init_buf(&k, &one, "x", 1);
	if (s->ops->send_begin)
		ret = s->ops->send_begin(s, &task, &m);
	if (ret == 0)
		ret = s->ops->send(s, &m, &k);
	socket_put(m.target);
	sock_name_put(m.from);
	scm_fds_free(m.fds);
	return ret;
}

static u32 live_sockets(void)
{
	return net_of(&kernel)->sockets;
}

static void test_stream_random(void **state)
{
	struct file *f[2];
	static u8 out[300000], in[300000];
	size_t sent = 0, got = 0;

	make_pair(SOCK_STREAM, f);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (u8)rand();
	while (got < sizeof(out)) {
		if (sent < sizeof(out) && rand() % 2) {
			size_t n = (size_t)rand() % 5000 + 1;
			ssize_t r = put_bytes(f[0], out + sent, MIN(n, sizeof(out) - sent));

			assert_true(r > 0 || r == -EAGAIN);
			sent += r > 0 ? (size_t)r : 0;
		} else {
			ssize_t r = get_bytes(f[1], in + got, (size_t)rand() % 5000 + 1);

			assert_true(r > 0 || r == -EAGAIN);
			got += r > 0 ? (size_t)r : 0;
			assert_true(got <= sent);
		}
		assert_int_equal(socket_inq(socket_of_file(f[1])), sent - got);
	}
	assert_memory_equal(in, out, sizeof(out));
	file_put(f[0]);
	assert_int_equal(get_bytes(f[1], in, 1), 0);
	file_put(f[1]);
	assert_int_equal(live_sockets(), 0);
}

static void test_cycle_collected(void **state)
{
	for (int i = 0; i < 100; i++) {
		struct file *f[2], *g[2];

		make_pair(SOCK_STREAM, f);
		make_pair(SOCK_DGRAM, g);
		assert_int_equal(put_file(f[0], f[1]), 1);
		assert_int_equal(put_file(f[1], g[0]), 1);
		assert_int_equal(put_file(g[1], f[0]), 1);
		assert_int_equal(put_file(g[0], g[0]), 1);
		file_put(f[0]);
		file_put(f[1]);
		file_put(g[0]);
		file_put(g[1]);
	}
	assert_int_equal(live_sockets(), 0);
}

static void test_live_not_collected(void **state)
{
	struct file *f[2], *g[2], *h[2];
	char c;

	make_pair(SOCK_STREAM, f);
	make_pair(SOCK_STREAM, g);
	/* g[1] is only in flight, but f[1] can receive it. */
	assert_int_equal(put_bytes(g[0], "z", 1), 1);
	assert_int_equal(put_file(f[0], g[1]), 1);
	file_put(g[1]);
	make_pair(SOCK_STREAM, h);
	file_put(h[0]);
	file_put(h[1]); /* the collector runs */
	assert_int_equal(get_bytes(f[1], &c, 1), 1);
	file_put(f[0]);
	file_put(f[1]);
	file_put(g[0]);
	assert_int_equal(live_sockets(), 0);
}

static void test_deep_chain(void **state)
{
	struct file *prev = NULL, *f[2];

	for (int i = 0; i < 5000; i++) {
		make_pair(SOCK_DGRAM, f);
		if (prev) {
			if (put_file(f[0], prev) < 0) {
				file_put(f[0]);
				file_put(f[1]);
				break;
			}
			file_put(prev);
		}
		file_put(f[0]);
		prev = f[1];
	}
	file_put(prev);
	assert_int_equal(live_sockets(), 0);
}

static void watch_file(struct file *ep, struct file *f, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	assert_int_equal(epoll_control(ep, EPOLL_CTL_ADD, fd, f, &ev), 0);
}

static void test_epoll_nesting(void **state)
{
	struct file *ep[6], *f;
	struct epoll_event ev = { .events = EPOLLIN };

	for (int i = 0; i < 6; i++)
		assert_int_equal(epoll_file_new(task.cred, &ep[i]), 0);
	assert_int_equal(eventfd_new(task.cred, 0, 0, &f), 0);
	for (int i = 0; i < 4; i++)
		watch_file(ep[i], ep[i + 1], i + 1);
	assert_int_equal(epoll_control(ep[4], EPOLL_CTL_ADD, 5, ep[5], &ev), -ELOOP);
	assert_int_equal(epoll_control(ep[4], EPOLL_CTL_ADD, 0, ep[0], &ev), -ELOOP);
	watch_file(ep[4], f, 9);
	assert_int_equal(vfs_poll(ep[0]), 0);
	put_bytes(f, &(u64){ 1 }, 8);
	assert_true(vfs_poll(ep[0]) & EPOLLIN);
	get_bytes(f, &(u64){ 0 }, 8);
	assert_int_equal(vfs_poll(ep[0]), 0);
	file_put(f);
	for (int i = 0; i < 6; i++)
		file_put(ep[(i + 3) % 6]);
}

struct race {
	struct file *ep;
	_Atomic bool stop;
	_Atomic int rounds;
};

static void *race_files(void *arg)
{
	struct race *r = arg;
	struct epoll_event ev = { .events = EPOLLIN };

	current_task = &task;
	for (int i = 0; i < 3000; i++) {
		struct file *f;

		if (eventfd_new(task.cred, 0, 0, &f) < 0)
			return (void *)1;
		if (epoll_control(r->ep, EPOLL_CTL_ADD, i, f, &ev) < 0)
			return (void *)1;
		put_bytes(f, &(u64){ 1 }, 8);
		file_put(f);
	}
	return NULL;
}

static void *race_poll(void *arg)
{
	struct race *r = arg;

	current_task = &task;
	while (!r->stop) {
		vfs_poll(r->ep);
		r->rounds++;
		sched_yield();
	}
	return NULL;
}

static void test_epoll_races(void **state)
{
	struct race r = { .stop = false };
	struct file *outer;
	pthread_t t[3];
	void *res;

	assert_int_equal(epoll_file_new(task.cred, &r.ep), 0);
	assert_int_equal(epoll_file_new(task.cred, &outer), 0);
	watch_file(outer, r.ep, 1);
	pthread_create(&t[0], NULL, race_poll, &r);
	pthread_create(&t[1], NULL, race_files, &r);
	pthread_create(&t[2], NULL, race_files, &r);
	for (int i = 1; i < 3; i++) {
		pthread_join(t[i], &res);
		assert_null(res);
	}
	r.stop = true;
	pthread_join(t[0], NULL);
	assert_int_equal(vfs_poll(r.ep), 0);
	file_put(r.ep);
	file_put(outer);
}

/* Instances that go while their files are written and go too. */
static void *race_instances(void *arg)
{
	struct file **fs = arg;
	struct epoll_event ev = { .events = EPOLLIN };

	current_task = &task;
	for (int i = 0; i < 2000; i++) {
		struct file *ep;

		if (epoll_file_new(task.cred, &ep) < 0)
			return (void *)1;
		for (int k = 0; k < 4; k++)
			epoll_control(ep, EPOLL_CTL_ADD, k, fs[k], &ev);
		file_put(ep);
	}
	return NULL;
}

static void test_epoll_instances(void **state)
{
	struct file *fs[4];
	pthread_t t[2];

	for (int k = 0; k < 4; k++)
		assert_int_equal(eventfd_new(task.cred, 0, 0, &fs[k]), 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, race_instances, fs);
	for (int i = 0; i < 5000; i++)
		put_bytes(fs[i % 4], &(u64){ 1 }, 8);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (int k = 0; k < 4; k++)
		file_put(fs[k]);
}

static void *race_sender(void *arg)
{
	struct file *f = arg;
	u8 b[777];

	current_task = &task;
	memset(b, 5, sizeof(b));
	for (size_t left = 1 << 20; left;) {
		ssize_t r = put_bytes(f, b, MIN(sizeof(b), left));

		if (r == -EAGAIN)
			sched_yield();
		else if (r <= 0)
			return (void *)1;
		else
			left -= (size_t)r;
	}
	file_put(f);
	return NULL;
}

static void test_stream_threads(void **state)
{
	struct file *f[2];
	pthread_t t;
	u8 b[1000];
	size_t got = 0;
	ssize_t r;
	void *res;

	make_pair(SOCK_STREAM, f);
	pthread_create(&t, NULL, race_sender, f[0]);
	while ((r = get_bytes(f[1], b, sizeof(b))) != 0) {
		if (r == -EAGAIN)
			sched_yield();
		else
			got += (size_t)r;
	}
	pthread_join(t, &res);
	assert_null(res);
	assert_int_equal(got, 1 << 20);
	file_put(f[1]);
	assert_int_equal(live_sockets(), 0);
}

#define GC_LIMIT_S 60

/* Sockets passed over sockets by several threads while the collector runs. */
static void *race_rights(void *arg)
{
	current_task = &task;
	for (int i = 0; i < 1000; i++) {
		struct file *f[2], *g[2];
		char c;

		make_pair(SOCK_STREAM, f);
		make_pair(SOCK_STREAM, g);
		put_file(f[0], g[0]);
		put_file(g[1], f[1]);
		if (i % 3 == 0)
			get_bytes(f[1], &c, 1);
		file_put(g[0]);
		file_put(f[1]);
		file_put(f[0]);
		file_put(g[1]);
	}
	return NULL;
}

static void test_rights_threads(void **state)
{
	pthread_t t[3];

	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, race_rights, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	/* Runs are rationed by the time that they take, which a busy host makes long. */
	for (time_t end = time(NULL) + GC_LIMIT_S; live_sockets() && time(NULL) < end;)
		unix_gc_run(NULL);
	assert_int_equal(live_sockets(), 0);
}

static void test_timerfd(void **state)
{
	struct itimerspec v = { { 0, 1000 }, { 0, 1000 } }, old;
	struct file *f, *ep;
	u64 ticks;

	assert_int_equal(timerfd_new(&kernel, task.cred, CLOCK_MONOTONIC, 0, &f), 0);
	assert_int_equal(epoll_file_new(task.cred, &ep), 0);
	watch_file(ep, f, 1);
	timerfd_set(f, 0, &v, &old);
	for (int i = 0; i < 50; i++) {
		while (!(vfs_poll(ep) & EPOLLIN))
			sched_yield();
		assert_int_equal(get_bytes(f, &ticks, 8), 8);
		assert_true(ticks >= 1);
	}
	file_put(f);
	assert_int_equal(vfs_poll(ep), 0);
	file_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream_random),	   cmocka_unit_test(test_cycle_collected),
		cmocka_unit_test(test_live_not_collected), cmocka_unit_test(test_deep_chain),
		cmocka_unit_test(test_epoll_nesting),	   cmocka_unit_test(test_epoll_races),
		cmocka_unit_test(test_epoll_instances),	   cmocka_unit_test(test_stream_threads),
		cmocka_unit_test(test_rights_threads),	   cmocka_unit_test(test_timerfd),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
