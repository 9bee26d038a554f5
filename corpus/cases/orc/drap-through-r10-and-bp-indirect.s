#! claim: A realigned frame is followed by R10 in the sampled frame, by BP_INDIRECT below it.
#! source: Linux tools/objtool/check.c (DRAP), arch/x86/kernel/unwind_orc.c ORC_REG_R10,
#!    ORC_REG_BP_INDIRECT
#! group: orc
#! tables: orc
#! right: orc
#@ with_r10: realigned < outer < _start
#@ in_leaf: leaf < realigned < outer < _start
        .include "prelude.inc"
        .include "orc.inc"

FUNC_NO_CFI leaf
        ORC     ORC_SP, 8
in_leaf:
        xor     %r10d, %r10d
        ret
ENDFUNC_NO_CFI leaf

FUNC_NO_CFI realigned
        ORC     ORC_SP, 8
        lea     8(%rsp), %r10
        ORC     ORC_R10, 0
        and     $-64, %rsp
with_r10:
        push    -8(%r10)
        push    %rbp
        mov     %rsp, %rbp
        ORC     ORC_R10, 0, ORC_BP, 0
        push    %r10
        ORC     ORC_BP_INDIRECT, -8, ORC_BP, 0
        sub     $40, %rsp
        call    leaf
        mov     -8(%rbp), %r10
        ORC     ORC_R10, 0, ORC_BP, 0
        leave
        ORC     ORC_R10, 0
        lea     -8(%r10), %rsp
        ORC     ORC_SP, 8
        ret
ENDFUNC_NO_CFI realigned

ORC_CALLER outer, realigned
ORC_ROOT outer

#= sample   dwarf     sframe    orc fp        guess
#= with_r10 t@1/US102 t@1/US102 .   t@1/US510 x1@3/US502
#= in_leaf  t@1/US102 t@1/US102 .   w@1/US512 x2@2/US502
