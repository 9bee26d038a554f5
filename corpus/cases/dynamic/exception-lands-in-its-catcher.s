#! claim: A raised exception leaves the frames between and goes on in a landing pad.
#! source: Itanium C++ ABI, Exception Handling level I; libgcc unwind.inc _Unwind_RaiseException
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ searching: personality < [libgcc_s]+ < thrower < between < catcher < main < [libc]+ < _start
#@ landed: catcher < main < [libc]+ < _start
#@ later: leaf < catcher < main < [libc]+ < _start
        .include "prelude.inc"

# (version, actions, class, exception, context), called for catcher's frame only
FUNC personality
searching:
        test    $1, %esi                # _UA_SEARCH_PHASE
        jz      1f
        mov     $6, %eax                # _URC_HANDLER_FOUND
        ret
1:      sub     $8, %rsp
        .cfi_def_cfa_offset 16
        mov     %r8, %rdi
        lea     landing(%rip), %rsi
        call    _Unwind_SetIP@PLT
        mov     $7, %eax                # _URC_INSTALL_CONTEXT
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC personality

FUNC leaf
later:
        nop
        ret
ENDFUNC leaf

FUNC thrower
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        lea     exception(%rip), %rdi
        call    _Unwind_RaiseException@PLT
        ud2                             # nobody caught it
ENDFUNC thrower

PLAIN_CALLER between, thrower

FUNC catcher
        .cfi_personality 3, personality
        FP_ENTER
        call    between
        ud2
landing:
        nop
landed:
        nop
        call    leaf
        FP_LEAVE
        ret
ENDFUNC catcher

        .globl  main
FUNC main
        FP_ENTER
        call    catcher
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

        .data
        .balign 16
exception: .quad 0x756e77696e64, 0, 0, 0

#= sample    dwarf sframe orc fp guess
#= searching .     *      *   *  *
#= landed    .     *      *   *  *
#= later     .     *      *   *  *
