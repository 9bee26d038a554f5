global _start
section .data
text: db "assembled", 10
section .text
_start:
    mov eax, 1
    mov edi, 1
    lea rsi, [rel text]
    mov edx, 10
    syscall
    mov eax, 60
    mov edi, 5
    syscall
