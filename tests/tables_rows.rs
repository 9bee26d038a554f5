//! `tables check` on the command line: code without a row, rows that nothing reads, and claims that
//! are not checked.

use crate::common::compiler::Scratch;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// An FDE that ends before the return.
const SHORT: &str = "
	.globl short
	.type short, @function
short:
	.cfi_startproc
	sub $8, %rsp
	.cfi_def_cfa_offset 16
	add $8, %rsp
	.cfi_def_cfa_offset 8
	.cfi_endproc
	ret
	.size short, .-short
";

/// The only row covers code that nothing reaches, and is wrong there.
const UNREACHED: &str = "
	.globl unreached
	.type unreached, @function
unreached:
	.cfi_startproc
	ret
	push %rbx
	nop
	pop %rbx
	ret
	.cfi_endproc
	.size unreached, .-unreached
";

/// What the rows say of rdi is wrong.
const SCRATCH: &str = "
	.globl keeps
	.type keeps, @function
keeps:
	.cfi_startproc
	push %rdi
	.cfi_def_cfa_offset 16
	.cfi_offset %rdi, -16
	movq $0, (%rsp)
	pop %rdi
	.cfi_def_cfa_offset 8
	.cfi_same_value %rdi
	ret
	.cfi_endproc
	.size keeps, .-keeps
";

fn check(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let command = command
        .args(["--color", "never", "tables", "check"])
        .args(args)
        .arg(file);
    command.output().expect("the tool runs")
}

fn object(scratch: &Scratch, source: &str) -> std::path::PathBuf {
    scratch.cc("rows.s", source, &["-c"]).expect("cc assembles")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("text");
    let line = |line| serde_json::from_str::<Value>(line).expect("JSON");
    text.lines().map(line).collect()
}

#[test]
fn code_without_a_row_is_a_contradiction_in_every_form() {
    let scratch = Scratch::new();
    let file = object(&scratch, SHORT);
    let output = check(&[], &file);
    // 1 says that something was found.
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("US504 executed code without a row, .eh_frame+0x"),
        "{text}"
    );

    // The listing marks the first instruction without a row.
    let mut marked = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with('>'));
    let marked: Vec<&str> = marked.by_ref().take(2).collect();
    assert!(marked[0].ends_with(": ret"), "{text}");
    assert!(marked[1].contains("1 byte of this function"), "{text}");
    assert!(text.contains("row:   none"), "{text}");
    assert!(text.contains("right: call cfa=rsp+8 ra=*(cfa-8)"), "{text}");

    // The same as JSON, and as SARIF.
    let lines = lines(&check(&["--json"], &file));
    let wrong = lines.iter().find(|line| line["type"] == "wrong_row");
    let wrong = wrong.expect("the finding");
    assert_eq!(wrong["code"], "US504");
    assert_eq!(wrong["function"], "short");
    assert_eq!(wrong["start"], wrong["address"]);
    assert_eq!(wrong["right"]["cfa"], "rsp+8");

    let sarif = check(&["--sarif"], &file);
    let sarif: Value = serde_json::from_slice(&sarif.stdout).expect("SARIF");
    let run = &sarif["runs"][0];
    assert_eq!(run["results"][0]["ruleId"], "US504");
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules.iter().any(|rule| rule["id"] == "US504"));
}

#[test]
fn a_row_that_covers_unreached_code_is_not_proven() {
    let scratch = Scratch::new();
    let lines = lines(&check(&["--json"], &object(&scratch, UNREACHED)));
    let sums = lines.last().expect("sums");
    assert_eq!(sums["unproven"]["functions"], 1);
    assert_eq!(sums["all"]["rows"], 1);
    assert_eq!(sums["rows_proven"], 0);
}

#[test]
fn claims_on_registers_that_are_not_callee_saved_are_named() {
    let scratch = Scratch::new();
    let file = object(&scratch, SCRATCH);
    let text = String::from_utf8(check(&[], &file).stdout).expect("text");
    let line = "not checked: what 1 function says of registers that are not callee-saved (rdi), \
                first at .text+0x0";
    assert!(text.contains(line), "{text}");
    let lines = lines(&check(&["--json"], &file));
    let sums = lines.last().expect("sums");
    assert_eq!(sums["not_checked"]["functions"], 1);
    assert_eq!(sums["not_checked"]["registers"][0], "rdi");
}
