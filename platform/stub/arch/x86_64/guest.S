/*
 * The code that guest threads run on behalf of the sentry: patched system calls
 * and the signal entry. It has the guest's rights and nothing more; a guest
 * that jumps into it anywhere, or writes to its context page, deceives itself.
 *
 * Sections of call_code, which the signal entry tells apart when the sentry's
 * interrupt arrives in it:
 *
 *	call_entry	nothing has happened yet: the sentry sees a stop before the call
 *	call_save	on its way to the sentry anyway: return
 *	call_handed	the sentry has the turn: leave a note for the return
 *	call_return	about to run guest code: go back and hand over again
 *	frame_return	the same, but from the signal entry
 *
 * In call_return, what has an effect on the guest's state is done once and noted (CTX_FP_SAVE,
 * CTX_DEFERRED), or may be done again.
 */
#include "platform/stub/abi.h"
#include <asm/unistd_64.h>

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define ARCH_SET_GS 0x1001
#define ARCH_SET_FS 0x1002
#define ARCH_GET_FS 0x1003
#define ARCH_GET_GS 0x1004
#define CPUNODE_SELECTOR 0x7b
#define PAGE_SIZE 4096
/* Of a ucontext: the interrupted instruction. */
#define UC_RIP 168
#define ALL 0x7fffffff

	.globl guest_start, guest_end, call_entry, call_save, call_answered, call_vdso_answered, call_code_end
	.hidden guest_start, guest_end, call_entry, call_save, call_answered, call_vdso_answered, call_code_end
	.globl call_fp, call_fp_end
	.hidden call_fp, call_fp_end
/*
 * eax is the word. With TURN_WAKE_MAPPER: wakes the mapper, once there is its command. Another thread
 * of the sentry may have done so: then the word changes, and it goes on at \changed with it. Keeps
 * eax, by way of \save; spoils rcx, rdx, rsi, rdi, r11.
 */
	.macro wake_mapper word, save, changed
	test $TURN_WAKE_MAPPER, %eax
	jz .Lawake\@
	mov %eax, \save
	mov %eax, %ecx
	shr $TURN_SEQ_SHIFT, %ecx
	movabs $STUB_CMD, %rdi
.Lsoon\@:
	cmp %cx, CMD_SEQ(%rdi)
	je .Lnow\@
	pause
	mov \word, %eax
	cmp %eax, \save
	je .Lsoon\@
	jmp \changed
.Lnow\@:
	mov CMD_BELL(%rdi), %rdi
	mov $__NR_futex, %eax
	mov $FUTEX_WAKE, %esi
	mov $ALL, %edx
	syscall
	mov \save, %eax
.Lawake\@:
	.endm

/*
 * eax is the word, with TURN_SENTRY and TURN_RING. Unless the word changes, takes the order and wakes
 * who it is for, who then gets this CPU if that has nothing better to do than to spin. Goes on at
 * \changed with the word, or at \done. Keeps \rounds, by way of r9d; spoils rax, rcx, rdx, rsi, rdi, r11.
 */
	.macro ring_bell word, rounds, changed, done
	mov %eax, %edi
	mov $TURN_SENTRY, %edx
	lock cmpxchg %edx, \word
	jne \changed
	mov \rounds, %r9d
	shr $TURN_BELL_SHIFT, %edi
	movabs $STUB_BELLS, %rax
	lea (%rax, %rdi, 4), %rdi
	mov $__NR_futex, %eax
	mov $FUTEX_WAKE, %esi
	mov $ALL, %edx
	syscall
	mov $__NR_sched_yield, %eax
	syscall
	mov %r9d, \rounds
	jmp \done
	.endm

/*
 * eax is the word, not our turn, rdi its address. Sleeps: on the word where that waits for the mapper, else on the bell
 * at \bell, whose value is read before another look at the word; the sentry does it the other way
 * round. Goes on at \changed if the word does not say any more that we sleep.
 */
	.macro sleep_turn word, bell, changed
	mov %eax, %edx
	cmp $TURN_MAPPER, %al
	je .Lsleep\@
	mov \bell, %rdi
	mov (%rdi), %edx
	mov \word, %eax
	and $(TURN_MASK | TURN_STUB_SLEEPS | TURN_RING), %eax
	cmp $(TURN_SENTRY | TURN_STUB_SLEEPS), %eax
	jne \changed
.Lsleep\@:
	mov $__NR_futex, %eax
	mov $FUTEX_WAIT, %esi
	xor %r10d, %r10d
	syscall
	.endm

	.globl exit_gadget, signal_entry, signal_restorer, wait_turn
	.hidden exit_gadget, signal_entry, signal_restorer, wait_turn

	.section .text.guest, "ax", @progbits
guest_start:
exit_gadget:
	mov $__NR_exit, %eax
	xor %edi, %edi
	syscall
	hlt

/*
 * A patched call: rax its number, rcx where to go on; r11 is free, and there is no stack (the
 * guest's red zone). Everything else is preserved.
 */
	.balign 64
call_code:
call_entry:
	mov %rcx, %gs:CTX_RIP
	cmp $ANSWER_MAX, %rax
	jae call_save
	lea answers(%rip), %r11
	movzbl (%r11, %rax), %r11d
	test %r11d, %r11d
	jz call_save
	mov %gs:CTX_INFO, %rcx
	test $ANSWER_VDSO, %r11d
	jnz call_vdso
	testl $INFO_IDS, INFO_FLAGS(%rcx)
	jz call_save
	mov (%rcx, %r11), %eax
	/* The answer is there: rax, and nothing else but the way back. */
call_answered:
	jmp *%gs:CTX_RIP

/* Of the host's vDSO, which runs on the context page; what stops it makes it a call to the sentry. */
call_vdso:
	testl $INFO_CLOCKS, INFO_FLAGS(%rcx)
	jz call_save
	mov %rax, %gs:CTX_RAX
	mov %rdi, %gs:CTX_RDI
	mov %rsi, %gs:CTX_RSI
	mov %rdx, %gs:CTX_RDX
	mov %r10, %gs:CTX_R10
	mov %r8, %gs:CTX_R8
	mov %r9, %gs:CTX_R9
	mov %rbx, %gs:CTX_RBX
	mov %rbp, %gs:CTX_RBP
	mov %r12, %gs:CTX_R12
	mov %r13, %gs:CTX_R13
	mov %r14, %gs:CTX_R14
	mov %r15, %gs:CTX_R15
	mov %rsp, %gs:CTX_RSP
	mov %gs:CTX_SELF, %rsp
	add $PAGE_SIZE, %rsp
	movabs $(STUB_CONFIG + CONFIG_VDSO), %rcx
	and $0x7f, %r11d
	mov (%rcx, %r11), %rax
	test %rax, %rax
	jz call_vdso_no
	call *%rax
	cltq
	mov %gs:CTX_RDI, %rdi
	mov %gs:CTX_RSI, %rsi
	mov %gs:CTX_RDX, %rdx
	mov %gs:CTX_R10, %r10
	mov %gs:CTX_R8, %r8
	mov %gs:CTX_R9, %r9
	mov %gs:CTX_RSP, %rsp
call_vdso_answered:
	jmp *%gs:CTX_RIP
call_vdso_no:
	mov %gs:CTX_RAX, %rax
	mov %gs:CTX_RSP, %rsp

call_save:
	mov %rax, %gs:CTX_RAX
	mov %rdi, %gs:CTX_RDI
	mov %rsi, %gs:CTX_RSI
	mov %rdx, %gs:CTX_RDX
	mov %r10, %gs:CTX_R10
	mov %r8, %gs:CTX_R8
	mov %r9, %gs:CTX_R9
	mov %rsp, %gs:CTX_RSP
	mov %rbx, %gs:CTX_RBX
	mov %rbp, %gs:CTX_RBP
	mov %r12, %gs:CTX_R12
	mov %r13, %gs:CTX_R13
	mov %r14, %gs:CTX_R14
	mov %r15, %gs:CTX_R15
	movl $STOP_CALL, %gs:CTX_KIND
call_hand_over:
	mov %gs:CTX_SPIN, %ecx		/* before the sentry may change it */
	mov $TURN_SENTRY, %r11d
	xchg %r11d, %gs:CTX_WORD
call_handed:
	test $TURN_SENTRY_SLEEPS, %r11d
	jz 1f
	mov %ecx, %r9d
	mov $__NR_futex, %eax
	mov %gs:CTX_SELF, %rdi
	mov $FUTEX_WAKE, %esi
	mov $1, %edx
	syscall
	mov %r9d, %ecx
	jmp 1f
	/* Not our turn, nor spinning for it: eax is the word. */
5:	cmp $TURN_EXIT, %al
	je exit_gadget
	cmp $TURN_SENTRY, %al
	jne 6f
	test $TURN_RING, %eax
	jz 6f
	ring_bell %gs:CTX_WORD, %ecx, 3f, 1f
6:	wake_mapper %gs:CTX_WORD, %r9d, 3f
	mov %gs:CTX_SELF, %rdi
	sleep_turn %gs:CTX_WORD, %gs:CTX_BELL, 7f
	/* Asleep it may have moved: cpu | node << 12, as in the vdso's getcpu. */
	mov $CPUNODE_SELECTOR, %eax
	lsl %eax, %eax
	mov %eax, %gs:CTX_CPU
	mov %gs:CTX_WORD, %eax
	jmp 3f
7:	xor %ecx, %ecx			/* no more spinning */
	.balign 64			/* what is most of a call should be one line */
1:	mov %gs:CTX_WORD, %eax
	cmp $TURN_SENTRY, %eax
	jne 3f
	cmpl $0, %gs:CTX_SPIN		/* the sentry takes it back when it goes to sleep */
	je 2f
	sub $1, %ecx
	jb 2f
	pause
	jmp 1b
2:	/* Say that we sleep, unless it is our turn by now. */
	mov $(TURN_SENTRY | TURN_STUB_SLEEPS), %r11d
	lock cmpxchg %r11d, %gs:CTX_WORD
	jne 3f
	mov %r11d, %eax
3:	cmp $TURN_STUB, %al
	jne 5b
4:	mov %gs:CTX_RDI, %rdi
	mov %gs:CTX_RSI, %rsi
	mov %gs:CTX_RDX, %rdx
	mov %gs:CTX_R10, %r10
	mov %gs:CTX_R8, %r8
	mov %gs:CTX_R9, %r9
call_return:
	cmpl $0, %gs:CTX_PENDING
	jne call_interrupted
	mov %gs:CTX_KIND, %ecx
	test %ecx, %ecx
	jnz 5f
	mov %gs:CTX_RAX, %rax
	jmp *%gs:CTX_RIP
5:	test $RESUME_DEFERRED, %ecx
	jnz 7f
	cmp $RESUME_SAVE, %ecx
	je 6f
	cmp $RESUME_FRAME, %ecx
	jne 10f
	mov %gs:CTX_SELF, %r12
	jmp frame_return
6:	movabs $(STUB_CONFIG + CONFIG_XFEATURES), %rcx
	mov (%rcx), %eax
	mov 4(%rcx), %edx
	mov %gs:CTX_SELF, %r11
	mov %gs:CTX_XSTATE, %rcx
	xsave64 (%r11, %rcx)
	movl $STOP_SAVED, %gs:CTX_KIND
	jmp call_hand_over
	/* The calls that the sentry left for this thread (platform_as_defer). One that fails stays in
	 * the count, and it is the sentry's turn again. */
7:	mov %gs:CTX_SELF, %r8
	add $CTX_DEFERRED_OPS, %r8
8:	cmpl $0, %gs:CTX_DEFERRED
	je 9f
	mov 0x00(%r8), %rax
	mov 0x08(%r8), %rdi
	mov 0x10(%r8), %rsi
	mov 0x18(%r8), %rdx
	syscall
	test %rax, %rax
	jnz call_interrupted
	add $CTX_DEFERRED_OP_SIZE, %r8
	decl %gs:CTX_DEFERRED
	jmp 8b
9:	andl $~RESUME_DEFERRED, %gs:CTX_KIND
	jmp 4b
	/* RESUME_REGS. There is no stack to jump from: the last register is loaded by the jump. */
10:	test $RESUME_FP, %ecx
	jnz call_fp
	test $RESUME_XSTATE, %ecx
	jz 11f
	movabs $(STUB_CONFIG + CONFIG_XFEATURES), %rcx
	mov (%rcx), %eax
	mov 4(%rcx), %edx
	mov %gs:CTX_SELF, %r11
	mov %gs:CTX_XSTATE, %rcx
	xrstor64 (%r11, %rcx)
11:	mov %gs:CTX_FS, %rax
	wrfsbase %rax
	mov %gs:CTX_SELF, %rsp
	add $CTX_EFLAGS, %rsp
	popf
	mov %gs:CTX_RBX, %rbx
	mov %gs:CTX_RBP, %rbp
	mov %gs:CTX_R12, %r12
	mov %gs:CTX_R13, %r13
	mov %gs:CTX_R14, %r14
	mov %gs:CTX_R15, %r15
	mov %gs:CTX_RDI, %rdi
	mov %gs:CTX_RSI, %rsi
	mov %gs:CTX_RDX, %rdx
	mov %gs:CTX_R11, %r11
	mov %gs:CTX_RCX, %rcx
	mov %gs:CTX_RAX, %rax
	mov %gs:CTX_RSP, %rsp
	jmp *%gs:CTX_RIP
	/*
	 * The extended state into guest memory and from there: a signal's frame, or rt_sigreturn.
	 * What faults between call_fp and call_fp_end the sentry does instead.
	 */
call_fp:
	movabs $(STUB_CONFIG + CONFIG_XFEATURES), %rcx
	mov (%rcx), %eax
	mov 4(%rcx), %edx
	mov %gs:CTX_FP_SAVE, %rcx
	test %rcx, %rcx
	jz 12f
	/* XSAVE leaves most of the header alone, and a restore would refuse what is in it. */
	xor %r11d, %r11d
	.set header, 512
	.rept 8
	mov %r11, header(%rcx)
	.set header, header + 8
	.endr
	xsave64 (%rcx)
	orl $3, 512(%rcx)		/* a frame always holds x87 and SSE */
	movq $0, %gs:CTX_FP_SAVE
12:	mov %gs:CTX_FP_LOAD, %rcx
	test %rcx, %rcx
	jz 11b
	xrstor64 (%rcx)
	jmp 11b
call_fp_end:
call_interrupted:
	movl $0, %gs:CTX_PENDING
	movl $STOP_INTERRUPT, %gs:CTX_KIND
	jmp call_hand_over

/* r12 the slot: go on as the frame at CTX_UC says. */
frame_return:
	lea CTX_DEFERRED_OPS(%r12), %rbx
3:	cmpl $0, CTX_DEFERRED(%r12)
	je 4f
	mov 0x00(%rbx), %rax
	mov 0x08(%rbx), %rdi
	mov 0x10(%rbx), %rsi
	mov 0x18(%rbx), %rdx
	syscall
	test %rax, %rax
	jnz deferred_failed		/* never behind a patched call: there is none left here */
	add $CTX_DEFERRED_OP_SIZE, %rbx
	decl CTX_DEFERRED(%r12)
	jmp 3b
4:	movabs $STUB_CONFIG, %r14
	cmpl $0, CONFIG_FSGSBASE(%r14)
	je 1f
	mov CTX_FS(%r12), %rax
	wrfsbase %rax
	mov CTX_GS(%r12), %rax
	wrgsbase %rax
	jmp 2f
1:	mov $__NR_arch_prctl, %eax
	mov $ARCH_SET_FS, %edi
	mov CTX_FS(%r12), %rsi
	syscall
	mov $__NR_arch_prctl, %eax
	mov $ARCH_SET_GS, %edi
	mov CTX_GS(%r12), %rsi
	syscall
2:	mov CTX_UC(%r12), %eax
	lea (%r12, %rax), %rsp
signal_restorer:
	mov $__NR_rt_sigreturn, %eax
	syscall
	hlt
call_code_end:

/*
 * Signal entry (rdi signo, rsi siginfo, rdx ucontext), on the thread's
 * alternate stack, all signals blocked. Says where the ucontext is, hands over,
 * waits for its turn, returns through the frame as the sentry left it.
 * Under ptrace the sentry stops us at the first instruction and never goes on.
 */
signal_entry:
	mov %rsp, %r12
	and $-STUB_SLOT_SIZE, %r12
	lea call_code(%rip), %rcx
	mov UC_RIP(%rdx), %rax
	sub %rcx, %rax
	cmp $(call_code_end - call_code), %rax
	jb in_call_code
stop:	mov %edx, %eax
	sub %r12d, %eax
	mov %eax, CTX_UC(%r12)
	movl $STOP_FRAME, CTX_KIND(%r12)
	movabs $STUB_CONFIG, %r14
	cmpl $0, CONFIG_FSGSBASE(%r14)
	je 1f
	rdfsbase %rax
	mov %rax, CTX_FS(%r12)
	rdgsbase %rax
	mov %rax, CTX_GS(%r12)
	jmp 2f
1:	mov $__NR_arch_prctl, %eax
	mov $ARCH_GET_FS, %edi
	lea CTX_FS(%r12), %rsi
	syscall
	mov $__NR_arch_prctl, %eax
	mov $ARCH_GET_GS, %edi
	lea CTX_GS(%r12), %rsi
	syscall
2:	mov $CPUNODE_SELECTOR, %eax
	lsl %eax, %eax
	mov %eax, CTX_CPU(%r12)
hand_over:
	mov CTX_SPIN(%r12), %r15d	/* before the sentry may change it */
	mov $TURN_SENTRY, %eax
	xchg %eax, CTX_WORD(%r12)
	test $TURN_SENTRY_SLEEPS, %eax
	jz spin_turn
	mov $__NR_futex, %eax
	lea CTX_WORD(%r12), %rdi
	mov $FUTEX_WAKE, %esi
	mov $1, %edx
	syscall
spin_turn:
	mov CTX_WORD(%r12), %eax
	cmp $TURN_SENTRY, %eax
	jne wait_turn
	sub $1, %r15d
	jb 3f
	pause
	jmp spin_turn
3:	/* eax == TURN_SENTRY: say that we sleep, unless it is our turn by now */
	mov $(TURN_SENTRY | TURN_STUB_SLEEPS), %ecx
	lock cmpxchg %ecx, CTX_WORD(%r12)
	jne wait_turn
	mov %ecx, %eax
wait_turn:	/* eax: the word as last seen */
	cmp $TURN_STUB, %al
	je frame_return
	cmp $TURN_EXIT, %al
	je exit_gadget
	cmp $TURN_SENTRY, %al
	jne 4f
	test $TURN_RING, %eax
	jz 4f
	ring_bell CTX_WORD(%r12), %r15d, wait_turn, spin_turn
4:	wake_mapper CTX_WORD(%r12), %r15d, wait_turn
	lea CTX_WORD(%r12), %rdi
	sleep_turn CTX_WORD(%r12), CTX_BELL(%r12), 5f
	mov CTX_WORD(%r12), %eax
	jmp wait_turn
5:	xor %r15d, %r15d
	jmp spin_turn

in_call_code:	/* rax: how far in call_code */
	cmp $STUB_INTERRUPT_SIGNAL, %edi
	jne stop
	cmp $(call_save - call_code), %rax
	jb stop
	cmp $(call_handed - call_code), %rax
	jb 2f
	cmp $(frame_return - call_code), %rax
	jae 3f
	movl $1, CTX_PENDING(%r12)
	cmp $(call_return - call_code), %rax
	jb 2f
	lea call_interrupted(%rip), %rcx
	mov %rcx, UC_RIP(%rdx)
2:	mov %rdx, %rsp
	jmp signal_restorer
3:
deferred_failed:
	movl $STOP_INTERRUPT, CTX_KIND(%r12)
	jmp hand_over
guest_end:

	.section .rodata
answers:
	.set nr, 0
	.rept ANSWER_MAX
	.set answer, 0
	.if nr == __NR_getpid
	.set answer, INFO_PID
	.elseif nr == __NR_gettid
	.set answer, INFO_TID
	.elseif nr == __NR_getppid
	.set answer, INFO_PPID
	.elseif nr == __NR_getuid
	.set answer, INFO_UID
	.elseif nr == __NR_geteuid
	.set answer, INFO_EUID
	.elseif nr == __NR_getgid
	.set answer, INFO_GID
	.elseif nr == __NR_getegid
	.set answer, INFO_EGID
	.elseif nr == __NR_clock_gettime
	.set answer, ANSWER_VDSO | VDSO_CLOCK_GETTIME
	.elseif nr == __NR_gettimeofday
	.set answer, ANSWER_VDSO | VDSO_GETTIMEOFDAY
	.elseif nr == __NR_getcpu
	.set answer, ANSWER_VDSO | VDSO_GETCPU
	.endif
	.byte answer
	.set nr, nr + 1
	.endr
	.section .note.GNU-stack, "", @progbits
