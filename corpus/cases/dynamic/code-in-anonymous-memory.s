#! claim: Code made at run time is in no image: tables end there, a frame pointer passes it.
#! source: JIT compilers; gdb manual "JIT Compilation Interface"; perf /tmp/perf-PID.map
#! group: dynamic
#! right: fp
#! wrong: dwarf(US101)
#! covers: US101
#@ in_callback: callback < [anon] < runs < _start
        .include "prelude.inc"

FUNC callback
        FP_ENTER
in_callback:
        FP_LEAVE
        ret
ENDFUNC callback

# Copied into an anonymous mapping: push %rbp; mov %rsp, %rbp; call *%rsi; pop %rbp; ret
        .section .rodata
code:   .byte   0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3
        .text

FUNC runs
        FP_ENTER
        xor     %edi, %edi              # mmap(NULL, 4096, RWX, PRIVATE|ANONYMOUS, -1, 0)
        mov     $4096, %esi
        mov     $7, %edx
        mov     $0x22, %r10d
        mov     $-1, %r8
        xor     %r9d, %r9d
        mov     $9, %eax
        syscall
        mov     code(%rip), %rdx
        mov     %rdx, (%rax)
        lea     callback(%rip), %rsi
        call    *%rax
        FP_LEAVE
        ret
ENDFUNC runs

FP_ROOT runs

#= sample      dwarf     sframe    orc       fp guess
#= in_callback t@2/US101 t@2/US101 t@2/US101 .  x1@4/US502
