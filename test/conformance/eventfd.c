/* eventfd. */
#include "conf.h"
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

static int wr(int fd, uint64_t v)
{
	return (int)write(fd, &v, 8);
}
static uint64_t rd(int fd)
{
	uint64_t v = 0;
	CHECK_EQ(read(fd, &v, 8), 8);
	return v;
}
static int events(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT, 0 };
	OK(poll(&p, 1, 0));
	return p.revents;
}

CASE(counts)
{
	int f = OK(eventfd(3, EFD_NONBLOCK));
	CHECK_EQ(wr(f, 4), 8);
	CHECK_EQ(rd(f), 7);
	uint64_t v;
	CHECK_ERR(read(f, &v, 8), EAGAIN);
}
CASE(semaphore)
{
	int f = OK(eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE));
	uint64_t v;
	CHECK_EQ(rd(f), 1);
	CHECK_EQ(rd(f), 1);
	CHECK_ERR(read(f, &v, 8), EAGAIN);
}
CASE(sizes)
{
	int f = OK(eventfd(1, EFD_NONBLOCK));
	char b[16];
	CHECK_ERR(read(f, b, 7), EINVAL);
	CHECK_ERR(write(f, b, 7), EINVAL);
	CHECK_EQ(read(f, b, 16), 8);
	CHECK_ERR(write(f, (void *)8, 8), EFAULT);
	CHECK_EQ(wr(f, 1), 8);
	CHECK_ERR(read(f, (void *)8, 8), EFAULT);
}
CASE(overflow)
{
	int f = OK(eventfd(0, EFD_NONBLOCK));
	CHECK_ERR(wr(f, UINT64_MAX), EINVAL);
	CHECK_EQ(wr(f, UINT64_MAX - 1), 8);
	CHECK_EQ(events(f), POLLIN);
	CHECK_ERR(wr(f, 1), EAGAIN);
	CHECK_EQ(wr(f, 0), 8);
	CHECK(rd(f) == UINT64_MAX - 1);
	CHECK_EQ(events(f), POLLOUT);
}
CASE(flags)
{
	CHECK_ERR(eventfd(0, 0x40000000), EINVAL);
	int f = OK(eventfd(0, EFD_CLOEXEC));
	CHECK_EQ(fcntl(f, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(events(f), POLLOUT);
}
static void *writer(void *arg)
{
	return (void *)(intptr_t)(wr(*(int *)arg, 9) != 8);
}
CASE(blocking_read)
{
	int f = OK(eventfd(0, 0));
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, writer, &f), 0);
	CHECK_EQ(rd(f), 9);
	pthread_join(t, NULL);
}
static void *reader(void *arg)
{
	uint64_t v;
	return (void *)(intptr_t)(read(*(int *)arg, &v, 8) != 8);
}
CASE(blocking_write)
{
	int f = OK(eventfd(0, 0));
	pthread_t t;
	CHECK_EQ(wr(f, UINT64_MAX - 1), 8);
	CHECK_EQ(pthread_create(&t, NULL, reader, &f), 0);
	CHECK_EQ(wr(f, 5), 8);
	pthread_join(t, NULL);
	CHECK_EQ(rd(f), 5);
}
CONF_MAIN
