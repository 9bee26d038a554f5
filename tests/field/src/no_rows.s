# A function of assembly without a directive. With RIGHT it has them.
	.text
	.globl no_rows
	.type no_rows,@function
no_rows:
	.ifdef RIGHT
	.cfi_startproc
	.endif
	push %rbp
	.ifdef RIGHT
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	.endif
	push %rbx
	.ifdef RIGHT
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx,-24
	.endif
	sub $40,%rsp
	.ifdef RIGHT
	.cfi_def_cfa_offset 64
	.endif
	call leaf
	add $40,%rsp
	.ifdef RIGHT
	.cfi_def_cfa_offset 24
	.endif
	pop %rbx
	.ifdef RIGHT
	.cfi_def_cfa_offset 16
	.endif
	pop %rbp
	.ifdef RIGHT
	.cfi_def_cfa_offset 8
	.endif
	ret
	.ifdef RIGHT
	.cfi_endproc
	.endif
	.size no_rows,.-no_rows
	.section .note.GNU-stack,"",@progbits
