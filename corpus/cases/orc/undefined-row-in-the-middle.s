#! claim: An UNDEFINED entry says that nothing is known, and the gap goes on to the next entry.
#! source: Linux arch/x86/kernel/unwind_orc.c unwind_next_frame, ORC_TYPE_UNDEFINED;
#!    STACK_FRAME_NON_STANDARD
#! group: orc
#! tables: orc
#! wrong: orc(US104)
#! covers: US104
#@ in_leaf: leaf < strange < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI leaf
        ORC     ORC_SP, 8
in_leaf:
        nop
        ret
ENDFUNC_NO_CFI leaf

FUNC_NO_CFI strange                     # objtool was told not to look
        ORC_LOST
        sub     $8, %rsp
        call    leaf
        add     $8, %rsp
        ret
ENDFUNC_NO_CFI strange

ORC_CALLER outer, strange
ORC_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@1/US102 t@1/US102 t@2/US104 t@1/US512 x1@4/US502
