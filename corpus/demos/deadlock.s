# Two threads take two locks in opposite order, and wait for each other for ever.
        .include "prelude.inc"

        .set    SYS_SCHED_YIELD, 24
        .set    SYS_CLONE, 56
        .set    SYS_FUTEX, 202
        .set    CLONE_THREAD_FLAGS, 0x50f00     # VM, FS, FILES, SIGHAND, THREAD, SYSVSEM

# rdi: the lock. Waits while it is taken.
FUNC futex_wait
        FP_ENTER
        mov     $SYS_FUTEX, %eax
        xor     %esi, %esi              # FUTEX_WAIT
        mov     $1, %edx                # while it holds this
        xor     %r10d, %r10d
waits:
        syscall
        FP_LEAVE
        ret
ENDFUNC futex_wait

FUNC take_lock
        FP_ENTER
1:      mov     $1, %eax
        xchg    %eax, (%rdi)
        test    %eax, %eax
        jz      2f
        call    futex_wait
        jmp     1b
2:      FP_LEAVE
        ret
ENDFUNC take_lock

FUNC transfer_from_a_to_b
        FP_ENTER
        lea     lock_a(%rip), %rdi
        call    take_lock
        call    start_worker
1:      mov     $SYS_SCHED_YIELD, %eax  # until the other thread has its first lock
        syscall
        cmpl    $0, has_b(%rip)
        je      1b
        lea     lock_b(%rip), %rdi
        call    take_lock
        FP_LEAVE
        ret
ENDFUNC transfer_from_a_to_b

FUNC transfer_from_b_to_a
        FP_ENTER
        lea     lock_b(%rip), %rdi
        call    take_lock
        movl    $1, has_b(%rip)
        lea     lock_a(%rip), %rdi
        call    take_lock
        FP_LEAVE
        ret
ENDFUNC transfer_from_b_to_a

FUNC worker
        .cfi_undefined rip
        xor     %ebp, %ebp
        call    transfer_from_b_to_a
        EXIT0
ENDFUNC worker

FUNC start_worker
        mov     $SYS_CLONE, %eax
        mov     $CLONE_THREAD_FLAGS, %edi
        lea     worker_stack_end(%rip), %rsi
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        syscall
        test    %eax, %eax
        jz      worker
        ret
ENDFUNC start_worker

FP_ROOT transfer_from_a_to_b

        .bss
        .balign 16
lock_a: .skip   4
lock_b: .skip   4
has_b:  .skip   4
        .balign 16
        .skip   4096
worker_stack_end:
        .skip   16
