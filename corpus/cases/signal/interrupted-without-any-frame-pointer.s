#! claim: Only the registers saved in the signal frame lead on, rbx and r12 among them.
#! source: Linux uapi asm/sigcontext.h struct sigcontext
#! group: signal
#! right: dwarf
#! wrong: fp(US512)
#@ in_handler: handler < <signal> < faults < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler                            # destroys what it may not, the frame restores it
        xor     %ebx, %ebx
        .cfi_undefined rbx
        xor     %r12d, %r12d
        .cfi_undefined r12
in_handler:
        SKIP_UD2
        ret
ENDFUNC handler

FUNC faults                             # CFA = r12+16
        push    %r12
        .cfi_def_cfa_offset 16
        .cfi_offset r12, -16
        mov     %rsp, %r12
        .cfi_def_cfa_register r12
        sub     $40, %rsp
        ud2
        mov     %r12, %rsp
        .cfi_def_cfa_register rsp
        pop     %r12
        .cfi_def_cfa_offset 8
        .cfi_restore r12
        ret
ENDFUNC faults

PLAIN_CALLER outer, faults

        .globl  _start
FUNC _start
        ROOT
        SIGACTION SIGILL, action
        call    outer
        EXIT0
ENDFUNC _start

RESTORER
SIGACTION_DATA action, handler, SA_SIGINFO

#= sample     dwarf sframe    orc       fp        guess
#= in_handler .     t@3/US106 t@2/US103 t@1/US512 x3@2/US502
