#! claim: Behind pop rbp the frame is torn down though the return address is still to be used.
#! source: psABI 3.2.2; libunwind doc/libunwind-dynamic.man (epilogue regions)
#! group: frame
#! right: dwarf sframe orc fp(at before_pop)
#! wrong: fp(US511 at after_pop)
#! covers: US511
#@ before_pop: leaf < mid < outer < _start
#@ after_pop: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
        nop
before_pop:
        pop     %rbp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
after_pop:
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample     dwarf sframe orc fp         guess
#= before_pop .     .      .   .          x1@4/US502
#= after_pop  .     .      .   m1@1/US511 x1@4/US502
