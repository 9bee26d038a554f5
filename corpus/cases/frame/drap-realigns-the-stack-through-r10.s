#! claim: A realigned frame finds its CFA through r10 first and then by loading it from the frame.
#! source: gcc config/i386 (DRAP, -mstackrealign); Linux objtool "DRAP" handling, ORC_REG_R10
#! group: frame
#! right: dwarf
#! wrong: fp(US510 at with_r10)
#@ with_r10: realigned < odd < _start
#@ loaded: realigned < odd < _start
#@ in_leaf: leaf < realigned < odd < _start
#@ again_r10: realigned < odd < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        xor     %r10d, %r10d            # r10 belongs to nobody across a call
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC realigned
        lea     8(%rsp), %r10
        .cfi_def_cfa r10, 0
        and     $-64, %rsp
        push    -8(%r10)                # a copy of the return address
        push    %rbp
with_r10:
        mov     %rsp, %rbp
        .cfi_escape 0x10, 6, 2, 0x76, 0 # rbp saved at *(rbp+0): DW_OP_breg6 0
        push    %r10
        .cfi_escape 0x0f, 3, 0x76, 0x78, 0x06 # CFA = *(rbp-8)
        sub     $40, %rsp
loaded:
        nop
        call    leaf
        mov     -8(%rbp), %r10
        .cfi_def_cfa r10, 0
again_r10:
        leave
        lea     -8(%r10), %rsp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC realigned

FUNC odd                                # the caller's rsp is misaligned by 24
        FP_ENTER
        sub     $24, %rsp
        call    realigned
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC odd

FP_ROOT odd

#= sample    dwarf sframe orc fp         guess
#= with_r10  .     .      .   m1@1/US510 x2@1/US502
#= loaded    .     .      .   ~          x2@1/US502
#= in_leaf   .     .      .   ~          x2@2/US502
#= again_r10 .     .      .   ~          x2@1/US502
