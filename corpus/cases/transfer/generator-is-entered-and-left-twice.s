#! claim: A coroutine that is resumed a second time has its own unchanged chain again.
#! source: boost.context; C++20 and Lua coroutines with stacks of their own
#! group: transfer
#! right: dwarf
#@ yields: yield < generator
#@ yields #2: yield < generator
#@ between: use < outer < _start
#@ between #2: use < outer < _start
        .include "prelude.inc"

FUNC yield                              # the switch itself, seen from the generator
yields:
        nop
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        xchg    %rsp, other_stack(%rip)
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret
ENDFUNC yield

FUNC resume                             # the switch seen from the user
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        xchg    %rsp, other_stack(%rip)
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret
ENDFUNC resume

FUNC generator
        .cfi_undefined rip
        mov     $1, %ebx
1:      call    yield
        inc     %ebx
        jmp     1b
ENDFUNC generator

FUNC use
between:
        ret
ENDFUNC use

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    resume
        call    use
        call    resume
        call    use
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC outer

PLAIN_ROOT outer

        .data
        .balign 16
        .fill   1024, 8, POISON
stack:  .quad   NONCE_RBX, generator, 0, 0
other_stack: .quad stack

#= sample    dwarf sframe orc fp        guess
#= yields    .     .      .   t@1/US512 x6@2/US502
#= yields#2  .     .      .   t@1/US512 x6@2/US502
#= between   .     .      .   t@1/US512 x1@3/US502
#= between#2 .     .      .   t@1/US512 x1@3/US502
