#! claim: A system call leaves the user's stack alone: chains before and behind it are equal.
#! source: Intel SDM volume 2, SYSCALL: it saves rip in rcx and rflags in r11, and no word in memory
#! group: frame
#! right: dwarf sframe orc fp
#@ before: calls_kernel < mid < _start
#@ behind: calls_kernel < mid < _start
        .include "prelude.inc"

FUNC calls_kernel
        FP_ENTER
        mov     $39, %eax               # getpid
before:
        syscall
behind:
        nop
        FP_LEAVE
        ret
ENDFUNC calls_kernel

FP_CALLER mid, calls_kernel
FP_ROOT mid

#= sample dwarf sframe orc fp guess
#= before .     .      .   .  x1@3/US502
#= behind .     .      .   .  x1@3/US502
