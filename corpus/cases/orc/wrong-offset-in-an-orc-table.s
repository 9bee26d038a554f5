#! claim: An ORC entry that is 8 too small ends the walk at a local variable.
#! source: Linux 6.12 arch/x86/include/asm/orc_types.h; objtool faults fixed by "objtool: Fix ORC
#!    generation"
#! group: orc
#! tables: orc
#! wrong: orc(US501)
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI leaf
        ORC     ORC_SP, 8
        push    %rbx
        sub     $16, %rsp
        ORC     ORC_SP, 24              # 32 would be right
in_leaf:
        add     $16, %rsp
        ORC     ORC_SP, 16
        pop     %rbx
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI leaf

ORC_CALLER outer, leaf
ORC_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US102 t@1/US102 t@1/US501 t@1/US512 x1@3/US502
