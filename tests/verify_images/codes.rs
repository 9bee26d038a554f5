//! Each code is reported in the situation that its page describes.

use crate::verify_images::folder::{Folder, text};
use unwind_sim_judge::check::Class;
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Check, Finding};
use unwind_sim_unwind::reason::Code;

/// After a call that does not return comes something never executed: padding, or another function.
#[test]
fn code_that_was_never_executed_is_not_blamed() {
    let folder = Folder::new();

    // `last` ends with a call that does not return, so its return address is behind it.
    let program = |between: &str| {
        format!(
            "
        .type   last, @function
last:   .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        call    ends
        .cfi_endproc
        .size   last, . - last
        {between}
        RIGHT   neighbour
        .type   ends, @function
ends:   .cfi_startproc
        call    neighbour
        EXIT
        .cfi_endproc
        .size   ends, . - ends
        START
        call    last
        END"
        )
    };

    // Padding has no row; right behind, there is the first row of another function.
    for (between, code) in [(".skip 32, 0xcc", Code::NoRow), ("", Code::RowBehindCall)] {
        folder.program("ends", &program(between));
        for (unwinder, checks) in [("dwarf", 1), ("sframe", 2)] {
            let run = folder.verify("ends", unwinder, true);
            let findings = &run.results.findings;
            assert!(findings.iter().all(|f| f.code == code), "{}", text(&run));
            assert_eq!(findings.len(), checks, "{unwinder}: {}", text(&run));
            // Inside the call the row is right: only a lookup of the return address itself meets
            // the code behind it.
            assert_eq!(findings[0].check, Check::AtReturn);

            // A finding counts only against an unwinder that looks up return addresses in this way.
            let own = verify::unexpected(
                &[spec::engine(unwinder).expect("an unwinder")],
                &run.results,
                false,
                None,
            );
            assert_eq!(own, unwinder == "sframe");
        }
    }

    // If the call returns, the row after it is to blame itself.
    let returns = "
        .type   early, @function
early:  .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        call    neighbour
        .cfi_def_cfa_offset 8
        pop     %rbx
        ret
        .cfi_endproc
        .size   early, . - early
        RIGHT   neighbour
        START
        call    early
        EXIT
        END";

    folder.program("returns", returns);
    // SFrame, whose own lookup of return addresses meets the row that changes too early.
    let run = folder.verify("returns", "sframe", true);

    let codes = run.results.findings.iter().map(|f| (f.check, f.code));
    assert!(
        codes
            .clone()
            .any(|c| c == (Check::AtReturn, Code::WrongCfa)),
        "{}",
        text(&run)
    );
    assert!(
        codes.clone().all(|(_, code)| code == Code::WrongCfa),
        "{}",
        text(&run)
    );
}

/// A wrong CFA is one fault, whatever is found at the address that it gives.
#[test]
fn a_wrong_cfa_is_not_also_a_wrong_return_address() {
    let folder = Folder::new();
    let wrong = "
        .type   zeroes, @function
zeroes: .cfi_startproc
        push    $0
        nop                             # a return address of 0 by the row
        pop     %rax
        push    $-1
        nop                             # one that is not code
        pop     %rax
        ret
        .cfi_endproc
        .size   zeroes, . - zeroes
        START
        call    zeroes
        EXIT
        END";
    folder.program("wrong", wrong);
    let found = folder.found("wrong");
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.iter().all(|one| one.2 == Code::WrongCfa), "{found:?}");
}

/// What a derived table cannot represent counts only in strict checks.
#[test]
fn losses_of_derived_tables_count_only_strictly() {
    let folder = Folder::new();

    // A CFA on rbx, which ORC has no number for.
    let by_rbx = "
        .type   by_rbx, @function
by_rbx: .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        mov     %rsp, %rbx
        .cfi_def_cfa_register rbx
        call    callee
        pop     %rbx
        .cfi_def_cfa rsp, 8
        ret
        .cfi_endproc
        .size   by_rbx, . - by_rbx
        RIGHT   callee
        START
        call    by_rbx
        EXIT
        END";

    // The table itself is right.
    folder.program("by_rbx", by_rbx);
    let engines = [spec::engine("orc").expect("an unwinder")];
    let run = folder.verify("by_rbx", "orc", true);
    let findings = &run.results.findings;
    assert!(!findings.is_empty());

    // All that is wrong is a loss.
    let is_loss = |f: &Finding| f.contradiction.class() == Class::Loss;
    assert!(findings.iter().all(is_loss), "{}", text(&run));
    assert_eq!(run.results.tallies[0].lost, run.results.tallies[0].wrong);

    let fails = |strict| verify::unexpected(&engines, &run.results, strict, None);
    assert_eq!([fails(false), fails(true)], [false, true]);
}
