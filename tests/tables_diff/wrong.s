# What GNU as 2.40 (SFrame V1) writes wrong or leaves out, one function each.
    .text
    .globl other_register, ra_undefined, ra_same, rbp_undefined, rbp_same, drap, escape, right, ra_slot, ra_register
other_register: .cfi_startproc
    lea 8(%rsp), %r10
    .cfi_def_cfa r10, 0
    nop
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
ra_undefined: .cfi_startproc
    nop
    .cfi_undefined rip
    nop
    hlt
    .cfi_endproc
ra_same: .cfi_startproc
    nop
    .cfi_same_value rip
    ret
    .cfi_endproc
ra_slot: .cfi_startproc
    nop
    .cfi_offset rip, -16
    ret
    .cfi_endproc
ra_register: .cfi_startproc
    pop %rdx
    .cfi_def_cfa_offset 0
    .cfi_register rip, rdx
    jmp *%rdx
    .cfi_endproc
rbp_undefined: .cfi_startproc
    xor %ebp, %ebp
    .cfi_undefined rbp
    ret
    .cfi_endproc
rbp_same: .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov %rsp, %rbp
    pop %rbp
    .cfi_def_cfa_offset 8
    .cfi_same_value rbp
    nop
    ret
    .cfi_endproc
drap: .cfi_startproc
    lea 8(%rsp), %r10
    .cfi_def_cfa r10, 0
    and $-32, %rsp
    push -8(%r10)
    push %rbp
    mov %rsp, %rbp
    .cfi_escape 0x10,6,2,0x76,0
    push %r10
    .cfi_escape 0xf,3,0x76,0x78,6
    nop
    pop %r10
    .cfi_def_cfa r10, 0
    pop %rbp
    lea -8(%r10), %rsp
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
escape: .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov %rsp, %rbp
    .cfi_escape 0x0d, 6
    sub $64, %rsp
    leave
    .cfi_escape 0x0c, 7, 8
    ret
    .cfi_endproc
right: .cfi_startproc
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    pop %rbp
    .cfi_def_cfa_offset 8
    .cfi_restore rbp
    ret
    .cfi_endproc
