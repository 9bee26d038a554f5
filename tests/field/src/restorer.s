# A signal trampoline. With ROWS it has an FDE that begins exactly at it (glibc's begins a byte before,
# since unwinders look up a return address minus one); else none.
	.text
	.globl restorer
	.type restorer,@function
	nop
restorer:
	.ifdef ROWS
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa %rsp,0
	.cfi_escape 0x0f,4,0x77,0xa0,1,6
	.cfi_escape 0x10,3,3,0x77,0x88,1
	.cfi_escape 0x10,6,3,0x77,0xf8,0
	.cfi_escape 0x10,12,3,0x77,0xc8,0
	.cfi_escape 0x10,13,3,0x77,0xd0,0
	.cfi_escape 0x10,14,3,0x77,0xd8,0
	.cfi_escape 0x10,15,3,0x77,0xe0,0
	.cfi_escape 0x10,16,3,0x77,0xa8,1
	.endif
	mov $15,%eax
	syscall
	.ifdef ROWS
	.cfi_endproc
	.endif
	.size restorer,.-restorer
	.section .note.GNU-stack,"",@progbits
