#! claim: A trampoline that loads the CFA from the wrong word loses the interrupted stack.
#! source: glibc sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c
#! group: defect
#! right: dwarf
#! inject: offset at trampoline
#@ in_handler: handler < <signal> < raises < outer < _start
        .include "prelude.inc"
        .include "signal.inc"

FUNC handler
        FP_ENTER
in_handler:
        nop
        FP_LEAVE
        ret
ENDFUNC handler

FUNC raises
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        RAISE   SIGUSR1
        add     $24, %rsp
        .cfi_def_cfa_offset 8
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
        .cfi_escape 0x0f, 4, 0x77, 0x98, 1, 0x06 # CFA = *(rsp+152), rcx
        .cfi_escape 0x16, 7, 4, 0x77, 0x98, 1, 0x06 # rsp likewise
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

#= sample     dwarf sframe orc       fp        guess
#= in_handler .     .      t@2/US103 t@2/US512 x2@2/US502
