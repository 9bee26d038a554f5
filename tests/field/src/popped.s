# A loop behind `pop %rbp`: the row still names rbp's slot, which now lies below rsp.
# With RIGHT, `.cfi_restore` says that rbp is the caller's again.
	.text
	.globl popped
	.type popped,@function
popped:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	xor %ebp,%ebp
	pop %rbp
	.cfi_def_cfa_offset 8
	.ifdef RIGHT
	.cfi_restore %rbp
	.endif
1:	dec %rdi
	jnz 1b
	xor %eax,%eax
	ret
	.cfi_endproc
	.size popped,.-popped
	.section .note.GNU-stack,"",@progbits
