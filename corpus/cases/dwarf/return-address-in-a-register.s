#! claim: A function that pops its return address keeps it in a register until it jumps there.
#! source: glibc sysdeps/unix/sysv/linux/x86_64/vfork.S (pop rdi, .cfi_register rip, rdi)
#! group: dwarf
#! right: dwarf sframe
#! wrong: orc(US103)
#@ popped: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
        pop     %rdx
        .cfi_adjust_cfa_offset -8
        .cfi_register rip, rdx
popped:
        nop
        jmp     *%rdx
ENDFUNC leaf

PLAIN_CALLER outer, leaf
PLAIN_ROOT outer

#= sample dwarf sframe orc       fp        guess
#= popped .     .      t@1/US103 t@1/US512 m1@1/US502
