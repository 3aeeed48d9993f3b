/* System calls by every entry, from everywhere, with every number. */
#include "test/hostile/lib/hostile.h"
#include <sys/prctl.h>
#include <sys/time.h>

static long raw(uint64_t nr, const uint64_t *a)
{
	long ret;
	register uint64_t r10 __asm__("r10") = a[3];
	register uint64_t r8 __asm__("r8") = a[4];
	register uint64_t r9 __asm__("r9") = a[5];

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static long int80(uint32_t nr, const uint64_t *a)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"((uint64_t)nr), "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4])
			 : "r8", "r9", "r10", "r11", "memory");
	return ret;
}

/* Calls that end or hang the caller, or that may rightly harm others of the sandbox. */
static bool excused(uint64_t nr)
{
	switch (nr) {
	case SYS_exit:
	case SYS_exit_group:
	case SYS_kill:
	case SYS_tkill:
	case SYS_tgkill:
	case SYS_pause:
	case SYS_rt_sigsuspend:
	case SYS_rt_sigreturn:
	case SYS_vfork:
	case SYS_fork:
	case SYS_clone:
	case SYS_clone3:
	case SYS_rt_sigqueueinfo:
	case SYS_rt_tgsigqueueinfo:
	case SYS_pidfd_send_signal:
	case SYS_umount2:
	case SYS_pivot_root:
	case SYS_chroot:
	case SYS_rt_sigtimedwait:
	case SYS_setpgid:
	case SYS_setsid:
	case SYS_vhangup:
	case SYS_reboot: return true;
	}
	return false;
}

static char scratch[65536];

static uint64_t pointer_like(void)
{
	static const uint64_t special[] = {
		0,
		1,
		0xfff,
		0x1000,
		0x7fffffff,
		0x80000000,
		0xffffffff,
		0x100000000,
		0x7fffdffff000,
		0x7fffdffffff8,
		STUB_AREA,
		STUB_AREA + 0x10000,
		STUB_AREA + 0x20000,
		STUB_SLOTS,
		0x7ffffffff000,
		0x800000000000,
		0xffff800000000000,
		0xffffffffff600000,
		~0UL,
		~0UL - 4095,
		0x8000000000000000,
		0x7fffffffffffffff,
	};
	uint64_t r = rnd();

	switch (r % 6) {
	case 0: return special[(r >> 8) % (sizeof(special) / 8)];
	case 1: return (uint64_t)scratch + ((r >> 8) & 0xfff8);
	case 2: return (r >> 8) % 16;
	case 3: return (r >> 8) % 100000;
	case 4: return 1UL << ((r >> 8) & 63);
	default: return r;
	}
}

struct round {
	uint64_t seed, from, to, add;
	_Atomic uint64_t at;
};

static void numbers_child(void *arg)
{
	struct round *r = arg;
	struct itimerval it = { { 0, 20000 }, { 0, 20000 } };
	uint64_t a[6];

	rnd_seed(r->seed);
	catch_setup();
	setitimer(ITIMER_REAL, &it, NULL);
	for (r->at = r->from; r->at < r->to; r->at++) {
		if (excused(r->at) && !r->add)
			continue;
		for (int i = 0; i < 6; i++)
			a[i] = pointer_like();
		CATCH(raw(r->at + r->add, a));
	}
}

static void numbers(uint64_t rounds, uint64_t add)
{
	struct round *r = shared_memory(4096);

	for (uint64_t i = 0; i < rounds; i++) {
		r->seed = rnd();
		r->add = add;
		/* It may close its descriptors, unmap itself and so on: then on from the next
		 * number. */
		for (r->from = 0, r->to = 601; r->from < 601; r->from = r->at + 1) {
			bool late;

			in_child(numbers_child, r, 3000, &late);
		}
	}
}

ATTACK(every_number)
{
	numbers(6, 0);
}

ATTACK(every_number_x32)
{
	uint64_t a[6] = { 0 };

	for (uint64_t nr = 0; nr < 601; nr++)
		if (raw(nr | 0x40000000, a) != -ENOSYS)
			breach("x32 call %lu is served", (unsigned long)nr);
	for (int i = 0; i < 20000; i++) {
		uint64_t nr = rnd() | 1UL << (10 + rnd() % 54);

		/* The kernel looks at the low 32 bits, as a signed number. */
		if ((uint32_t)nr > 1000 && raw(nr, a) != -ENOSYS)
			breach("call %#lx is served", (unsigned long)nr);
	}
}

static void int80_child(void *arg)
{
	struct round *r = arg;
	uint64_t a[6];

	catch_setup();
	for (r->at = r->from; r->at < r->to; r->at++) {
		for (int i = 0; i < 6; i++)
			a[i] = pointer_like();
		a[5] = 0;
		CATCH({
			long ret = int80((uint32_t)r->at, a);

			if (ret != -ENOSYS)
				breach("int 0x80 number %lu returned %ld", (unsigned long)r->at,
				       ret);
		});
	}
}

ATTACK(int_0x80)
{
	struct round *r = shared_memory(4096);

	for (r->from = 0, r->to = 470; r->from < 470; r->from = r->at + 1)
		in_child(int80_child, r, 5000, NULL);
}

static void sysenter_child(void *arg)
{
	uint64_t nr = (uint64_t)arg;

	catch_setup();
	CATCH(__asm__ volatile("mov %%rsp, %%rbp; sysenter"
			       :
			       : "a"(nr), "b"(1UL), "c"(0UL), "d"(0UL)
			       : "memory"));
}

ATTACK(sysenter)
{
	static const int numbers[] = { 1, 2, 4, 5, 20, 90, 120, 125, 192, 252 };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		in_child(sysenter_child, (void *)(uintptr_t)numbers[i], 5000, NULL);
}

static void vsyscall_child(void *arg)
{
	uint64_t addr = (uint64_t)arg;

	catch_setup();
	for (uint64_t i = 0; i < 64; i++) {
		uint64_t p = i == 0 ? (uint64_t)scratch : pointer_like();

		CATCH({
			long ret;

			__asm__ volatile("call *%1"
					 : "=a"(ret)
					 : "r"(addr), "D"(p), "S"(0UL), "d"(0UL)
					 : "rcx", "r11", "memory");
		});
	}
}

ATTACK(vsyscall)
{
	for (uint64_t off = 0; off < 0x1000; off += 0x200)
		in_child(vsyscall_child, (void *)(0xffffffffff600000 + off), 5000, NULL);
	in_child(vsyscall_child, (void *)0xffffffffff600001, 5000, NULL);
}

/* `syscall; ret` in odd places: the ends of the address space, shared and file memory, across
 * pages. */
static void place(uint64_t addr, int flags, int fd, unsigned offset)
{
	uint8_t *m = mmap((void *)addr, 8192, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE,
			  fd, 0);
	long ret;

	if (m == MAP_FAILED)
		return;
	memcpy(m + offset, "\x0f\x05\xc3", 3);
	if (mprotect(m, 8192, PROT_READ | PROT_EXEC) < 0) {
		munmap(m, 8192);
		return;
	}
	__asm__ volatile("call *%1"
			 : "=a"(ret)
			 : "r"(m + offset), "a"(SYS_getpid)
			 : "rcx", "r11", "memory");
	if (ret != getpid())
		breach("a call at %p gave %ld", (void *)(m + offset), ret);
	munmap(m, 8192);
}

ATTACK(odd_places)
{
	int fd = memfd_create("code", 0);

	if (ftruncate(fd, 8192) < 0)
		skip("ftruncate");
	for (unsigned off = 4093; off <= 4096; off++) {
		place(0x10000, MAP_PRIVATE | MAP_ANONYMOUS, -1, off);
		place(STUB_AREA - 8192, MAP_PRIVATE | MAP_ANONYMOUS, -1, off);
		place(0x100000000 - 4096, MAP_SHARED | MAP_ANONYMOUS, -1, off);
		place(0x200000000, MAP_SHARED, fd, off);
		place(0x300000000, MAP_PRIVATE, fd, off);
	}
	/* The very last bytes below the stub: the return address is not the guest's. */
	place(STUB_AREA - 8192, MAP_PRIVATE | MAP_ANONYMOUS, -1, 8189);
}

HOSTILE_MAIN
