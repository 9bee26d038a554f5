#! claim: A large frame puts the next link of the chain behind the end of the copy.
#! source: perf-record(1): the default size of a user stack dump is 8192
#! group: copy
#! view: copy:8192
#! wrong: fp(US202) dwarf(US202)
#@ in_leaf: leaf < large < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC large
        FP_ENTER
        sub     $16384, %rsp
        call    leaf
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC large

FP_CALLER outer, large
FP_ROOT outer

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@2/US202 t@2/US202 t@2/US202 t@2/US202 t@2/US402
