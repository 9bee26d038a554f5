# What every case runs in: fills tables, runs the case at CODE, and writes what happens to the ports 0xe9
# and 0x3f8 (COM1). Starts at HARNESS in 64-bit mode with the first 2 MiB mapped to themselves.
        .include "environment.inc"

        .text
start:
        cld
        xor     %eax, %eax
        mov     $PML4, %edi
        mov     $(HARNESS-PML4)/8, %ecx
        rep stosq
        mov     $CODE+0x2000, %edi
        mov     $(0x40000-CODE-0x2000)/8, %ecx
        rep stosq

        movl    $PDPT|0x27, PML4
        movl    $PD|0x27, PDPT
        movl    $PT_LOW|0x27, PD
        movl    $PT|0x27, PD+8
        xor     %ecx, %ecx
1:      mov     %ecx, %eax
        shl     $12, %eax
        or      $0x63, %eax
        mov     %eax, PT_LOW(,%rcx,8)
        lea     PAGES+7-0x63(%rax), %eax
        mov     %eax, PT(,%rcx,8)
        inc     %ecx
        cmp     $512, %ecx
        jb      1b
        movl    $CODE|7, PT+8*16
        movl    $(CODE+0x1000)|7, PT+8*17
        mov     $0xfee0007b, %eax
        mov     %rax, PT+8*511
        mov     $PML4, %eax
        mov     %rax, %cr3

        mov     $gdt, %esi
        mov     $GDT, %edi
        mov     $GDT_END/8, %ecx
        rep movsq
        movl    $0x00cf9300, LDT+4
        movl    $0xffff, LDT

        # Stubs: push the vector, jump to the recorder. Gates.
        xor     %ecx, %ecx
        mov     $STUBS, %edi
        mov     $IDT, %esi
1:      movb    $0x68, (%rdi)
        mov     %ecx, 1(%rdi)
        movb    $0xe9, 5(%rdi)
        mov     $recorder-10, %eax
        sub     %edi, %eax
        mov     %eax, 6(%rdi)
        mov     %edi, %eax
        and     $0xffff, %eax
        or      $CODE0<<16, %eax
        mov     %eax, (%rsi)
        mov     %edi, %eax
        and     $0xffff0000, %eax
        or      $0x8e00, %eax
        mov     %eax, 4(%rsi)
        add     $16, %edi
        add     $16, %esi
        inc     %ecx
        cmp     $256, %ecx
        jb      1b
        movb    $0xee, IDT+16*3+5
        movb    $0xee, IDT+16*4+5
        movb    $0xee, IDT+16*0x80+5
        movb    $0xee, IDT+16*0xff+5
        movb    $0x8f, IDT+16*0x81+5
        movb    $2, IDT+16*2+4
        movb    $1, IDT+16*8+4

        movl    $STACK0, TSS+4
        movl    $STACK1, TSS+36
        movl    $STACK2, TSS+44
        movw    $104, TSS+102
        mov     $TSS+104, %edi
        mov     $0xff, %eax
        mov     $129, %ecx
        rep stosb
        movl    $STACK0, TSS2+4
        movw    $104, TSS2+102

        mov     $STACK_RECORDER, %esp
        lgdt    tables
        lidt    tables+10
        mov     $DATA0, %eax
        mov     %eax, %ss
        mov     %eax, %ds
        mov     %eax, %es
        xor     %eax, %eax
        mov     %eax, %fs
        mov     %eax, %gs
        push    $CODE0
        push    $1f
        lretq
1:      mov     $TASK, %eax
        ltr     %ax
        xor     %eax, %eax
        lldt    %ax
        mov     $0x80010033, %eax
        mov     %rax, %cr0
        mov     $0x620, %eax
        mov     %rax, %cr4
        mov     $0xc0000080, %ecx
        rdmsr
        or      $0x801, %eax
        wrmsr
        mov     $0xc0000081, %ecx
        xor     %eax, %eax
        mov     $(CODE3_32|3)<<16|CODE0, %edx
        wrmsr
        mov     $0xc0000082, %ecx
        mov     $STUBS+16*0xff, %eax
        xor     %edx, %edx
        wrmsr
        mov     $0xc0000084, %ecx
        xor     %eax, %eax
        wrmsr
        movl    $1, EVENTS
        xor     %ecx, %ecx
        xor     %ebx, %ebx
        xor     %esi, %esi
        xor     %edi, %edi
        xor     %ebp, %ebp
        mov     %rax, %cr2
        mov     $STACK, %esp
        push    $2
        popf
        jmp     CODE

# A stub has pushed the vector. Without an error code, the stack is aligned to 8 only.
recorder:
        mov     %rax, SAVED
        mov     %rbx, SAVED+8
        mov     %rcx, SAVED+16
        mov     %rdx, SAVED+24
        mov     %rsi, SAVED+32
        mov     %rdi, SAVED+40
        pop     %rax
        mov     %rsp, %rbx
        mov     $STACK_RECORDER, %esp
        cld
        mov     %rax, %rdi
        mov     $'v', %esi
        call    field
        xor     %ecx, %ecx
        test    $8, %bl
        jnz     1f
        mov     (%rbx), %rax
        mov     $'e', %esi
        call    field
        mov     $8, %ecx
1:      mov     %rbx, SAVED+48
        add     %rcx, %rbx
        cmp     $14, %edi
        jne     1f
        mov     %cr2, %rax
        mov     $'2', %esi
        call    field
1:      mov     (%rbx), %rax
        mov     $'i', %esi
        call    field
        mov     8(%rbx), %rax
        mov     $'c', %esi
        call    field
        mov     16(%rbx), %rax
        mov     $'f', %esi
        call    field
        mov     24(%rbx), %rax
        mov     $'s', %esi
        call    field
        mov     32(%rbx), %rax
        mov     $'t', %esi
        call    field
        mov     SAVED+48, %rax
        mov     $'h', %esi
        call    field
        mov     SAVED, %rax
        mov     $'A', %esi
        call    field
        mov     SAVED+8, %rax
        mov     $'B', %esi
        call    field
        mov     SAVED+16, %rax
        mov     $'C', %esi
        call    field
        mov     SAVED+24, %rax
        mov     $'D', %esi
        call    field
        mov     $10, %al
        call    put

        cmp     $0xff, %edi
        je      finish
        decl    EVENTS
        jz      finish
        mov     RESUME, %rax
        test    %rax, %rax
        jz      1f
        mov     %rax, (%rbx)
        movq    $0, RESUME
1:      mov     %rbx, %rsp
        mov     SAVED, %rax
        mov     SAVED+8, %rbx
        mov     SAVED+16, %rcx
        mov     SAVED+24, %rdx
        mov     SAVED+32, %rsi
        mov     SAVED+40, %rdi
        iretq

finish:
        mov     $'.', %al
        call    put
        mov     $10, %al
        call    put
        # QEMU's isa-debug-exit, then Bochs' way to end.
        out     %al, $0xf4
        mov     $0x8900, %edx
        mov     $shutdown, %esi
        mov     $8, %ecx
        rep outsb
1:      cli
        hlt
        jmp     1b

# The name in sil, and rax, as hexadecimal digits.
field:
        push    %rax
        mov     %sil, %al
        call    put
        mov     $'=', %al
        call    put
        pop     %rax
        bsr     %rax, %rcx
        jnz     1f
        xor     %ecx, %ecx
1:      and     $~3, %ecx
2:      push    %rax
        shr     %cl, %rax
        and     $15, %eax
        mov     digits(%rax), %al
        call    put
        pop     %rax
        sub     $4, %ecx
        jge     2b
        mov     $' ', %al
put:
        out     %al, $0xe9
        mov     $0x3f8, %edx
        out     %al, %dx
        ret

digits: .ascii  "0123456789abcdef"
shutdown: .ascii "Shutdown"
        .balign 8
tables: .word   GDT_END-1
        .quad   GDT
        .word   0xfff
        .quad   IDT
        .balign 8
gdt:    .quad   0
        .quad   0x00af9b000000ffff      # CODE0
        .quad   0x00cf93000000ffff      # DATA0
        .quad   0x00cffb000000ffff      # CODE3_32
        .quad   0x00cff3000000ffff      # DATA3
        .quad   0x00affb000000ffff      # CODE3
        .quad   TSS<<16|0x890000000000|232, 0
        .quad   0x00cf13000000ffff      # DATA_ABSENT
        .quad   0x00af1b000000ffff      # CODE_ABSENT
        .quad   0x00af9f000000ffff      # CONFORMING
        .quad   0x00cf91000000ffff      # READ_ONLY
        .quad   0x00af99000000ffff      # EXECUTE_ONLY
        .quad   0x00cf9b000000ffff      # CODE0_32
        .quad   0x12cff3345000ffff      # DATA3_BASED
        .quad   0x0040930000000fff      # DATA_LIMITED
        .quad   LDT<<16|0x820000000000|7, 0
        .quad   TSS2<<16|0x890000000000|103, 0
        .quad   TSS2<<16|0x090000000000|103, 0
        .quad   0x00008c0000080000, 0   # CALL_GATE
        .quad   0x00af7b000000ffff      # CODE3_ABSENT
        .quad   LDT<<16|0x020000000000|7, 0
