/*
 * platform/stub/abi.h: what the sentry and the stub's code agree on. Also
 * included by assembly; the C structs below are checked against the offsets.
 *
 * Layout of a stub's address space (everything below STUB_AREA is the guest's):
 *
 *	STUB_TEXT	code and constants, r-x, private file mapping
 *	STUB_CONFIG	slot 0 of the control file, read-only: filters, constants
 *	STUB_CMD	this address space's command slot, read-only
 *	STUB_STACK	the zygote's stack; gone in stubs
 *	STUB_VDSO	the host's [vvar] and [vdso], moved here where the host lets us
 *	STUB_SLOTS	one slot per guest thread, read-write, shared with the sentry:
 *			a context page and the thread's alternate signal stack
 *
 * Below STUB_AREA a guest thread may itself run munmap and mprotect: what it may not write is
 * mapped through a read-only descriptor, and memory of others is not mapped at all.
 *
 * The control file is an array of slots of STUB_SLOT_SIZE, all of them mapped
 * read-write in the sentry. What the stub may not change it maps read-only.
 *
 * Registers of the mapper (register-only code, see mapper.S) are its only
 * writable state.
 */
#ifndef MINISENTRY_PLATFORM_STUB_ABI_H
#define MINISENTRY_PLATFORM_STUB_ABI_H

#define STUB_AREA 0x7fffe0000000
#define STUB_TEXT 0x7fffe0000000
#define STUB_TEXT_MAX 0x10000
#define STUB_CONFIG 0x7fffe0010000
#define STUB_CMD 0x7fffe0020000
#define STUB_STACK 0x7fffe0030000
#define STUB_STACK_SIZE 0x8000
#define STUB_VDSO 0x7fffe0040000
#define STUB_VDSO_MAX 0x40000
#define STUB_SLOTS 0x7fffe0080000
#define STUB_SLOT_SIZE 0x8000
#define STUB_SLOT_SHIFT 15
#define STUB_SLOT_MAX 8192 /* guest threads in an address space */
#define STUB_SLOTS_END (STUB_SLOTS + STUB_SLOT_MAX * STUB_SLOT_SIZE)
#define STUB_TASK_MAX 0x7ffffffff000

/* Descriptors of the zygote and of stubs. */
#define STUB_FD_SOCKET 0 /* zygote only */
#define STUB_FD_DONE 1	 /* stubs only: eventfd, completion of commands */
#define STUB_FD_CONTROL 2
#define STUB_FD_FILES 3 /* + memfile.stub_slot: read-write */
#define STUB_FD_FILES_READ                                                                         \
	7 /* the same files, opened read-only: no mprotect makes these writable */
#define STUB_FD_END 11

/* The start of the text: struct stub_header. */
#define STUB_MAGIC 0x62757473696e696d

/* struct stub_config */
#define CONFIG_PTRACE 0x00	/* u32 */
#define CONFIG_FSGSBASE 0x04	/* u32 */
#define CONFIG_SENTRY_PID 0x08	/* u64 */
#define CONFIG_SIGMASK 0x10	/* u64, blocked while guest code runs */
#define CONFIG_DISPATCH 0x18	/* u32: guest threads are under syscall user dispatch */
#define CONFIG_PROG_ZYGOTE 0x20 /* struct sock_fprog */
#define CONFIG_PROG_MAPPER 0x30
#define CONFIG_PROG_GUEST 0x40

/* struct stub_cmd */
#define CMD_SEQ 0x00	  /* u32, futex: the sentry counts it up */
#define CMD_KIND 0x04	  /* u32 */
#define CMD_COUNT 0x08	  /* u32 */
#define CMD_GO 0x0c	  /* u32, futex: a new ptrace thread may go on */
#define CMD_SLOT 0x10	  /* u64, address of the new thread's slot */
#define CMD_ALTSTACK 0x18 /* stack_t */
#define CMD_OPS 0x40
#define CMD_OP_SIZE 0x40
#define CMD_MAX_OPS ((STUB_SLOT_SIZE - CMD_OPS) / CMD_OP_SIZE)

#define CMD_KIND_BATCH 1  /* CMD_COUNT system calls, up to the first that fails */
#define CMD_KIND_THREAD 2 /* the same, then a guest thread for CMD_SLOT */

/* What a completion says: bits are sent one write each, DONE last. */
#define DONE_BIT 62
#define DONE_ERROR_BIT 40 /* low 12 bits: errno, from bit 16: index of the op; else: result */

/* struct stub_ctx: the context page of a guest thread's slot */
#define CTX_WORD 0x00 /* u32, futex: whose turn it is */
#define CTX_UC 0x04   /* u32, offset of the ucontext in the slot */
#define CTX_FS 0x08
#define CTX_GS 0x10
#define CTX_CPU 0x18	  /* u32: where the stub thread stopped */
#define CTX_SPIN 0x1c	  /* u32: rounds that the stub may spin before it sleeps */
#define CTX_DEFERRED 0x20 /* u32: calls that wait in CTX_DEFERRED_OPS; the stub counts it down */
#define CTX_DEFERRED_OPS 0x800
#define CTX_DEFERRED_OP_SIZE 0x20
#define CTX_DEFERRED_MAX 8

/*
 * Bounds of a munmap or mprotect by a guest thread: address below the one, length below the other,
 * so that no sum of both reaches STUB_AREA.
 */
#define STUB_DEFER_LEN 0x40000000
#define STUB_DEFER_END (STUB_AREA - STUB_DEFER_LEN)

#define TURN_GONE 0 /* the thread has exited (CLONE_CHILD_CLEARTID) */
#define TURN_STUB 1
#define TURN_SENTRY 2
#define TURN_EXIT 3 /* the stub's, to leave */
#define TURN_MASK 0xff
#define TURN_STUB_SLEEPS 0x100
#define TURN_SENTRY_SLEEPS 0x200

/*
 * The signal by which the sentry interrupts a guest thread: SIGUSR1. Not a real-time signal: those
 * queue up in a thread that keeps them blocked, and are refused once RLIMIT_SIGPENDING is reached.
 */
#define STUB_INTERRUPT_SIGNAL 10

/* CLONE_VM|FS|FILES|SIGHAND|THREAD|SYSVSEM|CHILD_CLEARTID; CLONE_PARENT */
#define STUB_THREAD_FLAGS 0x250f00
#define STUB_FORK_FLAGS 0x8000

/* Offsets within the kernel's rt_sigframe, from its ucontext (asm/ucontext.h, asm/sigcontext.h). */
#define UC_SIGINFO 304

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

struct stub_header {
	uint64_t magic;
	uint64_t entry;
	uint64_t signal_entry;
	uint64_t signal_restorer;
	uint64_t ptrace_ready; /* rip behind the new ptrace thread's int3 */
	uint64_t exit_gadget;  /* exit(0) of the calling thread */
	uint64_t end;
	/* Code of which only the mapper, or only guest threads, make system calls. */
	uint64_t mapper_start, mapper_end;
	uint64_t guest_start, guest_end;
};

struct stub_prog {
	uint16_t len;
	uint16_t pad[3];
	uint64_t filter; /* address in the stub */
};

struct stub_config {
	uint32_t ptrace;
	uint32_t fsgsbase;
	uint64_t sentry_pid;
	uint64_t sigmask;
	uint32_t dispatch;
	uint32_t pad;
	struct stub_prog zygote, mapper, guest;
};

struct stub_op {
	uint64_t nr;
	uint64_t args[6];
	uint64_t pad;
};

struct stub_cmd {
	_Atomic uint32_t seq;
	uint32_t kind;
	uint32_t count;
	_Atomic uint32_t go;
	uint64_t slot;
	uint64_t altstack_sp;
	uint32_t altstack_flags, altstack_pad;
	uint64_t altstack_size;
	uint64_t pad[2];
	struct stub_op ops[CMD_MAX_OPS];
};

struct stub_ctx {
	_Atomic uint32_t word;
	uint32_t uc;
	uint64_t fs, gs;
	uint32_t cpu;
	uint32_t spin;
	uint32_t deferred;
};

/* A call that a guest thread makes on its way back to guest code, at CTX_DEFERRED_OPS. */
struct stub_deferred {
	uint64_t nr, addr, len, prot;
};

/* The sentry's first message to the zygote: [vvar*] and [vdso] as the kernel placed them. */
#define BOOT_MAX_MAPS 8
struct stub_boot {
	uint64_t count;
	struct {
		uint64_t start, end, to;
	} map[BOOT_MAX_MAPS];
};

/* The sentry asks for a fork; the eventfd comes with the message. The zygote answers. */
struct stub_fork {
	uint32_t slot; /* index of the command slot in the control file */
};

struct stub_reply {
	int64_t result; /* pid, 0 at start-up, -errno */
};

_Static_assert(offsetof(struct stub_config, sigmask) == CONFIG_SIGMASK, "abi");
_Static_assert(offsetof(struct stub_config, dispatch) == CONFIG_DISPATCH, "abi");
_Static_assert(offsetof(struct stub_config, sentry_pid) == CONFIG_SENTRY_PID, "abi");
_Static_assert(offsetof(struct stub_config, zygote) == CONFIG_PROG_ZYGOTE, "abi");
_Static_assert(offsetof(struct stub_config, mapper) == CONFIG_PROG_MAPPER, "abi");
_Static_assert(offsetof(struct stub_config, guest) == CONFIG_PROG_GUEST, "abi");
_Static_assert(offsetof(struct stub_cmd, slot) == CMD_SLOT, "abi");
_Static_assert(offsetof(struct stub_cmd, altstack_sp) == CMD_ALTSTACK, "abi");
_Static_assert(offsetof(struct stub_cmd, ops) == CMD_OPS, "abi");
_Static_assert(sizeof(struct stub_op) == CMD_OP_SIZE, "abi");
_Static_assert(sizeof(struct stub_cmd) <= STUB_SLOT_SIZE, "abi");
_Static_assert(offsetof(struct stub_ctx, fs) == CTX_FS, "abi");
_Static_assert(offsetof(struct stub_ctx, spin) == CTX_SPIN, "abi");
_Static_assert(offsetof(struct stub_ctx, deferred) == CTX_DEFERRED, "abi");
_Static_assert(sizeof(struct stub_deferred) == CTX_DEFERRED_OP_SIZE, "abi");
#endif

#endif
