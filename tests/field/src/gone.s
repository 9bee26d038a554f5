# Overwrites rbp, and keeps it nowhere that an unwinder could find: in an SSE register.
# The row says nothing of rbp, so for the caller it counts as unchanged.
# With RIGHT it is kept on the stack, where the row says.
	.text
	.globl gone
	.type gone,@function
gone:
	.cfi_startproc
	sub $8,%rsp
	.cfi_def_cfa_offset 16
	.ifdef RIGHT
	mov %rbp,(%rsp)
	.cfi_offset %rbp,-16
	.else
	movq %rbp,%xmm7
	.endif
	mov $0x1234,%ebp
	call leaf
	.ifdef RIGHT
	mov (%rsp),%rbp
	.else
	movq %xmm7,%rbp
	.endif
	add $8,%rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size gone,.-gone
	.section .note.GNU-stack,"",@progbits
