/* /dev: the memory devices, links, pts, shm. */
#include "conf.h"
#include <dirent.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

static int dev(const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "/dev/%s", name);
	return OK(open(path, O_RDWR));
}
static void check_node(const char *path, unsigned maj, unsigned min, mode_t perm)
{
	struct stat st;
	OK(stat(path, &st));
	CHECK(S_ISCHR(st.st_mode));
	CHECK_EQ(major(st.st_rdev), maj);
	CHECK_EQ(minor(st.st_rdev), min);
	CHECK_EQ(st.st_mode & perm, perm);
}

CASE(nodes)
{
	check_node("/dev/null", 1, 3, 0666);
	check_node("/dev/zero", 1, 5, 0666);
	check_node("/dev/full", 1, 7, 0666);
	check_node("/dev/random", 1, 8, 0444);
	check_node("/dev/urandom", 1, 9, 0444);
	check_node("/dev/tty", 5, 0, 0666);
	check_node("/dev/ptmx", 5, 2, 0666);
}
CASE(null)
{
	char b[8];
	int fd = dev("null");
	CHECK_EQ(read(fd, b, 8), 0);
	CHECK_EQ(write(fd, b, 8), 8);
	CHECK_EQ(lseek(fd, 100, SEEK_SET), 0);
	CHECK_EQ(pread(fd, b, 8, 5), 0);
	CHECK_ERR(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0, ENODEV);
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLIN | POLLOUT);
	OK(close(OK(open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666))));
	CHECK_ERR(ftruncate(fd, 0), EINVAL);
}
CASE(null_write_takes_any_length)
{
	static char big[1 << 20];
	CHECK_EQ(write(dev("null"), big, sizeof(big)), sizeof(big));
}
CASE(zero)
{
	char b[5000];
	memset(b, 1, sizeof(b));
	int fd = dev("zero");
	CHECK_EQ(read(fd, b, sizeof(b)), sizeof(b));
	for (size_t i = 0; i < sizeof(b); i++)
		CHECK_EQ(b[i], 0);
	CHECK_EQ(write(fd, b, 100), 100);
	CHECK_ERR(read(fd, (void *)8, 10), EFAULT);
}
CASE(zero_private_map)
{
	int fd = dev("zero");
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(p[5000], 0);
	p[5000] = 1;
	char *q = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
	CHECK_EQ(q[5000], 0);
	CHECK_EQ(p[5000], 1);
}
static void set_byte(void *arg)
{
	*(char *)arg = 7;
}
CASE(zero_shared_map)
{
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, dev("zero"), 0);
	CHECK(p != MAP_FAILED);
	conf_join(conf_fork(set_byte, p + 10));
	CHECK_EQ(p[10], 7);
	CHECK_EQ(p[11], 0);
	char *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED, dev("zero"), 0);
	CHECK_EQ(q[10], 0);
}
CASE(full)
{
	char b[10] = "xxxxxxxxx";
	int fd = dev("full");
	CHECK_ERR(write(fd, b, 1), ENOSPC);
	CHECK_EQ(read(fd, b, 10), 10);
	CHECK_EQ(b[3], 0);
}
CASE(urandom)
{
	unsigned char a[256] = { 0 }, b[256] = { 0 };
	int fd = dev("urandom"), bits = 0;
	CHECK_EQ(read(fd, a, 256), 256);
	CHECK_EQ(read(fd, b, 256), 256);
	CHECK(memcmp(a, b, 256) != 0);
	CHECK_EQ(read(dev("random"), a, 32), 32);
	CHECK_EQ(write(fd, a, 32), 32);
	OK(ioctl(fd, 0x80045200 /* RNDGETENTCNT */, &bits));
	CHECK(bits > 0 && bits <= 4096);
	CHECK_ERR(ioctl(fd, 0x5401, a), EINVAL);
}
CASE(urandom_at_bad_page)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(munmap(p + 4096, 4096));
	int fd = dev("urandom");
	ssize_t n = read(fd, p + 4000, 200);
	CHECK(n == 96 || (n == -1 && errno == EFAULT));
	CHECK_ERR(read(fd, (void *)8, 10), EFAULT);
}
CASE(standard_links)
{
	char text[64];
	ssize_t n = OK(readlink("/dev/fd", text, sizeof(text)));
	CHECK_EQ(n, 13);
	CHECK_MEM(text, "/proc/self/fd", 13);
	n = OK(readlink("/dev/stdin", text, sizeof(text)));
	CHECK_EQ(n, 15);
	CHECK_MEM(text, "/proc/self/fd/0", 15);
}
CASE(reopen_through_dev_fd)
{
	int p[2];
	char path[32], b[4];
	OK(pipe(p));
	snprintf(path, sizeof(path), "/dev/fd/%d", p[1]);
	int fd = OK(open(path, O_WRONLY));
	CHECK_EQ(write(fd, "abc", 3), 3);
	CHECK_EQ(read(p[0], b, 4), 3);
	OK(dup2(p[1], 1));
	fd = OK(open("/dev/stdout", O_WRONLY | O_APPEND));
	CHECK_EQ(write(fd, "z", 1), 1);
	CHECK_EQ(read(p[0], b, 4), 1);
	CHECK_EQ(b[0], 'z');
	_exit(0);
}
CASE(shm_is_a_writable_tmpfs)
{
	char name[] = "/dev/shm/dev.XXXXXX";
	int fd = OK(mkstemp(name));
	OK(unlink(name));
	OK(ftruncate(fd, 1 << 20));
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 'q';
	char b;
	CHECK_EQ(pread(fd, &b, 1, 0), 1);
	CHECK_EQ(b, 'q');
	struct stat st;
	OK(stat("/dev/shm", &st));
	CHECK_EQ(st.st_mode & 07777, 01777);
}
CASE(devpts_lists_terminals)
{
	int m = OK(posix_openpt(O_RDWR | O_NOCTTY)), n, found = 0, ptmx = 0;
	char name[16];
	OK(ioctl(m, TIOCGPTN, &n));
	snprintf(name, sizeof(name), "%d", n);
	DIR *d = opendir("/dev/pts");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		found += !strcmp(e->d_name, name);
		ptmx += !strcmp(e->d_name, "ptmx");
	}
	CHECK_EQ(found, 1);
	CHECK_EQ(ptmx, 1);
	close(m);
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d));)
		CHECK(strcmp(e->d_name, name));
	CHECK_ERR(mkdir("/dev/pts/x", 0777), geteuid() ? EACCES : EPERM);
}
CASE(pts_ptmx)
{
	int m = OK(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY)), n = -1;
	OK(ioctl(m, TIOCGPTN, &n));
	CHECK(n >= 0);
}
CASE(unknown_number)
{
	if (geteuid())
		SKIP("needs root to make a node");
	const char *path = conf_path("node");
	if (mknod(path, S_IFCHR | 0666, makedev(240, 77)) && errno == EPERM)
		SKIP("may not make nodes");
	int fd = open(path, O_RDWR);
	CHECK(fd == -1 && (errno == ENXIO || errno == EACCES));
	const char *null = conf_path("null");
	OK(mknod(null, S_IFCHR | 0666, makedev(1, 3)));
	fd = open(null, O_WRONLY);
	CHECK(fd >= 0 || errno == EACCES);
}
CONF_MAIN
