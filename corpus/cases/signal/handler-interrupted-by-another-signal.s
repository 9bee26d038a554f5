#! claim: Two signal frames may stand in one chain.
#! source: sigaction(2), SA_NODEFER and different signals; Linux arch/x86/kernel/signal_64.c
#! group: signal
#! right: dwarf
#@ in_second: second < <signal> < first < <signal> < raises < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC second
        FP_ENTER
in_second:
        FP_LEAVE
        ret
ENDFUNC second

FUNC first
        FP_ENTER
        RAISE   SIGUSR2
        FP_LEAVE
        ret
ENDFUNC first

FUNC raises
        FP_ENTER
        RAISE   SIGUSR1
        FP_LEAVE
        ret
ENDFUNC raises

        .globl  _start
FUNC _start
        ROOT    rbp=0
        SIGACTION SIGUSR1, action1
        SIGACTION SIGUSR2, action2
        call    raises
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action1, first, 0
SIGACTION_DATA action2, second, 0

#= sample    dwarf sframe orc       fp         guess
#= in_second .     .      t@2/US103 m2@2/US512 x3@2/US502
