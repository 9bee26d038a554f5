//! `verify`: what a row claims depends on the convention of its code.

use crate::common::compiler::Scratch;
use serde_json::Value;
use std::process::Command;

/// A program of OCaml's code, between its marks, and C's. Both change registers of their caller; the row
/// of `moved`, OCaml's, has a wrong CFA at its `nop`, and that of `slot` a wrong rule for r12.
const SOURCE: &str = "
        .text
        .globl _start
_start:
        .cfi_startproc
        .cfi_undefined %rip
        xorl %ebp, %ebp
        movl $7, %ebx
        movl $8, %r12d
        movl $9, %r13d
        pushq $0
        call keeps_nothing
        call moved
        call slot
        call c
        movl $60, %eax
        xorl %edi, %edi
        syscall
        .cfi_endproc

        .globl camlA__code_begin
camlA__code_begin:
        .type keeps_nothing, @function
keeps_nothing:
        .cfi_startproc
        movl $1, %ebx
        movl $1, %ebp
        movl $1, %r13d
        ret
        .cfi_endproc
        .size keeps_nothing, . - keeps_nothing

        .type moved, @function
moved:
        .cfi_startproc
        subq $8, %rsp
        nop
        addq $8, %rsp
        ret
        .cfi_endproc
        .size moved, . - moved

        .type slot, @function
slot:
        .cfi_startproc
        pushq $5
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %r12, 0
        nop
        addq $8, %rsp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        ret
        .cfi_endproc
        .size slot, . - slot
        .globl camlA__code_end
camlA__code_end:

        .type c, @function
c:
        .cfi_startproc
        movl $2, %ebp
        nop
        ret
        .cfi_endproc
        .size c, . - c
";

#[test]
fn only_what_the_convention_keeps_is_claimed() {
    let scratch = Scratch::new();
    let options = ["-static", "-nostdlib", "-no-pie"];
    let program = scratch.cc("both.s", SOURCE, &options).expect("cc links");
    let lines: Vec<Value> = {
        let output = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
            .args(["verify", "--unwinder", "dwarf,sframe", "--json"])
            .arg("--")
            .arg(&program)
            .output()
            .expect("the program runs");

        // 1 says that something was found.
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        lines.collect()
    };

    // Functions and codes, each once: how often is not the question.
    let of = |unwinder: &str| {
        let found = lines.iter().filter(|line| line["unwinder"] == unwinder);
        let found = found.filter_map(|line| {
            let function = line["place"].as_str()?.split('+').next()?.to_owned();
            Some((function, line["code"].as_str()?.to_owned()))
        });
        let mut found: Vec<(String, String)> = found.collect();
        found.sort();
        found.dedup();
        found
    };

    let found = |list: &[(&str, &str)]| {
        let owned = |&(function, code): &(&str, &str)| (function.to_owned(), code.to_owned());
        list.iter().map(owned).collect::<Vec<(String, String)>>()
    };

    let wrong = [("c", "US503"), ("moved", "US501"), ("slot", "US503")];
    assert_eq!(of("dwarf"), found(&wrong), "{lines:#?}");

    // The rows that are derived know rbp alone, and claim it as the others do.
    let derived = [("c", "US503"), ("moved", "US501")];
    assert_eq!(of("sframe"), found(&derived), "{lines:#?}");
}
