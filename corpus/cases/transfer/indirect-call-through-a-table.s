#! claim: A call through a table of pointers leaves the same frame as a direct one.
#! source: psABI 3.5.5 (indirect calls)
#! group: transfer
#! right: dwarf sframe orc fp
#@ in_second: second < outer < _start
        .include "prelude.inc"

FUNC first
        ret
ENDFUNC first

FUNC second
        FP_ENTER
in_second:
        FP_LEAVE
        ret
ENDFUNC second

FUNC outer
        FP_ENTER
        mov     $1, %eax
        call    *table(, %rax, 8)
        FP_LEAVE
        ret
ENDFUNC outer

FP_ROOT outer

        .data
table:  .quad   first, second

#= sample    dwarf sframe orc fp guess
#= in_second .     .      .   .  x1@3/US502
