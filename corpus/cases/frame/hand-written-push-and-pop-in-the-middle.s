#! claim: Pushes in the middle of a function move the CFA for some instructions only.
#! source: hand-written assembly of libcrypto and GMP; gcc's pushfq for __builtin_ia32_readeflags
#! group: frame
#! right: dwarf sframe orc
#! wrong: fp(US512)
#@ two_pushed: leaf < mid < _start
#@ one_pushed: leaf < mid < _start
#@ none_pushed: leaf < mid < _start
        .include "prelude.inc"

FUNC leaf
        nop
        pushfq
        .cfi_adjust_cfa_offset 8
        push    $0x5eed
        .cfi_adjust_cfa_offset 8
two_pushed:
        pop     %rax
        .cfi_adjust_cfa_offset -8
one_pushed:
        popfq
        .cfi_adjust_cfa_offset -8
none_pushed:
        ret
ENDFUNC leaf

PLAIN_CALLER mid, leaf
PLAIN_ROOT mid

#= sample      dwarf sframe orc fp        guess
#= two_pushed  .     .      .   t@1/US512 x1@3/US502
#= one_pushed  .     .      .   t@1/US512 x1@3/US502
#= none_pushed .     .      .   t@1/US512 x1@3/US502
