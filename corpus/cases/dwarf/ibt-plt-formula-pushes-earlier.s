#! claim: In the PLT of -z ibtplt the push ends at offset 9, so the formula is another one.
#! source: binutils bfd/elf64-x86-64.c elf_x86_64_eh_frame_lazy_ibt_plt
#! group: dwarf
#! right: dwarf
#@ at_second: plt_sec < calls < outer < _start
#@ at_endbr: plt < calls < outer < _start
#@ pushed: plt < calls < outer < _start
        .include "prelude.inc"

FUNC target
        nop
        ret
ENDFUNC target

        .p2align 4
FUNC plt                                # endbr64, push, jmp
        # CFA = rsp + 8 + ((rip & 15) >= 9) << 3
        .cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x39, 0x2a, 0x33, 0x24, 0x22
at_endbr:
        endbr64
        .byte   0x68
        .long   0
pushed:
        .byte   0xe9
        .long   resolve - . - 4
        nopw    (%rax)
ENDFUNC plt

        .p2align 4
FUNC plt_sec                            # .plt.sec: CFA = rsp+8 throughout
at_second:
        endbr64
        .byte   0xff, 0x25
        .long   slot - . - 4
ENDFUNC plt_sec

FUNC resolve
        .cfi_def_cfa_offset 16
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        jmp     target
ENDFUNC resolve

PLAIN_CALLER calls, plt_sec
PLAIN_CALLER outer, calls
PLAIN_ROOT outer

        .data
        .balign 8
slot:   .quad   at_endbr

#= sample    dwarf sframe orc fp        guess
#= at_second .     .      .   t@1/US512 x1@4/US502
#= at_endbr  .     .      .   t@1/US512 x1@4/US502
#= pushed    .     .      .   t@1/US512 x1@4/US502
