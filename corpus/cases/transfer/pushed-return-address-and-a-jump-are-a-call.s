#! claim: A function that pushes a return address and jumps has called: its frame is not lost.
#! source: gdb and LLDB show the frame; kernel entry code and JIT compilers call this way
#! group: transfer
#! right: dwarf
#@ in_leaf: leaf < outer < _start
#@ in_second: second < outer < _start
#@ in_third: third < outer < _start
#@ in_fourth: fourth < outer < _start
#@ back: outer < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        nop
        ret
ENDFUNC leaf

FUNC second
in_second:
        nop
        ret
ENDFUNC second

FUNC third
in_third:
        nop
        ret
ENDFUNC third

FUNC fourth
in_fourth:
        nop
        ret
ENDFUNC fourth

FUNC outer
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        lea     1f(%rip), %rax
        push    %rax
        .cfi_def_cfa_offset 24
        jmp     leaf
        .cfi_def_cfa_offset 16
        nop                             # an unwinder looks up the return address - 1
1:
        sub     $8, %rsp
        .cfi_def_cfa_offset 24
        movq    $2f, (%rsp)
        lea     second(%rip), %rcx
        jmp     *%rcx
        .cfi_def_cfa_offset 16
        nop
2:
        lea     3f(%rip), %rax
        mov     %rax, -8(%rsp)
        lea     -8(%rsp), %rsp
        .cfi_def_cfa_offset 24
        test    %rsp, %rsp
        jne     third
        .cfi_def_cfa_offset 16
        nop
3:
        push    $4f
        .cfi_def_cfa_offset 24
        push    $fourth
        .cfi_def_cfa_offset 32
        ret
        .cfi_def_cfa_offset 16
        nop
4:
back:
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC outer

PLAIN_ROOT outer
#= sample    dwarf sframe orc fp        guess
#= in_leaf   .     .      .   t@1/US512 x1@3/US502
#= in_second .     .      .   t@1/US512 x1@3/US502
#= in_third  .     .      .   t@1/US512 x1@3/US502
#= in_fourth .     .      .   t@1/US512 x1@3/US502
#= back      .     .      .   t@1/US512 x1@2/US502
