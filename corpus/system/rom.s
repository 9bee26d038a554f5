# A PC's ROM of 64 KiB: enters 64-bit mode from the reset vector and starts the environment.
# ENVIRONMENT and CASE are the files to be loaded at HARNESS and CODE.
        .include "environment.inc"
        .set    BASE, 0xf0000
        .set    TABLES, 0x70000

        .text
        .code16
rom:
environment:
        .incbin "environment.bin"
        .balign 16
environment_end:
case:   .incbin "case.bin"
        .balign 16
case_end:
real:   cli
        lgdtl   %cs:gdt_pointer-rom
        mov     %cr0, %eax
        or      $1, %al
        mov     %eax, %cr0
        ljmpl   $8, $BASE+protected-rom
        .code32
protected:
        mov     $16, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     %eax, %ss
        cld
        mov     $BASE+environment-rom, %esi
        mov     $HARNESS, %edi
        mov     $environment_end-environment, %ecx
        rep movsb
        mov     $BASE+case-rom, %esi
        mov     $CODE, %edi
        mov     $case_end-case, %ecx
        rep movsb
        mov     $TABLES, %edi
        xor     %eax, %eax
        mov     $0x3000/4, %ecx
        rep stosl
        movl    $TABLES+0x1003, TABLES
        movl    $TABLES+0x2003, TABLES+0x1000
        movl    $0x83, TABLES+0x2000
        mov     $0x20, %eax
        mov     %eax, %cr4
        mov     $TABLES, %eax
        mov     %eax, %cr3
        mov     $0xc0000080, %ecx
        rdmsr
        or      $0x100, %eax
        wrmsr
        mov     %cr0, %eax
        and     $0x9fffffff, %eax
        or      $0x80000001, %eax
        mov     %eax, %cr0
        ljmpl   $24, $HARNESS

        .balign 8
gdt:    .quad   0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x00af9b000000ffff
gdt_pointer:
        .word   31
        .long   BASE+gdt-rom
        .code16
        .org    0xfff0
        ljmp    $BASE>>4, $real-rom
        .org    0x10000
