#! claim: A copy from the alternate stack has the signal frame but not the interrupted stack.
#! source: Linux kernel/events/core.c perf_ustack_task_size; sigaltstack(2)
#! group: copy
#! view: copy:4096
#! wrong: dwarf(US201)
#@ in_handler: handler < <signal> < raises < outer < _start
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

#= sample     dwarf     sframe    orc       fp        guess
#= in_handler t@3/US201 t@3/US201 t@2/US103 t@2/US512 x1@2/US502
