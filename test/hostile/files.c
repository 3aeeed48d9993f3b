/* Out of the view, into others' processes, onto the host: by files, /proc, mounts, devices. */
#include "test/hostile/lib/hostile.h"
#include <grp.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>

/* $SECRET: a file of the host next to the folder that we see. */
static const char *secret(void)
{
	const char *s = getenv("SECRET");

	if (!s)
		skip("no secret to look for");
	return s;
}

static void must_not_open(int at, const char *path)
{
	char buf[64] = "";
	int fd = openat(at, path, O_RDONLY);

	if (fd >= 0 && read(fd, buf, sizeof(buf) - 1) > 0 && strstr(buf, "outside"))
		breach("%s shows the host's file", path);
	close(fd);
}

ATTACK(host_file_by_name)
{
	static const char *const prefixes[] = { "",
						"/proc/self/root",
						"/proc/1/root",
						"/proc/self/cwd/../../..",
						"/proc/1/cwd/../../../..",
						"/proc/self/task/1/root",
						"..",
						"../..",
						"/dev/fd/../../../..",
						"/../../../..",
						"//.." };
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", prefixes[i], secret());
		must_not_open(AT_FDCWD, path);
		snprintf(path, sizeof(path), "%s/secret", prefixes[i]);
		must_not_open(AT_FDCWD, path);
	}
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d/../secret", fd);
		must_not_open(AT_FDCWD, path);
		must_not_open(fd, secret());
		must_not_open(fd, "../secret");
	}
}

ATTACK(host_file_by_symlink)
{
	char path[64];

	if (symlink(secret(), "/tmp/link") < 0 || symlink("../secret", "up") < 0)
		skip("symlink: %s", strerror(errno));
	must_not_open(AT_FDCWD, "/tmp/link");
	must_not_open(AT_FDCWD, "up");
	for (int i = 1; i < 20; i++) {
		snprintf(path, sizeof(path), "/proc/%d/root%.30s", i, secret());
		must_not_open(AT_FDCWD, path);
	}
	unlink("up");
}

ATTACK(host_file_by_openat2)
{
	static const uint64_t resolve[] = { 0, RESOLVE_IN_ROOT, RESOLVE_NO_XDEV,
					    RESOLVE_NO_MAGICLINKS };
	int dir = open(".", O_RDONLY | O_DIRECTORY);

	for (size_t i = 0; i < 4; i++) {
		struct open_how how = { .flags = O_RDONLY, .resolve = resolve[i] };
		char buf[64] = "";
		int fd = (int)syscall(SYS_openat2, dir, "../secret", &how, sizeof(how));

		if (fd >= 0 && read(fd, buf, 63) > 0 && strstr(buf, "outside"))
			breach("openat2 shows the host's file");
	}
}

/* A folder is moved while somebody walks up from it. */
ATTACK(host_file_by_moving_folders)
{
	uint64_t end = now_ms() + 1500;
	pid_t pid;

	secret();
	mkdir("m1", 0700);
	mkdir("m1/a", 0700);
	mkdir("m1/a/b", 0700);
	mkdir("m2", 0700);
	pid = fork();
	if (pid == 0) {
		for (;;) {
			rename("m1/a", "m2/a");
			rename("m2/a/b", "b");
			rename("b", "m2/a/b");
			rename("m2/a", "m1/a");
		}
	}
	while (now_ms() < end) {
		must_not_open(AT_FDCWD, "m1/a/b/../../../../secret");
		must_not_open(AT_FDCWD, "m2/a/b/../../../../secret");
		must_not_open(AT_FDCWD, "m1/a/b/../../../../../../../../../../tmp/secret");
	}
	must_die(pid);
}

ATTACK(chroot_escape)
{
	int dir = open(".", O_RDONLY | O_DIRECTORY);

	mkdir("/tmp/jail", 0700);
	if (chroot("/tmp/jail") < 0)
		skip("chroot: %s", strerror(errno));
	for (int i = 0; i < 50; i++)
		if (fchdir(dir) < 0 || chdir("..") < 0)
			break;
	for (int i = 0; i < 50; i++)
		if (chdir("..") < 0)
			break;
	chroot(".");
	must_not_open(AT_FDCWD, secret());
	must_not_open(dir, "../secret");
	must_not_open(AT_FDCWD, "secret");
}

ATTACK(mount_games)
{
	char path[PATH_MAX];
	static const char *const types[] = { "proc",   "sysfs",	  "tmpfs",	"devtmpfs",
					     "devpts", "overlay", "ext4",	"cgroup2",
					     "fuse",   "debugfs", "securityfs", "binfmt_misc",
					     "hostfs" };

	if (fork() == 0) {
		unshare(CLONE_NEWNS | CLONE_NEWUSER);
		unshare(CLONE_NEWNS);
		mkdir("/tmp/m", 0700);
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
			if (mount("/dev/sda1", "/tmp/m", types[i], 0,
				  "lowerdir=/,upperdir=/tmp,workdir=/tmp") == 0) {
				snprintf(path, sizeof(path), "/tmp/m%s", secret());
				must_not_open(AT_FDCWD, path);
			}
		if (mount("/", "/tmp/m", NULL, MS_BIND | MS_REC, NULL) == 0) {
			snprintf(path, sizeof(path), "/tmp/m%s", secret());
			must_not_open(AT_FDCWD, path);
			must_not_open(AT_FDCWD, "/tmp/m/../secret");
		}
		umount2("/", MNT_DETACH);
		umount2("/tmp/m", MNT_DETACH);
		syscall(SYS_pivot_root, ".", ".");
		for (int i = 0; i < 10; i++)
			umount2("/", MNT_DETACH);
		must_not_open(AT_FDCWD, secret());
		must_not_open(AT_FDCWD, "../secret");
		_exit(0);
	}
	wait(NULL);
}

ATTACK(file_handles)
{
	struct {
		struct file_handle h;
		unsigned char b[128];
	} f = { .h.handle_bytes = 128 };
	int mount_id, fd;

	if (name_to_handle_at(AT_FDCWD, ".", &f.h, &mount_id, 0) < 0)
		f.h.handle_bytes = 8;
	for (int i = 0; i < 2000; i++) {
		f.b[rnd() % 32] = (unsigned char)rnd();
		f.h.handle_bytes = (unsigned)rnd() % 64;
		f.h.handle_type = (int)rnd() % 256;
		fd = open_by_handle_at(AT_FDCWD, &f.h, O_RDONLY);
		if (fd >= 0) {
			must_not_open(fd, "secret");
			must_not_open(fd, "../secret");
			close(fd);
		}
	}
}

/* ---- devices ---- */

ATTACK(devices_by_mknod)
{
	static const unsigned numbers[][2] = { { 1, 1 },    { 1, 2 },	 { 1, 4 },    { 1, 6 },
					       { 1, 11 },   { 8, 0 },	 { 8, 1 },    { 254, 0 },
					       { 254, 1 },  { 252, 0 },	 { 259, 0 },  { 10, 200 },
					       { 10, 232 }, { 10, 229 }, { 10, 235 }, { 4, 0 },
					       { 4, 1 },    { 4, 64 },	 { 5, 1 },    { 7, 0 },
					       { 10, 237 }, { 226, 0 },	 { 240, 0 } };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		for (int block = 0; block < 2; block++) {
			mode_t mode = 0600 | (block ? S_IFBLK : S_IFCHR);
			int fd;

			unlink("/tmp/dev");
			if (mknod("/tmp/dev", mode, makedev(numbers[i][0], numbers[i][1])) < 0)
				continue;
			fd = open("/tmp/dev", O_RDWR | O_NONBLOCK);
			if (fd >= 0 && !(numbers[i][0] == 5 || numbers[i][0] == 1))
				breach("device %u:%u opens", numbers[i][0], numbers[i][1]);
			if (fd >= 0 && numbers[i][0] == 1 && numbers[i][1] < 5 &&
			    numbers[i][1] != 3)
				breach("memory device 1:%u opens", numbers[i][1]);
			close(fd);
		}
	}
}

ATTACK(host_devices_by_name)
{
	static const char *const names[] = { "/dev/mem",
					     "/dev/kmem",
					     "/dev/port",
					     "/dev/kmsg",
					     "/dev/sda",
					     "/dev/vda",
					     "/dev/kvm",
					     "/dev/fuse",
					     "/dev/net/tun",
					     "/dev/loop0",
					     "/dev/loop-control",
					     "/dev/console",
					     "/dev/mapper/control",
					     "/dev/userfaultfd",
					     "/dev/vhost-net",
					     "/dev/vsock",
					     "/dev/nvme0n1",
					     "/dev/dri/card0" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int fd = open(names[i], O_RDWR | O_NONBLOCK | O_NOCTTY);

		if (fd >= 0 && strcmp(names[i], "/dev/console") != 0)
			breach("%s opens", names[i]);
		close(fd);
	}
}

ATTACK(terminal_input_forged)
{
	for (int fd = 0; fd < 3; fd++)
		if (isatty(fd) && ioctl(fd, TIOCSTI, "x") == 0)
			breach("TIOCSTI on the host's terminal");
	/* In a terminal of the sandbox it would reach nobody else; refused all the same. */
	for (int i = 0; i < 2; i++) {
		int fd = open(i ? "/dev/ptmx" : "/dev/tty", O_RDWR | O_NOCTTY);

		if (fd >= 0)
			ioctl(fd, TIOCSTI, "x");
		close(fd);
	}
}

/* ---- other processes ---- */

ATTACK(init_cannot_be_killed_from_within_a_child)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setuid(12345) < 0)
			_exit(0);
		/* Every process but our own kind. */
		for (int sig = 1; sig < 65; sig++)
			if (kill(1, sig) == 0)
				breach("an ordinary user's signal %d reaches process 1", sig);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

ATTACK(ptrace_of_others)
{
	static const int requests[] = { PTRACE_ATTACH,	 PTRACE_SEIZE,	 PTRACE_PEEKDATA,
					PTRACE_POKEDATA, PTRACE_GETREGS, PTRACE_SETREGS,
					PTRACE_CONT,	 PTRACE_KILL,	 PTRACE_SYSEMU,
					PTRACE_DETACH };
	pid_t pid = fork();

	if (pid == 0) {
		if (setuid(12345) < 0)
			_exit(0);
		for (int p = 1; p < 20; p++) {
			if (p == getpid())
				continue;
			for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
				if (ptrace(requests[i], p, 0, 0) == 0)
					breach("ptrace request %d of process %d", requests[i], p);
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

ATTACK(memory_of_others)
{
	static const char *const names[] = { "mem", "maps", "environ", "fd",   "exe",
					     "cwd", "root", "auxv",    "stack" };
	pid_t pid = fork();

	if (pid == 0) {
		char path[64], buf[64];
		struct iovec l = { buf, 8 }, r = { (void *)0x400000, 8 };

		if (setuid(12345) < 0)
			_exit(0);
		for (int p = 1; p < 8; p++) {
			for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
				int fd;

				if (p == getpid())
					continue;
				snprintf(path, sizeof(path), "/proc/%d/%s", p, names[i]);
				fd = open(path, O_RDWR);
				if (fd >= 0 && i == 0 && pwrite(fd, "x", 1, 0x400000) > 0)
					breach("%s is writable", path);
				close(fd);
			}
			if (p != getpid() && process_vm_readv(p, &l, 1, &r, 1, 0) > 0)
				breach("process_vm_readv of process %d", p);
		}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

/* Host processes: the numbers that the host gives the sentry and its stubs mean nothing here. */
ATTACK(host_processes)
{
	char path[64];

	for (int p = 100; p < 70000; p += p < 1000 ? 1 : 13) {
		snprintf(path, sizeof(path), "/proc/%d/stat", p);
		if (access(path, F_OK) == 0 || kill(p, 0) == 0 ||
		    syscall(SYS_pidfd_open, p, 0) >= 0)
			breach("process %d of the host is in sight", p);
	}
}

/* What /proc says must not be the host's: names, command lines, addresses of kernel and sentry. */
ATTACK(proc_says_nothing_of_the_host)
{
	static const char *const files[] = { "/proc/self/maps",	     "/proc/self/smaps",
					     "/proc/self/mountinfo", "/proc/self/cmdline",
					     "/proc/1/cmdline",	     "/proc/self/stat",
					     "/proc/self/status" };
	static char buf[1 << 18];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);

		if (fd >= 0)
			close(fd);
		buf[n > 0 ? n : 0] = 0;
		if (strstr(buf, "minisentry run") || strstr(buf, "memfd:stub") ||
		    strstr(buf, "minisentry-control"))
			breach("%s speaks of the sentry", files[i]);
	}
}

/* /proc/self/mem honours what mprotect and file modes would not. */
ATTACK(proc_mem_writes)
{
	int fd = open("/proc/self/mem", O_RDWR), ro = open("/etc/passwd", O_RDONLY);
	char *file = mmap(NULL, 4096, PROT_READ, MAP_SHARED, ro, 0);
	char before;

	if (fd < 0 || file == MAP_FAILED)
		skip("no /proc/self/mem");
	before = file[0];
	if (pwrite(fd, "\xff", 1, (off_t)(uintptr_t)file) > 0 && file[0] != before)
		breach("a read-only shared mapping of a file was written to");
	for (int i = 0; i < 2000; i++) {
		char buf[64];
		off_t at = (off_t)(rnd() % 2 ? STUB_AREA + rnd() % 0x20000000 : rnd());

		if (pread(fd, buf, sizeof(buf), at) > 0 && (uint64_t)at >= STUB_AREA &&
		    (uint64_t)at < 0x7ffff8000000)
			breach("/proc/self/mem reads the stub at %#lx", (unsigned long)at);
		pwrite(fd, buf, sizeof(buf), at);
	}
}

/* The program that runs, changed under the feet of those who run it. */
ATTACK(running_program_overwritten)
{
	if (open("/proc/self/exe", O_RDWR) >= 0 || errno != ETXTBSY)
		breach("open for writing: %s", strerror(errno));
	if (open("/proc/self/exe", O_RDONLY | O_TRUNC) >= 0 || errno != ETXTBSY)
		breach("open and truncate: %s", strerror(errno));
	if (truncate("/proc/self/exe", 10) == 0 || errno != ETXTBSY)
		breach("truncate: %s", strerror(errno));
}

/* ---- rights ---- */

ATTACK(setuid_programs)
{
	int status, fd;
	pid_t pid;
	char buf[8192];
	ssize_t n;

	/* A program of our own making, owned by root, setuid, run by a user: in the sandbox that is
	 * the sandbox's root. */
	int from = open("/bin/true", O_RDONLY);

	fd = open("/tmp/suid", O_CREAT | O_WRONLY, 0755);
	while ((n = read(from, buf, sizeof(buf))) > 0)
		if (write(fd, buf, (size_t)n) != n)
			skip("no room");
	fchmod(fd, 04755);
	close(fd);
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setuid(12345) < 0)
			_exit(0);
		execl("/tmp/suid", "suid", NULL);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	/* Back to root after giving it up: never. */
	pid = fork();
	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(12345, 12345, 12345) < 0 ||
		    setresuid(12345, 12345, 12345) < 0)
			_exit(0);
		if (setuid(0) == 0 || seteuid(0) == 0 || setresuid(0, 0, 0) == 0 || setgid(0) == 0)
			breach("an ordinary user becomes root");
		if (open("/etc/shadow", O_RDONLY) >= 0 && getenv("SECRET"))
			breach("an ordinary user reads /etc/shadow");
		_exit(0);
	}
	waitpid(pid, &status, 0);
}

/* Reaching the host by privileged calls. */
ATTACK(privileged_calls)
{
	static const long calls[] = { SYS_init_module,	   SYS_finit_module,
				      SYS_delete_module,   SYS_kexec_load,
				      SYS_kexec_file_load, SYS_iopl,
				      SYS_ioperm,	   SYS_swapon,
				      SYS_swapoff,	   SYS_acct,
				      SYS_settimeofday,	   SYS_clock_settime,
				      SYS_adjtimex,	   SYS_bpf,
				      SYS_perf_event_open, SYS_userfaultfd,
				      SYS_quotactl,	   SYS_lookup_dcookie,
				      SYS_nfsservctl,	   SYS_add_key,
				      SYS_request_key,	   SYS_keyctl,
				      SYS_io_uring_setup,  SYS_fsopen,
				      SYS_fsmount,	   SYS_move_mount,
				      SYS_open_tree,	   SYS_syslog };
	static char zero[4096];

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		long r = syscall(calls[i], zero, zero, zero, 0, 0, 0);

		if (r >= 0 && calls[i] != SYS_syslog && calls[i] != SYS_adjtimex &&
		    calls[i] != SYS_iopl && calls[i] != SYS_ioperm &&
		    calls[i] != SYS_settimeofday && calls[i] != SYS_fsopen)
			breach("call %ld succeeds", calls[i]);
	}
	__asm__ volatile("" ::: "memory");
}

static void port_io(void *arg)
{
	syscall(SYS_iopl, 3);
	syscall(SYS_ioperm, 0x60, 16, 1);
	__asm__ volatile("inb $0x64, %%al" ::: "eax");
	breach("port input");
}

static void privileged_instruction(void *arg)
{
	switch ((uintptr_t)arg) {
	case 0: __asm__ volatile("hlt"); break;
	case 1: __asm__ volatile("cli"); break;
	case 2: __asm__ volatile("mov %%cr0, %%rax" ::: "rax"); break;
	case 3: __asm__ volatile("rdmsr" : : "c"(0x10) : "rax", "rdx"); break;
	case 4: __asm__ volatile("wrmsr" : : "c"(0xc0000082), "a"(0), "d"(0)); break;
	case 5: __asm__ volatile("invlpg (%%rsp)" ::: "memory"); break;
	}
	breach("privileged instruction %d runs", (int)(uintptr_t)arg);
}

ATTACK(privileged_instructions)
{
	in_child(port_io, NULL, 5000, NULL);
	for (uintptr_t i = 0; i < 6; i++)
		in_child(privileged_instruction, (void *)i, 5000, NULL);
}

HOSTILE_MAIN
