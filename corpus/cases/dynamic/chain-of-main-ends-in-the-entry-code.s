#! claim: Below main lie libc's start functions and the entry point of the program.
#! source: glibc 2.34 and later sysdeps/nptl/libc_start_call_main.h; crt1.o _start
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_leaf: leaf < main < [libc]+ < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

        .globl  main
FUNC main
        FP_ENTER
        call    leaf
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

#= sample  dwarf sframe orc fp guess
#= in_leaf .     *      *   *  *
