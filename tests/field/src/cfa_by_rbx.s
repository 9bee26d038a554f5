# The CFA depends on rbx, as the rows say.
	.text
	.globl cfa_by_rbx
	.type cfa_by_rbx,@function
cfa_by_rbx:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx,-16
	mov %rsp,%rbx
	.cfi_def_cfa_register %rbx
	sub $512,%rsp
	and $-64,%rsp
1:	dec %rdi
	jnz 1b
	mov %rbx,%rsp
	.cfi_def_cfa_register %rsp
	pop %rbx
	.cfi_def_cfa_offset 8
	xor %eax,%eax
	ret
	.cfi_endproc
	.size cfa_by_rbx,.-cfa_by_rbx
	.section .note.GNU-stack,"",@progbits
