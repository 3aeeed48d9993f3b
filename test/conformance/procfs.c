/* /proc and /sys: formats that tools parse, links, permissions, numbers that move. */
#include "conf.h"
#include <dirent.h>
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>

static char text[1 << 20];

/* The whole of a file, NUL-terminated; its length. */
static ssize_t slurp(const char *path)
{
	int fd = OK(open(path, O_RDONLY));
	ssize_t n, total = 0;
	while ((n = OK(read(fd, text + total, sizeof(text) - 1 - total))) > 0)
		total += n;
	text[total] = 0;
	close(fd);
	return total;
}
/* The number after `key` in the text slurped last; fails without it. */
static long long value(const char *key)
{
	char *p = strstr(text, key);
	if (!p)
		conf_fail(__FILE__, __LINE__, "no \"%s\"", key);
	return strtoll(p + strlen(key), NULL, 10);
}
static void spin(double seconds)
{
	struct timespec a, b;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	while (b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) / 1e9 < seconds);
}
static void nothing(void *arg)
{
}
static void wait_pipe(void *arg)
{
	char b;
	int *p = arg;
	close(p[1]);
	(void)!read(p[0], &b, 1);
}

CASE(self_links)
{
	char buf[64], want[64];
	ssize_t n = OK(readlink("/proc/self", buf, sizeof(buf)));
	CHECK_EQ(n, snprintf(want, sizeof(want), "%d", getpid()));
	CHECK_MEM(buf, want, n);
	n = OK(readlink("/proc/thread-self", buf, sizeof(buf)));
	CHECK_EQ(n, snprintf(want, sizeof(want), "%d/task/%ld", getpid(), syscall(SYS_gettid)));
	CHECK_MEM(buf, want, n);
}
CASE(stat_line)
{
	int pid, ppid, pgrp, sid;
	char comm[64], state;
	long long rest[48];
	OK(prctl(PR_SET_NAME, "a b) c"));
	slurp("/proc/self/stat");
	char *p = strrchr(text, ')');
	CHECK(p);
	CHECK_EQ(sscanf(text, "%d (%63[^\n]", &pid, comm), 2);
	CHECK(!strncmp(comm, "a b) c)", 7));
	int used = 0, n = 0;
	CHECK_EQ(sscanf(p + 2, "%c %d %d %d%n", &state, &ppid, &pgrp, &sid, &used), 4);
	for (p += 2 + used; n < 48 && sscanf(p, "%lld%n", &rest[n], &used) == 1; n++)
		p += used;
	CHECK_EQ(n, 46); /* 52 fields in all */
	CHECK_EQ(pid, getpid());
	CHECK_EQ(ppid, getppid());
	CHECK_EQ(pgrp, getpgrp());
	CHECK_EQ(sid, getsid(0));
	CHECK_EQ(state, 'R');
	CHECK_EQ(rest[13], 1); /* num_threads */
	CHECK(rest[16] > 0);   /* vsize */
	CHECK(rest[17] > 0);   /* rss */
	CHECK_EQ(*p, '\n');
}
static char state_of(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	slurp(path);
	return strrchr(text, ')')[2];
}
CASE(stat_of_a_sleeper_and_a_zombie)
{
	int p[2];
	char path[64], state = 0;
	OK(pipe(p));
	pid_t pid = conf_fork(wait_pipe, p);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (int i = 0; i < 10000 && state != 'S'; i++) {
		state = state_of(pid);
		sched_yield();
	}
	CHECK_EQ(state, 'S');
	close(p[1]);
	siginfo_t si;
	OK(waitid(P_PID, pid, &si, WEXITED | WNOWAIT));
	slurp(path);
	CHECK_EQ(strrchr(text, ')')[2], 'Z');
	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	CHECK_EQ(slurp(path), 0);
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	slurp(path);
	CHECK(strstr(text, "State:\tZ (zombie)"));
	CHECK(!strstr(text, "VmSize"));
	conf_join(pid);
	CHECK_ERR(open(path, O_RDONLY), ENOENT);
}
static _Atomic unsigned *wakes;
static void note_wake(int sig)
{
	++*wakes;
}
static void sleep_again_and_again(void *arg)
{
	for (;;)
		pause();
}
/* Once kill() has returned, a sleeper is seen asleep only after it has taken the signal. */
CASE(signalled_sleeper_is_awake)
{
	pid_t pid;

	wakes = OK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	signal(SIGUSR1, note_wake);
	pid = conf_fork(sleep_again_and_again, NULL);
	for (unsigned i = 0; i < 300; i++) {
		while (state_of(pid) != 'S')
			sched_yield();
		CHECK_EQ(*wakes, i);
		OK(kill(pid, SIGUSR1));
	}
	OK(kill(pid, SIGKILL));
	CHECK_EQ(conf_wait_status(pid), SIGKILL);
}
CASE(entry_of_a_gone_process)
{
	int p[2];
	char path[64], b[64];
	OK(pipe(p));
	pid_t pid = conf_fork(wait_pipe, p);
	snprintf(path, sizeof(path), "/proc/%d", pid);
	int dir = OK(open(path, O_RDONLY | O_DIRECTORY));
	int fd = OK(openat(dir, "stat", O_RDONLY));
	close(p[1]);
	conf_join(pid);
	CHECK_ERR(read(fd, b, sizeof(b)), ESRCH);
	int r = openat(dir, "status", O_RDONLY);
	CHECK(r == -1 && (errno == ENOENT || errno == ESRCH));
}
CASE(status_fields)
{
	slurp("/proc/self/status");
	CHECK_EQ(value("\nPid:"), getpid());
	CHECK_EQ(value("\nTgid:"), getpid());
	CHECK_EQ(value("\nPPid:"), getppid());
	CHECK_EQ(value("\nUid:"), getuid());
	CHECK_EQ(value("\nThreads:"), 1);
	CHECK(value("\nVmRSS:") > 0);
	CHECK(value("\nVmPeak:") >= value("\nVmRSS:"));
	CHECK(strstr(text, "\nSigCgt:\t") && strstr(text, "\nCapEff:\t") &&
	      strstr(text, "\nSeccomp:\t"));
	CHECK(strstr(text, "\nCpus_allowed_list:\t"));
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigprocmask(SIG_BLOCK, &s, NULL);
	raise(SIGUSR1);
	signal(SIGUSR2, SIG_IGN);
	slurp("/proc/self/status");
	CHECK(strstr(text, "SigBlk:\t0000000000000200"));
	CHECK(strstr(text, "SigIgn:\t") &&
	      strtoull(strstr(text, "SigIgn:\t") + 8, NULL, 16) & 1 << 11);
}
CASE(status_umask_and_groups)
{
	umask(027);
	slurp("/proc/self/status");
	CHECK(strstr(text, "\nUmask:\t0027\n"));
}
CASE(comm_and_cmdline)
{
	OK(prctl(PR_SET_NAME, "newname"));
	slurp("/proc/self/comm");
	CHECK_STR(text, "newname\n");
	int fd = OK(open("/proc/self/comm", O_WRONLY));
	CHECK_EQ(write(fd, "a-very-long-name-for-it\n", 24), 24);
	slurp("/proc/self/comm");
	CHECK_STR(text, "a-very-long-nam\n");
	CHECK(slurp("/proc/self/cmdline") > 0);
	CHECK(strstr(text, "procfs"));
}
static void exec_env(void *arg)
{
	char *argv[] = { "sh", "-c", "exec cat /proc/self/environ /proc/self/cmdline", NULL };
	char *env[] = { "A=1", "BB=22", NULL };
	dup2(*(int *)arg, 1);
	execve("/bin/sh", argv, env);
	_exit(9);
}
CASE(environ_after_exec)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = conf_fork(exec_env, &p[1]);
	close(p[1]);
	ssize_t n, len = 0;
	while ((n = OK(read(p[0], text + len, 1000))) > 0)
		len += n;
	conf_join(pid);
	bool a = false, cat = false;
	for (ssize_t i = 0; i < len; i += strlen(text + i) + 1) {
		a |= !strcmp(text + i, "BB=22");
		cat |= !strcmp(text + i, "cat");
	}
	CHECK(a && cat);
}
static int target;
CASE(maps_and_memory)
{
	char line[512], perm[5];
	bool found = false, stack = false;
	static int variable = 4711;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	unsigned long a, b, last = 0;
	while (fgets(line, sizeof(line), f)) {
		CHECK(line[strlen(line) - 1] == '\n');
		CHECK_EQ(sscanf(line, "%lx-%lx %4s", &a, &b, perm), 3);
		CHECK(a >= last && b > a);
		last = b;
		if ((unsigned long)&variable >= a && (unsigned long)&variable < b) {
			found = true;
			CHECK(!strncmp(perm, "rw", 2));
		}
		stack |= strstr(line, "[stack]") != NULL;
	}
	CHECK(found && stack);
	int fd = OK(open("/proc/self/mem", O_RDWR)), got = 0;
	CHECK_EQ(pread(fd, &got, 4, (off_t)&variable), 4);
	CHECK_EQ(got, 4711);
	got = 12;
	CHECK_EQ(pwrite(fd, &got, 4, (off_t)&variable), 4);
	CHECK_EQ(*(volatile int *)&variable, 12);
	CHECK_ERR(pread(fd, &got, 4, 16), EIO);
	target = 1;
}
static void have_value(void *arg)
{
	int *p = arg;
	target = 77;
	CHECK_EQ(write(p[1], "r", 1), 1);
	char b;
	CHECK_EQ(read(p[2], &b, 1), 1);
	CHECK_EQ(*(volatile int *)&target, 78);
}
CASE(memory_of_a_child)
{
	int p[4], got = 0;
	char b, path[64];
	OK(pipe(p));
	OK(pipe(p + 2));
	pid_t pid = conf_fork(have_value, p);
	CHECK_EQ(read(p[0], &b, 1), 1);
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	int fd = OK(open(path, O_RDWR));
	CHECK_EQ(pread(fd, &got, 4, (off_t)&target), 4);
	CHECK_EQ(got, 77);
	got = 78;
	CHECK_EQ(pwrite(fd, &got, 4, (off_t)&target), 4);
	CHECK_EQ(write(p[3], "g", 1), 1);
	conf_join(pid);
	CHECK_EQ(target, 0);
}
CASE(smaps_agree)
{
	memset(text, 1, sizeof(text)); /* resident before it is measured */
	slurp("/proc/self/smaps");
	long long sum = 0;
	for (char *p = text; (p = strstr(p, "\nRss:")); p += 5)
		sum += strtoll(p + 5, NULL, 10);
	CHECK(sum > 0);
	slurp("/proc/self/smaps_rollup");
	CHECK(strstr(text, "[rollup]"));
	long long roll = value("\nRss:"), pages;
	CHECK(value("\nPss:") <= roll);
	slurp("/proc/self/statm");
	CHECK_EQ(sscanf(text, "%*d %lld", &pages), 1);
	long long diff = sum - roll, diff2 = roll - pages * 4;
	if (llabs(diff) > 512)
		conf_fail(__FILE__, __LINE__, "smaps %lld rollup %lld", sum, roll);
	/* a native kernel counts resident pages lazily per processor */
	CHECK(llabs(diff2) <= 1024);
}
CASE(exe_cwd_root)
{
	char a[4096], b[4096];
	ssize_t n = OK(readlink("/proc/self/exe", a, sizeof(a) - 1));
	a[n] = 0;
	CHECK(a[0] == '/' && strstr(a, "procfs"));
	struct stat s, t;
	OK(stat(a, &s));
	OK(stat("/proc/self/exe", &t));
	CHECK_EQ(s.st_ino, t.st_ino);
	OK(chdir(conf_tmpdir()));
	n = OK(readlink("/proc/self/cwd", a, sizeof(a) - 1));
	a[n] = 0;
	CHECK(getcwd(b, sizeof(b)));
	CHECK_STR(a, b);
	n = OK(readlink("/proc/self/root", a, sizeof(a)));
	CHECK_EQ(n, 1);
	CHECK_EQ(a[0], '/');
}
static const char *fd_text(int fd)
{
	static char buf[4096];
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	buf[OK(readlink(path, buf, sizeof(buf) - 1))] = 0;
	return buf;
}
CASE(fd_texts)
{
	int p[2], s[2];
	char want[4200];
	struct stat st;
	OK(pipe(p));
	OK(fstat(p[0], &st));
	snprintf(want, sizeof(want), "pipe:[%lu]", st.st_ino);
	CHECK_STR(fd_text(p[0]), want);
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	OK(fstat(s[0], &st));
	snprintf(want, sizeof(want), "socket:[%lu]", st.st_ino);
	CHECK_STR(fd_text(s[0]), want);
	CHECK_STR(fd_text(OK(eventfd(0, 0))), "anon_inode:[eventfd]");
	CHECK_STR(fd_text(OK(memfd_create("mine", 0))), "/memfd:mine (deleted)");
	int fd = OK(open(conf_path("file"), O_CREAT | O_RDWR, 0600));
	CHECK_STR(fd_text(fd), conf_path("file"));
	OK(unlink(conf_path("file")));
	snprintf(want, sizeof(want), "%s (deleted)", conf_path("file"));
	CHECK_STR(fd_text(fd), want);
}
CASE(fd_links_open_the_file_itself)
{
	char path[64], b[8];
	int fd = OK(open(conf_path("gone"), O_CREAT | O_RDWR, 0600));
	CHECK_EQ(write(fd, "data", 4), 4);
	OK(unlink(conf_path("gone")));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = OK(open(path, O_RDONLY));
	CHECK_EQ(read(again, b, 8), 4);
	CHECK_MEM(b, "data", 4);
	struct stat s, t;
	OK(stat(path, &s));
	OK(fstat(fd, &t));
	CHECK_EQ(s.st_ino, t.st_ino);
	int m = OK(memfd_create("m", 0));
	CHECK_EQ(write(m, "xyz", 3), 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m);
	again = OK(open(path, O_RDWR));
	CHECK_EQ(read(again, b, 8), 3);
	int sp[2];
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sp));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", sp[0]);
	CHECK_ERR(open(path, O_RDWR), ENXIO);
	CHECK_ERR(open("/proc/self/fd/9999", O_RDONLY), ENOENT);
	OK(lstat(path, &s));
	CHECK_EQ(s.st_mode, S_IFLNK | 0700);
}
CASE(fd_positions_are_numbers)
{
	char buf[100];
	bool seen[1024] = { false };
	for (int i = 0; i < 20; i++)
		OK(dup(0));
	int dir = OK(open("/proc/self/fd", O_RDONLY | O_DIRECTORY)), opened = 0;
	long n;
	while ((n = OK(syscall(SYS_getdents64, dir, buf, sizeof(buf)))) > 0) {
		for (long i = 0; i < n;) {
			struct {
				uint64_t ino, off;
				unsigned short len;
				unsigned char type;
				char name[];
			} *e = (void *)(buf + i);
			if (e->name[0] != '.') {
				int fd = atoi(e->name);
				CHECK(fd < 1024 && !seen[fd]);
				seen[fd] = true;
			}
			i += e->len;
		}
		if (opened++ < 3)
			OK(close(opened)); /* low ones come and go */
	}
	for (int fd = 4; fd < 20; fd++)
		CHECK(seen[fd]);
}
CASE(fdinfo)
{
	char path[64];
	int fd = OK(open(conf_path("f"), O_CREAT | O_RDWR | O_CLOEXEC | O_APPEND, 0600));
	CHECK_EQ(write(fd, "12345", 5), 5);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	slurp(path);
	CHECK_EQ(value("pos:"), 5);
	CHECK(strtol(strstr(text, "flags:") + 6, NULL, 8) & O_CLOEXEC);
	CHECK(strtol(strstr(text, "flags:") + 6, NULL, 8) & O_APPEND);
	fd = OK(eventfd(11, 0));
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	slurp(path);
	CHECK(strstr(text, "eventfd-count:"));
}
static void *sit(void *arg)
{
	char b;
	(void)!read(*(int *)arg, &b, 1);
	return NULL;
}
CASE(threads)
{
	int p[2], count = 0;
	pthread_t th[3];
	OK(pipe(p));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&th[i], NULL, sit, &p[0]), 0);
	DIR *d = opendir("/proc/self/task");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.') {
			char path[300];
			snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
			slurp(path);
			CHECK_EQ(atoi(text), atoi(e->d_name));
			count++;
		}
	CHECK_EQ(count, 4);
	slurp("/proc/self/status");
	CHECK_EQ(value("\nThreads:"), 4);
	CHECK_ERR(open("/proc/self/task/1", O_RDONLY), ENOENT);
}
CASE(listing_has_processes_once)
{
	int seen = 0;
	DIR *d = opendir("/proc");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		seen += atoi(e->d_name) == getpid();
		if (atoi(e->d_name) > 0)
			CHECK_EQ(e->d_type, DT_DIR);
	}
	CHECK_EQ(seen, 1);
	CHECK_ERR(open("/proc/0", O_RDONLY), ENOENT);
	CHECK_ERR(open("/proc/99999999", O_RDONLY), ENOENT);
	CHECK_ERR(open("/proc/01", O_RDONLY), ENOENT);
	int fd = open("/proc/new", O_CREAT | O_WRONLY, 0666);
	CHECK(fd == -1 && (errno == ENOENT || errno == EACCES));
	CHECK_ERR(unlink("/proc/uptime"), geteuid() ? EACCES : EPERM);
}
CASE(mounts)
{
	slurp("/proc/mounts");
	CHECK(strstr(text, " / ") && strstr(text, " /proc proc ") &&
	      strstr(text, " /dev/pts devpts "));
	slurp("/proc/self/mountinfo");
	CHECK(strstr(text, " - proc proc rw"));
	char point[256];
	int id, parent, maj, min;
	CHECK_EQ(sscanf(text, "%d %d %d:%d %*s %255s", &id, &parent, &maj, &min, point), 5);
	CHECK(point[0] == '/');
	CHECK(slurp("/proc/self/mountstats") > 0 || errno == 0);
}
CASE(limits_file)
{
	struct rlimit r = { 100, 200 };
	OK(setrlimit(RLIMIT_NOFILE, &r));
	slurp("/proc/self/limits");
	CHECK(strstr(text, "Max open files            100                  200                  "
			   "files     \n"));
	CHECK(!strncmp(text,
		       "Limit                     Soft Limit           Hard Limit           Units",
		       73));
}
CASE(auxv_file)
{
	Elf64_auxv_t *a = (void *)text;
	ssize_t n = slurp("/proc/self/auxv");
	bool page = false;
	for (size_t i = 0; i < n / sizeof(*a); i++)
		page |= a[i].a_type == AT_PAGESZ && a[i].a_un.a_val == 4096;
	CHECK(page);
}
CASE(small_files)
{
	slurp("/proc/self/oom_score_adj");
	int fd = OK(open("/proc/self/oom_score_adj", O_RDWR));
	CHECK_EQ(write(fd, "500\n", 4), 4);
	slurp("/proc/self/oom_score_adj");
	CHECK_STR(text, "500\n");
	CHECK_ERR(write(fd, "1001", 4), EINVAL);
	CHECK_ERR(write(fd, "junk", 4), EINVAL);
	CHECK(slurp("/proc/self/cgroup") > 0);
	slurp("/proc/self/timerslack_ns");
	CHECK(atoi(text) > 0);
	slurp("/proc/self/io");
	CHECK(strstr(text, "read_bytes:"));
	slurp("/proc/self/uid_map");
	slurp("/proc/self/sched");
	slurp("/proc/self/schedstat");
	slurp("/proc/self/loginuid");
	slurp("/proc/self/wchan");
	slurp("/proc/self/personality");
	CHECK_EQ(strtol(text, NULL, 16), 0);
	slurp("/proc/self/coredump_filter");
	slurp("/proc/self/setgroups");
}
CASE(namespaces)
{
	static const char *const names[] = { "mnt", "uts", "pid", "user", "ipc", "net", "cgroup" };
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char path[64], got[64];
		unsigned long ino = 0;
		struct stat st;
		snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
		ssize_t n = OK(readlink(path, got, sizeof(got) - 1));
		got[n] = 0;
		CHECK(!strncmp(got, names[i], strlen(names[i])));
		CHECK_EQ(sscanf(got + strlen(names[i]), ":[%lu]", &ino), 1);
		OK(stat(path, &st));
		CHECK_EQ(st.st_ino, ino);
		close(OK(open(path, O_RDONLY)));
	}
}
static void look_at_parent(void *arg)
{
	char path[64], b[64];
	struct stat st;
	OK(setgid(65534));
	OK(setuid(65534));
	snprintf(path, sizeof(path), "/proc/%d/environ", getppid());
	CHECK_ERR(open(path, O_RDONLY), EACCES);
	snprintf(path, sizeof(path), "/proc/%d/mem", getppid());
	CHECK_ERR(open(path, O_RDONLY), EACCES);
	snprintf(path, sizeof(path), "/proc/%d/fd", getppid());
	CHECK_ERR(open(path, O_RDONLY | O_DIRECTORY), EACCES);
	snprintf(path, sizeof(path), "/proc/%d/exe", getppid());
	CHECK_ERR(readlink(path, b, sizeof(b)), EACCES);
	snprintf(path, sizeof(path), "/proc/%d/stat", getppid());
	close(OK(open(path, O_RDONLY)));
	snprintf(path, sizeof(path), "/proc/%d", getppid());
	OK(stat(path, &st));
	CHECK_EQ(st.st_uid, 0);
}
CASE(other_users_secrets)
{
	if (geteuid())
		SKIP("needs root to become somebody else");
	conf_join(conf_fork(look_at_parent, NULL));
}
CASE(system_stat_moves)
{
	long long user, nice, sys, idle, before, forks;
	slurp("/proc/stat");
	CHECK_EQ(sscanf(text, "cpu %lld %lld %lld %lld", &user, &nice, &sys, &idle), 4);
	before = user + nice + sys;
	forks = value("\nprocesses ");
	spin(1);
	conf_join(conf_fork(nothing, NULL));
	slurp("/proc/stat");
	CHECK_EQ(sscanf(text, "cpu %lld %lld %lld %lld", &user, &nice, &sys, &idle), 4);
	CHECK(user + nice + sys - before >= 80);
	CHECK(value("\nprocesses ") > forks);
	long long btime = value("\nbtime ");
	slurp("/proc/uptime");
	double up = atof(text);
	CHECK(up > 0);
	CHECK(llabs(btime + (long long)up - time(NULL)) <= 2);
	int running, total, last;
	float l[3];
	slurp("/proc/loadavg");
	CHECK_EQ(sscanf(text, "%f %f %f %d/%d %d", l, l + 1, l + 2, &running, &total, &last), 6);
	CHECK(running >= 1 && total >= 1);
}
CASE(own_times_move)
{
	unsigned long ut, st;
	spin(0.2);
	slurp("/proc/self/stat");
	CHECK_EQ(sscanf(strrchr(text, ')') + 2,
			"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ut, &st),
		 2);
	CHECK(ut + st >= 15);
}
CASE(memory_info)
{
	slurp("/proc/meminfo");
	long long total = value("MemTotal:"), rest = value("MemFree:");
	CHECK(total > 0 && rest > 0 && rest <= total);
	CHECK(value("MemAvailable:") <= total);
	CHECK_EQ(value("SwapTotal:") >= 0, 1);
	struct sysinfo si;
	OK(sysinfo(&si));
	CHECK_EQ((long long)(si.totalram * si.mem_unit >> 10), total);
}
CASE(processors_agree)
{
	cpu_set_t set;
	int stat_cpus = 0, info_cpus = 0;
	OK(sched_getaffinity(0, sizeof(set), &set));
	slurp("/proc/stat");
	for (char *p = text; (p = strstr(p, "\ncpu")); p++)
		stat_cpus++;
	slurp("/proc/cpuinfo");
	for (char *p = text; (p = strstr(p, "processor\t: ")); p++)
		info_cpus++;
	CHECK_EQ(sysconf(_SC_NPROCESSORS_ONLN), stat_cpus);
	CHECK_EQ(info_cpus, stat_cpus);
	CHECK(CPU_COUNT(&set) <= stat_cpus);
	if (conf_in_sandbox())
		CHECK_EQ(CPU_COUNT(&set), stat_cpus);
	slurp("/sys/devices/system/cpu/online");
	CHECK(text[0] == '0');
	slurp("/sys/devices/system/cpu/possible");
	slurp("/sys/devices/system/cpu/present");
	OK(access("/sys/devices/system/cpu/cpu0/topology/core_id", R_OK));
}
CASE(names_and_versions)
{
	struct utsname u;
	char want[128];
	OK(uname(&u));
	slurp("/proc/sys/kernel/osrelease");
	snprintf(want, sizeof(want), "%s\n", u.release);
	CHECK_STR(text, want);
	slurp("/proc/sys/kernel/hostname");
	snprintf(want, sizeof(want), "%s\n", u.nodename);
	CHECK_STR(text, want);
	slurp("/proc/version");
	snprintf(want, sizeof(want), "Linux version %s ", u.release);
	CHECK(!strncmp(text, want, strlen(want)));
	CHECK(strstr(text, u.version));
}
CASE(sysctl_values)
{
	char first[64];
	CHECK_EQ(slurp("/proc/sys/kernel/random/uuid"), 37);
	strcpy(first, text);
	slurp("/proc/sys/kernel/random/uuid");
	CHECK(strcmp(first, text));
	slurp("/proc/sys/kernel/random/boot_id");
	strcpy(first, text);
	slurp("/proc/sys/kernel/random/boot_id");
	CHECK_STR(first, text);
	slurp("/proc/sys/fs/pipe-max-size");
	CHECK_EQ(atoi(text), 1048576);
	slurp("/proc/sys/kernel/pid_max");
	CHECK(atoi(text) > 100);
	slurp("/proc/sys/vm/overcommit_memory");
	CHECK(atoi(text) <= 2);
	slurp("/proc/sys/vm/max_map_count");
	slurp("/proc/sys/fs/file-nr");
	slurp("/proc/sys/fs/inotify/max_user_watches");
	slurp("/proc/sys/net/core/somaxconn");
	slurp("/proc/sys/kernel/cap_last_cap");
	slurp("/proc/sys/kernel/ngroups_max");
	CHECK_EQ(atoi(text), 65536);
}
CASE(system_files_are_there)
{
	static const char *const names[] = { "filesystems", "devices", "swaps",	    "partitions",
					     "cmdline",	    "vmstat",  "diskstats", "modules",
					     "interrupts",  "net/dev", "net/route", "net/tcp",
					     "net/udp",	    "net/unix" };
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char path[64];
		snprintf(path, sizeof(path), "/proc/%s", names[i]);
		if (conf_in_sandbox() || !access(path, R_OK))
			slurp(path);
	}
	slurp("/proc/filesystems");
	CHECK(strstr(text, "nodev\tproc\n"));
	slurp("/proc/net/dev");
	CHECK(strstr(text, "lo:"));
}
CASE(reads_in_pieces)
{
	char whole[8192], piece[8192];
	slurp("/proc/self/limits");
	strcpy(whole, text);
	int fd = OK(open("/proc/self/limits", O_RDONLY));
	size_t n = 0;
	ssize_t r;
	while ((r = OK(read(fd, piece + n, 7))) > 0)
		n += r;
	piece[n] = 0;
	CHECK_STR(whole, piece);
	OK(lseek(fd, 0, SEEK_SET));
	CHECK_EQ(read(fd, piece, 5), 5);
	CHECK_MEM(piece, "Limit", 5);
	CHECK_EQ(pread(fd, piece, 4, 1), 4);
	CHECK_MEM(piece, "imit", 4);
	CHECK_ERR(read(fd, (void *)8, 10), EFAULT);
}
CASE(stat_of_entries)
{
	struct stat st;
	OK(stat("/proc/self/status", &st));
	CHECK(S_ISREG(st.st_mode) && st.st_size == 0);
	CHECK_EQ(st.st_uid, geteuid());
	OK(stat("/proc/self/fd", &st));
	CHECK_EQ(st.st_mode & 0777, 0500);
	CHECK_EQ(chmod("/proc/self/status", 0777), -1);
	OK(stat("/sys/fs/cgroup", &st));
	CHECK(S_ISDIR(st.st_mode));
}
/* Which pages there are, and which of them belong to a file. */
CASE(pagemap_shows_pages)
{
	char *a = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *s = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t e[8];
	CHECK(a != MAP_FAILED && s != MAP_FAILED && fd >= 0);
	a[4096] = a[3 * 4096] = s[2 * 4096] = 1;
	CHECK_EQ(pread(fd, e, sizeof(e), (off_t)((uintptr_t)a / 4096 * 8)), (ssize_t)sizeof(e));
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(e[i] >> 63, i == 1 || i == 3);
		CHECK_EQ(e[i] >> 61 & 1, 0);
	}
	CHECK_EQ(pread(fd, e, sizeof(e), (off_t)((uintptr_t)s / 4096 * 8)), (ssize_t)sizeof(e));
	for (int i = 0; i < 8; i++)
		CHECK_EQ(e[i] >> 63, i == 2);
	CHECK_EQ(e[2] >> 61 & 1, 1);
	CHECK_EQ(munmap(a, 4096 * 8), 0);
	CHECK_EQ(pread(fd, e, sizeof(e), (off_t)((uintptr_t)a / 4096 * 8)), (ssize_t)sizeof(e));
	for (int i = 0; i < 8; i++)
		CHECK_EQ(e[i], 0);
	CHECK_ERR(pread(fd, e, 7, 0), EINVAL);
	close(fd);
}

CONF_MAIN
