/* Fault-tolerant memory access: see safecopy_asm.h. rep movs keeps the rest in rcx, so a fault
 * in it returns how much is left. */
	.text
	.globl safecopy_asm_begin
safecopy_asm_begin:

	.globl safecopy_asm_copy
	.type safecopy_asm_copy, @function
safecopy_asm_copy:
	mov %rdx, %rcx
	cmp $256, %rdx
	jb 1f
	rep movsb
	xor %eax, %eax
	ret
1:	cmp $8, %rcx
	jb 2f
	mov (%rsi), %rax
	mov %rax, (%rdi)
	add $8, %rsi
	add $8, %rdi
	sub $8, %rcx
	jmp 1b
2:	test %rcx, %rcx
	jz 3f
	mov (%rsi), %al
	mov %al, (%rdi)
	inc %rsi
	inc %rdi
	dec %rcx
	jmp 2b
3:	xor %eax, %eax
	ret
	.size safecopy_asm_copy, . - safecopy_asm_copy

	.globl safecopy_asm_zero
	.type safecopy_asm_zero, @function
safecopy_asm_zero:
	mov %rsi, %rcx
	xor %eax, %eax
	rep stosb
	ret
	.size safecopy_asm_zero, . - safecopy_asm_zero

	.globl safecopy_asm_copy_end
safecopy_asm_copy_end:

	.globl safecopy_asm_load32
	.type safecopy_asm_load32, @function
safecopy_asm_load32:
	mov (%rdi), %eax
	mov %eax, (%rsi)
	xor %eax, %eax
	ret

	.globl safecopy_asm_store32
	.type safecopy_asm_store32, @function
safecopy_asm_store32:
	mov %esi, (%rdi)
	xor %eax, %eax
	ret

	.globl safecopy_asm_swap32
	.type safecopy_asm_swap32, @function
safecopy_asm_swap32:
	xchg %esi, (%rdi)
	mov %esi, (%rdx)
	xor %eax, %eax
	ret

	.globl safecopy_asm_cmpxchg32
	.type safecopy_asm_cmpxchg32, @function
safecopy_asm_cmpxchg32:
	mov %rcx, %r8
	mov %esi, %eax
	lock cmpxchg %edx, (%rdi)
	mov %eax, (%r8)
	xor %eax, %eax
	ret

	.globl safecopy_asm_end
safecopy_asm_end:
	nop

	.globl safecopy_asm_copy_fault
safecopy_asm_copy_fault:
	mov %rcx, %rax
	ret

	.globl safecopy_asm_word_fault
safecopy_asm_word_fault:
	mov $-1, %eax
	ret

	.section .note.GNU-stack, "", @progbits
