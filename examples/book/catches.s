# The function of "Exceptions" in the book, as GCC compiles it:
#   int catches() { try { throws(); } catch (int) { return 1; } return 0; }
        .text
        .globl  catches
        .type   catches, @function
catches:
start:
        .cfi_startproc
        .cfi_personality 3, __gxx_personality_v0
        .cfi_lsda 3, lsda
        sub     $8, %rsp
        .cfi_def_cfa_offset 16
try:
        call    throws
end_of_try:
        mov     $0, %eax
out:
        add     $8, %rsp
        .cfi_remember_state
        .cfi_def_cfa_offset 8
        ret
        .cfi_restore_state
landing_pad:
        mov     %rax, %rdi
        cmp     $1, %rdx
        je      catch
resume:
        call    _Unwind_Resume
end_of_resume:
catch:
        call    __cxa_begin_catch
        call    __cxa_end_catch
        mov     $1, %eax
        jmp     out
        .cfi_endproc
        .size   catches, . - catches

        .section .gcc_except_table, "a", @progbits
        .balign 4
lsda:
        .byte   0xff                    # landing pads count from the start of the function
        .byte   0x03                    # types are 4-byte addresses
        .uleb128 types - after_types
after_types:
        .byte   0x01                    # call sites are in uleb128
        .uleb128 end_of_sites - sites
sites:
        .uleb128 try - start            # from here,
        .uleb128 end_of_try - try       # this many bytes:
        .uleb128 landing_pad - start    # go there,
        .uleb128 1                      # with the first action
        .uleb128 resume - start
        .uleb128 end_of_resume - resume
        .uleb128 0                      # no landing pad: leave the function
        .uleb128 0
end_of_sites:
        .byte   1, 0                    # the first action: type 1, and no other action
        .balign 4
        .long   0                       # type 1: `typeid(int)`, filled in by the linker
types:
        .section .note.GNU-stack, "", @progbits
