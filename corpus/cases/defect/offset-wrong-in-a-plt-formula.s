#! claim: A PLT formula that compares with 12 is wrong at the one address behind the push.
#! source: binutils bfd/elf64-x86-64.c elf_x86_64_eh_frame_lazy_plt
#! group: defect
#! right: dwarf
#! inject: offset at pushed
#@ at_push: plt < calls < outer < _start
#@ pushed: plt < calls < outer < _start
        .include "prelude.inc"
FUNC target
        nop
        ret
ENDFUNC target

        .p2align 4
FUNC plt
        .ifdef  DEFECT
        .cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3c, 0x2a, 0x33, 0x24, 0x22
        .else
        .cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
        .endif
        .byte   0xff, 0x25              # jmp *slot(%rip)
        .long   slot - . - 4
at_push:
        .byte   0x68                    # push $0
        .long   0
pushed:
        .byte   0xe9                    # jmp resolve
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

#= sample  dwarf sframe orc fp        guess
#= at_push .     .      .   t@1/US512 x1@4/US502
#= pushed  .     .      .   t@1/US512 x1@4/US502
