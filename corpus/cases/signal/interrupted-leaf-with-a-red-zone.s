#! claim: The kernel leaves the interrupted red zone alone, the signal frame begins 128 bytes below.
#! source: psABI 3.2.2; Linux arch/x86/kernel/signal.c get_sigframe (redzone)
#! group: signal
#! right: dwarf
#! wrong: fp(US512)
#@ in_handler: handler < <signal> < faults < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler
        FP_ENTER
in_handler:
        SKIP_UD2
        FP_LEAVE
        ret
ENDFUNC handler

FUNC faults
        movq    $42, -8(%rsp)
        movq    $43, -128(%rsp)
        ud2
        mov     -8(%rsp), %rax
        add     -128(%rsp), %rax
        cmp     $85, %rax
        jne     .
        ret
ENDFUNC faults

FP_CALLER outer, faults

        .globl  _start
FUNC _start
        ROOT    rbp=0
        SIGACTION SIGILL, action
        call    outer
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action, handler, SA_SIGINFO

#= sample     dwarf sframe orc       fp         guess
#= in_handler .     .      t@2/US103 m2@2/US512 x3@2/US502
