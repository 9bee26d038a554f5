; A function of a shared object written for nasm, which has no directives for unwind rows.
global bare:function
section .text
bare:
	push rbx
	sub rsp, 32
	call rsi
	add rsp, 32
	pop rbx
	ret
section .note.GNU-stack noalloc noexec nowrite progbits
