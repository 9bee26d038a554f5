# The directive for `sub $40,%rsp` is missing: the row's CFA is 40 bytes too low.
# With RIGHT it is there.
	.text
	.globl skewed
	.type skewed,@function
skewed:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx,-16
	sub $40,%rsp
	.ifdef RIGHT
	.cfi_def_cfa_offset 56
	.endif
	call leaf
	add $40,%rsp
	.cfi_def_cfa_offset 16
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size skewed,.-skewed
	.section .note.GNU-stack,"",@progbits
