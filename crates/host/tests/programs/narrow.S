# A 32-bit program: it exits.
        .globl  _start
_start: mov     $1, %eax
        xor     %ebx, %ebx
        int     $0x80
        .section .note.GNU-stack, "", @progbits
