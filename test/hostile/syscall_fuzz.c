/*
 * Random system calls with plausible arguments of the right kinds, for
 * FUZZ_SECONDS (3) from SEED (1). What a process does depends on its seed alone,
 * so `SEED=n syscall_fuzz fuzz` repeats it, scheduling apart.
 */
#include "test/hostile/lib/hostile.h"
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/resource.h>
#include <sys/prctl.h>

/*
 * Kinds: i small number, f file descriptor, p buffer or wild pointer, s path string,
 * l length, F flags (bit patterns), a address of a mapping, m signal number,
 * d pid of ours, o offset, r anything, v iovec array, t timespec
 */
struct call {
	short nr;
	const char *args;
	unsigned char weight;
};

static const struct call calls[] = {
	{ SYS_read, "fpl", 4 },
	{ SYS_write, "fpl", 4 },
	{ SYS_open, "sFF", 3 },
	{ SYS_close, "f", 3 },
	{ SYS_stat, "sp", 1 },
	{ SYS_fstat, "fp", 1 },
	{ SYS_lstat, "sp", 1 },
	{ SYS_poll, "pli", 2 },
	{ SYS_lseek, "foi", 2 },
	{ SYS_mmap, "alFFfo", 6 },
	{ SYS_mprotect, "alF", 4 },
	{ SYS_munmap, "al", 4 },
	{ SYS_brk, "a", 1 },
	{ SYS_rt_sigaction, "mppi", 2 },
	{ SYS_rt_sigprocmask, "ippi", 2 },
	{ SYS_ioctl, "frp", 4 },
	{ SYS_pread64, "fplo", 2 },
	{ SYS_pwrite64, "fplo", 2 },
	{ SYS_readv, "fvi", 2 },
	{ SYS_writev, "fvi", 2 },
	{ SYS_access, "si", 1 },
	{ SYS_pipe, "p", 2 },
	{ SYS_select, "ipppt", 1 },
	{ SYS_sched_yield, "", 1 },
	{ SYS_mremap, "allFa", 4 },
	{ SYS_msync, "alF", 2 },
	{ SYS_mincore, "alp", 2 },
	{ SYS_madvise, "ali", 5 },
	{ SYS_shmget, "ilF", 2 },
	{ SYS_shmat, "iaF", 2 },
	{ SYS_shmctl, "iip", 2 },
	{ SYS_dup, "f", 2 },
	{ SYS_dup2, "ff", 1 },
	{ SYS_nanosleep, "tp", 1 },
	{ SYS_getitimer, "ip", 1 },
	{ SYS_setitimer, "ipp", 1 },
	{ SYS_sendfile, "ffpl", 2 },
	{ SYS_socket, "iii", 4 },
	{ SYS_connect, "fpi", 2 },
	{ SYS_accept, "fpp", 2 },
	{ SYS_sendto, "fplFpi", 3 },
	{ SYS_recvfrom, "fplFpp", 3 },
	{ SYS_sendmsg, "fpF", 3 },
	{ SYS_recvmsg, "fpF", 3 },
	{ SYS_shutdown, "fi", 1 },
	{ SYS_bind, "fpi", 2 },
	{ SYS_listen, "fi", 2 },
	{ SYS_getsockname, "fpp", 1 },
	{ SYS_getpeername, "fpp", 1 },
	{ SYS_socketpair, "iiip", 3 },
	{ SYS_setsockopt, "fiipi", 4 },
	{ SYS_getsockopt, "fiipp", 3 },
	{ SYS_wait4, "dpFp", 1 },
	{ SYS_kill, "dm", 1 },
	{ SYS_uname, "p", 1 },
	{ SYS_semget, "iiF", 2 },
	{ SYS_semop, "ipi", 2 },
	{ SYS_semctl, "iiip", 2 },
	{ SYS_msgget, "iF", 2 },
	{ SYS_msgsnd, "iplF", 2 },
	{ SYS_msgrcv, "iplrF", 2 },
	{ SYS_msgctl, "iip", 2 },
	{ SYS_fcntl, "fir", 5 },
	{ SYS_flock, "fi", 2 },
	{ SYS_fsync, "f", 1 },
	{ SYS_truncate, "so", 2 },
	{ SYS_ftruncate, "fo", 3 },
	{ SYS_getdents64, "fpl", 2 },
	{ SYS_getcwd, "pl", 1 },
	{ SYS_chdir, "s", 1 },
	{ SYS_fchdir, "f", 1 },
	{ SYS_rename, "ss", 2 },
	{ SYS_mkdir, "sF", 2 },
	{ SYS_rmdir, "s", 1 },
	{ SYS_creat, "sF", 1 },
	{ SYS_link, "ss", 2 },
	{ SYS_unlink, "s", 1 },
	{ SYS_symlink, "ss", 2 },
	{ SYS_readlink, "spl", 1 },
	{ SYS_chmod, "sF", 1 },
	{ SYS_fchmod, "fF", 1 },
	{ SYS_chown, "sii", 1 },
	{ SYS_umask, "F", 1 },
	{ SYS_getrlimit, "ip", 1 },
	{ SYS_getrusage, "ip", 1 },
	{ SYS_times, "p", 1 },
	{ SYS_ptrace, "idpp", 2 },
	{ SYS_setgroups, "lp", 1 },
	{ SYS_getgroups, "ip", 1 },
	{ SYS_capget, "pp", 1 },
	{ SYS_rt_sigpending, "pl", 1 },
	{ SYS_rt_sigtimedwait, "pptl", 1 },
	{ SYS_rt_sigqueueinfo, "dmp", 1 },
	{ SYS_sigaltstack, "pp", 1 },
	{ SYS_utime, "sp", 1 },
	{ SYS_mknod, "sFi", 2 },
	{ SYS_statfs, "sp", 1 },
	{ SYS_fstatfs, "fp", 1 },
	{ SYS_getpriority, "id", 1 },
	{ SYS_setpriority, "idi", 1 },
	{ SYS_sched_setparam, "dp", 1 },
	{ SYS_sched_setscheduler, "dip", 1 },
	{ SYS_mlock, "al", 2 },
	{ SYS_munlock, "al", 1 },
	{ SYS_mlockall, "F", 1 },
	{ SYS_munlockall, "", 1 },
	{ SYS_prctl, "irrrr", 3 },
	{ SYS_arch_prctl, "rp", 1 },
	{ SYS_mount, "sssFp", 2 },
	{ SYS_umount2, "sF", 1 },
	{ SYS_gettid, "", 1 },
	{ SYS_setxattr, "sspli", 2 },
	{ SYS_getxattr, "sspl", 1 },
	{ SYS_listxattr, "spl", 1 },
	{ SYS_removexattr, "ss", 1 },
	{ SYS_futex, "pFitpi", 5 },
	{ SYS_sched_setaffinity, "dlp", 1 },
	{ SYS_sched_getaffinity, "dlp", 1 },
	{ SYS_epoll_create, "i", 2 },
	{ SYS_remap_file_pages, "alioF", 1 },
	{ SYS_restart_syscall, "", 1 },
	{ SYS_semtimedop, "ipit", 1 },
	{ SYS_fadvise64, "foli", 1 },
	{ SYS_timer_create, "ipp", 2 },
	{ SYS_timer_settime, "iFpp", 2 },
	{ SYS_timer_gettime, "ip", 1 },
	{ SYS_timer_delete, "i", 1 },
	{ SYS_clock_gettime, "ip", 1 },
	{ SYS_clock_nanosleep, "iFtp", 1 },
	{ SYS_epoll_wait, "fpii", 3 },
	{ SYS_epoll_ctl, "fifp", 5 },
	{ SYS_utimes, "sp", 1 },
	{ SYS_waitid, "idpFp", 1 },
	{ SYS_inotify_init, "", 1 },
	{ SYS_inotify_add_watch, "fsF", 2 },
	{ SYS_inotify_rm_watch, "fi", 1 },
	{ SYS_openat, "fsFF", 4 },
	{ SYS_mkdirat, "fsF", 1 },
	{ SYS_mknodat, "fsFi", 1 },
	{ SYS_fchownat, "fsiiF", 1 },
	{ SYS_newfstatat, "fspF", 1 },
	{ SYS_unlinkat, "fsF", 1 },
	{ SYS_renameat, "fsfs", 1 },
	{ SYS_linkat, "fsfsF", 1 },
	{ SYS_symlinkat, "sfs", 1 },
	{ SYS_readlinkat, "fspl", 1 },
	{ SYS_fchmodat, "fsF", 1 },
	{ SYS_faccessat, "fsF", 1 },
	{ SYS_pselect6, "ippptp", 1 },
	{ SYS_ppoll, "pltpl", 1 },
	{ SYS_unshare, "F", 1 },
	{ SYS_set_robust_list, "pl", 1 },
	{ SYS_get_robust_list, "dpp", 1 },
	{ SYS_splice, "fpfplF", 4 },
	{ SYS_tee, "fflF", 3 },
	{ SYS_sync_file_range, "fooF", 1 },
	{ SYS_vmsplice, "fviF", 3 },
	{ SYS_utimensat, "fspF", 1 },
	{ SYS_signalfd, "fpl", 1 },
	{ SYS_timerfd_create, "iF", 2 },
	{ SYS_eventfd, "i", 2 },
	{ SYS_fallocate, "fFoo", 3 },
	{ SYS_timerfd_settime, "fFpp", 2 },
	{ SYS_timerfd_gettime, "fp", 1 },
	{ SYS_accept4, "fppF", 1 },
	{ SYS_signalfd4, "fplF", 1 },
	{ SYS_eventfd2, "iF", 1 },
	{ SYS_epoll_create1, "F", 1 },
	{ SYS_dup3, "ffF", 1 },
	{ SYS_pipe2, "pF", 2 },
	{ SYS_inotify_init1, "F", 1 },
	{ SYS_preadv, "fvioi", 2 },
	{ SYS_pwritev, "fvioi", 2 },
	{ SYS_recvmmsg, "fpiFt", 1 },
	{ SYS_prlimit64, "dipp", 1 },
	{ SYS_name_to_handle_at, "fsppF", 1 },
	{ SYS_open_by_handle_at, "fpF", 1 },
	{ SYS_syncfs, "f", 1 },
	{ SYS_sendmmsg, "fpiF", 1 },
	{ SYS_setns, "fF", 1 },
	{ SYS_getcpu, "ppp", 1 },
	{ SYS_process_vm_readv, "dvivii", 2 },
	{ SYS_process_vm_writev, "dvivii", 2 },
	{ SYS_kcmp, "ddiff", 1 },
	{ SYS_sched_setattr, "dpF", 1 },
	{ SYS_sched_getattr, "dpiF", 1 },
	{ SYS_renameat2, "fsfsF", 2 },
	{ SYS_seccomp, "iFp", 1 },
	{ SYS_getrandom, "plF", 2 },
	{ SYS_memfd_create, "sF", 3 },
	{ SYS_execveat, "fsvvF", 1 },
	{ SYS_membarrier, "iFi", 1 },
	{ SYS_mlock2, "alF", 1 },
	{ SYS_copy_file_range, "fpfplF", 3 },
	{ SYS_preadv2, "fvioiF", 1 },
	{ SYS_pwritev2, "fvioiF", 1 },
	{ SYS_pkey_mprotect, "alFi", 1 },
	{ SYS_statx, "fsFFp", 1 },
	{ SYS_rseq, "pliF", 1 },
	{ SYS_pidfd_send_signal, "fmpF", 1 },
	{ SYS_pidfd_open, "dF", 2 },
	{ SYS_close_range, "ffF", 1 },
	{ SYS_openat2, "fspl", 2 },
	{ SYS_pidfd_getfd, "ffF", 1 },
	{ SYS_faccessat2, "fsiF", 1 },
	{ SYS_process_madvise, "fviiF", 1 },
	{ SYS_epoll_pwait2, "fpitpl", 1 },
	{ SYS_io_uring_setup, "ip", 1 },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

#define ARENA 0x300000000UL
#define ARENA_SIZE (4UL << 20)
static uint8_t *buffer;
static pid_t family[4];

static uint64_t number(void)
{
	static const uint64_t odd[] = { 0,	    1,	       2,	   3,
					4,	    7,	       8,	   16,
					63,	    64,	       127,	   128,
					255,	    256,       4095,	   4096,
					4097,	    8192,      65535,	   65536,
					1UL << 20,  1UL << 24, 0x7fffffff, 0x80000000,
					0xffffffff, 1UL << 32, 1UL << 47,  0x7fffffffffffffff,
					1UL << 63,  ~0UL,      ~0UL - 1,   ~0UL - 4095 };

	return rnd() % 3 ? rnd() % 64 : odd[rnd() % (sizeof(odd) / 8)];
}

static uint64_t pointer(void)
{
	switch (rnd() % 16) {
	case 0: return 0;
	case 1: return rnd();
	case 2: return STUB_SLOTS + (rnd() & 0xffff);
	case 3: return STUB_AREA - rnd() % 64;
	case 4: return ARENA + rnd() % ARENA_SIZE;
	case 5: return (uint64_t)buffer + 65536 - rnd() % 64; /* the end: a hole follows */
	default: return (uint64_t)buffer + (rnd() & 0xfff8);
	}
}

static uint64_t string(void)
{
	static const char *const names[] = { "a",
					     "b",
					     "d",
					     "d/a",
					     "d/e",
					     "../d/b",
					     ".",
					     "..",
					     "/",
					     "",
					     "/proc/self/maps",
					     "/proc/self/fd",
					     "/proc/self/mem",
					     "/proc/self/environ",
					     "/proc/1/stat",
					     "/proc/self/task",
					     "/dev/null",
					     "/dev/zero",
					     "/dev/full",
					     "/dev/tty",
					     "/dev/ptmx",
					     "/dev/shm/x",
					     "/dev/urandom",
					     "/etc/passwd",
					     "/usr/bin",
					     "/tmp/x",
					     "/proc/self/fd/3",
					     "/proc/thread-self/comm",
					     "/proc/self/clear_refs",
					     "/proc/sys/kernel",
					     "/sys",
					     "user.x",
					     "tmpfs",
					     "proc",
					     "d/d/d/d",
					     "l",
					     "/proc/self/exe",
					     "/proc/self/cwd/a",
					     "/proc/self/root",
					     "/proc/self/ns/mnt",
					     "/proc/mounts",
					     "/dev/pts/0",
					     "security.capability",
					     "fifo" };

	if (rnd() % 20 == 0)
		return pointer();
	return (uint64_t)names[rnd() % (sizeof(names) / sizeof(names[0]))];
}

static uint64_t argument(char kind)
{
	switch (kind) {
	case 'i': return rnd() % 8 ? rnd() % 20 : number();
	case 'f': return rnd() % 16 == 0 ? (uint64_t)-100 : rnd() % 16 ? rnd() % 40 : number();
	case 'p': return pointer();
	case 's': return string();
	case 'l': return rnd() % 2 ? rnd() % 70000 : number();
	case 'F':
		return rnd() % 3 == 0 ? 0
		       : rnd() % 2    ? 1UL << rnd() % 32 | 1UL << rnd() % 32
				      : rnd() & 0xffff;
	case 'a': return rnd() % 8 ? ARENA + (rnd() % (ARENA_SIZE / 4096)) * 4096 : pointer();
	case 'm': return rnd() % 4 ? 0 : rnd() % 65;
	case 'd': return rnd() % 8 == 0 ? 0 : (uint64_t)family[rnd() % 4];
	case 'o': return rnd() % 4 ? rnd() % 100000 : number();
	case 'v': {
		uint64_t *v = (uint64_t *)(buffer + (rnd() & 0x7ff8));

		for (int i = 0; i < 8; i++) {
			v[2 * i] = pointer();
			v[2 * i + 1] = rnd() % 8 ? rnd() % 20000 : number();
		}
		return (uint64_t)v;
	}
	case 't': {
		uint64_t *v = (uint64_t *)(buffer + (rnd() & 0x7ff8));

		v[0] = rnd() % 16 ? 0 : number();
		v[1] = rnd() % 16 ? rnd() % 2000000 : number();
		return (uint64_t)v;
	}
	default: return rnd() % 2 ? number() : rnd() % 4 ? rnd() % 0x6000 : pointer();
	}
}

/* Small structures that calls read: random words over the buffer. */
static void stir(void)
{
	uint64_t *w = (uint64_t *)buffer;

	for (int i = 0; i < 16; i++) {
		uint64_t at = rnd() % 8192;

		w[at] = rnd() % 3 == 0 ? pointer() : number();
	}
}

static void usual_mmap(uint64_t *a)
{
	a[2] &= 7;
	a[3] = (rnd() % 2 ? MAP_PRIVATE : MAP_SHARED) | (rnd() % 2 ? MAP_FIXED : 0) |
	       (rnd() % 2 ? MAP_ANONYMOUS : 0);
}

static void one(void)
{
	const struct call *c = &calls[rnd() % CALLS];
	uint64_t a[6] = { 0 };
	char kinds[8] = "";

	while (rnd() % 6 >= c->weight)
		c = &calls[rnd() % CALLS];
	strncpy(kinds, c->args, 7);
	for (int i = 0; kinds[i]; i++)
		a[i] = argument(kinds[i]);
	/* The memory that the fuzzer stands on. */
	if ((c->nr == SYS_mmap || c->nr == SYS_munmap || c->nr == SYS_mprotect ||
	     c->nr == SYS_madvise) &&
	    a[0] - ARENA < ARENA_SIZE && a[1] > ARENA_SIZE)
		a[1] %= ARENA_SIZE;
	if (c->nr == SYS_kill && (int)a[0] <= 0)
		a[0] = (uint64_t)getpid();
	if (c->nr == SYS_mmap && rnd() % 2)
		usual_mmap(a);
	if (rnd() % 64 == 0)
		stir();
	CATCH(syscall(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]););
	if (a[0] - ARENA < ARENA_SIZE)
		CATCH(*(volatile char *)a[0] += 1;);
}

struct state {
	uint64_t end_ms;
	_Atomic uint64_t done;
};

static void worker(void *arg)
{
	struct state *s = arg;
	struct itimerval it = { { 0, 10000 }, { 0, 10000 } };
	char dir[64];

	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	catch_setup();
	snprintf(dir, sizeof(dir), "/tmp/fuzz.%d", getpid());
	mkdir(dir, 0700);
	/* The root of the sandbox may do as it likes with the bystander's mounts: not in that
	 * namespace. */
	if (chdir(dir) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    (rnd() % 2 && (chmod(dir, 0777) < 0 || setuid(12345) < 0)))
		return;
	buffer = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mmap((void *)ARENA, ARENA_SIZE, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (int i = 0; i < 4; i++)
		family[i] = getpid();
	stir();
	if (rnd() % 2) { /* a child to wait for, trace, signal */
		pid_t child = fork();

		if (child == 0) {
			alarm(3);
			for (;;)
				one();
		}
		family[1] = family[2] = child;
	}
	for (int i = 0; i < 2000 && now_ms() < s->end_ms; i++) {
		setitimer(ITIMER_REAL, &it, NULL);
		one();
		s->done++;
	}
}

ATTACK(fuzz)
{
	const char *seconds = getenv("FUZZ_SECONDS"), *seed = getenv("SEED");
	uint64_t base = seed ? strtoull(seed, NULL, 0) : 1;
	struct state *s = shared_memory(4096);
	pid_t pid[2] = { 0, 0 };

	s->end_ms = now_ms() + 1000 * (seconds ? strtoull(seconds, NULL, 0) : 3);
	/* Two at a time; each is given 3 s. */
	int status;

	for (uint64_t n = 0, since[2]; now_ms() < s->end_ms; usleep(500)) {
		for (int i = 0; i < 2; i++) {
			if (pid[i] > 0 && waitpid(pid[i], &status, WNOHANG) == pid[i] &&
			    !WIFSTOPPED(status)) {
				kill(-pid[i], SIGKILL);
				pid[i] = 0;
			} else if (pid[i] > 0 && now_ms() - since[i] > 3000) {
				kill(-pid[i], SIGKILL);
				must_die(pid[i]);
				pid[i] = 0;
			}
			if (pid[i] > 0)
				continue;
			since[i] = now_ms();
			n++;
			pid[i] = fork();
			if (pid[i] == 0) {
				setpgid(0, 0);
				rnd_seed(base * 1000003 + n);
				worker(s);
				kill(0, SIGKILL);
			}
		}
	}
	for (int i = 0; i < 2; i++)
		if (pid[i] > 0) {
			kill(-pid[i], SIGKILL); /* its child may be its tracer */
			must_die(pid[i]);
		}
	if (s->done == 0)
		breach("nothing was tried");
	fprintf(stderr, "\n%lu calls\n", (unsigned long)s->done);
}

HOSTILE_MAIN
