/* unit: vfs base */
/* Pipes and FIFOs: capacity, atomic writes, readiness, packets, splice, and threads at both ends.
 */
#include "base/safecopy.h"
#include "vfs/pipe.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct cred *user;

struct ends {
	struct file *r, *w;
};

static struct ends make_pipe(u32 flags)
{
	struct ends e;

	assert_int_equal(pipe_create(flags, user, &e.r, &e.w), 0);
	return e;
}

static void drop_pipe(struct ends e)
{
	file_put(e.r);
	file_put(e.w);
}

static ssize_t put(struct file *f, const void *buf, size_t n)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, (void *)(uintptr_t)buf, n);
	return vfs_write(f, &k, NULL, 0, UINT64_MAX);
}

static ssize_t get(struct file *f, void *buf, size_t n)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, buf, n);
	return vfs_read(f, &k, NULL, 0);
}

static void test_capacity(void **s)
{
	static char buf[1 << 20];
	struct ends e = make_pipe(0);
	int n = 0;

	while (put(e.w, buf, 511) == 511)
		n++;
	assert_int_equal(n, 128);
	assert_int_equal(put(e.w, buf, 511), -EAGAIN);
	assert_int_equal(pipe_bytes(e.r), 128 * 511);
	assert_int_equal(put(e.w, buf, 128), 128);
	assert_int_equal(put(e.w, buf, 1), -EAGAIN);
	assert_int_equal(get(e.r, buf, sizeof(buf)), 65536);
	assert_int_equal(get(e.r, buf, 1), -EAGAIN);
	assert_int_equal(put(e.w, buf, sizeof(buf)), 65536); /* a large write takes what fits */
	assert_int_equal(put(e.w, buf, 0), 0);
	assert_int_equal(get(e.r, buf, 0), 0);
	drop_pipe(e);
}

static void test_poll(void **s)
{
	static char buf[65536];
	struct ends e = make_pipe(0);

	assert_int_equal(vfs_poll(e.r), 0);
	assert_int_equal(vfs_poll(e.w), EPOLLOUT | EPOLLWRNORM);
	for (int i = 0; i < 63; i++)
		assert_int_equal(put(e.w, buf, 1024), 1024);
	assert_int_equal(put(e.w, buf, 1023), 1023);
	assert_int_equal(vfs_poll(e.w), 0); /* one byte is not PIPE_BUF */
	assert_int_equal(vfs_poll(e.r), EPOLLIN | EPOLLRDNORM);
	assert_int_equal(get(e.r, buf, 4095), 4095);
	assert_int_equal(vfs_poll(e.w), EPOLLOUT | EPOLLWRNORM);
	file_put(e.w);
	assert_int_equal(vfs_poll(e.r), EPOLLIN | EPOLLRDNORM | EPOLLHUP);
	assert_int_equal(get(e.r, buf, sizeof(buf)), 65535 - 4095);
	assert_int_equal(get(e.r, buf, sizeof(buf)), 0);
	assert_int_equal(vfs_poll(e.r), EPOLLHUP);
	file_put(e.r);
	e = make_pipe(0);
	file_put(e.r);
	assert_int_equal(vfs_poll(e.w), EPOLLOUT | EPOLLWRNORM | EPOLLERR);
	assert_int_equal(put(e.w, buf, 1), -EPIPE);
	file_put(e.w);
}

static void test_size(void **s)
{
	static char buf[1 << 20], back[sizeof(buf)];
	struct ends e = make_pipe(0);

	assert_int_equal(e.r->ops->fcntl(e.r, F_GETPIPE_SZ, 0), 65536);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 0), 4096);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 5000), 8192);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 3UL << 30), -EINVAL);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 1 << 20), 1 << 20);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)rand();
	/* Wrapped contents survive growing and shrinking. */
	assert_int_equal(put(e.w, buf, 6000), 6000);
	assert_int_equal(get(e.r, back, 5000), 5000);
	assert_int_equal(put(e.w, buf + 6000, 7000), 7000);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 8192), 8192);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 4096), -EBUSY);
	assert_int_equal(put(e.w, buf, 200), -EAGAIN);
	assert_int_equal(e.r->ops->fcntl(e.r, F_SETPIPE_SZ, 1 << 20), 1 << 20);
	assert_int_equal(put(e.w, buf + 13000, 500000), 500000);
	assert_int_equal(get(e.r, back + 5000, sizeof(back)), 508000);
	assert_memory_equal(buf, back, 513000);
	drop_pipe(e);
}

static void test_packets(void **s)
{
	static char buf[9000], back[9000];
	struct ends e = make_pipe(O_DIRECT);

	memset(buf, 'a', sizeof(buf));
	assert_int_equal(put(e.w, "one", 3), 3);
	assert_int_equal(put(e.w, "second", 6), 6);
	assert_int_equal(put(e.w, buf, 9000), 9000); /* in packets of PIPE_BUF */
	assert_int_equal(get(e.r, back, sizeof(back)), 3);
	assert_int_equal(get(e.r, back, 2), 2); /* the rest of the packet is gone */
	assert_int_equal(get(e.r, back, sizeof(back)), 4096);
	assert_int_equal(get(e.r, back, sizeof(back)), 4096);
	assert_int_equal(get(e.r, back, sizeof(back)), 808);
	assert_int_equal(get(e.r, back, sizeof(back)), -EAGAIN);
	for (int i = 0; i < 16; i++)
		assert_int_equal(put(e.w, "x", 1), 1);
	assert_int_equal(put(e.w, "x", 1), -EAGAIN); /* sixteen buffers, as Linux */
	assert_int_equal(vfs_poll(e.w), 0);
	drop_pipe(e);
}

static void test_splice(void **s)
{
	struct ends a = make_pipe(0), b = make_pipe(0);
	char buf[100];
	u64 pos;

	assert_int_equal(pipe_splice_pipe(a.r, b.w, 10, false), -EAGAIN);
	assert_int_equal(put(a.w, "0123456789", 10), 10);
	assert_int_equal(pipe_splice_pipe(a.r, a.w, 10, false), -EINVAL);
	assert_int_equal(pipe_splice_pipe(a.r, b.w, 4, true), 4);
	assert_int_equal(pipe_bytes(a.r), 10);
	assert_int_equal(pipe_splice_pipe(a.r, b.w, 6, false), 6);
	assert_int_equal(get(b.r, buf, sizeof(buf)), 10);
	assert_memory_equal(buf, "0123012345", 10);
	assert_int_equal(pipe_peek(a.r, buf, 3, &pos), 3);
	assert_memory_equal(buf, "678", 3);
	pipe_consume(a.r, pos, 2);
	pipe_consume(a.r, pos, 2); /* stale: nothing */
	assert_int_equal(get(a.r, buf, sizeof(buf)), 2);
	assert_memory_equal(buf, "89", 2);
	file_put(a.w);
	assert_int_equal(pipe_splice_pipe(a.r, b.w, 10, false), 0);
	file_put(b.r);
	assert_int_equal(pipe_splice_pipe(a.r, b.w, 10, false), -EPIPE);
	file_put(a.r);
	file_put(b.w);
}

/* ---- FIFOs ---- */

static struct file *open_fifo(struct inode *i, u32 flags, int want)
{
	struct file *f;

	assert_int_equal(file_new(i, NULL, flags, user, NULL, NULL, &f), 0);
	assert_int_equal(fifo_open(i, f), want);
	if (want == 0 || want == -EAGAIN)
		return f;
	file_discard(f);
	return NULL;
}

static void test_fifo(void **s)
{
	struct inode *i;
	struct file *r, *w, *rw;
	char c;

	assert_int_equal(vfs_anon_inode("fifo", S_IFIFO | 0600, user, &i), 0);
	open_fifo(i, O_WRONLY | O_NONBLOCK, -ENXIO);
	r = open_fifo(i, O_RDONLY | O_NONBLOCK, 0);
	assert_int_equal(vfs_poll(r), 0); /* no writer yet is not a hang-up */
	assert_int_equal(get(r, &c, 1), 0);
	file_put(r);
	r = open_fifo(i, O_RDONLY, -EAGAIN);
	assert_false(fifo_open_ready(r));
	w = open_fifo(i, O_WRONLY, 0);
	assert_true(fifo_open_ready(r));
	assert_int_equal(put(w, "x", 1), 1);
	file_put(w);
	/* The writer came and went: the open is over all the same. */
	assert_true(fifo_open_ready(r));
	assert_int_equal(get(r, &c, 1), 1);
	assert_true(vfs_poll(r) & EPOLLHUP);
	file_put(r);
	rw = open_fifo(i, O_RDWR, 0);
	assert_int_equal(put(rw, "y", 1), 1);
	r = open_fifo(i, O_RDONLY, 0);
	assert_int_equal(get(r, &c, 1), 1);
	assert_int_equal(c, 'y');
	file_put(r);
	file_put(rw);
	/* Nobody left: what was written is gone. */
	rw = open_fifo(i, O_RDWR, 0);
	assert_int_equal(get(rw, &c, 1), -EAGAIN);
	file_put(rw);
	inode_put(i);
}

/* ---- threads ---- */

#define STREAM_BYTES (64UL << 20)

static void *stream_writer(void *arg)
{
	static u8 buf[100000];
	struct file *f = arg;
	u64 pos = 0;
	unsigned seed = 1;

	while (pos < STREAM_BYTES) {
		size_t n = 1 + (size_t)rand_r(&seed) % sizeof(buf);
		ssize_t r;

		n = MIN(n, STREAM_BYTES - pos);
		for (size_t i = 0; i < n; i++)
			buf[i] = (u8)((pos + i) * 31 >> 5);
		r = put(f, buf, n);
		if (r == -EAGAIN)
			sched_yield();
		else
			pos += (u64)r;
	}
	file_put(f);
	return NULL;
}

static void *resizer(void *arg)
{
	struct file *f = arg;

	for (int i = 0; i < 2000; i++) {
		f->ops->fcntl(f, F_SETPIPE_SZ, 4096UL << (i % 9));
		sched_yield();
	}
	file_put(f);
	return NULL;
}

static void test_stream(void **s)
{
	static u8 buf[70000];
	struct ends e = make_pipe(0);
	pthread_t w, z;
	unsigned seed = 2;
	u64 pos = 0;
	ssize_t n;

	pthread_create(&z, NULL, resizer, file_get(e.r));
	pthread_create(&w, NULL, stream_writer, e.w);
	while ((n = get(e.r, buf, 1 + (size_t)rand_r(&seed) % sizeof(buf))) != 0) {
		if (n == -EAGAIN) {
			sched_yield();
			continue;
		}
		for (ssize_t i = 0; i < n; i++)
			if (buf[i] != (u8)((pos + (u64)i) * 31 >> 5))
				fail_msg("byte %lu differs", pos + (u64)i);
		pos += (u64)n;
	}
	assert_int_equal(pos, STREAM_BYTES);
	pthread_join(w, NULL);
	pthread_join(z, NULL);
	file_put(e.r);
}

#define RECORDS 20000

static void *record_writer(void *arg)
{
	static _Atomic int next_id;
	struct file *f = arg;
	u8 record[PIPE_BUF];
	int done = 0;

	memset(record, ++next_id, sizeof(record));
	while (done < RECORDS) {
		ssize_t r = put(f, record, sizeof(record));

		if (r == -EAGAIN)
			sched_yield();
		else if (r == PIPE_BUF)
			done++;
		else
			return "short";
	}
	file_put(f);
	return NULL;
}

static void test_records_do_not_mix(void **s)
{
	struct ends e = make_pipe(0);
	pthread_t w[2];
	u8 record[PIPE_BUF];
	int count = 0;
	void *result;
	size_t have = 0;

	for (int i = 0; i < 2; i++)
		pthread_create(&w[i], NULL, record_writer, file_get(e.w));
	file_put(e.w);
	for (;;) {
		ssize_t n = get(e.r, record + have, sizeof(record) - have);

		if (n == 0)
			break;
		if (n < 0) {
			sched_yield();
			continue;
		}
		have += (size_t)n;
		if (have < sizeof(record))
			continue;
		for (size_t i = 1; i < sizeof(record); i++)
			assert_int_equal(record[i], record[0]);
		have = 0;
		count++;
	}
	assert_int_equal(count, 2 * RECORDS);
	for (int i = 0; i < 2; i++) {
		pthread_join(w[i], &result);
		assert_null(result);
	}
	file_put(e.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capacity), cmocka_unit_test(test_poll),
		cmocka_unit_test(test_size),	 cmocka_unit_test(test_packets),
		cmocka_unit_test(test_splice),	 cmocka_unit_test(test_fifo),
		cmocka_unit_test(test_stream),	 cmocka_unit_test(test_records_do_not_mix),
	};

	safecopy_init();
	user = cred_new(1000, 1000, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
