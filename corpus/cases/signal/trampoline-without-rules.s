#! claim: A restorer without an FDE ends every walk by tables at the handler's caller.
#! source: the vdso-less restorer of static binaries; gdb amd64-linux-tdep.c knows it by its bytes
#! group: signal
#! right: dwarf(at after)
#! wrong: dwarf(US103 at in_handler)
#! covers: US103
#@ in_handler: handler < <signal> < raises < _start
#@ after: raises < _start
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

        .globl  _start
FUNC _start
        ROOT    rbp=0
        SIGACTION SIGUSR1, action
        call    raises
        EXIT0
ENDFUNC _start

        .skip   16, 0xcc                # so that __restore_rt-1 is in no FDE either
FUNC_NO_CFI __restore_rt
        mov     $15, %rax
        syscall
ENDFUNC_NO_CFI __restore_rt
SIGACTION_DATA action, handler, 0, __restore_rt

#= sample     dwarf     sframe    orc       fp         guess
#= in_handler t@2/US103 t@2/US103 t@2/US103 m1@2/US512 x2@2/US502
#= after      .         .         .         .          x1@2/US502
