# hop(keep, to): keeps the registers of a callee on this stack, and goes on on the other one.
	.text
	.globl hop
	.type hop,@function
hop:
	.cfi_startproc
	.irp reg,rbp,rbx,r12,r13,r14,r15
	push %\reg
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %\reg,0
	.endr
	mov %rsp,(%rdi)
	mov %rsi,%rsp
	.irp reg,r15,r14,r13,r12,rbx,rbp
	pop %\reg
	.cfi_adjust_cfa_offset -8
	.cfi_restore %\reg
	.endr
	ret
	.cfi_endproc
	.size hop,.-hop
	.section .note.GNU-stack,"",@progbits
