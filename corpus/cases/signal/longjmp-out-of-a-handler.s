#! claim: A jump out of a handler leaves the signal frame for good.
#! source: POSIX siglongjmp; glibc sysdeps/x86_64/__longjmp.S
#! group: signal
#! right: dwarf
#@ in_handler: handler < <signal> < raises < outer < _start
#@ landed: outer < _start
#@ later: leaf < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC leaf
        FP_ENTER
later:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC handler
        FP_ENTER
in_handler:
        nop
        mov     env+0(%rip), %rbp
        mov     env+8(%rip), %rsp
        jmp     *env+16(%rip)
ENDFUNC handler

FUNC raises
        FP_ENTER
        RAISE   SIGUSR1
        ud2
ENDFUNC raises

FUNC outer
        FP_ENTER
        mov     %rbp, env+0(%rip)
        mov     %rsp, env+8(%rip)
        lea     landed(%rip), %rax
        mov     %rax, env+16(%rip)
        call    raises
        ud2
landed:
        nop
        call    leaf
        FP_LEAVE
        ret
ENDFUNC outer

        .globl  _start
FUNC _start
        ROOT    rbp=0
        SIGACTION SIGUSR1, action
        call    outer
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action, handler, SA_NODEFER

        .bss
        .balign 8
env:    .skip   24

#= sample     dwarf sframe orc       fp         guess
#= in_handler .     .      t@2/US103 m1@2/US512 x2@2/US502
#= landed     .     .      .         .          x1@2/US502
#= later      .     .      .         .          x1@3/US502
