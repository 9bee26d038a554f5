#! claim: Rows may lie 64 bytes, 256 bytes and 64 KiB behind their predecessors.
#! source: DWARF 5 section 6.4.2.1 DW_CFA_advance_loc1, 2 and 4
#! group: dwarf
#! right: dwarf sframe orc
#@ one_byte: long < mid < _start
#@ two_bytes: long < mid < _start
#@ four_bytes: long < mid < _start
        .include "prelude.inc"

FUNC long
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        jmp     1f
        .skip   100, 0x90
1:      sub     $16, %rsp
        .cfi_def_cfa_offset 32
one_byte:
        jmp     1f
        .skip   1000, 0x90
1:      sub     $32, %rsp
        .cfi_def_cfa_offset 64
two_bytes:
        jmp     1f
        .skip   70000, 0x90
1:      sub     $64, %rsp
        .cfi_def_cfa_offset 128
four_bytes:
        add     $112, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
ENDFUNC long

PLAIN_CALLER mid, long
PLAIN_ROOT mid

#= sample     dwarf sframe orc fp        guess
#= one_byte   .     .      .   t@1/US512 x1@3/US502
#= two_bytes  .     .      .   t@1/US512 x1@3/US502
#= four_bytes .     .      .   t@1/US512 x1@3/US502
