#! claim: A context made by libc returns into code it was never called from, the old one has its own
#!    chain.
#! source: makecontext(3); glibc sysdeps/unix/sysv/linux/x86_64/__start_context.S
#! group: dynamic
#! link: -no-pie
#! right: dwarf(at resumed)
#@ in_body: body < ...
#@ resumed: leaf < main < [libc]+ < _start
        .include "prelude.inc"

FUNC body
in_body:
        nop
        ret
ENDFUNC body

FUNC leaf
resumed:
        nop
        ret
ENDFUNC leaf

        .globl  main
FUNC main
        FP_ENTER
        lea     other(%rip), %rdi
        call    getcontext@PLT
        lea     stack(%rip), %rax
        mov     %rax, other+16(%rip)    # uc_stack.ss_sp
        movq    $65536, other+32(%rip)  # uc_stack.ss_size
        lea     here(%rip), %rax
        mov     %rax, other+8(%rip)     # uc_link
        lea     other(%rip), %rdi
        lea     body(%rip), %rsi
        xor     %edx, %edx
        xor     %eax, %eax
        call    makecontext@PLT
        lea     here(%rip), %rdi
        lea     other(%rip), %rsi
        call    swapcontext@PLT
        call    leaf
        xor     %eax, %eax
        FP_LEAVE
        ret
ENDFUNC main

        .bss
        .balign 16
here:   .skip   968
        .balign 16
other:  .skip   968
        .balign 16
stack:  .skip   65536

#= sample  dwarf sframe orc fp guess
#= in_body *     *      *   *  *
#= resumed .     *      *   *  *
