    .globl _start
_start:
    mov $1, %eax
    mov $1, %edi
    lea text(%rip), %rsi
    mov $10, %edx
    syscall
    mov $60, %eax
    xor %edi, %edi
    syscall
text: .ascii "from  gas\n"
