# Overwrites rbp, and keeps it nowhere that an unwinder could find: in an SSE register.
# The row says nothing of rbp, so for the caller it counts as unchanged.
	.text
	.globl gone
	.type gone,@function
gone:
	.cfi_startproc
	movq %rbp,%xmm7
	mov $0x1234,%ebp
	sub $8,%rsp
	.cfi_def_cfa_offset 16
	call leaf
	add $8,%rsp
	.cfi_def_cfa_offset 8
	movq %xmm7,%rbp
	ret
	.cfi_endproc
	.size gone,.-gone
	.section .note.GNU-stack,"",@progbits
