#! claim: From the alternate stack the trampoline's rules lead back to the interrupted stack.
#! source: sigaltstack(2); Linux arch/x86/kernel/signal.c get_sigframe
#! group: signal
#! right: dwarf
#@ in_handler: handler < <signal> < raises < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
in_handler:
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC handler

FUNC raises
        FP_ENTER
        RAISE   SIGUSR1
        FP_LEAVE
        ret
ENDFUNC raises

FP_CALLER outer, raises

        .globl  _start
FUNC _start
        ROOT    rbp=0
        lea     alternate(%rip), %rdi
        xor     %esi, %esi
        mov     $131, %eax              # sigaltstack
        syscall
        SIGACTION SIGUSR1, action
        call    outer
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action, handler, SA_ONSTACK

        .data
        .balign 16
alternate: .quad stack, 0, 65536
        .bss
        .balign 16
stack:  .skip   65536

#= sample     dwarf sframe orc       fp         guess
#= in_handler .     .      t@2/US103 m2@1/US512 x1@2/US502
