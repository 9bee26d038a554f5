# As popped.s, by `leave`, with a frame of 64 bytes: the slot lies further below rsp.
	.text
	.globl left
	.type left,@function
left:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	mov %rsp,%rbp
	.cfi_def_cfa_register %rbp
	sub $64,%rsp
	movq $0,(%rsp)
	leave
	.cfi_def_cfa %rsp,8
	.ifdef RIGHT
	.cfi_restore %rbp
	.endif
1:	dec %rdi
	jnz 1b
	xor %eax,%eax
	ret
	.cfi_endproc
	.size left,.-left
	.section .note.GNU-stack,"",@progbits
