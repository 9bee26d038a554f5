# Two .sframe sections in a row, as a linker leaves them that only concatenates. V2 with function
# starts relative to their own field.
    .text
first: .cfi_startproc
    nop
    ret
    .cfi_endproc
second: .cfi_startproc
    nop
    nop
    ret
    .cfi_endproc
    .macro table function, size
    .short 0xdee2
    .byte 2, 4, 3, 0, 0xf8, 0
    .long 1, 1, 3, 0, 20
    .long \function - .
    .long \size, 0, 1
    .byte 0, 0, 0, 0
    .byte 0, 3, 8
    .endm
    .section .sframe, "a", @progbits
    table first, 2
    .balign 8, 0
    table second, 3
