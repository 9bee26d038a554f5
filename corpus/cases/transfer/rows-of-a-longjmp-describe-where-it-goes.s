#! claim: The rows of a longjmp may describe the frame that it goes to before it is there.
#! source: glibc sysdeps/x86_64/__longjmp.S (cfi_def_cfa and cfi_register ahead of the jump)
#! group: transfer
#! right: dwarf(at before) dwarf(at landed) fp(at landed)
#! wrong: dwarf(US506 at leaving)
#! covers: US506
#@ before: jumps < deep < catcher < outer < _start
#@ leaving: jumps < deep < catcher < outer < _start
#@ landed: catcher < outer < _start
        .include "prelude.inc"

FUNC jumps
before:
        mov     env+0(%rip), %r9
        mov     env+8(%rip), %r8
        mov     env+16(%rip), %rdx
        .cfi_remember_state
        .cfi_def_cfa r8, 0
        .cfi_register rsp, r8
        .cfi_register rbp, r9
        .cfi_register rip, rdx
leaving:
        nop
        mov     %r8, %rsp
        mov     %r9, %rbp
        jmp     *%rdx
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
        FP_LEAVE
        ret
ENDFUNC catcher

FP_CALLER outer, catcher
FP_ROOT outer

        .bss
        .balign 8
env:    .skip   24

#= sample  dwarf     sframe    orc       fp         guess
#= before  .         .         .         m1@1/US512 x1@5/US502
#= leaving w@1/US506 w@1/US506 t@1/US103 m1@1/US512 x1@5/US502
#= landed  .         .         .         .          x1@3/US502
