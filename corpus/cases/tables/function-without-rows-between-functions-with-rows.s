#! claim: One function without an FDE ends a walk by tables, a frame pointer passes it.
#! source: GMP __mpn_addmul_1 and other hand-written code without .cfi directives
#! group: tables
#! right: fp
#! wrong: dwarf(US504) sframe(US504)
#@ in_leaf: leaf < bare < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC_NO_CFI bare
        push    %rbp
        mov     %rsp, %rbp
        call    leaf
        pop     %rbp
        ret
ENDFUNC_NO_CFI bare

FP_CALLER outer, bare
FP_ROOT outer

#= sample  dwarf     sframe    orc       fp guess
#= in_leaf t@2/US504 t@2/US504 t@2/US504 .  x1@4/US502
