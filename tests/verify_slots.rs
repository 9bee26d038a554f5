//! `verify`: rules of registers that give nothing.

use crate::common::compiler::Scratch;
use serde_json::Value;
use std::process::Command;

/// The rows of `far` say that rbx lies where no memory is, those of `formula` have one that subtracts from
/// nothing. `given_up` says that rbx is lost, which is no claim.
const SOURCE: &str = "
        .text
        .globl _start
_start:
        .cfi_startproc
        .cfi_undefined %rip
        xorl %ebp, %ebp
        call far
        call formula
        call given_up
        movl $60, %eax
        xorl %edi, %edi
        syscall
        .cfi_endproc

        .type far, @function
far:
        .cfi_startproc
        .cfi_offset %rbx, -0x40000000
        ret
        .cfi_endproc
        .size far, . - far

        .type formula, @function
formula:
        .cfi_startproc
        .cfi_escape 0x10, 3, 2, 0x1c, 0x1c
        ret
        .cfi_endproc
        .size formula, . - formula

        .type given_up, @function
given_up:
        .cfi_startproc
        .cfi_undefined %rbx
        ret
        .cfi_endproc
        .size given_up, . - given_up
";

#[test]
fn a_slot_without_memory_and_a_formula_without_value_are_wrong() {
    let scratch = Scratch::new();
    // Only this program's own rows: those of a libc could have findings of their own.
    let options = ["-static", "-nostdlib", "-no-pie"];
    let program = scratch.cc("slots.s", SOURCE, &options).expect("cc links");
    let output = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(["verify", "--unwinder", "dwarf", "--json", "--"])
        .arg(&program)
        .output()
        .expect("the program runs");

    // 1: contradictions.
    assert_eq!(output.status.code(), Some(1));

    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();

    let wrong = lines.iter().filter(|line| line["type"] == "contradiction");
    let found: Vec<(&str, &str, &str)> = wrong
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default();

            // Only the function's name, without the offset in it.
            let place = text("place").split('+').next().unwrap_or_default();
            (place, text("code"), text("register"))
        })
        .collect();

    assert_eq!(
        found,
        [("far", "US503", "rbx"), ("formula", "US503", "rbx")],
        "{text}"
    );
}
