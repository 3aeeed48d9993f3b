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
 *	STUB_BELLS	read-only: a futex word for each slot of the control file. Threads sleep on
 *			theirs, and others can be asked to wake them
 *	STUB_ZONE	trampolines of patched system call sites near the top of the
 *			address space, and
 *	STUB_LOW_ZONE	of those in programs at low addresses: r-x, private mappings
 *			of the control file, below what the guest may map
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
#define STUB_BELLS 0x7ffff0080000
#define STUB_BELLS_SIZE (CONTROL_SLOTS * 4)
#define STUB_ZONE 0x7ffff0100000
#define STUB_ZONE_SIZE 0x4000000
#define STUB_LOW_ZONE 0x10000
#define STUB_LOW_ZONE_SIZE 0xf0000
#define STUB_TASK_MAX 0x7ffffffff000
/* Where the zones are in the control file: behind all slots. */
#define CONTROL_ZONE (CONTROL_SLOTS * STUB_SLOT_SIZE)
#define CONTROL_LOW_ZONE (CONTROL_ZONE + STUB_ZONE_SIZE)
#define CONTROL_BELLS (CONTROL_LOW_ZONE + STUB_LOW_ZONE_SIZE)
#define CONTROL_END (CONTROL_BELLS + STUB_BELLS_SIZE)
#define CONTROL_SLOTS 65536UL /* command slots and guest threads of the whole sentry */

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
#define CONFIG_VDSO 0x50	/* u64 each, VDSO_*: functions of the vDSO, 0 where there is none */
#define CONFIG_XFEATURES 0x68	/* u64: what XSAVE shall save */
#define CONFIG_PROG_ZYGOTE 0x20 /* struct sock_fprog */
#define CONFIG_PROG_MAPPER 0x30
#define CONFIG_PROG_GUEST 0x40
#define CONFIG_XINIT 0x3000 /* an XSAVE area that holds the initial state; behind the filters */

/* struct stub_cmd */
#define CMD_SEQ 0x00	  /* u32: the sentry counts it up, and then the bell */
#define CMD_KIND 0x04	  /* u32 */
#define CMD_COUNT 0x08	  /* u32 */
#define CMD_GO 0x0c	  /* u32, futex: a new ptrace thread may go on */
#define CMD_SLOT 0x10	  /* u64, address of a thread's slot */
#define CMD_ALTSTACK 0x18 /* stack_t */
#define CMD_BELL 0x30	  /* u64, address of the mapper's bell */
#define CMD_RING 0x38	  /* u64, with CMD_KIND_RESUME: bell that the thread may sleep on, or 0 */
#define CMD_OPS 0x40
#define CMD_OP_SIZE 0x40
#define CMD_MAX_OPS ((CMD_INFO - CMD_OPS) / CMD_OP_SIZE)
#define CMD_INFO (STUB_SLOT_SIZE - 0x1000) /* struct stub_info for the first threads */

#define CMD_KIND_BATCH 1  /* CMD_COUNT system calls, up to the first that fails */
#define CMD_KIND_THREAD 2 /* the same, then a guest thread for CMD_SLOT */
#define CMD_KIND_RESUME 3 /* a batch, then, whatever came of it, TURN_STUB in CMD_SLOT's word */

/* What a completion says: an error is sent a bit a write, a thread's number six bits a write; DONE
 * comes last. */
#define DONE_BIT 62
#define DONE_ERROR_BIT 40 /* low 12 bits: errno, from bit 16: index of the op; else: result */

/*
 * struct stub_ctx: the context page of a guest thread's slot. While guest code runs, GS is its
 * address. The first cache line carries a patched call to the sentry and its answer back.
 */
#define CTX_WORD 0x00 /* u32, futex: whose turn it is */
#define CTX_KIND 0x04 /* u32: STOP_* from the stub, RESUME_* from the sentry */
#define CTX_RAX 0x08  /* number of the call; its result */
#define CTX_RDI 0x10
#define CTX_RSI 0x18
#define CTX_RDX 0x20
#define CTX_R10 0x28
#define CTX_R8 0x30
#define CTX_R9 0x38
#define CTX_RIP 0x40 /* behind the call */
#define CTX_RSP 0x48
#define CTX_RBX 0x50
#define CTX_RBP 0x58
#define CTX_R12 0x60
#define CTX_R13 0x68
#define CTX_R14 0x70
#define CTX_R15 0x78
#define CTX_SPIN 0x80	 /* u32: rounds that the stub may spin before it sleeps */
#define CTX_CPU 0x84	 /* u32: where the stub thread stopped */
#define CTX_PENDING 0x88 /* u32: an interrupt came while the stub had nothing to interrupt */
#define CTX_UC 0x8c	 /* u32, offset of the ucontext in the slot */
#define CTX_FS 0x90
#define CTX_GS 0x98
#define CTX_XSTATE 0xa0 /* u64, offset in the slot: where RESUME_SAVE puts the extended state */

#define CTX_SELF 0xa8	  /* u64, address of this page in the stub */
#define CTX_INFO 0xb0	  /* u64, address of the thread's struct stub_info */
#define CTX_DEFERRED 0xb8 /* u32: calls that wait in CTX_DEFERRED_OPS; the stub counts it down */
#define CTX_RCX 0xc0	  /* for RESUME_REGS, with those above */
#define CTX_R11 0xc8
#define CTX_EFLAGS 0xd0
#define CTX_FP_SAVE 0xd8 /* u64, see RESUME_FP */
#define CTX_FP_LOAD 0xe0 /* u64 */
#define CTX_BELL 0xe8	 /* u64, address of the thread's bell */
#define CTX_DEFERRED_OPS 0x400
#define CTX_DEFERRED_OP_SIZE 0x20
#define CTX_DEFERRED_MAX 8

/*
 * Bounds of a munmap or mprotect by a guest thread: from the first address (below are trampolines,
 * which the next guest of a stub relies on) to below the second, and the length below the third, so
 * that no sum of both reaches STUB_AREA.
 */
#define STUB_DEFER_START (STUB_LOW_ZONE + STUB_LOW_ZONE_SIZE)
#define STUB_DEFER_LEN 0x4000000
#define STUB_DEFER_END (STUB_AREA - STUB_DEFER_LEN)

#define STOP_FRAME 0 /* a signal frame holds the state */
#define STOP_CALL 1  /* a patched call: the registers are above, the rest is live in the thread */
#define STOP_SAVED 2 /* RESUME_SAVE is done */
#define STOP_INTERRUPT 3 /* after an answer: the registers are as the sentry left them */

#define RESUME_CALL 0	    /* return CTX_RAX from the call */
#define RESUME_FRAME 1	    /* load everything from the frame at CTX_UC */
#define RESUME_REGS 3	    /* load the general registers, flags and FS from here */
#define RESUME_XSTATE 0x200 /* before RESUME_REGS: load the extended state at CTX_XSTATE */
/*
 * Before RESUME_REGS: save the extended state at the address CTX_FP_SAVE, which is 0 afterwards;
 * then load it from the address CTX_FP_LOAD. Either may be 0: not to be done.
 */
#define RESUME_FP 0x400
#define RESUME_DEFERRED 0x100 /* before RESUME_CALL or RESUME_FRAME: make the deferred calls */
#define RESUME_SAVE 2	      /* save the extended state, hand over again */

/*
 * struct stub_info: what patched calls are answered from without the sentry; mapped read-only in
 * the stub. Calls from ANSWER_MAX on have no such answer.
 */
#define INFO_FLAGS 0x00 /* u32, INFO_IDS and INFO_CLOCKS: which calls may be answered */
#define INFO_PID 0x04
#define INFO_TID 0x08
#define INFO_PPID 0x0c
#define INFO_UID 0x10
#define INFO_EUID 0x14
#define INFO_GID 0x18
#define INFO_EGID 0x1c
#define INFO_SIZE 0x20
#define INFO_MAX ((STUB_SLOT_SIZE - CMD_INFO) / INFO_SIZE - 1) /* the last one answers nothing */
#define INFO_IDS 1
#define INFO_CLOCKS 2
#define ANSWER_MAX 320
#define ANSWER_VDSO 0x80
#define VDSO_CLOCK_GETTIME 0x00
#define VDSO_GETTIMEOFDAY 0x08
#define VDSO_GETCPU 0x10

#define TURN_GONE 0 /* the thread has exited (CLONE_CHILD_CLEARTID) */
#define TURN_STUB 1
#define TURN_SENTRY 2
#define TURN_EXIT 3   /* the stub's, to leave */
#define TURN_MAPPER 4 /* the mapper's: it gives the turn to the stub */
#define TURN_MASK 0xff
#define TURN_STUB_SLEEPS 0x100
#define TURN_SENTRY_SLEEPS 0x200
/* With TURN_MAPPER: the stub's thread wakes the mapper, which is to have the same CPU, once there
 * is the command whose number's low half is in the word's high half. */
#define TURN_WAKE_MAPPER 0x400
#define TURN_SEQ_SHIFT 16
/* With TURN_SENTRY, while the stub spins: it is to wake who sleeps on the bell whose number is in
 * the word's high half, for that one is to have the same CPU. */
#define TURN_RING 0x800
#define TURN_BELL_SHIFT 16

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

/* Who sleeps on the word, as futex bitsets: stubs match both. */
#define TURN_WAKES_STUB 1
#define TURN_WAKES_SENTRY 2

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
	/* Code of patched calls, see guest.S: where trampolines go, and its sections. */
	uint64_t call_entry, call_answered, call_vdso_answered, call_save, call_code_end;
	uint64_t call_fp, call_fp_end; /* what RESUME_FP does */
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
	uint64_t vdso[3];
	uint64_t xfeatures;
	uint32_t patch, pad2;
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
	uint64_t bell, ring;
	struct stub_op ops[CMD_MAX_OPS];
};

struct stub_ctx {
	_Atomic uint32_t word;
	uint32_t kind;
	uint64_t rax, rdi, rsi, rdx, r10, r8, r9;
	uint64_t rip, rsp, rbx, rbp, r12, r13, r14, r15;
	uint32_t spin;
	uint32_t cpu;
	uint32_t pending;
	uint32_t uc;
	uint64_t fs, gs;
	uint64_t xstate;
	uint64_t self, info;
	uint32_t deferred, pad;
	uint64_t rcx, r11, eflags;
	uint64_t fp_save, fp_load;
	uint64_t bell;
};

/* A call that a guest thread makes on its way back to guest code, at CTX_DEFERRED_OPS. */
struct stub_deferred {
	uint64_t nr, addr, len, prot;
};

struct stub_info {
	uint32_t flags, pid, tid, ppid, uid, euid, gid, egid;
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
_Static_assert(offsetof(struct stub_ctx, r9) == CTX_R9, "abi");
_Static_assert(offsetof(struct stub_ctx, r15) == CTX_R15, "abi");
_Static_assert(offsetof(struct stub_ctx, spin) == CTX_SPIN, "abi");
_Static_assert(offsetof(struct stub_ctx, info) == CTX_INFO, "abi");
_Static_assert(offsetof(struct stub_ctx, deferred) == CTX_DEFERRED, "abi");
_Static_assert(offsetof(struct stub_ctx, eflags) == CTX_EFLAGS, "abi");
_Static_assert(offsetof(struct stub_ctx, fp_load) == CTX_FP_LOAD, "abi");
_Static_assert(offsetof(struct stub_ctx, bell) == CTX_BELL, "abi");
_Static_assert(offsetof(struct stub_cmd, ring) == CMD_RING, "abi");
_Static_assert(sizeof(struct stub_deferred) == CTX_DEFERRED_OP_SIZE, "abi");
_Static_assert(offsetof(struct stub_config, vdso) == CONFIG_VDSO, "abi");
_Static_assert(offsetof(struct stub_config, xfeatures) == CONFIG_XFEATURES, "abi");
_Static_assert(offsetof(struct stub_info, egid) == INFO_EGID, "abi");
_Static_assert(sizeof(struct stub_info) == INFO_SIZE, "abi");
_Static_assert(sizeof(struct stub_cmd) <= CMD_INFO, "abi");
#endif

#endif
