/* The zygote's program and the stub's blob, as data of the sentry. */
	.section .rodata
	.balign 16
	.globl stub_image_zygote
	.globl stub_image_zygote_end
	.globl stub_image_blob
stub_image_zygote:
	.incbin "zygote.elf"
stub_image_zygote_end:
	.balign 16
stub_image_blob:
	.incbin "stub.bin"
	.section .note.GNU-stack, "", @progbits
