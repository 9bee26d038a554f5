# Rows that compilers seldom write: registers kept in registers, expressions, values at offsets, the
# signed and the extended forms, and advances of one, two and four bytes.
	.text
	.macro function name
	.globl \name
	.type \name, @function
\name:	.cfi_startproc
	.endm
	.macro end name
	.cfi_endproc
	.size \name, .-\name
	.endm

	function program
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov $3, %ebx
1:	lea registers(%rip), %rdi
	call again
	lea expression(%rip), %rdi
	call again
	lea extended(%rip), %rdi
	call again
	lea long_way(%rip), %rdi
	call again
	lea branches(%rip), %rdi
	call again
	lea moved(%rip), %rdi
	call again
	dec %ebx
	jnz 1b
	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	ret
	end program

	function again
	mov %rbx, %rsi
	mov $7, %edx
	mov $9, %ecx
	jmp marked
	end again

# Callee-saved registers kept in others.
	function registers
	mov %rbx, %r8
	.cfi_register %rbx, %r8
	mov %r12, %r9
	.cfi_register %r12, %r9
	mov %rdi, %rbx
	lea 5(%rsi), %r12
	lea (%rbx,%r12), %rax
	mov %r9, %r12
	.cfi_restore %r12
	mov %r8, %rbx
	.cfi_same_value %rbx
	ret
	end registers

# A frame found through a word of the stack: DW_CFA_def_cfa_expression {breg7 +8; deref}.
	function expression
	mov %rsp, %rax
	lea 8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	push %rbp
	mov %rsp, %rbp
	.cfi_escape 0x10, 6, 2, 0x76, 0
	push %r13
	push %r10
	.cfi_escape 0x0f, 3, 0x76, 0x70, 6
	.cfi_escape 0x10, 13, 2, 0x76, 0x78
	mov %rdi, %r13
	and $-64, %rsp
	add %rsi, %r13
	lea -16(%rbp), %rsp
	pop %r10
	.cfi_def_cfa %r10, 0
	pop %r13
	.cfi_restore %r13
	pop %rbp
	.cfi_restore %rbp
	lea -8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	end expression

# DW_CFA_def_cfa_sf, DW_CFA_def_cfa_offset_sf, DW_CFA_offset_extended, DW_CFA_offset_extended_sf,
# DW_CFA_restore_extended.
	function extended
	push %r14
	.cfi_escape 0x13, 0x7e
	.cfi_escape 0x05, 14, 2
	push %r15
	.cfi_escape 0x12, 7, 0x7d
	.cfi_escape 0x11, 15, 3
	push %rbp
	.cfi_def_cfa_offset 32
	.cfi_offset %rbp, -32
	mov %rsp, %rbp
	.cfi_def_cfa_register %rbp
	sub $40, %rsp
	mov %rdi, %r14
	mov %rsi, %r15
	lea (%r14,%r15,2), %rax
	mov %rbp, %rsp
	pop %rbp
	.cfi_def_cfa %rsp, 24
	.cfi_escape 0x06, 6
	pop %r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	pop %r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	ret
	end extended

# Advances of one, two and four bytes.
	function long_way
	push %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	.rept 24
	lea 1(%rdi,%r12), %rdi
	.endr
	mov %rdi, %r12
	push %r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	jmp 2f
	.fill 400, 1, 0x90
2:	mov %rsi, %r13
	sub $24, %rsp
	.cfi_adjust_cfa_offset 24
	jmp 3f
	.fill 66000, 1, 0x90
3:	lea (%r12,%r13), %rax
	add $24, %rsp
	.cfi_adjust_cfa_offset -24
	pop %r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	pop %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	ret
	end long_way

# States that are kept and taken back, on several ways out.
	function branches
	test $1, %dil
	jnz 4f
	lea 3(%rsi), %rax
	ret
4:	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	push %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	mov %rdi, %rbx
	lea (%rbx,%rsi), %rbp
	cmp $1, %rdi
	.cfi_remember_state
	je 5f
	lea 1(%rbp), %rax
	pop %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
5:	.cfi_restore_state
	xor %rbp, %rbx
	mov %rbx, %rax
	pop %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	end branches

# The return address in a register, and back.
	function moved
	pop %rdx
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %rdx
	lea (%rdi,%rsi), %rax
	push %rdx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rip, -8
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	mov %rax, %rbx
	pushf
	.cfi_adjust_cfa_offset 8
	popf
	.cfi_adjust_cfa_offset -8
	pop %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	end moved
	.section .note.GNU-stack,"",@progbits
