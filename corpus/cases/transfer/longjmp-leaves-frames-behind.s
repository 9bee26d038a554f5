#! claim: After a longjmp the frames between are gone without a ret.
#! source: ISO C 7.13.2.1; glibc sysdeps/x86_64/__longjmp.S
#! group: transfer
#! right: dwarf fp
#@ before: jumps < deep < catcher < outer < _start
#@ landed: catcher < outer < _start
#@ later: leaf < catcher < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
later:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC jumps
        FP_ENTER
before:
        mov     env+0(%rip), %rbp
        mov     env+8(%rip), %rsp
        .cfi_remember_state
        .cfi_def_cfa rbp, 16            # already the catcher's registers, still this code
        jmp     *env+16(%rip)
        .cfi_restore_state
ENDFUNC jumps

FP_CALLER deep, jumps

FUNC catcher
        FP_ENTER
        mov     %rbp, env+0(%rip)
        mov     %rsp, env+8(%rip)
        lea     landed(%rip), %rax
        mov     %rax, env+16(%rip)
        call    deep
        ud2
landed:
        nop
        call    leaf
        FP_LEAVE
        ret
ENDFUNC catcher

FP_CALLER outer, catcher
FP_ROOT outer

        .bss
        .balign 8
env:    .skip   24

#= sample dwarf sframe orc fp guess
#= before .     .      .   .  x1@5/US502
#= landed .     .      .   .  x1@3/US502
#= later  .     .      .   .  x1@4/US502
