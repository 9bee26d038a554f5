//! Rows that describe the frame of a jump's target.

use crate::verify_images::folder::{Folder, text};
use unwind_sim_judge::check::Class;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Check, Finding};

/// `longjmp` as in glibc, and `__builtin_eh_return` as in libgcc: their rows describe the target's
/// frame. The same rows are wrong where nothing jumps.
#[test]
fn rows_of_the_frame_that_is_jumped_to_are_a_class_of_their_own() {
    let folder = Folder::new();

    // From the second row on, `jumps` describes the frame of `sets`, as glibc's `longjmp` does
    // before it jumps. `deep` lies between both, and has changed rbp.
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

    // Each run must have found something, and nothing but this class.
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

        // Only the class `Wrong` counts as a failure; the target's frame is reported, and has a
        // tally of its own.
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
    // Other findings may be of the class above: a wrong one among them is enough.
    let run = folder.verify("elsewhere", "dwarf", true);
    let is_wrong = |f: &Finding| f.contradiction.class() == Class::Wrong;
    assert!(run.results.findings.iter().any(is_wrong), "{}", text(&run));

    // `raises` stores the handler's registers in its own save slots and restores them from there;
    // `tries` is the frame that it goes to, past `between`.
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

    // How libgcc leaves: the rows follow the CFA of the target from register to register.
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

    // With the same code before it, but a return to the caller.
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

/// A continuation that copies a stack, in small: the slot of the caller's rbx gets another value, with
/// which the function then returns. A wrong slot is not taken for that.
#[test]
fn a_function_that_returns_with_an_overwritten_slot_has_a_right_row() {
    let folder = Folder::new();
    let program = |slot: &str, store: &str| {
        format!(
            "
        .type   keeps, @function
keeps:  .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, {slot}
        push    $3
        .cfi_def_cfa_offset 24
        mov     $1, %ebx
        call    copies
        nop
        add     $8, %rsp
        .cfi_def_cfa_offset 16
        pop     %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore rbx
        ret
        .cfi_endproc
        .size   keeps, . - keeps
        .type   copies, @function
copies: .cfi_startproc
        {store}
        ret
        .cfi_endproc
        .size   copies, . - copies
        START
        mov     $9, %ebx
        call    keeps
        EXIT
        END"
        )
    };
    let classes = |name: &str, slot: &str, store: &str| {
        folder.program(name, &program(slot, store));
        let run = folder.verify(name, "dwarf", true);
        // Without `elide`, every check is made in full: the findings must be the same.
        let slow = folder.verify(name, "dwarf", false);
        assert_eq!(text(&run), text(&slow), "{name}");

        let findings = run.results.findings.iter();
        let findings = findings.map(|f| (f.check, f.contradiction.class()));
        findings.collect::<Vec<_>>()
    };

    // The row is right, and nothing is overwritten.
    assert_eq!(classes("keeps", "-16", "nop"), []);

    // `copies` stores to the slot of rbx in the frame of its caller.
    let found = classes("copied", "-16", "movq $5, 16(%rsp)");
    let at_instructions = found.iter().filter(|f| f.0 == Check::Instruction);
    let at_instructions: Vec<Class> = at_instructions.map(|f| f.1).collect();

    // Only where the row still names the slot.
    assert_eq!(at_instructions, [Class::Target; 4], "{found:?}");

    // A row that names another slot stays wrong.
    let found = classes("elsewhere", "-24", "nop");
    assert!(
        !found.is_empty() && found.iter().all(|f| f.1 == Class::Wrong),
        "{found:?}"
    );
}

/// GCC's `__builtin_longjmp` loads rsp before it jumps, and `__morestack` returns to a single `ret`.
#[test]
fn rows_of_a_frame_that_is_left_or_passed_over_are_of_the_same_class() {
    let folder = Folder::new();

    // rsp is loaded before rbp and the jump, and no row says so.
    let longjmp = |between: &str| {
        format!(
            "
        .type   jumps, @function
jumps:  .cfi_startproc
        push    %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register rbp
        mov     env+8(%rip), %rax
        mov     env+0(%rip), %rdx
        mov     env+16(%rip), %rsp
        {between}
        mov     %rdx, %rbp
        jmp     *%rax
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
        mov     %rsp, env+16(%rip)
        lea     1f(%rip), %rax
        mov     %rax, env+8(%rip)
        call    deep
1:      pop     %rbp
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc
        .size   sets, . - sets
        .type   deep, @function
deep:   .cfi_startproc
        sub     $520, %rsp
        .cfi_def_cfa_offset 528
        call    jumps
        ud2
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
    let classes = |name: &str, program: &str| {
        folder.program(name, program);
        let run = folder.verify(name, "dwarf", true);
        let findings = run.results.findings.iter();

        // What comes at a return is another class, which other tests cover.
        let own = findings.filter(|f| f.check != Check::AtReturn);
        own.map(|f| f.contradiction.class()).collect::<Vec<_>>()
    };
    let found = classes("builtin", &longjmp(""));
    assert!(
        !found.is_empty() && found.iter().all(|&c| c == Class::Target),
        "{found:?}"
    );

    // The caller's row leaves out the return address of `split`: `call *%rax` goes on behind the
    // `ret`.
    let split = |name: &str, sizes: &str, behind: &str, cfa: u32| {
        format!(
            "
        .type   {name}, @function
{name}: .cfi_startproc
        .cfi_def_cfa_offset {cfa}
        push    %rbp
        .cfi_def_cfa_offset {cfa} + 8
        .cfi_offset rbp, -{cfa} - 8
        mov     8(%rsp), %rax
        inc     %rax
        call    *%rax
        pop     %rbp
        .cfi_def_cfa_offset {cfa}
        ret
        .cfi_endproc
        .size   {name}, . - {name}
        .type   split, @function
split:  .cfi_startproc
        {sizes}
        call    {name}
        {behind}
        nop
        ret
        .cfi_endproc
        .size   split, . - split
        START
        call    split
        EXIT
        END"
        )
    };

    // The sizes of a frame and of the arguments, which GCC passes to `__morestack` in r10 and r11.
    let sizes = "mov $0x40, %r10d\n mov $0, %r11d";

    // It is recognized by its name, or by the sizes in front of the call.
    let found = classes("named", &split("__morestack", "nop", "ret", 16));
    assert!(
        !found.is_empty() && found.iter().all(|&c| c == Class::Target),
        "{found:?}"
    );
    let found = classes("unnamed", &split("more", sizes, "ret", 16));
    assert!(
        !found.is_empty() && found.iter().all(|&c| c == Class::Target),
        "{found:?}"
    );

    // With a row for the caller itself, nothing is wrong.
    assert_eq!(classes("plain", &split("__morestack", sizes, "ret", 8)), []);
    // Another function's row that leaves a frame out is wrong, and so is one for code that goes on.
    let found = classes("wrong", &split("more", "nop", "ret", 16));
    assert!(found.contains(&Class::Wrong), "{found:?}");
    // A `nop` in the place of the `ret`: name and sizes alone must not excuse the row.
    let found = classes("goes_on", &split("__morestack", sizes, "nop", 16));
    assert!(found.contains(&Class::Wrong), "{found:?}");
}
