#! claim: FDEs of one section may follow CIEs with different initial rules and augmentations.
#! source: DWARF 5 section 6.4.1; LSB 5 Core 10.6.1.1 (augmentations zR, zPLR, S)
#! group: tables
#! right: dwarf
#@ in_leaf: leaf < with_lsda < simple < signal_like < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC with_lsda                          # augmentation zPLR
        .cfi_personality 0x1b, leaf
        .cfi_lsda 0x1b, lsda
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    leaf
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC with_lsda

        .type   simple, @function
simple: .cfi_startproc simple           # a CIE without initial rules
        .cfi_def_cfa rsp, 8
        .cfi_offset rip, -8
        sub     $40, %rsp
        .cfi_def_cfa_offset 48
        call    with_lsda
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   simple, . - simple

PLAIN_CALLER signal_like, simple
PLAIN_ROOT signal_like

        .section .rodata
lsda:   .byte   0xff, 0xff, 0xff, 0

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@5/US502
