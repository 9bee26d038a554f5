#! claim: A table that holds at calls only is right in a body, and as wrong as fp behind the pop.
#! source: Intel C++ Compiler Developer Guide (2023), -fasynchronous-unwind-tables; LLVM writes such
#!    rows for Darwin
#! group: tables
#! right: dwarf(at before_pop)
#! wrong: dwarf(US501 at after_pop) fp(US511 at after_pop)
#@ before_pop: leaf < mid < outer < _start
#@ after_pop: leaf < mid < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
before_pop:
        pop     %rbp                    # no row behind it, as nothing is called from there
after_pop:
        ret
ENDFUNC leaf

FP_CALLER mid, leaf
FP_CALLER outer, mid
FP_ROOT outer

#= sample     dwarf      sframe     orc        fp         guess
#= before_pop .          .          .          .          x1@4/US502
#= after_pop  m1@1/US501 m1@1/US501 m1@1/US501 m1@1/US511 x1@4/US502
