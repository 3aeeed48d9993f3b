/* mount, umount, bind, remount, move, pivot_root, in a mount namespace of the case's own. */
#include "conf.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/vfs.h>
#include <linux/magic.h>

/* A private namespace with a tmpfs of its own to play in. */
static const char *playground(void)
{
	const char *dir = conf_path("play");

	if (unshare(CLONE_NEWNS) < 0)
		SKIP("no mount namespaces here (errno %d)", errno);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		SKIP("may not mount here (errno %d)", errno);
	OK(mkdir(dir, 0755));
	if (mount("none", dir, "tmpfs", 0, "size=1m,mode=755") < 0)
		SKIP("may not mount here (errno %d)", errno);
	OK(chdir(dir));
	return dir;
}
static void touch(const char *path, const char *text)
{
	int fd = OK(open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644));

	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}
static bool mounts_list(const char *needle)
{
	char *buf = malloc(1 << 20);
	int fd = OK(open("/proc/self/mountinfo", O_RDONLY));
	size_t len = 0;
	ssize_t n;
	bool found;

	while ((n = read(fd, buf + len, (1 << 20) - 1 - len)) > 0)
		len += n;
	close(fd);
	buf[len] = 0;
	found = strstr(buf, needle);
	free(buf);
	return found;
}

CASE(tmpfs_options)
{
	struct statfs st;
	struct stat s;

	playground();
	OK(statfs(".", &st));
	CHECK_EQ(st.f_type, TMPFS_MAGIC);
	CHECK_EQ(st.f_blocks, 256);
	OK(stat(".", &s));
	CHECK_EQ(s.st_mode & 07777, 0755);
	OK(mkdir("b", 0755));
	OK(mount("x", "b", "tmpfs", 0, "uid=12,gid=13,nr_inodes=3"));
	OK(stat("b", &s));
	CHECK_EQ(s.st_uid, 12);
	CHECK_EQ(s.st_gid, 13);
	CHECK_EQ(s.st_mode & 07777, 01777);
	touch("b/1", "");
	touch("b/2", "");
	CHECK_ERR(open("b/3", O_CREAT | O_WRONLY, 0600), ENOSPC);
	CHECK_ERR(mount("x", "b", "tmpfs", 0, "bogus=1"), EINVAL);
	CHECK_ERR(mount("x", "b", "no-such-fs", 0, NULL), ENODEV);
	CHECK_ERR(mount("x", "missing", "tmpfs", 0, NULL), ENOENT);
}
CASE(full_tmpfs)
{
	static char buf[2 << 20];
	struct statfs st;
	int fd;

	playground();
	fd = OK(open("f", O_CREAT | O_RDWR, 0600));
	CHECK_EQ(write(fd, buf, sizeof(buf)), 1 << 20);
	CHECK_ERR(write(fd, buf, 1), ENOSPC);
	OK(statfs(".", &st));
	CHECK_EQ(st.f_bfree, 0);
	OK(ftruncate(fd, 1 << 19));
	OK(statfs(".", &st));
	CHECK_EQ(st.f_bfree, 128);
	OK(unlink("f"));
	OK(statfs(".", &st));
	CHECK_EQ(st.f_bfree, 128); /* still open */
	close(fd);
	OK(statfs(".", &st));
	CHECK_EQ(st.f_bfree, 256);
}
CASE(mount_hides_and_umount_shows)
{
	playground();
	OK(mkdir("d", 0755));
	touch("d/under", "u");
	OK(mount("one", "d", "tmpfs", 0, NULL));
	CHECK_ERR(access("d/under", F_OK), ENOENT);
	touch("d/over", "o");
	OK(mount("two", "d", "tmpfs", 0, NULL)); /* stacked */
	CHECK_ERR(access("d/over", F_OK), ENOENT);
	CHECK_ERR(rmdir("d"), EBUSY);
	CHECK_ERR(rename("d", "e"), EBUSY);
	OK(umount("d"));
	OK(access("d/over", F_OK));
	OK(umount("d"));
	OK(access("d/under", F_OK));
	CHECK_ERR(umount("d"), EINVAL);
	CHECK_ERR(umount2("d", 0x100), EINVAL);
}
CASE(umount_busy_and_lazy)
{
	char c;
	int fd;

	playground();
	OK(mkdir("d", 0755));
	OK(mount("one", "d", "tmpfs", 0, NULL));
	touch("d/f", "z");
	fd = OK(open("d/f", O_RDONLY));
	CHECK_ERR(umount("d"), EBUSY);
	OK(umount2("d", MNT_DETACH));
	CHECK_ERR(access("d/f", F_OK), ENOENT);
	CHECK_EQ(read(fd, &c, 1), 1);
	CHECK_EQ(c, 'z');
	close(fd);
}
CASE(bind_mounts)
{
	struct stat a, b;

	playground();
	OK(mkdir("src", 0755));
	OK(mkdir("dst", 0755));
	OK(mkdir("src/sub", 0755));
	touch("src/f", "bound");
	OK(mount("inner", "src/sub", "tmpfs", 0, NULL));
	touch("src/sub/in", "");
	OK(mount("src", "dst", NULL, MS_BIND, NULL));
	OK(stat("src/f", &a));
	OK(stat("dst/f", &b));
	CHECK_EQ(a.st_ino, b.st_ino);
	CHECK_EQ(a.st_dev, b.st_dev);
	CHECK_ERR(access("dst/sub/in", F_OK), ENOENT); /* not recursive */
	CHECK_ERR(link("src/f", "dst/g"), EXDEV);      /* same device, another mount */
	CHECK_ERR(rename("src/f", "dst/g"), EXDEV);
	OK(umount("dst"));
	OK(mount("src", "dst", NULL, MS_BIND | MS_REC, NULL));
	OK(access("dst/sub/in", F_OK));
	OK(umount2("dst", MNT_DETACH));
	/* a file over a file */
	touch("target", "old");
	CHECK_ERR(mount("src", "target", NULL, MS_BIND, NULL), ENOTDIR);
	OK(mount("src/f", "target", NULL, MS_BIND, NULL));
	OK(stat("target", &b));
	CHECK_EQ(a.st_ino, b.st_ino);
	CHECK_ERR(unlink("target"), EBUSY);
	OK(umount("target"));
	CHECK_ERR(mount("missing", "dst", NULL, MS_BIND, NULL), ENOENT);
}
CASE(read_only_remount)
{
	playground();
	OK(mkdir("d", 0755));
	touch("d/f", "x");
	OK(mount("d", "d", NULL, MS_BIND, NULL));
	OK(mount(NULL, "d", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	CHECK_ERR(open("d/f", O_WRONLY), EROFS);
	CHECK_ERR(open("d/g", O_CREAT | O_WRONLY, 0600), EROFS);
	CHECK_ERR(mkdir("d/e", 0700), EROFS);
	CHECK_ERR(unlink("d/f"), EROFS);
	CHECK_ERR(chmod("d/f", 0600), EROFS);
	CHECK_ERR(truncate("d/f", 0), EROFS);
	CHECK_ERR(access("d/f", W_OK), EROFS);
	OK(access("d/f", R_OK));
	OK(mount(NULL, "d", NULL, MS_REMOUNT | MS_BIND, NULL));
	OK(unlink("d/f"));
	OK(umount("d"));
}
CASE(noexec_nodev)
{
	char *argv[] = { "p", NULL };

	playground();
	OK(mkdir("d", 0755));
	OK(mount("n", "d", "tmpfs", MS_NOEXEC | MS_NODEV, NULL));
	touch("d/p", "#!/bin/sh\nexit 0\n");
	OK(chmod("d/p", 0755));
	CHECK_ERR(execv("d/p", argv), EACCES);
	CHECK_ERR(access("d/p", X_OK), EACCES);
	int fd = OK(open("d/p", O_RDONLY));
	CHECK_ERR((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), EPERM);
	void *p = OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	CHECK_ERR(mprotect(p, 4096, PROT_READ | PROT_EXEC), EACCES);
	OK(munmap(p, 4096));
	close(fd);
	if (mknod("d/null", S_IFCHR | 0666, 1 << 8 | 3) == 0)
		CHECK_ERR(open("d/null", O_RDONLY), EACCES);
}
CASE(move_mount)
{
	playground();
	OK(mkdir("a", 0755));
	OK(mkdir("b", 0755));
	OK(mount("moved", "a", "tmpfs", 0, NULL));
	touch("a/f", "");
	OK(mkdir("a/in", 0755));
	CHECK_ERR(mount("a", "a/in", NULL, MS_MOVE, NULL), ELOOP);
	OK(mount("a", "b", NULL, MS_MOVE, NULL));
	CHECK_ERR(access("a/f", F_OK), ENOENT);
	OK(access("b/f", F_OK));
	CHECK_ERR(mount("a", "b", NULL, MS_MOVE, NULL), EINVAL);
}
CASE(resize_tmpfs)
{
	static char buf[512 << 10];
	struct statfs st;

	playground();
	int fd = OK(open("f", O_CREAT | O_RDWR, 0600));
	CHECK_EQ(write(fd, buf, sizeof(buf)), sizeof(buf));
	OK(mount(NULL, ".", NULL, MS_REMOUNT, "size=2m"));
	OK(statfs(".", &st));
	CHECK_EQ(st.f_blocks, 512);
	CHECK_ERR(mount(NULL, ".", NULL, MS_REMOUNT, "size=4k"), EINVAL);
	close(fd);
}
CASE(mountinfo_lists)
{
	char text[4200];

	playground();
	OK(mkdir("dir", 0755));
	OK(mkdir("at", 0755));
	OK(mount("dir", "at", NULL, MS_BIND, NULL));
	snprintf(text, sizeof(text), "/dir %s/at ", conf_path("play"));
	CHECK(mounts_list(text));
	OK(umount("at"));
	CHECK(!mounts_list(text));
}
CASE(pivot)
{
	playground();
	OK(mkdir("new", 0755));
	OK(mount("newroot", "new", "tmpfs", 0, NULL));
	OK(mkdir("new/old", 0755));
	touch("new/here", "");
	CHECK_ERR(syscall(SYS_pivot_root, "new", "."), EINVAL);
	OK(syscall(SYS_pivot_root, "new", "new/old"));
	OK(chdir("/"));
	OK(access("/here", F_OK));
	OK(access("/old/proc", F_OK));
	OK(umount2("/old", MNT_DETACH));
	CHECK_ERR(access("/old/proc", F_OK), ENOENT);
	OK(rmdir("/old"));
}
/* What is exchanged is the caller's root. */
CASE(pivot_in_a_changed_root)
{
	playground();
	OK(mkdir("jail", 0755));
	OK(mount("jail", "jail", "tmpfs", 0, NULL));
	OK(mkdir("jail/new", 0755));
	OK(mkdir("jail/new/old", 0755));
	touch("jail/outer", "");
	OK(chroot("jail"));
	OK(chdir("/"));
	CHECK_ERR(syscall(SYS_pivot_root, "new", "new/old"), EBUSY);
	OK(mount("newroot", "new", "tmpfs", 0, NULL));
	OK(mkdir("new/old", 0755));
	touch("new/here", "");
	OK(chroot("new/old")); /* no mount's root */
	CHECK_ERR(syscall(SYS_pivot_root, ".", "."), EINVAL);
	OK(chroot("."));
	OK(syscall(SYS_pivot_root, "new", "new/old"));
	OK(chdir("/"));
	OK(access("/here", F_OK));
	OK(access("/old/outer", F_OK));
	OK(umount2("/old", MNT_DETACH));
	CHECK_ERR(access("/old/outer", F_OK), ENOENT);
}
CASE(needs_privilege)
{
	const char *dir = conf_path("d");
	pid_t pid;

	OK(mkdir(dir, 0755));
	if (geteuid() == 0) {
		pid = OK(fork());
		if (!pid) {
			if (setresuid(65534, 65534, 65534))
				_exit(3);
			if (mount("x", "/tmp", "tmpfs", 0, NULL) != -1 || errno != EPERM)
				_exit(1);
			_exit(umount("/tmp") == -1 && errno == EPERM ? 0 : 2);
		}
		conf_join(pid);
		return;
	}
	CHECK_ERR(mount("x", dir, "tmpfs", 0, NULL), EPERM);
	CHECK_ERR(umount(dir), EPERM);
}
static void write_byte(void *p)
{
	*(volatile char *)p = 1;
}
/* Size says nothing about space: only pages take it. */
CASE(sparse_file_in_a_small_tmpfs)
{
	static char buf[1 << 20];
	playground();
	int fd = OK(open("f", O_CREAT | O_RDWR, 0600));
	OK(unlink("f"));
	OK(ftruncate(fd, 1L << 30));
	CHECK_EQ(pwrite(fd, "x", 1, 512L << 20), 1);
	char *p = mmap(NULL, 1L << 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p[256L << 20] = 1;
	CHECK_EQ(pwrite(fd, buf, sizeof(buf), 0), sizeof(buf) - 2 * 4096);
	CHECK_ERR(pwrite(fd, "x", 1, 600L << 20), ENOSPC);
	CHECK_EQ(conf_signal_of(write_byte, p + (700L << 20)), SIGBUS);
	CHECK_ERR(fallocate(fd, 0, 700L << 20, 4096), ENOSPC);
	CHECK_EQ(p[256L << 20], 1);
	CHECK_EQ(p[512L << 20], 'x');
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192));
	CHECK_EQ(conf_signal_of(write_byte, p + (700L << 20)), 0);
	CHECK_EQ(p[700L << 20], 1);
}
CONF_MAIN
