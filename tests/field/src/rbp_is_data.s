# Uses rbp as an ordinary register, which is 0 when it calls leaf. Its rows are right.
	.text
	.globl rbp_is_data
	.type rbp_is_data,@function
rbp_is_data:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	xor %ebp,%ebp
	call leaf
	pop %rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size rbp_is_data,.-rbp_is_data
	.section .note.GNU-stack,"",@progbits
