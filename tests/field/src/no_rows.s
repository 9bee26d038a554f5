# A function of assembly without a directive.
	.text
	.globl no_rows
	.type no_rows,@function
no_rows:
	push %rbp
	push %rbx
	sub $40,%rsp
	call leaf
	add $40,%rsp
	pop %rbx
	pop %rbp
	ret
	.size no_rows,.-no_rows
	.section .note.GNU-stack,"",@progbits
