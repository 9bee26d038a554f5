# An array of two words is filled up to a length that only callers know. The third store would hit the slot
# of rbx.
	.text
	.globl fill
	.type fill, @function
fill:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	sub $16, %rsp
	.cfi_def_cfa_offset 32
	movq $1, (%rsp)
	cmp $1, %edi
	je 2f
	movq $2, 8(%rsp)
fork:	cmp $2, %edi
	je 2f
store:	movq $3, 16(%rsp)
behind:	nop
2:	add $16, %rsp
	.cfi_def_cfa_offset 16
	pop %rbx
	.cfi_restore %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size fill, .-fill

# The table goes on as far as its entries may be targets. The last of them leads there with another frame.
	.globl choose
	.type choose, @function
choose:
	.cfi_startproc
	push %rax
	.cfi_def_cfa_offset 16
	movzbl (%rdi), %eax
	lea table(%rip), %rdx
	movslq (%rdx,%rax,4), %rax
	add %rdx, %rax
jump:	jmp *%rax
one:	pop %rcx
	.cfi_def_cfa_offset 8
	ret
two:	pop %rcx
	ret
	.cfi_endproc
	.size choose, .-choose
	.section .rodata
	.p2align 2
table:	.long one-table, two-table
	.long 0x7fffffff
	.section .note.GNU-stack,"",@progbits
