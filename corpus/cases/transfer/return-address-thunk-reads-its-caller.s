#! claim: A thunk that loads its own return address is an ordinary call.
#! source: gcc __x86.get_pc_thunk.ax
#! group: transfer
#! right: dwarf sframe orc
#@ in_thunk: get_pc_thunk < leaf < _start
        .include "prelude.inc"

FUNC get_pc_thunk
in_thunk:
        mov     (%rsp), %rax
        ret
ENDFUNC get_pc_thunk

FUNC leaf
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    get_pc_thunk
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC leaf

PLAIN_ROOT leaf

#= sample   dwarf sframe orc fp        guess
#= in_thunk .     .      .   t@1/US512 x1@3/US502
