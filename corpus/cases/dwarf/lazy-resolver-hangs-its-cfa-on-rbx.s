#! claim: The resolver aligns rsp and finds its frame through rbx: a walk must carry rbx.
#! source: glibc 2.36 sysdeps/x86_64/dl-trampoline.h (_dl_runtime_resolve_xsavec: CFA = rbx+32)
#! group: dwarf
#! right: dwarf
#! wrong: orc(US103) fp(US512)
#@ in_resolver: resolve < calls < outer < _start
#@ in_fixup: fixup < resolve < calls < outer < _start
#@ in_target: target < calls < outer < _start
        .include "prelude.inc"

FUNC target
in_target:
        nop
        ret
ENDFUNC target

FUNC fixup                              # saves rbx and uses it
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $77, %ebx
in_fixup:
        lea     target(%rip), %rax
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC fixup

FUNC plt
        push    $3
        .cfi_adjust_cfa_offset 8
        push    $4
        .cfi_adjust_cfa_offset 8
        jmp     resolve
ENDFUNC plt

FUNC resolve
        .cfi_def_cfa_offset 24          # link map and index are pushed
        push    %rbx
        .cfi_def_cfa_offset 32
        .cfi_offset rbx, -32
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        and     $-64, %rsp
        sub     $576, %rsp
in_resolver:
        mov     %rax, (%rsp)
        call    fixup
        mov     %rax, %r11
        mov     %rbx, %rsp
        .cfi_def_cfa_register rsp
        mov     (%rsp), %rbx
        .cfi_restore rbx
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        jmp     *%r11
ENDFUNC resolve

PLAIN_CALLER calls, plt
PLAIN_CALLER outer, calls
PLAIN_ROOT outer

#= sample      dwarf sframe    orc       fp        guess
#= in_resolver .     .         t@1/US103 t@1/US512 x1@4/US502
#= in_fixup    .     t@2/US106 t@2/US103 t@1/US512 x1@5/US502
#= in_target   .     .         .         t@1/US512 x1@4/US502
