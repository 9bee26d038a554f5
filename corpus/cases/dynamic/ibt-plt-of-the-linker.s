#! claim: With -z ibtplt a lazily bound call goes through two PLTs and one more push.
#! source: binutils ld manual, -z ibtplt; psABI CET supplement (.plt.sec)
#! group: dynamic
#! link: -shared -nostdlib -Wl,-e,_start -Wl,-z,lazy -Wl,-z,ibtplt
#! right: dwarf
#@ choosing: choose < [ld-linux]+ < calls < _start
#@ in_target: target < calls < _start
        .include "prelude.inc"

        .globl  chosen
        .type   chosen, @gnu_indirect_function
        .set    chosen, choose

FUNC choose
        endbr64
choosing:
        lea     target(%rip), %rax
        ret
ENDFUNC choose

FUNC target
        endbr64
in_target:
        nop
        ret
ENDFUNC target

FUNC calls
        endbr64
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
        call    chosen@PLT
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC calls

PLAIN_ROOT calls

        .section .interp, "a"           # makes a shared object a program
        .string "/lib64/ld-linux-x86-64.so.2"

#= sample    dwarf sframe orc fp guess
#= choosing  .     *      *   *  *
#= in_target .     *      *   *  *
