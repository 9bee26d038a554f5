#! claim: A constructor's callers are libc's start functions, main is not among them.
#! source: System V gABI chapter 5, initialization functions; glibc csu/libc-start.c call_init
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ in_constructor: constructor < [libc]+ < ...
#@ in_main: main < [libc]+ < _start
        .include "prelude.inc"

FUNC constructor
in_constructor:
        nop
        ret
ENDFUNC constructor

        .globl  main
FUNC main
in_main:
        xor     %eax, %eax
        ret
ENDFUNC main

        .section .init_array, "aw", @init_array
        .balign 8
        .quad   constructor

#= sample         dwarf sframe orc fp guess
#= in_constructor .     *      *   *  *
#= in_main        .     *      *   *  *
