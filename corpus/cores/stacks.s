# A program on three stacks, without a C library: main calls a function on a stack of its own, a
# fault there is handled on an alternate signal stack, and the handler aborts.
#
#   as stacks.s -o stacks.o && ld -z noseparate-code --build-id --eh-frame-hdr stacks.o -o /usr/local/bin/stacks

        .text
        .globl  _start
        .type   _start, @function
_start: .cfi_startproc
        .cfi_undefined %rip
        call    main
        ud2
        .cfi_endproc
        .size   _start, . - _start

        .type   main, @function
main:   .cfi_startproc
        subq    $24, %rsp
        .cfi_def_cfa_offset 32
        movl    $131, %eax              # sigaltstack
        leaq    alternate(%rip), %rdi
        xorl    %esi, %esi
        syscall
        movl    $13, %eax               # rt_sigaction(SIGSEGV)
        movl    $11, %edi
        leaq    action(%rip), %rsi
        xorl    %edx, %edx
        movl    $8, %r10d
        syscall
        call    on_other_stack
        addq    $24, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   main, . - main

# As __morestack does it: rbp stays on the old stack, and the CFA is found with it.
        .type   on_other_stack, @function
on_other_stack:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        leaq    other_stack_end(%rip), %rsp
        call    work
        movq    %rbp, %rsp
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   on_other_stack, . - on_other_stack

        .type   work, @function
work:   .cfi_startproc
        subq    $40, %rsp
        .cfi_def_cfa_offset 48
        call    victim
        addq    $40, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   work, . - work

        .type   victim, @function
victim: .cfi_startproc
        xorl    %eax, %eax
        movl    (%rax), %eax
        ret
        .cfi_endproc
        .size   victim, . - victim

        .type   handler, @function
handler:
        .cfi_startproc
        subq    $8, %rsp
        .cfi_def_cfa_offset 16
        call    report
        addq    $8, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   handler, . - handler

        .type   report, @function
report: .cfi_startproc
        ud2
        .cfi_endproc
        .size   report, . - report

# The kernel's frame: registers of struct sigcontext, found from rsp as in glibc's __restore_rt. The
# FDE begins at the nop, for unwinders that subtract one from every return address.
        .cfi_startproc simple
        .cfi_signal_frame
        .cfi_def_cfa %rsp, 0
        .cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06     # cfa: *(rsp + 160)
        .cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01       # rip: *(rsp + 168)
        .cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00        # rbp: *(rsp + 120)
        .cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01        # rbx: *(rsp + 128)
        nop
        .type   restore, @function
restore:
        movl    $15, %eax               # rt_sigreturn
        syscall
        .cfi_endproc
        .size   restore, . - restore

        .data
        .balign 8
alternate:
        .quad   alternate_stack, 0, alternate_stack_end - alternate_stack
action: .quad   handler, 0x0c000000, restore, 0         # SA_ONSTACK | SA_RESTORER

        .bss
        .balign 4096
other_stack:
        .skip   4096
other_stack_end:
        .skip   64
        .balign 4096
alternate_stack:
        .skip   8192
alternate_stack_end:
        .section .note.GNU-stack, "", @progbits
