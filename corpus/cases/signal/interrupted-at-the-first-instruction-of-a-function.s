#! claim: The address in a signal frame is exact: it is looked up as it is, not minus one.
#! source: DWARF 5 section 6.4.4 and augmentation S; gcc bug 26208
#! group: signal
#! right: dwarf
#! wrong: fp(US512)
#@ in_handler: handler < <signal> < faults < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler                            # (signal, siginfo, ucontext)
        FP_ENTER
in_handler:
        SKIP_UD2
        FP_LEAVE
        ret
ENDFUNC handler

FUNC neighbour                          # its last row is another one than faults' first
        sub     $72, %rsp
        .cfi_def_cfa_offset 80
        jmp     .
ENDFUNC neighbour
FUNC faults
        ud2
        FP_ENTER
        FP_LEAVE
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
