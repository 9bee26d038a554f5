#! claim: Room made by a load of rsp lies on the same stack, in a recursive function too.
#! source: LLVM x86-64 code for alloca: mov rsp, rax; sub rax, size; mov rax, rsp
#! group: transfer
#! right: dwarf fp(at bottom, at behind)
#@ bottom: rec*5 < _start
#@ behind: rec*4 < _start
#@ again: leaf < rec*4 < _start
#@ last #5: rec < _start
        .include "prelude.inc"
        .macro  ALLOCA
        mov     %rsp, %rax
        sub     $16, %rax
        mov     %rax, %rsp
        .endm

FUNC leaf
again:
        ret
ENDFUNC leaf

FUNC rec
        FP_ENTER
        ALLOCA
        sub     $1, %ecx
        js      bottom
        call    rec
behind:
        ALLOCA                          # over what the deeper calls left
        call    leaf
        jmp     1f
bottom:
        nop
1:      leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
last:
        ret
ENDFUNC rec

        .globl  _start
FUNC _start
        ROOT    rbp=0
        mov     $4, %ecx
        call    rec
        EXIT0
ENDFUNC _start
#= sample dwarf sframe orc fp         guess
#= bottom .     .      .   .          x1@6/US502
#= behind .     .      .   .          x1@5/US502
#= again  .     .      .   m1@1/US512 x2@2/US502
#= last#5 .     .      .   t@1/US511  x1@2/US502
