# What compilers do not write: a hand-made coroutine, a call on another stack, a call/pop thunk,
# a retpoline, push and ret, a loop of tail calls.
        .macro  ENTER name
        .globl  \name
        .type   \name, @function
\name:  push    %rbp
        mov     %rsp, %rbp
        .endm
        .macro  LEAVE name
        pop     %rbp
        ret
        .size   \name, . - \name
        .endm

        .text
ENTER   probe
        .globl  probed
probed: nop
LEAVE   probe

# Saves six registers, stores rsp in *rdi, loads it from *rsi.
        .globl  switch_stacks
        .type   switch_stacks, @function
switch_stacks:
        push    %rbp
        push    %rbx
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        mov     %rsp, (%rdi)
        mov     (%rsi), %rsp
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbx
        pop     %rbp
        ret
        .size   switch_stacks, . - switch_stacks

ENTER   coroutine
1:      call    probe
        lea     coroutine_sp(%rip), %rdi
        lea     main_sp(%rip), %rsi
        call    switch_stacks
        jmp     1b
        .size   coroutine, . - coroutine

ENTER   resume
        lea     main_sp(%rip), %rdi
        lea     coroutine_sp(%rip), %rsi
        call    switch_stacks
        call    probe
LEAVE   resume

ENTER   on_other_stack
        lea     other_top(%rip), %rsp
        call    nested
        mov     %rbp, %rsp
LEAVE   on_other_stack

ENTER   nested
        call    probe
        sub     $64, %rsp
        call    probe
        add     $64, %rsp
LEAVE   nested

ENTER   call_pop
        call    1f
1:      pop     %rax
        call    probe
LEAVE   call_pop

ENTER   retpoline
        lea     probe(%rip), %rax
        call    1f
LEAVE   retpoline
        .globl  thunk
        .type   thunk, @function
thunk:
1:      call    2f
3:      pause
        jmp     3b
2:      mov     %rax, (%rsp)
        ret
        .size   thunk, . - thunk

ENTER   push_ret
        lea     1f(%rip), %rax
        push    %rax
        ret
1:      call    probe
LEAVE   push_ret

ENTER   add_drops
        call    1f
        ud2
1:      add     $8, %rsp
        call    probe
LEAVE   add_drops

ENTER   tail
        pop     %rbp
        lea     probe(%rip), %r11
        jmp     *%r11
        .size   tail, . - tail

ENTER   main
        lea     coroutine_top(%rip), %rax
        mov     %rax, coroutine_sp(%rip)
        mov     $5, %ebx
1:      call    resume
        call    on_other_stack
        call    call_pop
        call    retpoline
        call    push_ret
        call    add_drops
        call    tail
        dec     %ebx
        jnz     1b
        xor     %eax, %eax
LEAVE   main

        .data
        .balign 16
        .fill   8192
coroutine_top:
        .quad   0, 0, 0, 0, 0, 0, coroutine, 0, 0
        .fill   8192
other_top:
        .quad   0, 0
main_sp: .quad 0
coroutine_sp: .quad 0
        .section .note.GNU-stack, "", @progbits
