# The start of programs without a C library, and a call that gives each callee-saved register a value
# of its own, so that a wrong rule for one of them cannot be right by chance.
	.text
	.globl _start
	.type _start, @function
_start:	.cfi_startproc
	.cfi_undefined %rip
	xor %ebp, %ebp
	and $-16, %rsp
	call program
	mov $60, %eax
	xor %edi, %edi
	syscall
	ud2
	.cfi_endproc
	.size _start, .-_start

# marked(function, first, second, third): function(first, second, third)
	.globl marked
	.type marked, @function
marked:	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	push %rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	push %r12
	.cfi_def_cfa_offset 32
	.cfi_offset %r12, -32
	push %r13
	.cfi_def_cfa_offset 40
	.cfi_offset %r13, -40
	push %r14
	.cfi_def_cfa_offset 48
	.cfi_offset %r14, -48
	push %r15
	.cfi_def_cfa_offset 56
	.cfi_offset %r15, -56
	sub $8, %rsp
	.cfi_def_cfa_offset 64
	mov %rdi, %rax
	mov %rsi, %rdi
	mov %rdx, %rsi
	mov %rcx, %rdx
	mov $0x1b1b0001, %ebx
	mov $0x1b1b0002, %ebp
	mov $0x1b1b0003, %r12d
	mov $0x1b1b0004, %r13d
	mov $0x1b1b0005, %r14d
	mov $0x1b1b0006, %r15d
	call *%rax
	add $8, %rsp
	.cfi_def_cfa_offset 56
	pop %r15
	.cfi_def_cfa_offset 48
	.cfi_restore %r15
	pop %r14
	.cfi_def_cfa_offset 40
	.cfi_restore %r14
	pop %r13
	.cfi_def_cfa_offset 32
	.cfi_restore %r13
	pop %r12
	.cfi_def_cfa_offset 24
	.cfi_restore %r12
	pop %rbx
	.cfi_def_cfa_offset 16
	.cfi_restore %rbx
	pop %rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size marked, .-marked

# What compilers call although the program has no C library.
	.globl memcpy
	.type memcpy, @function
memcpy:	.cfi_startproc
	mov %rdi, %rax
	mov %rdx, %rcx
	rep movsb
	ret
	.cfi_endproc
	.size memcpy, .-memcpy
	.globl memset
	.type memset, @function
memset:	.cfi_startproc
	mov %rdi, %r8
	mov %esi, %eax
	mov %rdx, %rcx
	rep stosb
	mov %r8, %rax
	ret
	.cfi_endproc
	.size memset, .-memset
	.section .note.GNU-stack,"",@progbits
