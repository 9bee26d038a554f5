#! claim: A pushed code address and a ret are a tail call.
#! source: Intel SDM volume 1 section 6.4.1; hand-written trampolines in glibc and Wine
#! group: transfer
#! right: dwarf sframe orc
#@ before_ret: jumps < outer < _start
#@ in_target: target < outer < _start
        .include "prelude.inc"

FUNC target
in_target:
        ret
ENDFUNC target

FUNC jumps
        lea     target(%rip), %rax
        push    %rax
        .cfi_adjust_cfa_offset 8
before_ret:
        ret
ENDFUNC jumps

PLAIN_CALLER outer, jumps
PLAIN_ROOT outer

#= sample     dwarf sframe orc fp        guess
#= before_ret .     .      .   t@1/US512 x1@3/US502
#= in_target  .     .      .   t@1/US512 x1@3/US502
