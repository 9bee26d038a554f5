# A recursion that is deeper than a small ring of branch records.
        .include "prelude.inc"

        .set    DEPTH, 12

FUNC descend
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        dec     %edi
        jz      1f
        call    descend
        jmp     2f
1:      call    at_the_bottom
2:      add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC descend

FUNC at_the_bottom
        nop
        ret
ENDFUNC at_the_bottom

        .globl  _start
FUNC _start
        ROOT
        mov     $DEPTH, %edi
        call    descend
        EXIT0
ENDFUNC _start
