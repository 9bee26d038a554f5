# The function of generated.c as a compiler would have written it, for gdb. OFFSET is that of the
# CFA in its middle: 48 is right.
        .text
        .globl  generated
        .type   generated, @function
generated:
        .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        sub     $32, %rsp
        .cfi_def_cfa_offset OFFSET
        mov     %edi, %ebx
        movabs  $0x1122334455667788, %rax
        call    *%rax
        add     %ebx, %eax
        add     $32, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   generated, . - generated
        .section .note.GNU-stack, "", @progbits
