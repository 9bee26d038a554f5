#! claim: One expression covers every PLT entry: 8 more behind the push at its offset 11.
#! source: binutils bfd/elf64-x86-64.c elf_x86_64_eh_frame_lazy_plt
#! group: dwarf
#! right: dwarf
#@ at_jump: plt < calls < outer < _start
#@ at_push: plt < calls < outer < _start
#@ pushed: plt < calls < outer < _start
#@ in_target: target < calls < outer < _start
        .include "prelude.inc"

FUNC target
in_target:
        nop
        ret
ENDFUNC target

        .p2align 4
FUNC plt                                # entries of 16 bytes, as ld makes them
        # CFA = rsp + 8 + ((rip & 15) >= 11) << 3
        .cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
at_jump:
        .byte   0xff, 0x25              # jmp *slot(%rip), six bytes
        .long   slot - . - 4
at_push:
        .byte   0x68                    # push $0, five bytes
        .long   0
pushed:
        .byte   0xe9                    # jmp resolve, five bytes
        .long   resolve - . - 4
ENDFUNC plt

FUNC resolve
        .cfi_def_cfa_offset 16
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        jmp     target
ENDFUNC resolve

PLAIN_CALLER calls, plt
PLAIN_CALLER outer, calls
PLAIN_ROOT outer

        .data
        .balign 8
slot:   .quad   at_push

#= sample    dwarf sframe orc fp        guess
#= at_jump   .     .      .   t@1/US512 x1@4/US502
#= at_push   .     .      .   t@1/US512 x1@4/US502
#= pushed    .     .      .   t@1/US512 x1@4/US502
#= in_target .     .      .   t@1/US512 x1@4/US502
