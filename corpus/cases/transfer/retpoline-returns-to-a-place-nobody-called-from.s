#! claim: A retpoline overwrites its own return address: its ret is a jump, the target a callee.
#! source: Linux arch/x86/lib/retpoline.S; gcc -mindirect-branch=thunk
#! group: transfer
#! right: dwarf sframe orc
#@ thunk_entry: indirect_thunk < outer < _start
#@ in_target: target < outer < _start
#@ back: outer < _start
        .include "prelude.inc"

FUNC indirect_thunk
thunk_entry:
        call    2f
        .cfi_adjust_cfa_offset 8
1:      pause
        lfence
        jmp     1b
2:      mov     %rax, (%rsp)
        ret
ENDFUNC indirect_thunk

FUNC target
        nop
in_target:
        ret
ENDFUNC target

FUNC outer
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        lea     target(%rip), %rax
        call    indirect_thunk
back:
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC outer

PLAIN_ROOT outer

#= sample      dwarf sframe orc fp        guess
#= thunk_entry .     .      .   t@1/US512 x1@3/US502
#= in_target   .     .      .   t@1/US512 x1@3/US502
#= back        .     .      .   t@1/US512 x1@2/US502
