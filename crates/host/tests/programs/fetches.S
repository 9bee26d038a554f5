# A function that fetches its caller's registers, as a tracepoint's probe does, and its callee
# in which the unwinder starts.
        .text
        .globl  unwinder
        .type   unwinder, @function
unwinder:
        sub     $24, %rsp
        .globl  own
own:    nop
        add     $24, %rsp
        ret
        .size   unwinder, . - unwinder
        .globl  fetching
        .type   fetching, @function
fetching:
        push    %rbp
        mov     %rsp, %rbp
        .globl  fetched
fetched: nop
        call    unwinder
        pop     %rbp
        ret
        .size   fetching, . - fetching
        .globl  caller
        .type   caller, @function
caller: sub     $8, %rsp
        call    unwinder
        call    fetching
        .globl  behind
behind: add     $8, %rsp
        ret
        .size   caller, . - caller
        .globl  main
        .type   main, @function
main:   push    %rbx
        mov     $3, %ebx
1:      call    caller
        dec     %ebx
        jnz     1b
        pop     %rbx
        xor     %eax, %eax
        ret
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits
