/* Functions that each raise one exception. What handles it sets rip to the address in rbx. */
	.macro fault name
	.globl \name
	.type \name, @function
\name:
	push %rbx
	lea 1f(%rip), %rbx
	.endm
	.macro over
1:	pop %rbx
	ret
	.endm

	.text
	fault raise_divide
	xor %ecx, %ecx
	mov $1, %eax
	xor %edx, %edx
	div %ecx
	over
	fault raise_breakpoint
	int3
	over
	fault raise_overflow
	int $4
	over
	fault raise_undefined
	ud2
	over
	fault raise_protection
	hlt
	over
	fault raise_interrupts
	cli
	over
	fault raise_control
	mov %cr0, %rax
	over
	fault raise_port
	mov $0x80, %edx
	in %dx, %al
	over
	fault raise_register
	mov $0x10, %ecx
	rdmsr
	over
	fault raise_vector
	int $0x20
	over
	fault raise_debug
	.byte 0xf1
	over
	fault raise_non_canonical
	movabs $0x8000000000000000, %rax
	mov (%rax), %eax
	over
	fault raise_stack_segment
	push %rbp
	movabs $0x8000000000000000, %rbp
	mov (%rbp), %eax
1:	pop %rbp
	pop %rbx
	ret
	fault raise_selector
	mov $0xfff8, %eax
	mov %eax, %fs
	over
	fault raise_simd
	sub $8, %rsp
	stmxcsr (%rsp)
	movl $0x1000, 4(%rsp)
	ldmxcsr 4(%rsp)
	pxor %xmm0, %xmm0
	mov $1, %eax
	cvtsi2ss %eax, %xmm1
	divss %xmm0, %xmm1
1:	ldmxcsr (%rsp)
	add $8, %rsp
	pop %rbx
	ret
	fault raise_x87
	fninit
	sub $8, %rsp
	movw $0x37b, (%rsp)
	fldcw (%rsp)
	fld1
	fldz
	fdivrp %st, %st(1)
	fwait
1:	fninit
	add $8, %rsp
	pop %rbx
	ret
	fault raise_alignment
	pushf
	pushf
	orl $0x40000, (%rsp)
	popf
	mov 1(%rsp), %eax
1:	popf
	pop %rbx
	ret
	fault raise_steps
	pushf
	orl $0x100, (%rsp)
	popf
	nop
	nop
	pushf
	andl $~0x100, (%rsp)
	popf
	over
	fault raise_descriptors
	sub $16, %rsp
	sgdt (%rsp)
	sidt (%rsp)
	smsw %eax
	str %ecx
1:	add $16, %rsp
	pop %rbx
	ret

/* A system call as 32-bit programs make it, which any program can: its number and first argument. */
	.globl call_32
	.type call_32, @function
call_32:
	push %rbx
	push %rbp
	mov %edi, %eax
	mov %esi, %ebx
	xor %ecx, %ecx
	xor %edx, %edx
	xor %esi, %esi
	xor %edi, %edi
	xor %ebp, %ebp
	int $0x80
	pop %rbp
	pop %rbx
	cltq
	ret

	.section .note.GNU-stack, "", @progbits
