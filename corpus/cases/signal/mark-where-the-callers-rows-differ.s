#! claim: With the mark on a called function, its caller's row is that behind the call, which
#!     describes another frame.
#! source: libgcc unwind-dw2.c, uw_frame_state_for; Intel SDM volume 2, RET imm16
#! group: signal
#! wrong: dwarf(US502 at in_marked)
#@ in_marked: marked < pushes < mid < _start
        .include "prelude.inc"

FUNC marked
        .cfi_signal_frame
        nop
in_marked:
        ret     $16
ENDFUNC marked

FUNC pushes
        push    $7
        .cfi_adjust_cfa_offset 8
        push    $9
        .cfi_adjust_cfa_offset 8
        call    marked
        .cfi_adjust_cfa_offset -16
        ret
ENDFUNC pushes

PLAIN_CALLER mid, pushes
PLAIN_ROOT mid

#= sample    dwarf     sframe    orc       fp        guess
#= in_marked t@2/US502 t@2/US505 t@2/US502 t@1/US512 x1@4/US502
