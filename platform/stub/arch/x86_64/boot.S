/*
 * The zygote's first instructions: move the stub's blob to STUB_TEXT, which no
 * loader can be trusted to reach (the kernel may have put stack or vdso in the
 * way), give it a stack, and go there. The sentry has seen our mappings in
 * between: it reads them when "hello" arrives, and its answer says where the
 * vdso is; when that lies in STUB_AREA the sentry kills us and tries again.
 */
#include "platform/stub/abi.h"
#include <asm/unistd_64.h>

	.section .blob, "ax", @progbits
blob_start:
	.incbin "stub.bin"
	.balign 4096
blob_end:

	.text
	.globl boot_start
boot_start:
	/* write(socket, hello, 8) */
	mov $__NR_write, %eax
	mov $STUB_FD_SOCKET, %edi
	lea hello(%rip), %rsi
	mov $8, %edx
	syscall
	cmp $8, %rax
	jne fail
	/* The answer's first byte says "go on"; zygote.c reads the rest of the conversation. */
	mov $__NR_read, %eax
	mov $STUB_FD_SOCKET, %edi
	lea -8(%rsp), %rsi
	mov $8, %edx
	syscall
	cmp $8, %rax
	jne fail
	/* mremap(blob, size, size, MAYMOVE|FIXED, STUB_TEXT) */
	mov $__NR_mremap, %eax
	lea blob_start(%rip), %rdi
	lea blob_end(%rip), %rsi
	sub %rdi, %rsi
	mov %rsi, %rdx
	mov $3, %r10d
	movabs $STUB_TEXT, %r8
	syscall
	movabs $STUB_TEXT, %rcx
	cmp %rcx, %rax
	jne fail
	/* mmap(STUB_STACK, size, RW, PRIVATE|ANONYMOUS|FIXED, -1, 0) */
	mov $__NR_mmap, %eax
	movabs $STUB_STACK, %rdi
	mov $STUB_STACK_SIZE, %esi
	mov $3, %edx
	mov $0x32, %r10d
	mov $-1, %r8
	xor %r9d, %r9d
	syscall
	movabs $STUB_STACK, %rcx
	cmp %rcx, %rax
	jne fail
	lea STUB_STACK_SIZE(%rax), %rsp
	xor %ebp, %ebp
	movabs $STUB_TEXT, %rcx
	call *8(%rcx)
fail:
	mov $__NR_exit_group, %eax
	mov $1, %edi
	syscall
	hlt
	.balign 8
hello:	.quad STUB_MAGIC
	.section .note.GNU-stack, "", @progbits
