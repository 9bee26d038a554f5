#! claim: A function pointer in a local variable is an extra frame to a scan of words.
#! source: Linux arch/x86/kernel/unwind_guess.c; the "?" entries of show_trace_log_lvl
#! group: frame
#! right: dwarf sframe orc
#! wrong: guess(US502)
#@ in_leaf: leaf < holds < _start
        .include "prelude.inc"

FUNC leaf
in_leaf:
        ret
ENDFUNC leaf

FUNC holds
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        lea     callback+1(%rip), %rax
        mov     %rax, 8(%rsp)           # a local that points into text
        call    leaf
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC holds

FUNC callback
        nop
        ret
ENDFUNC callback

PLAIN_ROOT holds

#= sample  dwarf sframe orc fp        guess
#= in_leaf .     .      .   t@1/US512 x2@2/US502
