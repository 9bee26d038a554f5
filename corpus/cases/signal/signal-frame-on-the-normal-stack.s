#! claim: A handler's caller is the trampoline, the trampoline's the interrupted function.
#! source: Linux arch/x86/kernel/signal_64.c; glibc sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c
#! group: signal
#! right: dwarf sframe
#! wrong: orc(US103)
#@ in_handler: handler < <signal> < raises < outer < _start
#@ after: raises < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler
        FP_ENTER
in_handler:
        FP_LEAVE
        ret
ENDFUNC handler

FUNC raises
        FP_ENTER
        RAISE   SIGUSR1
after:
        FP_LEAVE
        ret
ENDFUNC raises

FP_CALLER outer, raises

        .globl  _start
FUNC _start
        ROOT    rbp=0
        SIGACTION SIGUSR1, action
        call    outer
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action, handler, 0

#= sample     dwarf sframe orc       fp         guess
#= in_handler .     .      t@2/US103 m1@2/US512 x2@2/US502
#= after      .     .      .         .          x1@3/US502
