#! claim: Between vfork and exec the child's chain is the parent's, at the same addresses.
#! source: vfork(2); Linux kernel/fork.c CLONE_VFORK|CLONE_VM
#! group: transfer
#! right: dwarf fp
#@ in_child: child < spawns < outer < _start
#@ in_parent: parent < spawns < outer < _start
        .include "prelude.inc"

FUNC child
        FP_ENTER
in_child:
        EXIT0                           # ends the child only
ENDFUNC child

FUNC parent
        FP_ENTER
in_parent:
        FP_LEAVE
        ret
ENDFUNC parent

FUNC spawns
        FP_ENTER
        mov     $58, %eax               # vfork
        syscall
        test    %eax, %eax
        jnz     1f
        call    child
1:      call    parent
        FP_LEAVE
        ret
ENDFUNC spawns

FP_CALLER outer, spawns
FP_ROOT outer

#= sample    dwarf sframe orc fp guess
#= in_child  .     .      .   .  x1@4/US502
#= in_parent .     .      .   .  x1@4/US502
