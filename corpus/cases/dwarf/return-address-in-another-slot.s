#! claim: The return address need not be the word below the CFA.
#! source: DWARF 5 section 6.4.1: the return address column has a rule like any other
#! group: dwarf
#! right: dwarf
#@ moved: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        mov     24(%rsp), %rax
        movq    $0, 24(%rsp)            # its own slot is wiped
        mov     %rax, 8(%rsp)
        .cfi_offset rip, -24
moved:
        mov     8(%rsp), %rax
        mov     %rax, 24(%rsp)
        .cfi_offset rip, -8
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

PLAIN_CALLER outer, leaf
PLAIN_ROOT outer

#= sample dwarf sframe orc       fp        guess
#= moved  .     .      t@1/US103 t@1/US512 w@1/US502
