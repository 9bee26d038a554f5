#! claim: An ORC table alone gives the chain: sp by rsp or rbp, the end of the stack marked.
#! source: Linux 6.12 arch/x86/include/asm/orc_types.h, tools/objtool/Documentation/objtool.txt
#! group: orc
#! tables: orc
#! right: orc
#! wrong: dwarf(US102)
#@ before: leaf < by_rbp < outer < _start
#@ framed: leaf < by_rbp < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI leaf
        ORC     ORC_SP, 8
before:
        push    %rbp
        ORC     ORC_SP, 16, ORC_PREV_SP, -16
        mov     $77, %ebp
framed:
        nop
        pop     %rbp
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI leaf

FUNC_NO_CFI by_rbp
        ORC     ORC_SP, 8
        push    %rbp
        ORC     ORC_SP, 16, ORC_PREV_SP, -16
        mov     %rsp, %rbp
        ORC     ORC_BP, 16, ORC_PREV_SP, -16
        and     $-64, %rsp
        call    leaf
        leave
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI by_rbp

ORC_CALLER outer, by_rbp
ORC_ROOT outer

#= sample dwarf     sframe    orc fp         guess
#= before t@1/US102 t@1/US102 .   m1@1/US512 x1@4/US502
#= framed t@1/US102 t@1/US102 .   t@1/US512  x1@4/US502
