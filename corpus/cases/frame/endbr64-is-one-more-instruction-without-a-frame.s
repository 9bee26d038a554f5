#! claim: Under CET every function begins with an instruction at which rbp is the caller's.
#! source: Intel SDM volume 1 chapter 17 (CET); Linux is_uprobe_at_func_entry tests for endbr64
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US510)
#@ at_endbr: leaf < mid < _start
#@ at_push: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
at_endbr:
        endbr64
at_push:
        FP_ENTER
        FP_LEAVE
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_ROOT mid

#= sample   dwarf sframe orc fp         guess
#= at_endbr .     .      .   m1@1/US510 x1@3/US502
#= at_push  .     .      .   m1@1/US510 x1@3/US502
