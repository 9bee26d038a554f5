#! claim: After a longjmp out of a recursion the next one stands on its own caller alone.
#! source: perf's --stitch-lbr, which takes records for calls that have not returned (Linux 7.2,
#!    tools/perf/util/machine.c)
#! group: transfer
#! right: dwarf fp
#@ bottom: rec*30 < one < catcher < _start
#@ landed: catcher < _start
#@ bottom #2: rec*30 < other < catcher < _start
        .include "prelude.inc"

FUNC rec
        FP_ENTER
        dec     %edi
        jz      bottom
        call    rec
        jmp     done
bottom:
        nop
        cmpl    $0, env+16(%rip)
        je      done
        mov     env+0(%rip), %rbp
        mov     env+8(%rip), %rsp
        .cfi_remember_state
        .cfi_def_cfa rbp, 16            # already the catcher's registers, still this code
        mov     env+16(%rip), %rax
        movq    $0, env+16(%rip)
        jmp     *%rax
        .cfi_restore_state
done:
        FP_LEAVE
        ret
ENDFUNC rec

FP_CALLER one, rec
FP_CALLER other, rec

FUNC catcher
        FP_ENTER
        mov     %rbp, env+0(%rip)
        mov     %rsp, env+8(%rip)
        lea     landed(%rip), %rax
        mov     %rax, env+16(%rip)
        mov     $30, %edi
        call    one
        ud2
landed:
        mov     $30, %edi
        call    other
        FP_LEAVE
        ret
ENDFUNC catcher

        .globl  _start
FUNC _start
        ROOT    rbp=0
        call    catcher
        EXIT0
ENDFUNC _start

        .bss
        .balign 8
env:    .skip   24

#= sample   dwarf sframe orc fp guess
#= bottom   .     .      .   .  x1@33/US502
#= landed   .     .      .   .  x1@2/US502
#= bottom#2 .     .      .   .  x1@33/US502
