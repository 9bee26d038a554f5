/* Entry, system calls, and the two ways to a child that a C function cannot take. */
#include <asm/unistd.h>

	.text
	.globl _start, syscall3, syscall6, clone_with, vfork_exec, restore
	.type _start, @function
_start:
	xor %ebp, %ebp
	mov %rsp, %rdi
	and $-16, %rsp
	call start
	ud2
	.size _start, . - _start

	.type syscall3, @function
syscall3:
	mov %rdi, %rax
	mov %rsi, %rdi
	mov %rdx, %rsi
	mov %rcx, %rdx
	xor %r10d, %r10d
	xor %r8d, %r8d
	xor %r9d, %r9d
	syscall
	ret
	.size syscall3, . - syscall3

	.type syscall6, @function
syscall6:
	mov %rdi, %rax
	mov %rsi, %rdi
	mov %rdx, %rsi
	mov %rcx, %rdx
	mov %r8, %r10
	mov %r9, %r8
	mov 8(%rsp), %r9
	syscall
	ret
	.size syscall6, . - syscall6

/* The child runs `run(arg)` on its stack, and ends with what it returns. */
	.type clone_with, @function
clone_with:
	and $-16, %rsi
	sub $16, %rsi
	mov %r8, (%rsi)
	mov %r9, 8(%rsi)
	mov %rcx, %r10
	xor %r8d, %r8d
	mov $__NR_clone, %eax
	syscall
	test %eax, %eax
	jz 1f
	ret
1:	xor %ebp, %ebp
	pop %rax
	pop %rdi
	call *%rax
	mov %eax, %edi
	mov $__NR_exit, %eax
	syscall
	ud2
	.size clone_with, . - clone_with

/* The child shares the stack until it is another program, so it must not return. */
	.type vfork_exec, @function
vfork_exec:
	mov %rdx, %r8
	mov $__NR_vfork, %eax
	syscall
	test %eax, %eax
	jz 1f
	ret
1:	mov %r8, %rdx
	mov $__NR_execve, %eax
	syscall
	mov $127, %edi
	mov $__NR_exit_group, %eax
	syscall
	ud2
	.size vfork_exec, . - vfork_exec

	.type restore, @function
restore:
	mov $__NR_rt_sigreturn, %eax
	syscall
	.size restore, . - restore

	.section .note.GNU-stack, "", @progbits
