#! claim: Without augmentation S the interrupted address is taken for a return address.
#! source: gcc bug 26208, why augmentation S was added; DWARF 5 section 6.4.4
#! group: signal
#! wrong: dwarf(US502)
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

FUNC neighbour                          # minus one finds its last row: CFA = rsp+80
        sub     $72, %rsp
        .cfi_def_cfa_offset 80
        jmp     .
ENDFUNC neighbour
FUNC faults
        ud2
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

        .cfi_startproc simple           # begins one byte early: a handler returns to __restore_rt
        SIGNAL_FRAME_RULES
        nop
        .type   __restore_rt, @function
__restore_rt:
        mov     $15, %rax
        syscall
        .cfi_endproc
        .size   __restore_rt, . - __restore_rt
SIGACTION_DATA action, handler, SA_SIGINFO, __restore_rt

#= sample     dwarf     sframe orc       fp         guess
#= in_handler t@3/US502 .      t@2/US103 m2@2/US512 x3@2/US502
