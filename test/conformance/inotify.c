/* inotify. */
#include "conf.h"
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static char buf[1 << 16] __attribute__((aligned(8)));
static ssize_t filled, at;

/* The next event of fd; NULL when there is none. */
static struct inotify_event *next(int fd)
{
	if (at >= filled) {
		at = 0;
		filled = read(fd, buf, sizeof(buf));
		if (filled <= 0) {
			filled = 0;
			return NULL;
		}
	}
	struct inotify_event *e = (void *)(buf + at);
	at += (ssize_t)(sizeof(*e) + e->len);
	return e;
}
static void expect(int fd, int wd, uint32_t mask, const char *name)
{
	struct inotify_event *e = next(fd);
	if (!e)
		conf_fail(__FILE__, __LINE__, "no event, expected %x %s", mask, name);
	if (e->wd != wd || e->mask != mask || strcmp(e->len ? e->name : "", name))
		conf_fail(__FILE__, __LINE__,
			  "event wd %d mask %x name \"%s\", expected %d %x \"%s\"", e->wd, e->mask,
			  e->len ? e->name : "", wd, mask, name);
}
static void expect_none(int fd)
{
	struct inotify_event *e = next(fd);
	if (e)
		conf_fail(__FILE__, __LINE__, "unexpected event mask %x name \"%s\"", e->mask,
			  e->len ? e->name : "");
}
static int in_new(void)
{
	return OK(inotify_init1(IN_NONBLOCK));
}
static const char *file(const char *name)
{
	const char *p = conf_path(name);
	close(OK(open(p, O_CREAT | O_RDWR, 0644)));
	return p;
}

CASE(file_events)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_ALL_EVENTS));
	char c;
	int fd = OK(open(p, O_RDWR));
	OK(write(fd, "x", 1));
	CHECK_EQ(pread(fd, &c, 1, 0), 1);
	close(fd);
	expect(in, wd, IN_OPEN, "");
	expect(in, wd, IN_MODIFY, "");
	expect(in, wd, IN_ACCESS, "");
	expect(in, wd, IN_CLOSE_WRITE, "");
	expect_none(in);
}
CASE(directory_events)
{
	int in = in_new(),
	    wd = OK(inotify_add_watch(in, conf_tmpdir(),
				      IN_ALL_EVENTS & ~(IN_OPEN | IN_CLOSE | IN_ATTRIB)));
	const char *p = file("a");
	expect(in, wd, IN_CREATE, "a");
	OK(mkdir(conf_path("d"), 0755));
	expect(in, wd, IN_CREATE | IN_ISDIR, "d");
	OK(symlink("a", conf_path("l")));
	expect(in, wd, IN_CREATE, "l");
	OK(link(p, conf_path("h")));
	expect(in, wd, IN_CREATE, "h");
	OK(unlink(conf_path("l")));
	expect(in, wd, IN_DELETE, "l");
	OK(rmdir(conf_path("d")));
	expect(in, wd, IN_DELETE | IN_ISDIR, "d");
	expect_none(in);
}
CASE(rename_cookies)
{
	int in = in_new();
	file("old");
	OK(inotify_add_watch(in, conf_tmpdir(), IN_MOVE));
	OK(rename(conf_path("old"), conf_path("new")));
	struct inotify_event *e = next(in);
	CHECK(e && e->mask == IN_MOVED_FROM && e->cookie);
	CHECK_STR(e->name, "old");
	uint32_t cookie = e->cookie;
	e = next(in);
	CHECK(e && e->mask == IN_MOVED_TO && e->cookie == cookie);
	CHECK_STR(e->name, "new");
}
CASE(self_events)
{
	const char *p = file("f");
	int in = in_new(),
	    wd = OK(inotify_add_watch(in, p, IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB));
	OK(chmod(p, 0600));
	expect(in, wd, IN_ATTRIB, "");
	OK(rename(p, conf_path("g")));
	expect(in, wd, IN_MOVE_SELF, "");
	OK(unlink(conf_path("g")));
	expect(in, wd, IN_ATTRIB, "");
	expect(in, wd, IN_DELETE_SELF, "");
	expect(in, wd, IN_IGNORED, "");
	expect_none(in);
	CHECK_ERR(inotify_rm_watch(in, wd), EINVAL);
}
CASE(self_events_of_a_directory)
{
	const char *p = conf_path("d");
	OK(mkdir(p, 0755));
	int in = in_new(),
	    wd = OK(inotify_add_watch(in, p, IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB));
	OK(chmod(p, 0700));
	expect(in, wd, IN_ATTRIB | IN_ISDIR, "");
	OK(rename(p, conf_path("e")));
	expect(in, wd, IN_MOVE_SELF, "");
	OK(rmdir(conf_path("e")));
	expect(in, wd, IN_DELETE_SELF, "");
	expect(in, wd, IN_IGNORED, "");
	expect_none(in);
}
CASE(exclude_unlinked)
{
	const char *p = file("f");
	int all = in_new(), in = in_new(), fd = OK(open(p, O_RDWR)),
	    wd = OK(inotify_add_watch(in, conf_tmpdir(), IN_MODIFY | IN_EXCL_UNLINK)),
	    wd_all = OK(inotify_add_watch(all, conf_tmpdir(), IN_MODIFY));
	OK(write(fd, "x", 1));
	expect(in, wd, IN_MODIFY, "f");
	expect_none(in);
	expect(all, wd_all, IN_MODIFY, "f");
	OK(unlink(p));
	OK(write(fd, "y", 1));
	expect_none(in);
	expect(all, wd_all, IN_MODIFY, "f");
}
CASE(truncate_modifies)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_MODIFY));
	OK(truncate(p, 100));
	expect(in, wd, IN_MODIFY, "");
}
CASE(one_shot)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_OPEN | IN_ONESHOT));
	close(OK(open(p, O_RDONLY)));
	close(OK(open(p, O_RDONLY)));
	expect(in, wd, IN_OPEN, "");
	expect(in, wd, IN_IGNORED, "");
	expect_none(in);
}
CASE(mask_add_and_replace)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_OPEN));
	CHECK_EQ(inotify_add_watch(in, p, IN_ATTRIB | IN_MASK_ADD), wd);
	close(OK(open(p, O_RDONLY)));
	OK(chmod(p, 0600));
	expect(in, wd, IN_OPEN, "");
	expect(in, wd, IN_ATTRIB, "");
	CHECK_EQ(inotify_add_watch(in, p, IN_ATTRIB), wd);
	close(OK(open(p, O_RDONLY)));
	expect_none(in);
	CHECK_ERR(inotify_add_watch(in, p, IN_OPEN | IN_MASK_CREATE), EEXIST);
}
CASE(removed_watch)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_OPEN));
	OK(inotify_rm_watch(in, wd));
	expect(in, wd, IN_IGNORED, "");
	close(OK(open(p, O_RDONLY)));
	expect_none(in);
	CHECK(inotify_add_watch(in, p, IN_OPEN) != wd);
}
CASE(equal_events_join)
{
	const char *p = file("f");
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_MODIFY)), fd = OK(open(p, O_WRONLY)),
	    n;
	for (int i = 0; i < 5; i++)
		OK(write(fd, "x", 1));
	OK(ioctl(in, FIONREAD, &n));
	CHECK_EQ(n, sizeof(struct inotify_event));
	expect(in, wd, IN_MODIFY, "");
	expect_none(in);
}
CASE(executing_a_file)
{
	const char *p = conf_path("true");
	char self[64];
	snprintf(self, sizeof(self), "/proc/self/exe");
	int from = OK(open("/bin/true", O_RDONLY)), to = OK(open(p, O_CREAT | O_WRONLY, 0755));
	ssize_t n;
	while ((n = read(from, buf, sizeof(buf))) > 0)
		CHECK_EQ(write(to, buf, (size_t)n), n);
	close(to);
	int in = in_new(), wd = OK(inotify_add_watch(in, p, IN_ALL_EVENTS));
	pid_t pid = fork();
	if (pid == 0) {
		execl(p, "true", NULL);
		_exit(1);
	}
	conf_join(pid);
	expect(in, wd, IN_OPEN, "");
	struct inotify_event *e = next(in);
	CHECK(e && e->mask == IN_ACCESS);
	while ((e = next(in)) && e->mask == IN_ACCESS)
		;
	while (e && (e->mask == IN_OPEN || e->mask == IN_ACCESS))
		e = next(in);
	CHECK(e && e->mask == IN_CLOSE_NOWRITE);
}
CASE(small_buffer)
{
	int in = in_new();
	OK(inotify_add_watch(in, conf_tmpdir(), IN_CREATE));
	file("some-name");
	char small[20];
	CHECK_ERR(read(in, small, sizeof(small)), EINVAL);
	CHECK_EQ(read(in, buf, sizeof(buf)), sizeof(struct inotify_event) + 16);
	CHECK_ERR(read(in, buf, sizeof(buf)), EAGAIN);
}
static void touch_later(void *arg)
{
	file("late");
}
CASE(poll_wakes)
{
	int in = in_new();
	OK(inotify_add_watch(in, conf_tmpdir(), IN_CREATE));
	struct pollfd p = { in, POLLIN, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	pid_t pid = conf_fork(touch_later, NULL);
	CHECK_EQ(poll(&p, 1, 10000), 1);
	conf_join(pid);
}
CASE(errors)
{
	const char *p = file("f");
	int in = in_new(), q[2];
	CHECK_ERR(inotify_init1(1), EINVAL);
	CHECK_ERR(inotify_add_watch(in, p, 0), EINVAL);
	CHECK_ERR(inotify_add_watch(in, p, IN_OPEN | IN_ONLYDIR), ENOTDIR);
	CHECK_ERR(inotify_add_watch(in, conf_path("none"), IN_OPEN), ENOENT);
	CHECK_ERR(inotify_add_watch(in, (void *)8, IN_OPEN), EFAULT);
	CHECK_ERR(inotify_add_watch(in, p, IN_OPEN | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
	CHECK_ERR(inotify_add_watch(0x7ffe, p, IN_OPEN), EBADF);
	OK(pipe(q));
	CHECK_ERR(inotify_add_watch(q[0], p, IN_OPEN), EINVAL);
	CHECK_ERR(inotify_rm_watch(q[0], 1), EINVAL);
	CHECK_ERR(inotify_rm_watch(in, 77), EINVAL);
	OK(symlink("none", conf_path("dangling")));
	CHECK_ERR(inotify_add_watch(in, conf_path("dangling"), IN_OPEN), ENOENT);
	OK(inotify_add_watch(in, conf_path("dangling"), IN_OPEN | IN_DONT_FOLLOW));
}
CONF_MAIN
