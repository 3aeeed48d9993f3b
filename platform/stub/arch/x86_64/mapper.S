/*
 * The mapper, and the start of guest threads; their own code is in guest.S.
 *
 * The mapper and a thread that is not yet confined use registers, constants and
 * pages that are mapped read-only, and nothing else: other threads of this
 * process run guest code, which may write to every writable byte at any time.
 * From the guest filter on, a thread is the guest's, and nothing that it does
 * is trusted.
 */
#include "platform/stub/abi.h"
#include <asm/unistd_64.h>

#define FUTEX_WAIT 0
#define FUTEX_WAKE_BITSET 10

/* Adds the word at rsi, a constant, to what the sentry reads. */
	.macro report
	mov $__NR_write, %eax
	mov $STUB_FD_DONE, %edi
	mov $8, %edx
	syscall
	cmp $8, %rax
	jne stub_die
	.endm

	.section .header, "a", @progbits
	.globl stub_header
	.hidden stub_header
stub_header:
	.quad STUB_MAGIC
	.quad zygote_main
	.quad signal_entry
	.quad signal_restorer
	.quad ptrace_ready
	.quad exit_gadget
	.quad stub_end
	.quad mapper_start, mapper_end
	.quad guest_start, guest_end
	.quad call_entry, call_answered, call_vdso_answered, call_save, call_code_end
	.quad call_fp, call_fp_end

	.text
mapper_start:
/* mapper_main: this address space's mapper. Signals blocked, filter F0 in force. Never returns. */
	.globl mapper_main
	.hidden mapper_main
mapper_main:
	mov $__NR_munmap, %eax
	movabs $STUB_STACK, %rdi
	mov $STUB_STACK_SIZE, %esi
	syscall
	xor %esp, %esp
	xor %ebx, %ebx			/* sequence number of the last command */
	movabs $STUB_CMD, %rbp
mapper_loop:
	mov CMD_SEQ(%rbp), %eax
	cmp %ebx, %eax
	jne mapper_command
	/* The bell follows the number: with another value there is something to do. */
	mov $__NR_futex, %eax
	mov CMD_BELL(%rbp), %rdi
	mov $FUTEX_WAIT, %esi
	mov %ebx, %edx
	lea mapper_timeout(%rip), %r10
	xor %r8d, %r8d
	xor %r9d, %r9d
	syscall
	cmp %ebx, CMD_SEQ(%rbp)
	jne mapper_loop
	/* Nothing to do, for a while or for guests that wake us: is our sentry still there? */
	mov $__NR_getppid, %eax
	syscall
	movabs $STUB_CONFIG, %rcx
	cmp CONFIG_SENTRY_PID(%rcx), %rax
	je mapper_loop
	jmp stub_die

mapper_command:
	mov %eax, %ebx
	mov CMD_KIND(%rbp), %eax
	cmp $CMD_KIND_RESUME, %eax
	ja stub_die
	mov CMD_COUNT(%rbp), %r13d
	lea CMD_OPS(%rbp), %r14
	xor %r15d, %r15d
1:	cmp %r13d, %r15d
	jae 2f
	mov 0x00(%r14), %rax
	mov 0x08(%r14), %rdi
	mov 0x10(%r14), %rsi
	mov 0x18(%r14), %rdx
	mov 0x20(%r14), %r10
	mov 0x28(%r14), %r8
	mov 0x30(%r14), %r9
	syscall
	cmp $-4095, %rax
	jae 3f
	add $CMD_OP_SIZE, %r14
	inc %r15d
	jmp 1b
2:	cmpl $CMD_KIND_THREAD, CMD_KIND(%rbp)
	je mapper_thread
	xor %r13d, %r13d
	jmp mapper_resume
3:	/* errno | index << 16 | ERROR */
	neg %eax
	mov %eax, %r13d
	shl $16, %r15
	or %r15, %r13
	bts $DONE_ERROR_BIT, %r13

/*
 * A guest thread waits for these calls. What its word says is its process's own business; the wake
 * is for those who found TURN_MAPPER there, and may have said that they sleep or not. The woken
 * thread may take this CPU at once, so the report comes before.
 */
mapper_resume:
	xor %r12d, %r12d
	cmpl $CMD_KIND_RESUME, CMD_KIND(%rbp)
	jne mapper_report
	mov CMD_SLOT(%rbp), %r14
	mov CTX_WORD(%r14), %eax
1:	cmp $TURN_MAPPER, %al
	jne mapper_report
	mov %eax, %ecx
	and $TURN_SENTRY_SLEEPS, %ecx
	or $TURN_STUB, %ecx
	lock cmpxchg %ecx, CTX_WORD(%r14)
	jne 1b
	lea CTX_WORD(%r14), %r12
	mov CMD_RING(%rbp), %r14	/* the next command may be written once this one is reported */
	jmp mapper_report

mapper_thread:
	mov CMD_SLOT(%rbp), %r12
	mov $__NR_clone, %eax
	mov $STUB_THREAD_FLAGS, %edi
	xor %esi, %esi
	xor %edx, %edx
	lea CTX_WORD(%r12), %r10
	xor %r8d, %r8d
	syscall
	test %rax, %rax
	jz thread_start
	mov %rax, %r13
	cmp $-4095, %rax
	jae 3b

/*
 * Sends the thread's number in r13, six bits a write: the eventfd adds them up. Its last six bits
 * go with DONE. Each write wakes the sentry, and mostly it is a small number.
 */
	mov $6 * (TID_DIGITS - 1), %r15d
	lea tid_digits + 8 * 64 * (TID_DIGITS - 1)(%rip), %r14
1:	mov %r15d, %ecx
	mov %r13d, %eax
	shr %cl, %eax
	and $63, %eax
	jnz 2f
	test %r15d, %r15d
	jnz 3f
2:	lea (%r14, %rax, 8), %rsi
	report
3:	sub $8 * 64, %r14
	sub $6, %r15d
	jns 1b
	jmp mapper_loop

/* Sends r13, a bit a write. The sources are constants. Then wakes who waits for the word at r12, or on
 * the bell at r14. */
mapper_report:
	test %r13, %r13
	jz 2f
	bsf %r13, %rax
	lea -1(%r13), %rcx
	and %rcx, %r13
	lea report_bits(%rip), %rsi
	lea (%rsi, %rax, 8), %rsi
	report
	jmp mapper_report
2:	lea report_bits + 8 * DONE_BIT(%rip), %rsi
	report
	test %r12, %r12
	jz mapper_loop
	mov $__NR_futex, %eax
	mov %r12, %rdi
	mov $FUTEX_WAKE_BITSET, %esi
	mov $1, %edx
	xor %r10d, %r10d
	xor %r8d, %r8d
	mov $TURN_WAKES_STUB, %r9d
	syscall
	test %r14, %r14
	jz mapper_loop
	mov %r14, %rdi
	mov $__NR_futex, %eax
	mov $FUTEX_WAKE_BITSET, %esi
	mov $0x7fffffff, %edx
	xor %r10d, %r10d
	xor %r8d, %r8d
	mov $TURN_WAKES_STUB, %r9d
	syscall
	jmp mapper_loop

stub_die:
	mov $__NR_exit_group, %eax
	mov $1, %edi
	syscall
	hlt

/*
 * A new guest thread: rbp STUB_CMD, r12 its slot; signals blocked, filter F0.
 * Whatever happens, no guest instruction runs before it is confined: by syscall
 * user dispatch, which leaves it only the code from guest_start on to make
 * system calls from, or by the narrower filter F1.
 */
thread_start:
	movabs $STUB_CONFIG, %r14
	cmpl $0, CONFIG_PTRACE(%r14)
	jne ptrace_thread
	cmpl $0, CONFIG_DISPATCH(%r14)
	je 1f
	mov $__NR_prctl, %eax
	mov $59, %edi			/* PR_SET_SYSCALL_USER_DISPATCH */
	mov $1, %esi			/* PR_SYS_DISPATCH_ON */
	lea guest_start(%rip), %rdx
	lea guest_end(%rip), %r10
	sub %rdx, %r10
	xor %r8d, %r8d			/* no selector: always */
	syscall
	test %rax, %rax
	jnz stub_die
	mov CTX_WORD(%r12), %eax
	jmp wait_turn
1:	mov $__NR_seccomp, %eax
	mov $1, %edi			/* SECCOMP_SET_MODE_FILTER */
	xor %esi, %esi
	lea CONFIG_PROG_GUEST(%r14), %rdx
	syscall
	test %rax, %rax
	jnz stub_die
	/* The sentry has put a signal frame in the slot; its turn comes first. */
	mov CTX_WORD(%r12), %eax
	jmp wait_turn

ptrace_thread:
	mov $__NR_sigaltstack, %eax
	lea CMD_ALTSTACK(%rbp), %rdi
	xor %esi, %esi
	syscall
	test %rax, %rax
	jnz stub_die
	mov $__NR_rt_sigprocmask, %eax
	mov $2, %edi			/* SIG_SETMASK */
	lea CONFIG_SIGMASK(%r14), %rsi
	xor %edx, %edx
	mov $8, %r10d
	syscall
	test %rax, %rax
	jnz stub_die
1:	cmpl $0, CMD_GO(%rbp)		/* until the tracer has seized us */
	jne 2f
	mov $__NR_futex, %eax
	lea CMD_GO(%rbp), %rdi
	xor %esi, %esi
	xor %edx, %edx
	xor %r10d, %r10d
	syscall
	jmp 1b
2:	mov $__NR_seccomp, %eax
	mov $1, %edi
	xor %esi, %esi
	lea CONFIG_PROG_GUEST(%r14), %rdx
	syscall
	test %rax, %rax
	jnz stub_die
	int3				/* stops; the sentry takes over with its registers */
ptrace_ready:
	hlt

mapper_end:

	.section .rodata
	.balign 8
mapper_timeout:
	.quad 10, 0
/* Of PID_MAX_LIMIT, 2^22. */
	.set TID_DIGITS, 4
tid_digits:
	.set digit, 0
	.rept 64
	.quad digit | 1 << DONE_BIT
	.set digit, digit + 1
	.endr
	.set shift, 6
	.rept TID_DIGITS - 1
	.set digit, 0
	.rept 64
	.quad digit << shift
	.set digit, digit + 1
	.endr
	.set shift, shift + 6
	.endr
report_bits:
	.set bit, 0
	.rept 63
	.quad 1 << bit
	.set bit, bit + 1
	.endr
	.section .note.GNU-stack, "", @progbits
