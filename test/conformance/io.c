/* Reading and writing: offsets, vectors, sparse files, splice family, pipes, memfd. */
#include "conf.h"
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <limits.h>
#include <sys/auxv.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int temp(const char *text)
{
	int fd = OK(open(conf_path("f"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	OK(lseek(fd, 0, SEEK_SET));
	return fd;
}
static int shm(void)
{
	char name[] = "/dev/shm/conf.XXXXXX";
	int fd = OK(mkstemp(name));
	OK(unlink(name));
	return fd;
}

CASE(read_write_seek)
{
	char buf[16];
	int fd = temp("0123456789");
	CHECK_EQ(read(fd, buf, 4), 4);
	CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
	CHECK_EQ(lseek(fd, -1, SEEK_END), 9);
	CHECK_EQ(read(fd, buf, 16), 1);
	CHECK_EQ(read(fd, buf, 16), 0);
	CHECK_ERR(lseek(fd, -1, SEEK_SET), EINVAL);
	CHECK_ERR(lseek(fd, 0, 99), EINVAL);
	CHECK_EQ(lseek(fd, 1L << 40, SEEK_SET), 1L << 40);
	CHECK_EQ(read(fd, buf, 1), 0);
	int p[2];
	OK(pipe(p));
	CHECK_ERR(lseek(p[0], 0, SEEK_SET), ESPIPE);
	CHECK_ERR(pread(p[0], buf, 1, 0), ESPIPE);
}
CASE(positional)
{
	char buf[4];
	int fd = temp("0123456789");
	CHECK_EQ(pread(fd, buf, 4, 3), 4);
	CHECK_MEM(buf, "3456", 4);
	CHECK_EQ(pwrite(fd, "XY", 2, 20), 2);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 22);
	CHECK_EQ(pread(fd, buf, 4, 15), 4);
	CHECK_MEM(buf, "\0\0\0\0", 4);
	CHECK_ERR(pread(fd, buf, 4, -1), EINVAL);
	CHECK_ERR(pwrite(fd, buf, 4, -5), EINVAL);
}
CASE(zero_length_and_bad_pointers)
{
	int fd = temp("abc");
	CHECK_EQ(write(fd, NULL, 0), 0);
	CHECK_EQ(pwrite(fd, NULL, 0, 0), 0);
	CHECK_EQ(read(fd, NULL, 0), 0);
	CHECK_ERR(write(fd, (void *)1, 1), EFAULT);
	CHECK_ERR(read(fd, (void *)1, 1), EFAULT);
	CHECK_ERR(read(fd, (void *)0xffff800000000000UL, 1), EFAULT);
	CHECK_ERR(read(-1, NULL, 0), EBADF);
}
/* An empty buffer's address has to be a user's, too. */
CASE(zero_length_at_kernel_addresses)
{
	char *const kernel = (char *)-4096L, *const edge = (char *)0x7ffffffff000UL;
	struct iovec v[2] = { { kernel, 0 }, { (char *)"x", 1 } };
	int fd = temp("abc"), sv[2];

	CHECK_ERR(read(fd, kernel, 0), EFAULT);
	CHECK_ERR(write(fd, kernel, 0), EFAULT);
	CHECK_ERR(pread(fd, kernel, 0, 0), EFAULT);
	CHECK_EQ(read(fd, edge, 0), 0);
	CHECK_ERR(read(fd, edge + 1, 0), EFAULT);
	CHECK_ERR(readv(fd, v, 1), EFAULT);
	CHECK_ERR(writev(fd, v, 2), EFAULT);
	v[0].iov_base = (void *)1;
	CHECK_EQ(writev(fd, v, 2), 1);
	OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	CHECK_ERR(send(sv[0], kernel, 0, 0), EFAULT);
	CHECK_ERR(recv(sv[1], kernel, 0, MSG_DONTWAIT), EFAULT);
	CHECK_ERR(getrandom(kernel, 0, 0), EFAULT);
}
/* A length that does not fit: read and write look at the range as it is, others at the part of it
 * that they would move at most. */
CASE(giant_lengths)
{
	static char buf[64]; /* a stack may end less than the most that is moved beyond it */
	struct iovec v[2] = { { buf, 0x7fffffffffff }, { buf, 1 } };
	int fd = temp("abc"), sv[2];

	CHECK_ERR(read(fd, buf, SIZE_MAX), EFAULT);
	CHECK_ERR(write(fd, buf, 1UL << 63), EFAULT);
	CHECK_EQ(readv(fd, v, 1), 3);
	CHECK_ERR(readv(fd, v, 2), EFAULT);
	v[0] = (struct iovec){ (void *)-4096L, 1 };
	v[1].iov_len = SIZE_MAX;
	CHECK_ERR(readv(fd, v, 2), EINVAL);
	OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	CHECK_EQ(send(sv[0], "abc", 3, 0), 3);
	CHECK_EQ(recv(sv[1], buf, SIZE_MAX, 0), 3);
	CHECK_ERR(send(sv[0], buf, SIZE_MAX, 0), EMSGSIZE);
}
CASE(write_from_the_vdso)
{
	const char *vdso = (const char *)getauxval(33 /* AT_SYSINFO_EHDR */);
	char buf[64];
	if (!vdso)
		SKIP("no vDSO");
	int fd = temp("");
	CHECK_EQ(write(fd, vdso, 64), 64);
	CHECK_EQ(pread(fd, buf, 64, 0), 64);
	CHECK_MEM(buf, "\177ELF", 4);
	CHECK_MEM(buf, vdso, 64);
}
CASE(partial_at_bad_page)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(munmap(p + 4096, 4096));
	memset(p, 'q', 4096);
	int fds[2];
	OK(pipe(fds));
	ssize_t n = write(fds[1], p + 4000, 200);
	CHECK(n == 96 || (n == -1 && errno == EFAULT));
	int fd = temp("");
	n = write(fd, p + 4000, 200);
	CHECK(n == 96 || (n == -1 && errno == EFAULT));
}
CASE(vectors)
{
	char a[3], b[5];
	struct iovec w[3] = { { "abc", 3 }, { NULL, 0 }, { "defgh", 5 } },
		     r[2] = { { a, 3 }, { b, 5 } };
	int fd = temp("");
	CHECK_EQ(writev(fd, w, 3), 8);
	CHECK_EQ(preadv(fd, r, 2, 0), 8);
	CHECK_MEM(a, "abc", 3);
	CHECK_MEM(b, "defgh", 5);
	CHECK_EQ(pwritev(fd, w, 3, 4), 8);
	CHECK_EQ(writev(fd, w, 0), 0);
	CHECK_ERR(writev(fd, w, -1), EINVAL);
	CHECK_ERR(writev(fd, w, 1025), EINVAL);
	CHECK_ERR(readv(fd, (void *)1, 2), EFAULT);
	w[0].iov_len = (size_t)-1;
	CHECK_ERR(writev(fd, w, 3), EINVAL);
}
/* Linux takes the count for 32 bits wide. */
CASE(vector_counts)
{
	struct iovec v[2] = { { (char *)"abc", 3 }, { (char *)"d", 1 } };
	int fd = temp(""), sv[2];
	char buf[8];

	CHECK_EQ(syscall(SYS_writev, fd, v, 0x100000001), 3);
	CHECK_EQ(syscall(SYS_writev, fd, v, 0xffffffff00000000), 0);
	CHECK_ERR(syscall(SYS_writev, fd, v, 0x80000000), EINVAL);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 3);
	/* Empty segments are no datagram, an empty buffer is one. */
	v[0].iov_len = v[1].iov_len = 0;
	OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv));
	CHECK_EQ(writev(sv[0], v, 2), 0);
	CHECK_ERR(recv(sv[1], buf, 8, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(write(sv[0], buf, 0), 0);
	CHECK_EQ(recv(sv[1], buf, 8, MSG_DONTWAIT), 0);
}
/* Which of several errors it is. */
CASE(order_of_checks)
{
	struct iovec v = { (char *)"x", 1 };
	int fd = temp("abc"), p[2];
	char c;

	OK(pipe(p));
	CHECK_ERR(pread(p[0], &c, 1, -1), EINVAL);
	CHECK_ERR(pread(p[1], &c, 1, 0), ESPIPE); /* not EBADF, which it is to read */
	CHECK_ERR(pwrite(p[0], &c, 1, 0), ESPIPE);
	CHECK_ERR(preadv(p[0], &v, 0, 0), ESPIPE);
	CHECK_ERR(preadv2(-1, &v, 1, 0, 0x1000), EBADF);
	CHECK_ERR(preadv2(fd, (void *)1, 1, 0, 0x1000), EFAULT);
	CHECK_EQ(preadv2(fd, &v, 0, 0, 0x1000), 0);
}
/* Of the calls that move between files: offsets are fetched first, then it matters what files these
 * are, then how they are open, then where. */
CASE(order_of_checks_of_transfers)
{
	int fd = temp("abc"), to = shm(), dir = OK(open("/", O_RDONLY | O_DIRECTORY)), p[2], q[2];
	off_t zero = 0, minus = -1, last = INT64_MAX - 3, *const bad = (off_t *)1;
	int append = OK(memfd_create("x", 0));

	OK(pipe(p));
	OK(pipe(q));
	OK(fcntl(append, F_SETFL, O_APPEND));
	CHECK_EQ(write(p[1], "hello", 5), 5);
	CHECK_ERR(splice(p[1], &zero, q[0], NULL, 1, 0), ESPIPE); /* not EBADF */
	CHECK_ERR(splice(p[1], bad, to, NULL, 1, 0), ESPIPE);
	CHECK_ERR(splice(p[1], NULL, to, bad, 1, 0), EFAULT);
	CHECK_ERR(splice(p[1], NULL, to, &minus, 1, 0), EBADF);
	CHECK_ERR(splice(p[0], NULL, to, &minus, 1, 0), EINVAL);
	CHECK_ERR(splice(p[0], NULL, to, &last, 10, 0), EINVAL);
	CHECK_ERR(splice(p[0], NULL, to, NULL, SIZE_MAX, 0), EINVAL);
	CHECK_ERR(splice(p[0], NULL, append, NULL, 1, 0), EINVAL);
	CHECK_ERR(sendfile(-1, -1, bad, 1), EFAULT);
	CHECK_ERR(sendfile(to, p[0], &zero, 1), ESPIPE);
	CHECK_ERR(sendfile(-1, p[0], &zero, 1), ESPIPE);
	CHECK_ERR(sendfile(-1, fd, &minus, 1), EINVAL);
	CHECK_ERR(sendfile(-1, fd, &last, 10), EINVAL);
	CHECK_ERR(sendfile(-1, fd, NULL, SIZE_MAX), EINVAL);
	CHECK_ERR(sendfile(-1, fd, NULL, 1), EBADF);
	CHECK_ERR(sendfile(append, fd, NULL, 1), EINVAL);
	CHECK_ERR(sendfile(to, p[0], NULL, 0), EINVAL);
	CHECK_EQ(sendfile(q[1], p[0], NULL, 0), 0);
	CHECK_EQ(sendfile(to, dir, NULL, 0), 0);
	CHECK_ERR(sendfile(append, dir, NULL, 0), EINVAL);
	CHECK_ERR(sendfile(to, dir, NULL, 1), EINVAL);
	CHECK_ERR(copy_file_range(-1, bad, to, NULL, 1, 0), EBADF);
	CHECK_ERR(copy_file_range(dir, bad, to, NULL, 1, 0), EFAULT);
	CHECK_ERR(copy_file_range(dir, &minus, to, NULL, 1, 0), EISDIR);
	CHECK_ERR(copy_file_range(to, &minus, p[1], NULL, 1, 0), EINVAL);
	CHECK_ERR(copy_file_range(to, NULL, append, &minus, 1, 0), EBADF);
	CHECK_ERR(copy_file_range(to, &minus, to, NULL, 1, 0), EOVERFLOW);
	CHECK_ERR(copy_file_range(to, &minus, to, NULL, 0, 0), EINVAL);
	CHECK_EQ(vmsplice(fd, NULL, 0, 0), 0);
	CHECK_ERR(fcntl(p[0], F_ADD_SEALS, F_SEAL_SEAL), EPERM);
	CHECK_ERR(fcntl(p[1], F_ADD_SEALS, F_SEAL_SEAL), EINVAL);
	CHECK_ERR(vmsplice(fd, &(struct iovec){ &zero, 1 }, 1, 0), EBADF);
	/* Nothing of it was moved. */
	CHECK_EQ(lseek(to, 0, SEEK_END), 0);
	CHECK_EQ(splice(p[0], NULL, to, NULL, 100, 0), 5);
}
CASE(positions_at_the_end)
{
	struct iovec v = { (char *)"0123456789", 10 };
	int fd = shm();
	char buf[10];

	CHECK_EQ(pread(fd, buf, 10, INT64_MAX - 10), 0);
	CHECK_ERR(pread(fd, buf, 10, INT64_MAX - 9), EINVAL);
	CHECK_ERR(pwrite(fd, buf, 10, INT64_MAX - 9), EINVAL);
	CHECK_ERR(pwritev(fd, &v, 1, INT64_MAX), EINVAL);
	CHECK_EQ(lseek(fd, INT64_MAX, SEEK_SET), INT64_MAX);
	CHECK_ERR(lseek(fd, 1, SEEK_CUR), EINVAL);
	CHECK_ERR(write(fd, "x", 1), EINVAL);
	CHECK_ERR(read(fd, buf, 1), EINVAL);
}
CASE(rwf_flags)
{
	char a[4];
	struct iovec v = { a, 4 };
	int fd = temp("0123");
	CHECK_EQ(preadv2(fd, &v, 1, 0, 0), 4);
	CHECK_EQ(preadv2(fd, &v, 1, -1, 0), 4);
	v.iov_len = 2;
	CHECK_EQ(pwritev2(fd, &v, 1, 0, RWF_APPEND), 2);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 6);
	CHECK_ERR(preadv2(fd, &v, 1, 0, 0x1000), EOPNOTSUPP);
}
CASE(file_size_limit)
{
	struct rlimit lim = { 100, 100 };
	char buf[200] = { 0 };
	int fd = temp("");
	signal(SIGXFSZ, SIG_IGN);
	OK(setrlimit(RLIMIT_FSIZE, &lim));
	CHECK_EQ(write(fd, buf, 200), 100);
	CHECK_ERR(write(fd, buf, 1), EFBIG);
	CHECK_ERR(ftruncate(fd, 101), EFBIG);
}
static volatile sig_atomic_t too_large;
static void count_too_large(int sig)
{
	too_large++;
}
CASE(file_size_limit_below_the_size)
{
	struct rlimit lim = { 100, 100 };
	char buf[400] = { 0 };
	int fd = shm();

	signal(SIGXFSZ, count_too_large);
	CHECK_EQ(write(fd, buf, 400), 400);
	OK(setrlimit(RLIMIT_FSIZE, &lim));
	/* What the file has does not grow. */
	OK(ftruncate(fd, 300));
	OK(ftruncate(fd, 300));
	OK(fallocate(fd, 0, 0, 300));
	CHECK_EQ(too_large, 0);
	CHECK_ERR(ftruncate(fd, 301), EFBIG);
	CHECK_EQ(too_large, 1);
	CHECK_ERR(fallocate(fd, 0, 0, 301), EFBIG);
	CHECK_EQ(too_large, 2);
	CHECK_ERR(pwrite(fd, buf, 1, 200), EFBIG);
	CHECK_EQ(too_large, 3);
}
CASE(file_size_limit_of_transfers)
{
	struct rlimit lim = { 100, 100 };
	int fd = shm(), from = shm(), p[2];
	off_t in = 0, out = 90;
	char buf[40] = { 0 };

	signal(SIGXFSZ, count_too_large);
	OK(pipe(p));
	CHECK_EQ(write(from, buf, 40), 40);
	CHECK_EQ(write(p[1], buf, 40), 40);
	OK(setrlimit(RLIMIT_FSIZE, &lim));
	/* A part is moved; splice and sendfile signal all the same. */
	CHECK_EQ(copy_file_range(from, &in, fd, &out, 20, 0), 10);
	CHECK_EQ(too_large, 0);
	CHECK_ERR(copy_file_range(from, &in, fd, &out, 20, 0), EFBIG);
	CHECK_EQ(too_large, 1);
	OK(lseek(fd, 90, SEEK_SET));
	CHECK_EQ(splice(p[0], NULL, fd, NULL, 20, 0), 10);
	CHECK_EQ(too_large, 2);
	OK(lseek(fd, 90, SEEK_SET));
	in = 0;
	CHECK_EQ(sendfile(fd, from, &in, 20), 10);
	CHECK_EQ(too_large, 3);
}
CASE(sparse_seek_data)
{
	int fd = shm();
	OK(ftruncate(fd, 1 << 20));
	CHECK_EQ(pwrite(fd, "x", 1, 512 << 10), 1);
	CHECK_EQ(lseek(fd, 0, SEEK_DATA), 512 << 10);
	CHECK_EQ(lseek(fd, 512 << 10, SEEK_HOLE), (512 << 10) + 4096);
	CHECK_ERR(lseek(fd, (512 << 10) + 4096, SEEK_DATA), ENXIO);
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), 0);
	CHECK_ERR(lseek(fd, 1 << 20, SEEK_DATA), ENXIO);
	struct stat st;
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_blocks, 8);
}
CASE(fallocate_modes)
{
	int fd = shm();
	struct stat st;
	OK(fallocate(fd, 0, 0, 1 << 20));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 1 << 20 && st.st_blocks == 2048);
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 20, 4096));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 1 << 20 && st.st_blocks == 2056);
	CHECK_EQ(pwrite(fd, "abcd", 4, 4096), 4);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 65536));
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_blocks, 2056 - 128);
	char c[4];
	CHECK_EQ(pread(fd, c, 4, 4096), 4);
	CHECK_MEM(c, "\0\0\0\0", 4);
	CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096), EOPNOTSUPP);
	CHECK_ERR(fallocate(fd, 0, -1, 4096), EINVAL);
	CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
	CHECK_ERR(fallocate(fd, 0, LLONG_MAX, 4096), EFBIG);
	int p[2];
	OK(pipe(p));
	CHECK_ERR(fallocate(p[1], 0, 0, 4096), ESPIPE);
}
CASE(fallocate_giant_fails_at_once)
{
	int fd = shm();
	CHECK_ERR(fallocate(fd, 0, 0, 1L << 40), ENOSPC);
	CHECK(fallocate(fd, 0, 0, 1L << 62) == -1 && (errno == ENOSPC || errno == EFBIG));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_blocks, 0);
}
CASE(tmpfs_sparse_giant)
{
	int fd = shm();
	OK(ftruncate(fd, 1L << 40));
	CHECK_EQ(pwrite(fd, "end", 3, (1L << 40) - 3), 3);
	char buf[3];
	CHECK_EQ(pread(fd, buf, 3, (1L << 40) - 3), 3);
	CHECK_MEM(buf, "end", 3);
	struct stat st;
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_blocks, 8);
}
CASE(append_from_two_processes)
{
	int fd = OK(open(conf_path("log"), O_WRONLY | O_CREAT | O_APPEND, 0600));
	pid_t pid = fork();
	for (int i = 0; i < 500; i++)
		CHECK_EQ(write(fd, pid ? "parent.\n" : "child..\n", 8), 8);
	if (pid == 0)
		_exit(0);
	conf_join(pid);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 8000);
}
CASE(copy_file_range_call)
{
	int in = temp("0123456789"), out = OK(open(conf_path("o"), O_RDWR | O_CREAT, 0600));
	loff_t off = 2;
	CHECK_EQ(copy_file_range(in, &off, out, NULL, 5, 0), 5);
	CHECK_EQ(off, 7);
	char buf[5];
	CHECK_EQ(pread(out, buf, 5, 0), 5);
	CHECK_MEM(buf, "23456", 5);
	CHECK_ERR(copy_file_range(in, NULL, out, NULL, 5, 1), EINVAL);
	CHECK_EQ(lseek(out, 0, SEEK_CUR), 5);
	off = 100;
	CHECK_EQ(copy_file_range(in, &off, out, NULL, 5, 0), 0);
}
/* What is asked for ends where the file did: the copy does not go on with what it has appended. */
CASE(copy_file_range_to_own_end)
{
	int fd = temp("0123456789");
	loff_t from = 6, to = 10;
	char buf[20];

	CHECK_EQ(copy_file_range(fd, &from, fd, &to, 100, 0), 4);
	CHECK_EQ(pread(fd, buf, sizeof(buf), 0), 14);
	CHECK_MEM(buf, "01234567896789", 14);
	from = 6;
	to = 8;
	CHECK_ERR(copy_file_range(fd, &from, fd, &to, 100, 0), EINVAL);
	from = 14;
	to = 0;
	CHECK_EQ(copy_file_range(fd, &from, fd, &to, 100, 0), 0);
}
CASE(sendfile_call)
{
	int in = temp("0123456789"), p[2];
	OK(pipe(p));
	off_t off = 3;
	CHECK_EQ(sendfile(p[1], in, &off, 4), 4);
	CHECK_EQ(off, 7);
	char buf[16];
	CHECK_EQ(read(p[0], buf, 16), 4);
	CHECK_MEM(buf, "3456", 4);
	int out = OK(open(conf_path("o"), O_RDWR | O_CREAT, 0600));
	CHECK_EQ(sendfile(out, in, NULL, 100), 10);
	CHECK_EQ(lseek(in, 0, SEEK_CUR), 10);
}
CASE(sendfile_from_a_socket)
{
	int sv[2], p[2];
	char buf[8];

	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	OK(pipe(p));
	CHECK_EQ(write(sv[1], "abc", 3), 3);
	CHECK_ERR(sendfile(shm(), sv[0], NULL, 8), EINVAL);
	CHECK_EQ(sendfile(p[1], sv[0], NULL, 8), 3);
	CHECK_EQ(read(p[0], buf, 8), 3);
	CHECK_MEM(buf, "abc", 3);
	OK(shutdown(sv[1], SHUT_WR));
	CHECK_EQ(sendfile(p[1], sv[0], NULL, 8), 0);
}
CASE(splice_and_tee)
{
	int in = temp("0123456789"), a[2], b[2];
	char buf[16];
	OK(pipe(a));
	OK(pipe(b));
	loff_t off = 1;
	CHECK_EQ(splice(in, &off, a[1], NULL, 5, 0), 5);
	CHECK_EQ(tee(a[0], b[1], 100, 0), 5);
	CHECK_EQ(read(b[0], buf, 16), 5);
	CHECK_MEM(buf, "12345", 5);
	CHECK_EQ(splice(a[0], NULL, b[1], NULL, 3, 0), 3);
	CHECK_EQ(read(b[0], buf, 16), 3);
	CHECK_EQ(read(a[0], buf, 16), 2);
	int out = OK(open(conf_path("o"), O_RDWR | O_CREAT, 0600));
	CHECK_EQ(write(a[1], "pipe", 4), 4);
	CHECK_EQ(splice(a[0], NULL, out, NULL, 4, 0), 4);
	CHECK_ERR(splice(in, NULL, out, NULL, 4, 0), EINVAL);
	struct iovec v = { "vm", 2 };
	CHECK_EQ(vmsplice(a[1], &v, 1, 0), 2);
	CHECK_EQ(read(a[0], buf, 16), 2);
}
/* vmsplice waits for room, not for all to be written. */
CASE(vmsplice_takes_what_fits)
{
	static char data[1 << 17];
	struct iovec v = { data, sizeof(data) };
	int p[2];
	ssize_t n;

	OK(pipe(p));
	n = OK(vmsplice(p[1], &v, 1, 0));
	CHECK(n >= 4096 && n <= 65536);
	CHECK_ERR(vmsplice(p[1], &v, 1, SPLICE_F_NONBLOCK), EAGAIN);
	CHECK_EQ(read(p[0], data, sizeof(data)), n);
}
CASE(splice_to_what_cannot)
{
	int p[2], e = OK(eventfd(0, 0));

	OK(pipe(p));
	CHECK_ERR(splice(p[0], NULL, e, NULL, 8, 0), EINVAL);
	CHECK_ERR(splice(e, NULL, p[1], NULL, 8, 0), EINVAL);
	CHECK_ERR(splice(OK(inotify_init()), NULL, p[1], NULL, 8, 0), EINVAL);
	CHECK_EQ(write(p[1], "12345678", 8), 8);
	CHECK_ERR(splice(p[0], NULL, e, NULL, 8, 0), EINVAL);
}
CASE(sendfile_stores_its_offset)
{
	off_t *off = OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int in = temp(""), out = OK(open(conf_path("o"), O_RDWR | O_CREAT, 0600));

	CHECK_ERR(sendfile(out, in, off, 1), EFAULT);
	CHECK_EQ(write(in, "x", 1), 1);
	CHECK_ERR(sendfile(out, in, off, 1), EFAULT);
	CHECK_EQ(lseek(out, 0, SEEK_CUR), 1);
}

/* ---- pipes ---- */
CASE(pipe_basics)
{
	int p[2];
	char buf[8];
	OK(pipe(p));
	CHECK_EQ(write(p[1], "ab", 2), 2);
	CHECK_EQ(read(p[0], buf, 8), 2);
	CHECK_ERR(write(p[0], "x", 1), EBADF);
	CHECK_ERR(read(p[1], buf, 1), EBADF);
	close(p[1]);
	CHECK_EQ(read(p[0], buf, 8), 0);
	CHECK_ERR(pipe((int *)1), EFAULT);
	CHECK_ERR(pipe2(p, 0x1), EINVAL);
}
CASE(pipe_nonblock_and_capacity)
{
	int p[2], n = 0;
	char buf[4096] = { 0 };
	OK(pipe2(p, O_NONBLOCK));
	CHECK_ERR(read(p[0], buf, 1), EAGAIN);
	while (write(p[1], buf, 4096) == 4096)
		n++;
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(n, 16);
	int bytes;
	OK(ioctl(p[0], FIONREAD, &bytes));
	CHECK_EQ(bytes, 65536);
}
CASE(pipe_small_writes_are_whole)
{
	int p[2], n = 0;
	char buf[511] = { 0 };
	ssize_t r;
	OK(pipe2(p, O_NONBLOCK));
	while ((r = write(p[1], buf, 511)) == 511)
		n++;
	CHECK_EQ(r, -1);
	CHECK_EQ(errno, EAGAIN);
	CHECK(n == 128 || n == 112);
}
CASE(pipe_pollout_needs_pipe_buf)
{
	int p[2];
	char buf[4096] = { 0 };
	OK(pipe2(p, O_NONBLOCK));
	for (int i = 0; i < 15; i++)
		CHECK_EQ(write(p[1], buf, 4096), 4096);
	struct pollfd pf = { .fd = p[1], .events = POLLOUT };
	CHECK_EQ(poll(&pf, 1, 0), 1);
	CHECK_EQ(write(p[1], buf, 4096), 4096);
	CHECK_EQ(poll(&pf, 1, 0), 0);
	CHECK_EQ(read(p[0], buf, 1), 1);
	CHECK_EQ(poll(&pf, 1, 0), 0);
	CHECK_EQ(read(p[0], buf, 4095), 4095);
	CHECK_EQ(poll(&pf, 1, 0), 1);
}
CASE(pipe_atomic_records)
{
	int p[2];
	OK(pipe(p));
	pid_t pids[2];
	for (int k = 0; k < 2; k++) {
		pids[k] = fork();
		if (pids[k] == 0) {
			char rec[4096];
			memset(rec, 'a' + k, sizeof(rec));
			for (int i = 0; i < 100; i++)
				if (write(p[1], rec, sizeof(rec)) != sizeof(rec))
					_exit(1);
			_exit(0);
		}
	}
	close(p[1]);
	char rec[4096];
	size_t total = 0, have = 0;
	ssize_t n;
	while ((n = read(p[0], rec + have, sizeof(rec) - have)) > 0) {
		have += (size_t)n;
		total += (size_t)n;
		if (have == sizeof(rec)) {
			for (size_t i = 1; i < sizeof(rec); i++)
				CHECK_EQ(rec[i], rec[0]);
			have = 0;
		}
	}
	CHECK_EQ(total, 200 * 4096);
	conf_join(pids[0]);
	conf_join(pids[1]);
}
CASE(pipe_size)
{
	int p[2];
	OK(pipe(p));
	CHECK_EQ(fcntl(p[0], F_GETPIPE_SZ), 65536);
	CHECK_EQ(fcntl(p[0], F_SETPIPE_SZ, 1 << 20), 1 << 20);
	CHECK_EQ(fcntl(p[1], F_SETPIPE_SZ, 5000), 8192);
	char buf[8192];
	CHECK_EQ(write(p[1], buf, 8192), 8192);
	CHECK_ERR(fcntl(p[1], F_SETPIPE_SZ, 4096), EBUSY);
	if (geteuid() == 0)
		OK(setresuid(65533, 65533, 65533));
	CHECK_ERR(fcntl(p[1], F_SETPIPE_SZ, 2 << 20), EPERM);
}
CASE(pipe_packet_mode)
{
	int p[2];
	char buf[64];
	OK(pipe2(p, O_DIRECT));
	CHECK_EQ(write(p[1], "one", 3), 3);
	CHECK_EQ(write(p[1], "three", 5), 5);
	CHECK_EQ(read(p[0], buf, 64), 3);
	CHECK_EQ(read(p[0], buf, 2), 2);
}
CASE(pipe_hangup_events)
{
	int p[2];
	OK(pipe(p));
	struct pollfd r = { .fd = p[0], .events = POLLIN }, w = { .fd = p[1], .events = POLLOUT };
	close(p[1]);
	CHECK_EQ(poll(&r, 1, 1000), 1);
	CHECK_EQ(r.revents, POLLHUP);
	OK(pipe(p));
	w.fd = p[1];
	close(p[0]);
	CHECK_EQ(poll(&w, 1, 1000), 1);
	CHECK_EQ(w.revents & POLLERR, POLLERR);
}
CASE(pipe_reopened_through_proc)
{
	int p[2];
	char path[64], c;
	OK(pipe(p));
	CHECK_EQ(write(p[1], "x", 1), 1);
	close(p[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	int again = OK(open(path, O_RDONLY)); /* no writer, and yet no wait */
	CHECK_EQ(read(again, &c, 1), 1);
	CHECK_EQ(read(again, &c, 1), 0);
}
CASE(fifo_open_rules)
{
	OK(mkfifo(conf_path("p"), 0600));
	CHECK_ERR(open(conf_path("p"), O_WRONLY | O_NONBLOCK), ENXIO);
	int r = OK(open(conf_path("p"), O_RDONLY | O_NONBLOCK)),
	    w = OK(open(conf_path("p"), O_WRONLY));
	char c;
	CHECK_EQ(write(w, "f", 1), 1);
	CHECK_EQ(read(r, &c, 1), 1);
	close(w);
	CHECK_EQ(read(r, &c, 1), 0);
	close(r); /* before the fork: the writer must not find this reader */
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(conf_path("p"), O_WRONLY);
		_exit(write(fd, "z", 1) == 1 ? 0 : 1);
	}
	r = OK(open(conf_path("p"), O_RDONLY)); /* waits for the writer */
	CHECK_EQ(read(r, &c, 1), 1);
	conf_join(pid);
}

/* ---- memfd ---- */
CASE(memfd_basics)
{
	int fd = OK(memfd_create("conf", MFD_CLOEXEC));
	char buf[4], path[64], text[64];
	CHECK_EQ(write(fd, "mem", 3), 3);
	CHECK_EQ(pread(fd, buf, 3, 0), 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = OK(readlink(path, text, 63));
	text[n] = 0;
	CHECK_STR(text, "/memfd:conf (deleted)");
	CHECK_ERR(memfd_create("x", 0x10000), EINVAL);
	CHECK_ERR(memfd_create((char *)1, 0), EFAULT);
	int again = OK(open(path, O_RDWR));
	CHECK_EQ(pread(again, buf, 3, 0), 3);
}
CASE(memfd_seals)
{
	int fd = OK(memfd_create("s", MFD_ALLOW_SEALING)), plain = OK(memfd_create("p", 0));
	CHECK_EQ(fcntl(plain, F_GET_SEALS), F_SEAL_SEAL);
	CHECK_ERR(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
	OK(ftruncate(fd, 8192));
	char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	OK(munmap(m, 4096));
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	CHECK_ERR(ftruncate(fd, 4096), EPERM);
	CHECK_ERR(ftruncate(fd, 16384), EPERM);
	CHECK_EQ(pwrite(fd, "x", 1, 0), 1);
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	CHECK_ERR(pwrite(fd, "x", 1, 0), EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
	      errno == EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	CHECK_ERR(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
	int f = temp("x");
	CHECK_ERR(fcntl(f, F_GET_SEALS), EINVAL);
}
/* The right to write goes with the process that had it mapped, and with it its memory. */
CASE(memfd_seal_after_children)
{
	for (int i = 0; i < 6; i++) {
		int fd = OK(memfd_create("s", MFD_ALLOW_SEALING)), status;
		OK(ftruncate(fd, 4096));
		char *own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		memset(own, 1, 1 << 20);
		pid_t pid = OK(fork());
		if (pid == 0) {
			char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			memset(own, 2, 1 << 20);
			m[0] = (char)('a' + i);
			_exit(0);
		}
		CHECK_EQ(OK(waitpid(pid, &status, 0)), pid);
		CHECK_EQ(status, 0);
		OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
		char c;
		CHECK_EQ(pread(fd, &c, 1, 0), 1);
		CHECK_EQ(c, 'a' + i);
		CHECK_EQ(own[4096], 1);
		OK(munmap(own, 1 << 20));
		close(fd);
	}
}
CASE(sync_calls)
{
	int fd = temp("x"), p[2];
	OK(fsync(fd));
	OK(fdatasync(fd));
	OK(syncfs(fd));
	OK(sync_file_range(fd, 0, 1, SYNC_FILE_RANGE_WRITE));
	OK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
	OK(pipe(p));
	CHECK_ERR(fsync(p[0]), EINVAL);
	CHECK_ERR(fsync(999), EBADF);
}
CASE(ioctl_errors)
{
	int fd = temp("x"), n = 1;
	CHECK_ERR(ioctl(fd, 0x5401 /* TCGETS */, &n), ENOTTY);
	CHECK_ERR(ioctl(999, FIONREAD, &n), EBADF);
	int p[2];
	OK(pipe(p));
	OK(ioctl(p[0], FIONBIO, &n));
	CHECK(fcntl(p[0], F_GETFL) & O_NONBLOCK);
	OK(ioctl(fd, FIOCLEX));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}
CASE(big_transfer)
{
	size_t size = 32 << 20;
	char *a = malloc(size), *b = malloc(size);
	for (size_t i = 0; i < size; i++)
		a[i] = (char)(i * 31 >> 3);
	int fd = shm();
	CHECK_EQ(write(fd, a, size), size);
	CHECK_EQ(pread(fd, b, size, 0), size);
	CHECK_MEM(a, b, size);
}
CASE(big_pipe_transfer)
{
	size_t size = 8 << 20, done = 0;
	char *a = malloc(size), *b = malloc(size);
	int p[2];
	OK(pipe(p));
	for (size_t i = 0; i < size; i++)
		a[i] = (char)(i * 7 >> 2);
	pid_t pid = fork();
	if (pid == 0)
		_exit(write(p[1], a, size) == (ssize_t)size ? 0 : 1);
	while (done < size) {
		ssize_t n = OK(read(p[0], b + done, size - done));
		done += (size_t)n;
	}
	conf_join(pid);
	CHECK_MEM(a, b, size);
}
CASE(dev_files)
{
	char buf[32] = "full of things";
	int z = OK(open("/dev/zero", O_RDWR)), n = OK(open("/dev/null", O_RDWR)),
	    f = OK(open("/dev/full", O_RDWR)), r = OK(open("/dev/urandom", O_RDONLY));
	CHECK_EQ(read(z, buf, 32), 32);
	CHECK_EQ(buf[5], 0);
	CHECK_EQ(read(n, buf, 32), 0);
	CHECK_EQ(write(n, buf, 32), 32);
	CHECK_ERR(write(f, buf, 1), ENOSPC);
	CHECK_EQ(read(f, buf, 32), 32);
	CHECK_EQ(read(r, buf, 32), 32);
}
CONF_MAIN
