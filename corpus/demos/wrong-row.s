# Calls the vector version of sincos in glibc's libmvec, whose rows forget `push %rbp`.
        .include "prelude.inc"

FUNC rotate
        FP_ENTER
        call    _ZGVcN4vvv_sincos
        FP_LEAVE
        ret
ENDFUNC rotate

FP_CALLER frame_loop, rotate
FP_ROOT frame_loop
