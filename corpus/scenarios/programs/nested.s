# A program for scenarios: f1 calls f2, f2 calls f3, four times; then exit(0).
# Made by: cc -nostdlib -static -no-pie -Wl,-n,--build-id=none,-s -o nested nested.s
        .text
        .globl  _start
_start:
        mov     $4, %ebx
again:  call    f1
        dec     %ebx
        jnz     again
        mov     $60, %eax
        xor     %edi, %edi
        syscall

f1:     push    %rbp
        mov     %rsp, %rbp
        call    f2
        pop     %rbp
        ret

f2:     push    %rbp
        mov     %rsp, %rbp
        call    f3
        call    f3
        pop     %rbp
        ret

f3:     push    %rbp
        mov     %rsp, %rbp
        mov     $3, %ecx
loop:   dec     %ecx
        jnz     loop
        pop     %rbp
        ret

        .section .note.GNU-stack,"",@progbits
