//! Rows that describe the frame of a jump's target.

use crate::verify_images::folder::{Folder, text};
use unwind_sim_judge::check::Class;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Finding};

/// `longjmp` as in glibc, and `__builtin_eh_return` as in libgcc: their rows describe the target's
/// frame. The same rows are wrong where nothing jumps.
#[test]
fn rows_of_the_frame_that_is_jumped_to_are_a_class_of_their_own() {
    let folder = Folder::new();
    let longjmp = |leave: &str| {
        format!(
            "
        .type   jumps, @function
jumps:  .cfi_startproc
        mov     env+0(%rip), %r9
        mov     env+8(%rip), %r8
        mov     env+16(%rip), %rdx
        .cfi_def_cfa r8, 0
        .cfi_register rsp, r8
        .cfi_register rbp, r9
        .cfi_register rip, rdx
        nop
        {leave}
        .cfi_endproc
        .size   jumps, . - jumps
        .type   sets, @function
sets:   .cfi_startproc
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
        mov     %rbp, env+0(%rip)
        mov     %rsp, env+8(%rip)
        lea     1f(%rip), %rax
        mov     %rax, env+16(%rip)
        call    deep
1:      pop     %rbp
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc
        .size   sets, . - sets
        .type   deep, @function
deep:   .cfi_startproc
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     $7, %ebp
        call    jumps
        pop     %rbp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   deep, . - deep
        START
        call    sets
        EXIT
        END
        .bss
        .balign 8
env:    .skip   24"
        )
    };
    let engines = [spec::engine("dwarf").expect("an unwinder")];
    let check = |name: &str, class: Class| {
        let run = folder.verify(name, "dwarf", true);
        let findings = run.results.findings.iter();
        let classes: Vec<Class> = findings.map(|f| f.contradiction.class()).collect();
        assert!(!classes.is_empty(), "{name}");
        assert!(
            classes.iter().all(|&c| c == class),
            "{name}: {}",
            text(&run)
        );
        let counts = verify::unexpected(&engines, &run.results, true, None);
        assert_eq!(counts, class == Class::Wrong, "{name}");
        let tally = &run.results.tallies[0];
        assert_eq!(tally.target, if counts { 0 } else { tally.wrong }, "{name}");
    };
    folder.program("jumps", &longjmp("mov %r8, %rsp\nmov %r9, %rbp\njmp *%rdx"));
    check("jumps", Class::Target);
    // It returns instead.
    folder.program("returns", &longjmp("ret"));
    check("returns", Class::Wrong);
    // It sets another stack pointer than its row says.
    let other = "lea -64(%r8), %r8\nmov %r8, %rsp\nadd $64, %rsp\nmov %r9, %rbp\njmp *%rdx";
    folder.program("elsewhere", &longjmp(other));
    let run = folder.verify("elsewhere", "dwarf", true);
    let is_wrong = |f: &Finding| f.contradiction.class() == Class::Wrong;
    assert!(run.results.findings.iter().any(is_wrong), "{}", text(&run));

    let eh_return = |leave: &str| {
        format!(
            "
        .type   raises, @function
raises: .cfi_startproc
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
        push    %rbx
        .cfi_offset rbx, -24
        mov     target+8(%rip), %rax    # the handler's registers into the save slots
        mov     %rax, -8(%rbp)
        mov     target+16(%rip), %rax
        mov     %rax, (%rbp)
        mov     target+0(%rip), %rsi
        mov     target+24(%rip), %rdx   # and how far up its frame is
        {leave}
        .cfi_endproc
        .size   raises, . - raises
        .type   tries, @function
tries:  .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $5, %ebx
        mov     %rbx, target+8(%rip)
        mov     %rbp, target+16(%rip)
        lea     landing(%rip), %rax
        mov     %rax, target+0(%rip)
        movq    $16, target+24(%rip)
        call    between
landing:
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   tries, . - tries
        .type   between, @function
between: .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     $6, %ebx
        call    raises
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   between, . - between
        START
        mov     $9, %ebp
        call    tries
        EXIT
        END
        .bss
        .balign 8
target: .skip   32"
        )
    };
    let leaves = "
        mov     %rsi, 8(%rbp,%rdx,1)
        lea     8(%rbp,%rdx,1), %rcx
        mov     -8(%rbp), %rbx
        mov     0(%rbp), %rbp
        .cfi_restore rbp
        .cfi_restore rbx
        .cfi_def_cfa rcx, 8
        mov     %rcx, %rsp
        .cfi_def_cfa rsp, 8
        pop     %rcx
        .cfi_def_cfa rsp, 0
        .cfi_register rip, rcx
        jmp     *%rcx";
    folder.program("raises", &eh_return(leaves));
    check("raises", Class::Target);
    let stays = "
        mov     -8(%rbp), %rbx
        pop     %rbx
        mov     $9, %ebp
        add     $8, %rsp
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        .cfi_restore rbx
        ret";
    folder.program("stays", &eh_return(stays));
    check("stays", Class::Wrong);
}
