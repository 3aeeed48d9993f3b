/*
 * The zygote: the process from which stubs are forked. It tidies its address
 * space, confines itself, and then forks a stub per message from the sentry.
 * See abi.h for the layout; everything here runs before the fork's child has
 * any guest thread.
 */
#include "platform/stub/abi.h"
#include <asm/unistd_64.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <asm/signal.h>

_Noreturn void mapper_main(void);
_Noreturn void zygote_main(void);

static long call6(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#define call(nr, a, b, c) call6((nr), (long)(a), (long)(b), (long)(c), 0, 0, 0)

static _Noreturn void die(int code)
{
	for (;;)
		call(__NR_exit_group, code, 0, 0);
}

/* A message of exactly `size` bytes, with one descriptor if ret_fd. False at the end of the stream.
 */
struct msg_header {
	void *name;
	uint32_t name_len, pad;
	void *iov;
	uint64_t iov_len;
	void *control;
	uint64_t control_len;
	uint32_t flags, pad2;
};

static long receive(void *buf, uint64_t size, int *ret_fd)
{
	struct {
		void *base;
		uint64_t len;
	} iov = { buf, size };
	struct {
		uint64_t len;
		int level, type;
		int fd, pad;
	} control = { 0 };
	struct msg_header msg = { .iov = &iov, .iov_len = 1 };
	long n;

	if (ret_fd) {
		msg.control = &control;
		msg.control_len = sizeof(control);
	}
	n = call(__NR_recvmsg, STUB_FD_SOCKET, &msg, 0);
	if (n != (long)size)
		return -1;
	if (ret_fd) {
		if (msg.control_len < 20 || control.level != 1 /* SOL_SOCKET */ ||
		    control.type != 1 /* SCM_RIGHTS */)
			return -1;
		*ret_fd = control.fd;
	}
	return 0;
}

static void reply(long result)
{
	struct stub_reply r = { result };

	if (call(__NR_write, STUB_FD_SOCKET, &r, sizeof(r)) != sizeof(r))
		die(2);
}

static void unmap(uint64_t start, uint64_t end)
{
	if (start < end && call(__NR_munmap, start, end - start, 0) < 0)
		die(3);
}

/* Unmaps [start, end) but for what boot says must stay (sorted). */
static void unmap_around(const struct stub_boot *boot, uint64_t start, uint64_t end)
{
	for (uint64_t i = 0; i < boot->count; i++) {
		uint64_t s = boot->map[i].start, e = boot->map[i].end;

		if (s >= end || e <= start)
			continue;
		unmap(start, s);
		start = e;
	}
	unmap(start, end);
}

/* Moves the vdso's mappings to where the sentry wants them. All or none: a negative errno leaves
 * those already moved where they are, and the sentry gives up. */
static long move_vdso(struct stub_boot *boot)
{
	for (uint64_t i = 0; i < boot->count; i++) {
		uint64_t len = boot->map[i].end - boot->map[i].start;
		long r;

		if (boot->map[i].to == boot->map[i].start)
			continue;
		r = call6(__NR_mremap, (long)boot->map[i].start, (long)len, (long)len,
			  3 /* MREMAP_MAYMOVE | MREMAP_FIXED */, (long)boot->map[i].to, 0);
		if (r < 0 && r > -4096)
			return r;
		boot->map[i].start = boot->map[i].to;
		boot->map[i].end = boot->map[i].to + len;
	}
	return 0;
}

static void map_zone(uint64_t addr, uint64_t size, uint64_t offset)
{
	if ((uint64_t)call6(__NR_mmap, (long)addr, (long)size, 5 /* PROT_READ | PROT_EXEC */,
			    MAP_PRIVATE | MAP_FIXED, STUB_FD_CONTROL, (long)offset) != addr)
		die(12);
}

static long map_slot(uint64_t addr, uint64_t index)
{
	return call6(__NR_mmap, (long)addr, STUB_SLOT_SIZE, 1 /* PROT_READ */,
		     MAP_SHARED | MAP_FIXED, STUB_FD_CONTROL, (long)(index * STUB_SLOT_SIZE));
}

struct kernel_action {
	uint64_t handler, flags, restorer, mask;
};

static void set_signals(const struct stub_config *config)
{
	static const uint8_t caught[] = {
		SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, STUB_INTERRUPT_SIGNAL
	};
	const struct stub_header *h = (const void *)STUB_TEXT;
	struct kernel_action act = {
		.handler = h->signal_entry,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER,
		.restorer = h->signal_restorer,
		.mask = ~0UL,
	};

	/* Under ptrace the sentry undoes a delivery by setting registers: the mask must not change.
	 */
	if (config->ptrace) {
		act.flags |= SA_NODEFER;
		act.mask = 0;
	}
	for (unsigned i = 0; i < sizeof(caught); i++)
		if (call6(__NR_rt_sigaction, caught[i], (long)&act, 0, 8, 0, 0) < 0)
			die(4);
}

static void die_with_sentry(const struct stub_config *config)
{
	if (call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0) < 0)
		die(5);
	if ((uint64_t)call(__NR_getppid, 0, 0, 0) != config->sentry_pid)
		die(6);
}

/*
 * The zero pages that stubs map are private, so a guest thread's mprotect could make them writable,
 * and their copies would be nobody's memory. The host refuses that beyond RLIMIT_DATA.
 */
static void limit_private_memory(void)
{
	static const uint64_t none[2] = { 0, 0 };

	if (call(__NR_setrlimit, 2 /* RLIMIT_DATA */, none, 0) < 0)
		die(12);
}

static void confine(const struct stub_prog *prog)
{
	if (call(__NR_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, 0, prog) != 0)
		die(7);
}

static _Noreturn void stub_main(const struct stub_config *config, uint32_t slot)
{
	die_with_sentry(config);
	call(__NR_close, STUB_FD_SOCKET, 0, 0);
	if (map_slot(STUB_CMD, slot) != STUB_CMD)
		die(8);
	if (!config->dispatch)
		confine(&config->mapper);
	mapper_main();
}

_Noreturn void zygote_main(void)
{
	const struct stub_config *config = (const void *)STUB_CONFIG;
	struct stub_boot boot;
	struct stub_fork fork;
	long r;
	int fd;

	if (receive(&boot, sizeof(boot), 0) < 0 || boot.count > BOOT_MAX_MAPS)
		die(9);
	r = move_vdso(&boot);
	if (r < 0) {
		reply(r);
		die(10);
	}
	unmap_around(&boot, 0, STUB_TEXT);
	unmap_around(&boot, ((const struct stub_header *)STUB_TEXT)->end, STUB_STACK);
	unmap_around(&boot, STUB_STACK + STUB_STACK_SIZE, STUB_TASK_MAX);
	if (map_slot(STUB_CONFIG, 0) != STUB_CONFIG)
		die(11);
	if ((uint64_t)call6(__NR_mmap, STUB_BELLS, STUB_BELLS_SIZE, 1 /* PROT_READ */,
			    MAP_SHARED | MAP_FIXED, STUB_FD_CONTROL, CONTROL_BELLS) != STUB_BELLS)
		die(13);
	if (config->patch) {
		map_zone(STUB_ZONE, STUB_ZONE_SIZE, CONTROL_ZONE);
		map_zone(STUB_LOW_ZONE, STUB_LOW_ZONE_SIZE, CONTROL_LOW_ZONE);
	}
	die_with_sentry(config);
	set_signals(config);
	if (!config->ptrace)
		call(__NR_prctl, PR_SET_DUMPABLE, 0, 0);
	limit_private_memory();
	confine(&config->zygote);
	reply(0);
	for (;;) {
		if (receive(&fork, sizeof(fork), &fd) < 0 || fd != STUB_FD_DONE)
			die(0);
		r = call(__NR_clone, STUB_FORK_FLAGS, 0, 0);
		if (r == 0)
			stub_main(config, fork.slot);
		call(__NR_close, fd, 0, 0);
		reply(r);
	}
}
