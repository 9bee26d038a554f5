# Two functions: in the second, the row for the push comes one instruction late.
        .text
        .globl  good
        .type   good, @function
good:
        .cfi_startproc
        pushq   %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        movq    %rdi, %rbx
        call    other
        movq    %rbx, %rax
        popq    %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   good, . - good
        .globl  late
        .type   late, @function
late:
        .cfi_startproc
        pushq   %rbx
        movq    %rdi, %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        call    other
        movq    %rbx, %rax
        popq    %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   late, . - late
