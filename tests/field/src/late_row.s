# A loop behind `add $24,%rsp`, for which the row of the frame still holds.
# With RIGHT the directive is there.
	.text
	.globl late_row
	.type late_row,@function
late_row:
	.cfi_startproc
	sub $24,%rsp
	.cfi_def_cfa_offset 32
	add $24,%rsp
	.ifdef RIGHT
	.cfi_def_cfa_offset 8
	.endif
1:	dec %rdi
	jnz 1b
	xor %eax,%eax
	ret
	.cfi_endproc
	.size late_row,.-late_row
	.section .note.GNU-stack,"",@progbits
