#! claim: On a coroutine's stack the chain ends at the coroutine's root, back on the old one at
#!    ours.
#! source: boost.context make_fcontext/jump_fcontext for x86-64 System V
#! group: transfer
#! right: dwarf fp
#@ in_coroutine: inner < coroutine
#@ resumed: after < outer < _start
        .include "prelude.inc"

FUNC inner
        FP_ENTER
in_coroutine:
        FP_LEAVE
        ret
ENDFUNC inner

FUNC coroutine                          # entered by a ret on a fresh stack
        .cfi_undefined rip
        xor     %ebp, %ebp
        call    inner
        call    switch                  # back to the main stack, for good
        ud2
ENDFUNC coroutine

# Saves the callee-saved registers here, takes them from the other stack. The rules are those of
# any push and pop: the saved state of both sides has the same layout.
FUNC switch
        push    %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        push    %r12
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset r12, 0
        xchg    %rsp, other_stack(%rip)
        pop     %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore r12
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        pop     %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        ret
ENDFUNC switch

FUNC after
        FP_ENTER
resumed:
        FP_LEAVE
        ret
ENDFUNC after

FUNC outer
        FP_ENTER
        call    switch
        call    after
        FP_LEAVE
        ret
ENDFUNC outer

FP_ROOT outer

        .data
        .balign 16
        .fill   1024, 8, POISON
stack:  .quad   NONCE_R12, NONCE_RBX, NONCE_RBP, coroutine, 0, 0, 0, 0
other_stack: .quad stack

#= sample       dwarf sframe orc fp guess
#= in_coroutine .     .      .   .  x7@2/US502
#= resumed      .     .      .   .  x1@3/US502
