#! claim: A row on r10 serves the sampled frame only: after a call frame r10 is not known.
#! source: Linux arch/x86/kernel/unwind_orc.c ("missing R10 value"), get_reg without regs
#! group: orc
#! tables: orc
#! wrong: orc(US106)
#@ in_leaf: leaf < on_r10 < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI leaf
        ORC     ORC_SP, 8
in_leaf:
        nop
        ret
ENDFUNC_NO_CFI leaf

FUNC_NO_CFI on_r10
        ORC     ORC_SP, 8
        lea     8(%rsp), %r10
        ORC     ORC_R10, 0
        and     $-64, %rsp
        call    leaf
        lea     -8(%r10), %rsp
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI on_r10

ORC_CALLER outer, on_r10
ORC_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US102 t@1/US102 t@2/US106 t@1/US512 x1@4/US502
