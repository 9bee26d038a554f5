#! claim: A cleanup that resumes the exception is a landing pad, too.
#! source: Itanium C++ ABI, Exception Handling 1.4 (_Unwind_Resume); LSB 5 Core libgcc_s
#! group: dynamic
#! link: -no-pie
#! right: dwarf
#@ cleaning: cleaner < catcher < main < [libc]+ < _start
#@ landed: catcher < main < [libc]+ < _start
        .include "prelude.inc"

        .globl catching
FUNC catching                           # personality of catcher
        test    $1, %esi
        jz      install_catch
        mov     $6, %eax
        ret
install_catch:
        lea     caught(%rip), %rsi
install:
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        mov     %r8, %rdi
        call    _Unwind_SetIP@PLT
        mov     $7, %eax
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC catching

        .globl  cleaning_up             # ld 2.40 merges CIEs with different local personalities
FUNC cleaning_up                        # personality of cleaner: nothing in the search phase
        cmp     $1, %esi
        je      1f
        lea     cleanup(%rip), %rsi
        incl    cleaned(%rip)           # and one cleanup only: cleaner's resume is not covered
        cmpl    $1, cleaned(%rip)
        je      install
1:      mov     $8, %eax                # _URC_CONTINUE_UNWIND
        ret
ENDFUNC cleaning_up

FUNC thrower
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        lea     exception(%rip), %rdi
        call    _Unwind_RaiseException@PLT
        ud2
ENDFUNC thrower

FUNC cleaner
        .cfi_personality 3, cleaning_up
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        call    thrower
        ud2
cleanup:
        nop
cleaning:
        lea     exception(%rip), %rdi
        call    _Unwind_Resume@PLT
        ud2
ENDFUNC cleaner

FUNC catcher
        .cfi_personality 3, catching
        FP_ENTER
        call    cleaner
        ud2
caught:
        nop
landed:
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
cleaned: .quad  0

#= sample   dwarf sframe orc fp guess
#= cleaning .     *      *   *  *
#= landed   .     *      *   *  *
