#! claim: A root whose row has an ordinary return address is walked past, to whatever lies in that
#!    word.
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

FUNC stray                              # nobody calls it, and it calls nobody
        .cfi_undefined rip
        ud2
behind_stray:
        ud2
ENDFUNC stray

        .globl  _start
FUNC _start                             # no `.cfi_undefined rip`
        POISON_STACK
        movabs  $NONCE_RBX, %rbx
        movabs  $NONCE_RBP, %rbp
        movabs  $NONCE_R12, %r12
        movabs  $NONCE_R13, %r13
        movabs  $NONCE_R14, %r14
        movabs  $NONCE_R15, %r15
        lea     behind_stray(%rip), %rax
        push    %rax                    # where the row says that the return address is
        call    outer
        EXIT0
ENDFUNC _start

#= sample  dwarf      sframe     orc        fp        guess
#= in_leaf x1@3/US502 x1@3/US502 x1@3/US502 t@1/US512 x2@3/US502
