#! claim: A trampoline that takes rbx for rbp loses the interrupted frame pointer.
#! source: Linux uapi asm/sigcontext.h; glibc __restore_rt
#! group: defect
#! right: dwarf
#! inject: wrong-slot at trampoline
#@ in_handler: handler < <signal> < raises < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
in_handler:
        nop
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC handler

FUNC raises
        FP_ENTER
        RAISE   SIGUSR1
        FP_LEAVE
        ret
ENDFUNC raises

PLAIN_CALLER outer, raises

        .globl  _start
FUNC _start
        ROOT
        SIGACTION SIGUSR1, action
        call    outer
        EXIT0
ENDFUNC _start

        .cfi_startproc simple
        .cfi_signal_frame
        SIGNAL_FRAME_RULES
        .ifdef  DEFECT
        SAVED_AT 6, 128
        .endif
        nop
        .type   restorer, @function
restorer:
trampoline:
        mov     $15, %rax
        syscall
        .cfi_endproc
        .size   restorer, . - restorer
SIGACTION_DATA action, handler, 0

#= sample     dwarf sframe orc       fp         guess
#= in_handler .     .      t@2/US103 m2@1/US512 x2@2/US502
