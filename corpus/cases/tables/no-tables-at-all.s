#! claim: Without any table only the frame pointer and the scan of words are left.
#! source: gcc -fno-asynchronous-unwind-tables; Linux modules without ORC
#! group: tables
#! tables: none
#! right: fp
#! wrong: dwarf(US102) sframe(US102) orc(US102)
#! covers: US102
#@ in_leaf: leaf < mid < _start
        .include "prelude.inc"

FUNC_NO_CFI leaf
        push    %rbp
        mov     %rsp, %rbp
in_leaf:
        pop     %rbp
        ret
ENDFUNC_NO_CFI leaf

FUNC_NO_CFI mid
        push    %rbp
        mov     %rsp, %rbp
        call    leaf
        pop     %rbp
        ret
ENDFUNC_NO_CFI mid

        .globl  _start
FUNC_NO_CFI _start
        xor     %ebp, %ebp
        call    mid
        EXIT0
ENDFUNC_NO_CFI _start

#= sample  dwarf     sframe    orc       fp guess
#= in_leaf t@1/US102 t@1/US102 t@1/US102 .  x1@3/US502
