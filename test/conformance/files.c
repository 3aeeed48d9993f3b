/* Files by name: open flags, path walk, links, rename, directories, attributes, xattrs. */
#include "conf.h"
#include <dirent.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>

static int create(const char *name, const char *text)
{
	int fd = OK(open(conf_path(name), O_RDWR | O_CREAT | O_TRUNC, 0644));
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	return fd;
}
static struct stat st_of(const char *name)
{
	struct stat st;
	OK(lstat(conf_path(name), &st));
	return st;
}

CASE(open_creat_excl)
{
	close(create("f", "x"));
	CHECK_ERR(open(conf_path("f"), O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	OK(symlink("nowhere", conf_path("dangling")));
	CHECK_ERR(open(conf_path("dangling"), O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
	OK(open(conf_path("dangling"), O_CREAT | O_RDWR, 0600));
	CHECK(S_ISREG(st_of("nowhere").st_mode));
}
CASE(open_directory_rules)
{
	OK(mkdir(conf_path("d"), 0755));
	close(create("f", ""));
	CHECK_ERR(open(conf_path("d"), O_RDWR), EISDIR);
	CHECK_ERR(open(conf_path("d"), O_WRONLY), EISDIR);
	CHECK_ERR(open(conf_path("d"), O_RDONLY | O_CREAT, 0600), EISDIR);
	CHECK_ERR(open(conf_path("f"), O_RDONLY | O_DIRECTORY), ENOTDIR);
	CHECK_ERR(open(conf_path("f/"), O_RDONLY), ENOTDIR);
	CHECK_ERR(open(conf_path("f/x"), O_RDONLY), ENOTDIR);
	CHECK_ERR(open(conf_path("new/"), O_RDWR | O_CREAT, 0600), EISDIR);
	int fd = OK(open(conf_path("d/"), O_RDONLY));
	char c;
	CHECK_ERR(read(fd, &c, 1), EISDIR);
	CHECK_ERR(write(fd, &c, 1), EBADF);
}
CASE(open_nofollow)
{
	OK(mkdir(conf_path("d"), 0755));
	OK(symlink("d", conf_path("ld")));
	close(create("f", ""));
	OK(symlink("f", conf_path("lf")));
	CHECK_ERR(open(conf_path("lf"), O_RDONLY | O_NOFOLLOW), ELOOP);
	CHECK_ERR(open(conf_path("ld"), O_RDONLY | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
	int fd = OK(open(conf_path("lf"), O_PATH | O_NOFOLLOW));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(S_ISLNK(st.st_mode));
	OK(open(conf_path("ld/"), O_RDONLY | O_NOFOLLOW));
}
CASE(open_trunc_append)
{
	char buf[8];
	close(create("f", "hello"));
	int fd = OK(open(conf_path("f"), O_WRONLY | O_APPEND));
	CHECK_EQ(write(fd, "!!", 2), 2);
	CHECK_EQ(pwrite(fd, "?", 1, 0), 1); /* Linux appends all the same */
	int rd = OK(open(conf_path("f"), O_RDONLY));
	CHECK_EQ(read(rd, buf, 8), 8);
	CHECK_MEM(buf, "hello!!?", 8);
	OK(open(conf_path("f"), O_WRONLY | O_TRUNC));
	CHECK_EQ(st_of("f").st_size, 0);
}
CASE(open_modes_enforced)
{
	char c;
	close(create("f", "x"));
	int ro = OK(open(conf_path("f"), O_RDONLY)), wo = OK(open(conf_path("f"), O_WRONLY));
	CHECK_ERR(write(ro, "y", 1), EBADF);
	CHECK_ERR(read(wo, &c, 1), EBADF);
	CHECK_ERR(ftruncate(ro, 0), EINVAL);
}
CASE(o_path)
{
	char c;
	close(create("f", "x"));
	int fd = OK(open(conf_path("f"), O_PATH));
	struct stat st;
	CHECK_ERR(read(fd, &c, 1), EBADF);
	CHECK_ERR(fchmod(fd, 0600), EBADF);
	CHECK_ERR(fchown(fd, 0, 0), EBADF);
	CHECK_ERR(ioctl(fd, 0, 0), EBADF);
	OK(fstat(fd, &st));
	OK(fchownat(fd, "", (uid_t)-1, (gid_t)-1, AT_EMPTY_PATH));
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int rd = OK(open(path, O_RDONLY));
	CHECK_EQ(read(rd, &c, 1), 1);
}
CASE(o_tmpfile)
{
	int fd = OK(openat(AT_FDCWD, conf_tmpdir(), O_TMPFILE | O_RDWR, 0600));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_nlink, 0);
	CHECK_EQ(write(fd, "tmp", 3), 3);
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, path, AT_FDCWD, conf_path("linked"), AT_SYMLINK_FOLLOW));
	CHECK_EQ(st_of("linked").st_nlink, 1);
	CHECK_EQ(st_of("linked").st_size, 3);
	fd = OK(open(conf_tmpdir(), O_TMPFILE | O_RDWR | O_EXCL, 0600));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_ERR(linkat(AT_FDCWD, path, AT_FDCWD, conf_path("l2"), AT_SYMLINK_FOLLOW), ENOENT);
	CHECK_ERR(open(conf_tmpdir(), O_TMPFILE | O_RDONLY, 0600), EINVAL);
}
CASE(names_and_lengths)
{
	char name[300], path[PATH_MAX + 100];
	memset(name, 'n', 256);
	name[256] = 0;
	CHECK_ERR(open(conf_path(name), O_RDONLY), ENAMETOOLONG);
	CHECK_ERR(mkdir(conf_path(name), 0700), ENAMETOOLONG);
	memset(path, '/', sizeof(path));
	path[PATH_MAX - 1] = 0;
	struct stat st;
	OK(stat(path, &st));
	path[PATH_MAX - 1] = '/';
	path[PATH_MAX] = 0;
	CHECK_ERR(stat(path, &st), ENAMETOOLONG);
	CHECK_ERR(stat("", &st), ENOENT);
	name[255] = 0;
	char p2[600];
	snprintf(p2, sizeof(p2), "%s/%s", conf_tmpdir(), name);
	OK(mkdir(p2, 0700));
}
CASE(symlink_depth)
{
	char a[16], b[16];
	close(create("s0", "end"));
	for (int i = 1; i <= 41; i++) {
		snprintf(a, sizeof(a), "s%d", i - 1);
		snprintf(b, sizeof(b), "s%d", i);
		OK(symlink(a, conf_path(b)));
	}
	OK(open(conf_path("s40"), O_RDONLY));
	CHECK_ERR(open(conf_path("s41"), O_RDONLY), ELOOP);
	OK(symlink("loop", conf_path("loop")));
	CHECK_ERR(open(conf_path("loop"), O_RDONLY), ELOOP);
	CHECK_ERR(symlink("", conf_path("e")), ENOENT);
}
CASE(readlink_rules)
{
	char buf[16];
	OK(symlink("target", conf_path("l")));
	CHECK_EQ(readlink(conf_path("l"), buf, 16), 6);
	CHECK_EQ(readlink(conf_path("l"), buf, 3), 3);
	CHECK_MEM(buf, "tar", 3);
	CHECK_ERR(readlink(conf_path("l"), buf, 0), EINVAL);
	close(create("f", ""));
	CHECK_ERR(readlink(conf_path("f"), buf, 16), EINVAL);
	CHECK_EQ(st_of("l").st_size, 6);
}
CASE(dot_dot)
{
	char cwd[PATH_MAX];
	OK(mkdir(conf_path("a"), 0755));
	OK(mkdir(conf_path("a/b"), 0755));
	OK(chdir(conf_path("a/b")));
	OK(chdir(".."));
	CHECK(getcwd(cwd, sizeof(cwd)));
	CHECK_STR(cwd, conf_path("a"));
	OK(chdir("/../../.."));
	CHECK_STR(getcwd(cwd, sizeof(cwd)), "/");
	CHECK_ERR(syscall(SYS_getcwd, cwd, 1), ERANGE);
}
CASE(permission_walk)
{
	OK(mkdir(conf_path("top"), 0755));
	OK(mkdir(conf_path("top/a"), 0755));
	close(create("top/a/f", "x"));
	OK(chmod(conf_tmpdir(), 0755));
	OK(chmod(conf_path("top"), 0));
	if (geteuid() == 0)
		OK(setresuid(65533, 65533, 65533));
	struct stat st;
	CHECK_ERR(stat(conf_path("top/a/f"), &st), EACCES);
	CHECK_ERR(unlink(conf_path("top/a/f")), EACCES);
	CHECK_ERR(rmdir(conf_path("top/a")), EACCES);
	CHECK_ERR(open(conf_path("top/missing"), O_RDONLY), EACCES);
	CHECK_ERR(mkdir("/etc", 0700), EEXIST);
	CHECK_ERR(mkdir("/nope", 0700), EACCES);
	CHECK_ERR(open("/etc/shadow", O_RDONLY), EACCES);
}
CASE(sticky_directory)
{
	if (geteuid() != 0)
		SKIP("needs root to be two users");
	OK(mkdir(conf_path("s"), 01777));
	OK(chmod(conf_path("s"), 01777));
	OK(chmod(conf_tmpdir(), 0755));
	close(create("s/f", "x"));
	OK(setresuid(65533, 65533, 65533));
	CHECK_ERR(unlink(conf_path("s/f")), EPERM);
	CHECK_ERR(rename(conf_path("s/f"), conf_path("s/g")), EPERM);
}
CASE(umask_applies)
{
	umask(077);
	close(create("f", ""));
	CHECK_EQ(st_of("f").st_mode & 0777, 0600);
	OK(mkdir(conf_path("d"), 0777));
	CHECK_EQ(st_of("d").st_mode & 0777, 0700);
	CHECK_EQ(umask(022), 077);
}
CASE(hard_links)
{
	close(create("a", "x"));
	OK(link(conf_path("a"), conf_path("b")));
	CHECK_EQ(st_of("a").st_nlink, 2);
	CHECK_EQ(st_of("a").st_ino, st_of("b").st_ino);
	CHECK_ERR(link(conf_path("a"), conf_path("b")), EEXIST);
	OK(unlink(conf_path("b")));
	CHECK_EQ(st_of("a").st_nlink, 1);
	OK(mkdir(conf_path("d"), 0755));
	CHECK_ERR(link(conf_path("d"), conf_path("e")), EPERM);
	CHECK_ERR(link(conf_path("missing"), conf_path("e")), ENOENT);
	OK(symlink("a", conf_path("l")));
	OK(link(conf_path("l"), conf_path("m")));
	CHECK(S_ISLNK(st_of("m").st_mode));
}
CASE(unlink_rules)
{
	OK(mkdir(conf_path("d"), 0755));
	close(create("d/f", "x"));
	CHECK_ERR(unlink(conf_path("d")), EISDIR);
	CHECK_ERR(rmdir(conf_path("d")), ENOTEMPTY);
	CHECK_ERR(rmdir(conf_path("d/f")), ENOTDIR);
	CHECK_ERR(unlink(conf_path("d/f/")), ENOTDIR);
	CHECK_ERR(rmdir(conf_path("d/.")), EINVAL);
	CHECK_ERR(rmdir(conf_path("d/..")), ENOTEMPTY);
	CHECK_ERR(unlink(conf_path("zz")), ENOENT);
	CHECK_ERR(unlinkat(AT_FDCWD, conf_path("d"), 0x10), EINVAL);
	OK(unlink(conf_path("d/f")));
	OK(rmdir(conf_path("d/")));
	CHECK_ERR(rmdir("/"), EBUSY);
}
CASE(unlinked_file_lives)
{
	char buf[4];
	int fd = create("f", "live");
	OK(unlink(conf_path("f")));
	CHECK_EQ(pread(fd, buf, 4, 0), 4);
	struct stat st;
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_nlink, 0);
	char path[64], text[300];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = OK(readlink(path, text, sizeof(text) - 1));
	text[n] = 0;
	CHECK(strstr(text, " (deleted)") != NULL);
}
CASE(removed_cwd)
{
	char cwd[100];
	OK(mkdir(conf_path("d"), 0755));
	OK(chdir(conf_path("d")));
	OK(rmdir(conf_path("d")));
	CHECK(getcwd(cwd, sizeof(cwd)) == NULL && errno == ENOENT);
	CHECK_ERR(open("x", O_CREAT | O_RDWR, 0600), ENOENT);
}
CASE(rename_rules)
{
	close(create("a", "1"));
	close(create("b", "22"));
	OK(rename(conf_path("a"), conf_path("b")));
	CHECK_EQ(st_of("b").st_size, 1);
	CHECK_ERR(rename(conf_path("a"), conf_path("c")), ENOENT);
	OK(mkdir(conf_path("d"), 0755));
	OK(mkdir(conf_path("e"), 0755));
	close(create("e/x", ""));
	CHECK_ERR(rename(conf_path("d"), conf_path("e")), ENOTEMPTY);
	CHECK_ERR(rename(conf_path("b"), conf_path("d")), EISDIR);
	CHECK_ERR(rename(conf_path("d"), conf_path("b")), ENOTDIR);
	CHECK_ERR(rename(conf_path("e"), conf_path("e/sub")), EINVAL);
	OK(rename(conf_path("e"), conf_path("d")));
	CHECK(S_ISREG(st_of("d/x").st_mode));
	OK(rename(conf_path("d"), conf_path("d")));
	CHECK_ERR(rename(conf_path("d/."), conf_path("q")), EBUSY);
}
CASE(rename_same_inode_is_noop)
{
	close(create("a", "1"));
	OK(link(conf_path("a"), conf_path("b")));
	OK(rename(conf_path("a"), conf_path("b")));
	CHECK_EQ(st_of("a").st_nlink, 2);
}
CASE(renameat2_flags)
{
	close(create("f", "file"));
	OK(mkdir(conf_path("d"), 0755));
	OK(mkdir(conf_path("d/sub"), 0755));
	unsigned long links = st_of("d").st_nlink;
	OK(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("d"), RENAME_EXCHANGE));
	CHECK(S_ISDIR(st_of("f").st_mode) && S_ISREG(st_of("d").st_mode));
	CHECK_EQ(st_of("f").st_nlink, links);
	CHECK_ERR(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("d"), RENAME_NOREPLACE),
		  EEXIST);
	CHECK_ERR(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("d"),
			    RENAME_NOREPLACE | RENAME_EXCHANGE),
		  EINVAL);
	CHECK_ERR(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("zz"), RENAME_EXCHANGE),
		  ENOENT);
	CHECK_ERR(
		renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("f/sub"), RENAME_EXCHANGE),
		EINVAL);
	CHECK_ERR(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("y"), 0x100), EINVAL);
	OK(renameat2(AT_FDCWD, conf_path("f"), AT_FDCWD, conf_path("new"), RENAME_NOREPLACE));
}
CASE(rename_moves_directory_nlink)
{
	OK(mkdir(conf_path("p"), 0755));
	OK(mkdir(conf_path("q"), 0755));
	OK(mkdir(conf_path("p/k"), 0755));
	struct stat p0 = st_of("p"), q0 = st_of("q");
	OK(rename(conf_path("p/k"), conf_path("q/k")));
	CHECK_EQ(p0.st_nlink - st_of("p").st_nlink, p0.st_nlink == 1 ? 0 : 1);
	CHECK_EQ(st_of("q").st_nlink - q0.st_nlink, q0.st_nlink == 1 ? 0 : 1);
	struct stat up, q1 = st_of("q");
	OK(stat(conf_path("q/k/.."), &up));
	CHECK_EQ(up.st_ino, q1.st_ino);
}
CASE(rename_across_to_root)
{
	if (geteuid() != 0)
		SKIP("needs root");
	struct stat a, b;
	OK(stat("/", &a));
	OK(stat(conf_tmpdir(), &b));
	if (a.st_dev != b.st_dev)
		SKIP("the temporary folder is another file system");
	close(create("f", "x"));
	OK(rename(conf_path("f"), "/conf-renamed"));
	OK(unlink("/conf-renamed"));
}

/* ---- directories ---- */
CASE(readdir_lists_all)
{
	char name[16];
	int seen = 0;
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		close(create(name, ""));
	}
	DIR *d = opendir(conf_tmpdir());
	struct dirent *e;
	while ((e = readdir(d)))
		seen += e->d_name[0] == 'n';
	CHECK_EQ(seen, 300);
	rewinddir(d);
	CHECK(readdir(d) != NULL);
}
CASE(readdir_while_unlinking)
{
	char name[32];
	OK(mkdir(conf_path("d"), 0755));
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "d/n%d", i);
		close(create(name, ""));
	}
	int fd = OK(open(conf_path("d"), O_RDONLY | O_DIRECTORY)), gone = 0;
	DIR *d = fdopendir(fd);
	struct dirent *e;
	while ((e = readdir(d)))
		if (e->d_name[0] == 'n')
			gone += unlinkat(fd, e->d_name, 0) == 0;
	CHECK_EQ(gone, 2000);
	OK(rmdir(conf_path("d")));
}
CASE(readdir_seek_and_types)
{
	close(create("file", ""));
	OK(mkdir(conf_path("dir"), 0755));
	OK(symlink("x", conf_path("link")));
	OK(mkfifo(conf_path("fifo"), 0600));
	DIR *d = opendir(conf_tmpdir());
	struct dirent *e;
	int ok = 0;
	long pos[16];
	char names[16][32];
	int n = 0;
	for (pos[0] = telldir(d); (e = readdir(d)) && n < 15; pos[++n] = telldir(d)) {
		snprintf(names[n], sizeof(names[n]), "%.20s", e->d_name);
		ok += (!strcmp(e->d_name, "file") && e->d_type == DT_REG) ||
		      (!strcmp(e->d_name, "dir") && e->d_type == DT_DIR) ||
		      (!strcmp(e->d_name, "link") && e->d_type == DT_LNK) ||
		      (!strcmp(e->d_name, "fifo") && e->d_type == DT_FIFO);
	}
	CHECK_EQ(ok, 4);
	CHECK_EQ(n, 6);
	seekdir(d, pos[3]);
	e = readdir(d);
	CHECK_STR(e->d_name, names[3]);
}
CASE(getdents_small_buffer)
{
	char buf[16];
	int fd = OK(open(conf_tmpdir(), O_RDONLY | O_DIRECTORY));
	CHECK_ERR(syscall(SYS_getdents64, fd, buf, 16), EINVAL);
	CHECK_ERR(syscall(SYS_getdents64, fd, (void *)1, 4096), EFAULT);
	int file = create("f", "");
	CHECK_ERR(syscall(SYS_getdents64, file, buf, 16), ENOTDIR);
}
CASE(deep_tree)
{
	OK(chdir(conf_tmpdir()));
	for (int i = 0; i < 200; i++) {
		OK(mkdir("sub", 0755));
		OK(chdir("sub"));
	}
	close(OK(open("leaf", O_CREAT | O_RDWR, 0600)));
	char cwd[4096];
	CHECK(getcwd(cwd, sizeof(cwd)) != NULL);
	CHECK(strlen(cwd) > 800);
	OK(unlink("leaf"));
	for (int i = 0; i < 200; i++) {
		OK(chdir(".."));
		OK(rmdir("sub"));
	}
}
CASE(mknod_kinds)
{
	OK(mknod(conf_path("p"), S_IFIFO | 0600, 0));
	CHECK(S_ISFIFO(st_of("p").st_mode));
	OK(mknod(conf_path("r"), S_IFREG | 0600, 0));
	OK(mknod(conf_path("s"), S_IFSOCK | 0600, 0));
	CHECK_ERR(open(conf_path("s"), O_RDONLY), ENXIO);
	CHECK_ERR(mknod(conf_path("d"), S_IFDIR | 0600, 0), EPERM);
	CHECK_ERR(mknod(conf_path("r"), S_IFREG, 0), EEXIST);
}

/* ---- attributes ---- */
CASE(stat_fields)
{
	int fd = create("f", "12345");
	struct stat st = st_of("f"), st2;
	CHECK_EQ(st.st_size, 5);
	CHECK(S_ISREG(st.st_mode));
	CHECK_EQ(st.st_nlink, 1);
	CHECK_EQ(st.st_uid, geteuid());
	CHECK(st.st_blksize >= 512);
	OK(fstat(fd, &st2));
	CHECK(st.st_ino == st2.st_ino && st.st_dev == st2.st_dev);
	OK(fstatat(fd, "", &st2, AT_EMPTY_PATH));
	CHECK_EQ(st2.st_ino, st.st_ino);
	CHECK_ERR(fstatat(AT_FDCWD, conf_path("f"), &st2, 0x40000000), EINVAL);
	CHECK_ERR(stat(conf_path("f"), (void *)1), EFAULT);
	CHECK_ERR(fstat(999, &st), EBADF);
}
CASE(statx_fields)
{
	struct statx sx;
	close(create("f", "12345"));
	OK(statx(AT_FDCWD, conf_path("f"), 0, STATX_ALL, &sx));
	CHECK_EQ(sx.stx_size, 5);
	CHECK((sx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	CHECK_ERR(statx(AT_FDCWD, conf_path("f"), 0x80000, STATX_ALL, &sx), EINVAL);
	CHECK_ERR(statx(AT_FDCWD, conf_path("f"), 0, 0x80000000, &sx), EINVAL);
	CHECK_ERR(statx(AT_FDCWD, conf_path("none"), 0, STATX_ALL, &sx), ENOENT);
}
CASE(chmod_and_chown)
{
	int fd = create("f", "");
	OK(chmod(conf_path("f"), 0751));
	CHECK_EQ(st_of("f").st_mode & 07777, 0751);
	OK(fchmod(fd, 0640));
	CHECK_EQ(st_of("f").st_mode & 07777, 0640);
	if (geteuid() != 0)
		return;
	OK(chmod(conf_path("f"), 06755));
	OK(chown(conf_path("f"), 12, 34));
	CHECK_EQ(st_of("f").st_uid, 12);
	CHECK_EQ(st_of("f").st_gid, 34);
	CHECK_EQ(st_of("f").st_mode & 07000, 0);
	OK(fchown(fd, (uid_t)-1, 56));
	CHECK(st_of("f").st_uid == 12 && st_of("f").st_gid == 56);
	OK(symlink("f", conf_path("l")));
	OK(lchown(conf_path("l"), 7, 7));
	CHECK_EQ(st_of("f").st_uid, 12);
	CHECK_EQ(st_of("l").st_uid, 7);
	OK(chmod(conf_tmpdir(), 0755));
	OK(setresuid(65533, 65533, 65533));
	CHECK_ERR(chmod(conf_path("f"), 0600), EPERM);
	CHECK_ERR(chown(conf_path("f"), 65533, (gid_t)-1), EPERM);
}
CASE(write_clears_suid)
{
	close(create("f", "x"));
	OK(chmod(conf_tmpdir(), 0755));
	OK(chmod(conf_path("f"), 06777));
	if (geteuid() == 0)
		OK(setresuid(65533, 65533, 65533));
	int fd = OK(open(conf_path("f"), O_WRONLY));
	CHECK_EQ(write(fd, "y", 1), 1);
	CHECK_EQ(st_of("f").st_mode & 06000, 0);
}
CASE(times)
{
	int fd = create("f", "x");
	struct timespec ts[2] = { { 1000, 5 }, { 2000, 7 } };
	OK(futimens(fd, ts));
	struct stat st = st_of("f");
	CHECK(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec == 2000 && st.st_mtim.tv_nsec == 7);
	ts[0].tv_nsec = UTIME_OMIT;
	ts[1].tv_nsec = UTIME_NOW;
	OK(utimensat(AT_FDCWD, conf_path("f"), ts, 0));
	st = st_of("f");
	CHECK(st.st_atim.tv_sec == 1000 && st.st_mtim.tv_sec > 1000000);
	ts[0].tv_nsec = 1000000000;
	CHECK_ERR(futimens(fd, ts), EINVAL);
	struct stat before = st_of("f");
	OK(chmod(conf_path("f"), 0600));
	CHECK(st_of("f").st_ctim.tv_sec >= before.st_ctim.tv_sec);
	CHECK_ERR(utimes(conf_path("none"), NULL), ENOENT);
}
CASE(access_rules)
{
	close(create("f", ""));
	OK(chmod(conf_path("f"), 0400));
	OK(access(conf_path("f"), R_OK));
	CHECK_ERR(access(conf_path("f"), 0x100), EINVAL);
	CHECK_ERR(access(conf_path("none"), F_OK), ENOENT);
	CHECK_ERR(access(conf_path("f"), X_OK), EACCES);
	OK(syscall(439 /* faccessat2 */, AT_FDCWD, conf_path("f"), R_OK, AT_EACCESS));
	CHECK_ERR(access((void *)1, F_OK), EFAULT);
}
CASE(truncate_rules)
{
	int fd = create("f", "hello");
	char buf[16];
	OK(truncate(conf_path("f"), 2));
	CHECK_EQ(st_of("f").st_size, 2);
	OK(ftruncate(fd, 10));
	CHECK_EQ(pread(fd, buf, 16, 0), 10);
	CHECK_MEM(buf, "he\0\0\0\0\0\0\0\0", 10);
	CHECK_ERR(truncate(conf_path("f"), -1), EINVAL);
	CHECK_ERR(truncate(conf_tmpdir(), 0), EISDIR);
	CHECK_ERR(ftruncate(999, 0), EBADF);
	int p[2];
	OK(pipe(p));
	CHECK_ERR(ftruncate(p[1], 0), EINVAL);
}
CASE(statfs_works)
{
	struct statfs sf;
	OK(statfs(conf_tmpdir(), &sf));
	CHECK(sf.f_bsize > 0 && sf.f_namelen == 255);
	OK(statfs("/proc", &sf));
	CHECK_EQ(sf.f_type, 0x9fa0);
	OK(statfs("/dev/shm", &sf));
	CHECK_EQ(sf.f_type, 0x01021994);
	CHECK_ERR(statfs("/none", &sf), ENOENT);
	CHECK_ERR(fstatfs(999, &sf), EBADF);
}
CASE(statfs_moves_with_use)
{
	struct statfs a, b;
	char name[] = "/dev/shm/conf.XXXXXX";
	int fd = OK(mkstemp(name));
	OK(unlink(name));
	OK(fstatfs(fd, &a));
	OK(posix_fallocate(fd, 0, 8 << 20));
	OK(fstatfs(fd, &b));
	CHECK(a.f_bfree - b.f_bfree >= (8 << 20) / (unsigned long)a.f_bsize - 64);
	OK(ftruncate(fd, 0));
}

/* ---- xattrs ---- */
CASE(xattr_user)
{
	char buf[64];
	char name[] = "/dev/shm/conf.XXXXXX";
	int fd = OK(mkstemp(name));
	if (fsetxattr(fd, "user.a", "value", 5, 0) < 0 && errno == EOPNOTSUPP)
		SKIP("no user xattrs on this tmpfs");
	CHECK_EQ(fgetxattr(fd, "user.a", buf, 64), 5);
	CHECK_EQ(fgetxattr(fd, "user.a", NULL, 0), 5);
	CHECK_ERR(fgetxattr(fd, "user.a", buf, 2), ERANGE);
	CHECK_ERR(fgetxattr(fd, "user.none", buf, 64), ENODATA);
	CHECK_ERR(fsetxattr(fd, "user.a", "x", 1, XATTR_CREATE), EEXIST);
	CHECK_ERR(fsetxattr(fd, "user.b", "x", 1, XATTR_REPLACE), ENODATA);
	CHECK_ERR(fsetxattr(fd, "user.a", "x", 1, 8), EINVAL);
	CHECK_ERR(fsetxattr(fd, "bogus.a", "x", 1, 0), EOPNOTSUPP);
	CHECK_EQ(flistxattr(fd, buf, 64) >= 7, 1);
	OK(fremovexattr(fd, "user.a"));
	CHECK_ERR(fremovexattr(fd, "user.a"), ENODATA);
	OK(unlink(name));
}
CASE(xattr_absent)
{
	char buf[64];
	close(create("f", ""));
	CHECK_ERR(lgetxattr(conf_path("f"), "security.capability", buf, 64), ENODATA);
	CHECK_ERR(lgetxattr("/etc/passwd", "security.capability", buf, 64), ENODATA);
	OK(symlink("f", conf_path("l")));
	CHECK_ERR(lgetxattr(conf_path("l"), "security.capability", buf, 64), ENODATA);
	CHECK_ERR(lsetxattr(conf_path("l"), "user.x", "1", 1, 0), EPERM);
}
CASE(capability_lost_on_write)
{
	if (geteuid() != 0)
		SKIP("needs root");
	char name[] = "/dev/shm/conf.XXXXXX", buf[64];
	int fd = OK(mkstemp(name));
	unsigned char cap[20] = { 0, 0, 0, 2, 1 };
	if (fsetxattr(fd, "security.capability", cap, 20, 0) < 0)
		SKIP("cannot set file capabilities here");
	CHECK_EQ(fgetxattr(fd, "security.capability", buf, 64), 20);
	CHECK_EQ(write(fd, "x", 1), 1);
	CHECK_ERR(fgetxattr(fd, "security.capability", buf, 64), ENODATA);
	OK(unlink(name));
}

/* ---- openat2 and the *at family ---- */
CASE(openat2_resolve)
{
	OK(mkdir(conf_path("d"), 0755));
	close(create("d/f", "x"));
	OK(symlink("f", conf_path("d/l")));
	OK(symlink("/etc/passwd", conf_path("d/abs")));
	int d = OK(open(conf_path("d"), O_PATH | O_DIRECTORY));
	struct open_how how = { .flags = O_RDONLY, .resolve = RESOLVE_BENEATH };
	OK(syscall(SYS_openat2, d, "f", &how, sizeof(how)));
	CHECK_ERR(syscall(SYS_openat2, d, "../d/f", &how, sizeof(how)), EXDEV);
	CHECK_ERR(syscall(SYS_openat2, d, "abs", &how, sizeof(how)), EXDEV);
	how.resolve = RESOLVE_NO_SYMLINKS;
	CHECK_ERR(syscall(SYS_openat2, d, "l", &how, sizeof(how)), ELOOP);
	how.resolve = RESOLVE_IN_ROOT;
	OK(syscall(SYS_openat2, d, "/../f", &how, sizeof(how)));
	CHECK_ERR(syscall(SYS_openat2, d, "abs", &how, sizeof(how)), ENOENT);
	how.resolve = 1 << 20;
	CHECK_ERR(syscall(SYS_openat2, d, "f", &how, sizeof(how)), EINVAL);
	CHECK_ERR(syscall(SYS_openat2, d, "f", &how, 8), EINVAL);
	static char big[4096];
	big[100] = 1;
	CHECK_ERR(syscall(SYS_openat2, d, "f", big, 4096), E2BIG);
}
CASE(at_calls)
{
	OK(mkdir(conf_path("d"), 0755));
	int d = OK(open(conf_path("d"), O_RDONLY | O_DIRECTORY));
	close(OK(openat(d, "f", O_CREAT | O_RDWR, 0600)));
	OK(mkdirat(d, "sub", 0700));
	OK(symlinkat("f", d, "l"));
	OK(linkat(d, "f", d, "g", 0));
	OK(renameat(d, "g", d, "h"));
	OK(fchmodat(d, "f", 0640, 0));
	OK(faccessat(d, "f", R_OK, 0));
	OK(unlinkat(d, "h", 0));
	OK(unlinkat(d, "sub", AT_REMOVEDIR));
	CHECK_ERR(openat(999, "f", O_RDONLY), EBADF);
	int f = OK(openat(d, "f", O_RDONLY));
	CHECK_ERR(openat(f, "x", O_RDONLY), ENOTDIR);
	OK(openat(999, "/dev/null", O_RDONLY));
}
CASE(chroot_confines)
{
	if (geteuid() != 0)
		SKIP("needs root");
	OK(mkdir(conf_path("jail"), 0755));
	close(create("jail/inside", "x"));
	OK(chroot(conf_path("jail")));
	OK(chdir("/"));
	OK(access("/inside", F_OK));
	OK(access("/../../inside", F_OK));
	CHECK_ERR(access("/etc/passwd", F_OK), ENOENT);
}

/* ---- descriptors and locks ---- */
CASE(dup_family)
{
	int fd = create("f", "abc");
	int d = OK(dup(fd));
	OK(lseek(fd, 1, SEEK_SET));
	CHECK_EQ(lseek(d, 0, SEEK_CUR), 1);
	CHECK_EQ(dup2(fd, 50), 50);
	CHECK_EQ(dup2(fd, fd), fd);
	CHECK_ERR(dup3(fd, fd, 0), EINVAL);
	CHECK_EQ(dup3(fd, 51, O_CLOEXEC), 51);
	CHECK_EQ(fcntl(51, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(50, F_GETFD), 0);
	CHECK_EQ(fcntl(fd, F_DUPFD, 100), 100);
	CHECK_ERR(fcntl(fd, F_DUPFD, 100000000), EINVAL);
	CHECK_ERR(dup(999), EBADF);
	CHECK_ERR(dup2(fd, -1), EBADF);
	CHECK_ERR(close(999), EBADF);
}
CASE(lowest_descriptor)
{
	int a = OK(dup(0)), b = OK(dup(0));
	close(a);
	CHECK_EQ(dup(0), a);
	close(b);
}
CASE(close_range_call)
{
	for (int i = 0; i < 10; i++)
		dup2(0, 200 + i);
	OK(syscall(SYS_close_range, 203, 205, 0));
	CHECK_ERR(fcntl(204, F_GETFD), EBADF);
	CHECK_EQ(fcntl(206, F_GETFD), 0);
	OK(syscall(SYS_close_range, 206, ~0U, 4 /* CLOEXEC */));
	CHECK_EQ(fcntl(206, F_GETFD), FD_CLOEXEC);
	CHECK_ERR(syscall(SYS_close_range, 5, 3, 0), EINVAL);
}
CASE(fcntl_flags)
{
	int fd = create("f", "");
	int fl = OK(fcntl(fd, F_GETFL));
	CHECK_EQ(fl & O_ACCMODE, O_RDWR);
	OK(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
	CHECK_EQ(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK), O_APPEND | O_NONBLOCK);
	CHECK_ERR(fcntl(fd, 9999, 0), EINVAL);
	CHECK_ERR(fcntl(999, F_GETFD), EBADF);
}
CASE(flock_rules)
{
	int a = create("f", ""), b = OK(open(conf_path("f"), O_RDWR));
	OK(flock(a, LOCK_EX));
	CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EAGAIN);
	int c = OK(dup(a));
	OK(flock(c, LOCK_UN));
	OK(flock(b, LOCK_SH | LOCK_NB));
	OK(flock(a, LOCK_SH | LOCK_NB));
	CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EAGAIN);
	close(b);
	OK(flock(a, LOCK_EX | LOCK_NB));
	CHECK_ERR(flock(a, 0), EINVAL);
}
CASE(record_locks)
{
	int fd = create("f", "0123456789");
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 4 };
	int p[2];
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		int mine = open(conf_path("f"), O_RDWR);
		if (fcntl(mine, F_SETLK, &l) || write(p[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	char c;
	CHECK_EQ(read(p[0], &c, 1), 1);
	struct flock q = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
	OK(fcntl(fd, F_GETLK, &q));
	CHECK_EQ(q.l_type, F_WRLCK);
	CHECK(q.l_start == 2 && q.l_len == 4 && q.l_pid == pid);
	q = (struct flock){ .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0 };
	CHECK_ERR(fcntl(fd, F_SETLK, &q), EAGAIN);
	q.l_len = 2;
	OK(fcntl(fd, F_SETLK, &q));
	kill(pid, SIGKILL);
	conf_wait_status(pid);
	q.l_len = 0;
	OK(fcntl(fd, F_SETLK, &q));
}
/* F_GETLK tells of the first of an owner's locks, however they came about. */
static void look_from_the_start(void *arg)
{
	const int *fd = arg;
	struct flock l = { .l_type = F_WRLCK };

	OK(fcntl(*fd, F_GETLK, &l));
	CHECK(l.l_type == F_WRLCK && l.l_start == 10 && l.l_len == 2);
	l = (struct flock){ .l_type = F_WRLCK, .l_start = 12 };
	OK(fcntl(*fd, F_GETLK, &l));
	CHECK(l.l_type == F_WRLCK && l.l_start == 13 && l.l_len == 2);
	l = (struct flock){ .l_type = F_RDLCK, .l_start = 15 };
	OK(fcntl(*fd, F_GETLK, &l));
	CHECK(l.l_type == F_WRLCK && l.l_start == 50 && l.l_pid == getppid());
}
CASE(record_locks_in_order)
{
	static const struct {
		int type, start, len;
	} steps[] = {
		{ F_WRLCK, 50, 1 }, { F_WRLCK, 10, 10 }, { F_RDLCK, 15, 10 }, { F_UNLCK, 12, 1 }
	};
	int fd = OK(open(conf_path("f"), O_RDWR | O_CREAT, 0600));

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct flock l = { .l_type = (short)steps[i].type,
				   .l_start = steps[i].start,
				   .l_len = steps[i].len };
		OK(fcntl(fd, F_SETLK, &l));
	}
	conf_join(conf_fork(look_from_the_start, &fd));
	/* The last byte that there can be, and what would be behind it. */
	struct flock last = { .l_type = F_WRLCK, .l_start = INT64_MAX, .l_len = 1 };
	OK(fcntl(fd, F_SETLK, &last));
	last.l_len = 2;
	CHECK_ERR(fcntl(fd, F_SETLK, &last), EOVERFLOW);
	last.l_len = INT64_MIN;
	CHECK_ERR(fcntl(fd, F_SETLK, &last), EINVAL);
}
CASE(record_lock_waits)
{
	int fd = create("f", "");
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	OK(fcntl(fd, F_SETLK, &l));
	pid_t pid = fork();
	if (pid == 0) {
		int mine = open(conf_path("f"), O_RDWR);
		_exit(fcntl(mine, F_SETLKW, &l) ? 1 : 0);
	}
	/* Let it wait, then release. */
	char path[64], text[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	do {
		int s = OK(open(path, O_RDONLY));
		ssize_t n = read(s, text, 63);
		text[n > 0 ? n : 0] = 0;
		close(s);
	} while (!strstr(text, ") S"));
	l.l_type = F_UNLCK;
	OK(fcntl(fd, F_SETLK, &l));
	conf_join(pid);
}
CASE(posix_lock_dropped_by_any_close)
{
	int fd = create("f", "");
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	OK(fcntl(fd, F_SETLK, &l));
	close(OK(open(conf_path("f"), O_RDONLY)));
	pid_t pid = fork();
	if (pid == 0)
		_exit(fcntl(open(conf_path("f"), O_RDWR), F_SETLK, &l) ? 1 : 0);
	conf_join(pid);
}
CASE(ofd_locks)
{
	int a = create("f", ""), b = OK(open(conf_path("f"), O_RDWR));
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	OK(fcntl(a, F_OFD_SETLK, &l));
	CHECK_ERR(fcntl(b, F_OFD_SETLK, &l), EAGAIN);
	close(a);
	OK(fcntl(b, F_OFD_SETLK, &l));
	l.l_pid = 5;
	CHECK_ERR(fcntl(b, F_OFD_SETLK, &l), EINVAL);
}
CASE(guest_writes_stay_visible)
{
	/* Writing beside system files works and is seen by other processes. */
	if (geteuid() != 0)
		SKIP("needs root");
	if (!conf_in_sandbox())
		SKIP("would change the host's /etc");
	int fd = OK(open("/etc/conf-test", O_CREAT | O_WRONLY, 0644));
	CHECK_EQ(write(fd, "x", 1), 1);
	fd = OK(open("/etc/hosts", O_RDWR | O_APPEND));
	CHECK_EQ(write(fd, "#conf\n", 6), 6);
	OK(unlink("/etc/conf-test"));
	OK(rename("/etc/hosts", "/etc/hosts2"));
	CHECK_ERR(access("/etc/hosts", F_OK), ENOENT);
	OK(rename("/etc/hosts2", "/etc/hosts"));
}
CONF_MAIN
