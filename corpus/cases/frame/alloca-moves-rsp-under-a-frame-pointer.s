#! claim: After alloca only rbp knows where the frame is, whatever rsp is.
#! source: gcc, __builtin_alloca forces a frame pointer; DWARF 5 section 6.4
#! group: frame
#! right: dwarf sframe orc fp
#@ small: leaf < grows < _start
#@ small #2: leaf < grows < _start
        .include "prelude.inc"

FUNC leaf
        FP_ENTER
small:
        nop
        FP_LEAVE
        ret
ENDFUNC leaf

FUNC grows
        FP_ENTER
        push    %rbx
        .cfi_offset rbx, -24
        mov     $0x170, %ebx
        call    leaf
        sub     %rbx, %rsp              # alloca(0x170): no row for it is needed
        movabs  $POISON, %rax
        mov     %rax, (%rsp)
        call    leaf
        mov     -8(%rbp), %rbx
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        ret
ENDFUNC grows

FP_ROOT grows

#= sample  dwarf sframe orc fp guess
#= small   .     .      .   .  x1@3/US502
#= small#2 .     .      .   .  x2@2/US502
