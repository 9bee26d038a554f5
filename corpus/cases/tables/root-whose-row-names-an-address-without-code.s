#! claim: A root whose row has an ordinary return address has a caller too many, even where no code
#!    is.
#! source: x86-64 psABI 3.4.1; DWARF 5 section 6.4.4: only an undefined return address is a root
#! group: tables
#! wrong: dwarf(US502)
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

PLAIN_CALLER outer, leaf

        .globl  _start
FUNC _start                             # no `.cfi_undefined rip`
        POISON_STACK
        movabs  $NONCE_RBX, %rbx
        movabs  $NONCE_RBP, %rbp
        movabs  $NONCE_R12, %r12
        movabs  $NONCE_R13, %r13
        movabs  $NONCE_R14, %r14
        movabs  $NONCE_R15, %r15
        mov     $1, %eax
        push    %rax                    # where the row says that the return address is
        call    outer
        EXIT0
ENDFUNC _start

#= sample  dwarf      sframe     orc        fp        guess
#= in_leaf x1@3/US502 x1@3/US502 x1@3/US502 t@1/US512 x1@3/US502
