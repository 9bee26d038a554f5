#! claim: An ifunc that is bound lazily is called by the resolver, whose CFA depends on rbx.
#! source: glibc elf/dl-runtime.c _dl_fixup, sysdeps/x86_64/dl-trampoline.h (CFA = rbx+..)
#! group: dynamic
#! link: -shared -nostdlib -Wl,-e,_start -Wl,-z,lazy
#! right: dwarf
#@ choosing: choose < [ld-linux]+ < calls < _start
#@ in_target: target < calls < _start
        .include "prelude.inc"

        .globl  chosen                  # global in a shared object: bound through the PLT
        .type   chosen, @gnu_indirect_function
        .set    chosen, choose

FUNC choose
choosing:
        lea     target(%rip), %rax
        ret
ENDFUNC choose

FUNC target
in_target:
        nop
        ret
ENDFUNC target

FUNC calls
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
