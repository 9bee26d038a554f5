//! Functions that no table and no symbol bounds: what enters them, and where they end.

use super::{open, unwind_sim};
use crate::common::compiler::{Scratch, run};
use std::process::Command;
use unwind_sim_tables::convert::Target;
use unwind_sim_tables::file::File;
use unwind_sim_tables::generate::{Boundaries, Generated, Options, generate};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{RuleKind, Value};

/// Three functions have an FDE. No symbol has a size, so none is a boundary.
const PROGRAM: &str = "\
        .macro function name
        .globl \\name
        .type \\name, @function
\\name:
        .endm
        .text
        function _start
        xor %ebp, %ebp
        call helper
        hlt
        function helper
        push %rbx
        call listed
        test %eax, %eax
        je shared
        pop %rbx
        jmp tail
        function called_late
        push %rbx
        function behind_a_push
        call listed
        pop %rbx
        ret
        function tail
        sub $24, %rsp
        call called_late
        add $24, %rsp
        ret
        nop
        function nobody
        mov %rsp, %rax
        ret
        .p2align 4
        function listed
        .cfi_startproc
        mov $1, %eax
        ret
        .cfi_endproc
        function runs_on
        .cfi_startproc
        test %edi, %edi
        je listed
        .cfi_endproc
        function padding
        nop
        function run_into
        .cfi_startproc
        ret
        .cfi_endproc
        function initial
        sub $40, %rsp
        function behind_a_sub
        call listed
        add $40, %rsp
        ret
        function shared
        call listed
        pop %rbx
        ret
        .section .init_array, \"aw\"
        .quad initial
        .section .fini, \"ax\"
        function last
        ret
";

/// The lengths of `mov %rsp, %rax` and `ret`, bytes.
const NOBODY_LEN: u64 = 4;

fn address(file: &File, name: &str) -> u64 {
    let symbols = file.image().symbols();
    let found = symbols.iter().find(|symbol| symbol.name == name);
    found.unwrap_or_else(|| panic!("no symbol {name}")).address
}

fn generated(file: &File, boundaries: Boundaries) -> Generated {
    let target = Target::from_name("sframe-v3").expect("a format");
    generate(file, Options::new(boundaries, target)).expect("no hints")
}

#[test]
fn code_that_is_entered_as_a_function_is_one() {
    let scratch = Scratch::new();
    let flags = ["-nostdlib", "-static-pie"];
    let program = scratch.cc("open.s", PROGRAM, &flags).expect("cc");
    let file = open(&program);
    let all = generated(&file, Boundaries::All);

    let distance = |name| {
        let rule = all.rule_at(address(&file, name));
        rule.map(|rule| rule.cfa)
    };
    let rsp = |offset| Some(Value::reg(Reg::Rsp, offset));

    let expected = [
        ("helper", rsp(8)),
        ("called_late", rsp(8)),
        ("behind_a_push", rsp(16)),
        ("tail", rsp(8)),
        ("nobody", None),
        ("listed", rsp(8)),
        ("runs_on", rsp(8)),
        ("padding", rsp(8)),
        ("initial", rsp(8)),
        ("behind_a_sub", rsp(48)),
        // A jump with a frame of its own enters no function.
        ("shared", rsp(16)),
        ("last", rsp(8)),
    ];
    for (name, cfa) in expected {
        assert_eq!(distance(name), cfa, "{name}: {all:#x?}");
    }

    let start = all.rule_at(address(&file, "_start")).map(|rule| rule.kind);
    assert_eq!(start, Some(RuleKind::Outermost));

    // The table alone has three.
    let table = generated(&file, Boundaries::Table);
    let starts: Vec<u64> = table.functions.iter().map(|f| f.range.start).collect();
    let listed = ["listed", "runs_on", "run_into"];
    assert_eq!(starts, listed.map(|name| address(&file, name)));

    // Functions are in order and do not overlap.
    for boundaries in [&all, &table] {
        let mut end = 0;
        for function in &boundaries.functions {
            assert!(function.range.start >= end, "{boundaries:#x?}");
            end = function.range.end;
        }
    }
}

#[test]
fn code_in_no_function_is_counted() {
    let scratch = Scratch::new();
    let flags = ["-nostdlib", "-static-pie"];
    let program = scratch.cc("open.s", PROGRAM, &flags).expect("cc");
    let nobody = address(&open(&program), "nobody");
    let out = scratch.path("out").display().to_string();
    let program = program.display().to_string();

    // By the command, whose text and JSON have to agree.
    let words = [
        "tables",
        "generate",
        &program,
        "--to",
        "sframe-v3",
        "-o",
        &out,
    ];

    let text = unwind_sim(&words);
    let told = format!("no row: {NOBODY_LEN} bytes of .text in no function, ");
    let line = text.lines().find(|line| line.starts_with(&told));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let first = format!(" % of it, the first at {nobody:#x}");
    assert!(line.ends_with(&first), "{text}");

    // The same in JSON.
    let text = unwind_sim(&[&words[..], &["--json"]].concat());
    let last = text.lines().last().expect("a summary");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    let outside = last["outside"].as_array().expect("a list");
    assert_eq!(outside.len(), 1, "{text}");
    assert_eq!(outside[0]["section"], ".text");
    assert_eq!(outside[0]["code_bytes"], NOBODY_LEN);
    assert_eq!(outside[0]["first"], format!("{nobody:#x}"));

    // It ends with 1 if a row is contradicted.
    let mut check = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    run(check.args(["tables", "check", &out])).expect("no contradiction");
}
