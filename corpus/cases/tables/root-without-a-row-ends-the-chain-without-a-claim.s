#! claim: A root that was executed and has no row is not known to be one: the chain ends there
#!    without a claim.
#! source: x86-64 psABI 3.4.1; DWARF 5 section 6.4.4: only an undefined return address is a root
#! group: tables
#! wrong: dwarf(US504)
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

PLAIN_CALLER outer, leaf

        .globl  _start
FUNC_NO_CFI _start
        POISON_STACK
        movabs  $NONCE_RBX, %rbx
        movabs  $NONCE_RBP, %rbp
        movabs  $NONCE_R12, %r12
        movabs  $NONCE_R13, %r13
        movabs  $NONCE_R14, %r14
        movabs  $NONCE_R15, %r15
        call    outer
        EXIT0
ENDFUNC_NO_CFI _start

#= sample  dwarf     sframe    orc       fp        guess
#= in_leaf t@3/US504 t@3/US103 t@3/US504 t@1/US512 x1@3/US502
