# Overwrites rbp, which it has saved, but no row says where: for the caller it counts as unchanged.
# With RIGHT the directive is there.
	.text
	.globl clobber
	.type clobber,@function
clobber:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.ifdef RIGHT
	.cfi_offset %rbp,-16
	.endif
	mov $0x1234,%ebp
	call leaf
	pop %rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size clobber,.-clobber
	.section .note.GNU-stack,"",@progbits
