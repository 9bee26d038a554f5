# A program for perf record --call-graph dwarf: code that has no rows, with and without frames.
# Built with: gcc -nostdlib -static -o norow norow.s
        .text
        .globl  _start
_start: .cfi_startproc
        .cfi_undefined rip
        call    main
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .cfi_endproc
        .type   _start, @function
        .size   _start, .-_start

        .type   main, @function
main:   .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        call    framed
        call    unframed
        mov     $9, %eax                # mmap(0, 4096, rwx, private|anonymous, -1, 0)
        xor     %edi, %edi
        mov     $4096, %esi
        mov     $7, %edx
        mov     $0x22, %r10d
        mov     $-1, %r8
        xor     %r9d, %r9d
        syscall
        mov     %rax, %rbx
        mov     %rax, %rdi
        lea     jitted(%rip), %rsi
        mov     $jitted_end-jitted, %ecx
        rep movsb
        lea     leaf(%rip), %rax
        call    *%rbx
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   main, .-main

        .type   leaf, @function
leaf:   .cfi_startproc
        mov     $10000000, %ecx
1:      dec     %ecx
        jnz     1b
        ret
        .cfi_endproc
        .size   leaf, .-leaf

# No rows, but a frame.
        .type   framed, @function
framed: push    %rbp
        mov     %rsp, %rbp
        sub     $32, %rsp
        call    leaf
        mov     $10000000, %ecx
1:      dec     %ecx
        jnz     1b
        leave
        ret
        .size   framed, .-framed

# No rows and no frame: rbp is a number.
        .type   unframed, @function
unframed:
        push    %rbp
        mov     $0x1234, %ebp
        call    leaf
        mov     $10000000, %ecx
1:      dec     %ecx
        jnz     1b
        pop     %rbp
        ret
        .size   unframed, .-unframed

# Copied to memory that no file backs.
jitted: push    %rbp
        mov     %rsp, %rbp
        call    *%rax
        mov     $10000000, %ecx
1:      dec     %ecx
        jnz     1b
        pop     %rbp
        ret
jitted_end:
        .section .note.GNU-stack,"",@progbits
