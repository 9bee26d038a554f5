#! claim: A function that declares its return address undefined is a root to every reader.
#! source: DWARF 5 section 6.4.4; glibc sysdeps/unix/sysv/linux/x86_64/clone.S
#! group: tables
#! right: fp
#! wrong: dwarf(US502)
#! covers: US502
#@ in_leaf: leaf < lost < outer < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
in_leaf:
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC lost
        .cfi_undefined rip              # untrue
        FP_ENTER
        call    leaf
        FP_LEAVE
        ret
ENDFUNC lost

FP_CALLER outer, lost
FP_ROOT outer

#= sample  dwarf     sframe    orc       fp guess
#= in_leaf t@2/US502 t@2/US502 t@2/US502 .  x1@4/US502
