#! claim: A table made for older code gives a CFA that is off by what the code pushes now.
#! source: Linux livepatch and alternatives; binaries edited after linking
#! group: tables
#! wrong: dwarf(US501)
#! covers: US501
#@ in_leaf: leaf < patched < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

FUNC patched                            # the table knows sub $8, the code does sub $40
        sub     $40, %rsp
        .cfi_def_cfa_offset 16
        movq    $0x77, 8(%rsp)          # what a walk takes for the return address
        call    leaf
        add     $40, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC patched

PLAIN_CALLER outer, patched
PLAIN_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US501 t@2/US501 t@2/US501 t@1/US512 x1@4/US502
