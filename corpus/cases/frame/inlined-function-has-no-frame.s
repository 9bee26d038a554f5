#! claim: A function that was inlined has no frame: its code is its caller's, and so are its rows.
#! source: DWARF 5 section 3.3.8; gcc -O2 on examples/book/inlined.c
#! group: frame
#! right: dwarf sframe orc
#@ in_leaf: leaf < outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        lea     1(%rdi,%rdi,2), %eax
        ret
ENDFUNC leaf

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    leaf                    # in the body of inner
        add     $1, %eax                # its end
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        add     %eax, %eax
        ret
ENDFUNC outer

PLAIN_ROOT outer

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x1@3/US502
