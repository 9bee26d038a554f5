#! claim: The mark of a signal frame on a called function changes where its caller's row is looked
#!     up, and nothing else.
#! source: libgcc unwind-dw2.c, uw_frame_state_for; OCaml's runtime marks caml_c_call
#! group: signal
#! right: dwarf
#@ at_entry: marked < mid < _start
#@ in_marked: marked < mid < _start
        .include "prelude.inc"

FUNC marked
        .cfi_signal_frame
at_entry:
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
in_marked:
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
ENDFUNC marked

PLAIN_CALLER mid, marked
PLAIN_ROOT mid

#= sample    dwarf sframe orc fp        guess
#= at_entry  .     .      .   t@1/US512 x1@3/US502
#= in_marked .     .      .   t@1/US512 x1@3/US502
