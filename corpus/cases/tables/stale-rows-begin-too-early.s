#! claim: Where the code grew before a push, the rows behind begin too early.
#! source: gcc bug 57208 class of faults; patched prologues (mcount, kprobes on ftrace)
#! group: tables
#! right: dwarf(at pushed)
#! wrong: dwarf(US501 at patched_in)
#@ patched_in: grown < outer < _start
#@ pushed: grown < outer < _start
        .include "prelude.inc"

FUNC grown
        .cfi_def_cfa_offset 16          # says: rbx is pushed from the first byte on
        .cfi_offset rbx, -16
patched_in:
        nopw    0(%rax, %rax)
        push    %rbx
pushed:
        nop
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC grown

PLAIN_CALLER outer, grown
PLAIN_ROOT outer

#= sample     dwarf     sframe    orc       fp        guess
#= patched_in t@1/US501 t@1/US501 t@1/US501 t@1/US512 x1@3/US502
#= pushed     .         .         .         t@1/US512 x1@3/US502
