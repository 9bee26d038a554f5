//! `tables diff`: wrong rows that assemblers and linkers wrote, and two builds of a program.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

/// What `tables diff` found.
#[derive(Debug)]
struct DiffReport {
    status: i32,
    /// For each function: its causes.
    causes: BTreeMap<String, Vec<String>>,
    differences: Vec<Value>,
    /// Table and loss.
    losses: Vec<(String, String)>,
    changed: Vec<String>,
    summary: Value,
}

fn diff(args: &[&str]) -> DiffReport {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["tables", "diff", "--json"]).args(args);
    let output = command.output().expect("the tool runs");

    let mut found = DiffReport {
        status: output.status.code().expect("not killed"),
        causes: BTreeMap::new(),
        differences: Vec::new(),
        losses: Vec::new(),
        changed: Vec::new(),
        summary: Value::Null,
    };

    // Lines are told apart by their type, as a reader of the output does it.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for line in String::from_utf8(output.stdout).expect("text").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["schema"], "unwind-sim.v1");
        match line["type"].as_str() {
            Some("table_difference") => {
                let causes = line["causes"].as_array().expect("causes");
                let all = found.causes.entry(text(&line["function"])).or_default();
                all.extend(causes.iter().map(text));
                found.differences.push(line);
            }
            Some("table_loss") => {
                let loss = (text(&line["table"]), text(&line["loss"]));
                found.losses.push(loss);
            }
            Some("code_changed") => found.changed.push(text(&line["function"])),
            Some("summary") => found.summary = line,
            // An unknown type would be lost without this.
            other => panic!("{other:?}"),
        }
    }

    found
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// One function for each thing that an assembler got wrong, and one that is right.
const WRONG: &str = include_str!("tables_diff/wrong.s");

/// The version of the SFrame section in a file, as readelf or objdump prints it.
fn sframe_version(file: &Path) -> Option<u8> {
    let text = crate::common::compiler::text_of("objdump", &["--sframe=.sframe"], file)?;
    let (_, rest) = text.split_once("SFRAME_VERSION_")?;
    rest.chars().next()?.to_digit(10)?.try_into().ok()
}

#[test]
fn rows_that_the_assembler_wrote_wrong_are_shown() {
    let name = "rows_that_the_assembler_wrote_wrong_are_shown";
    let scratch = Scratch::new();
    let Ok(object) = scratch.cc("wrong.s", WRONG, &["-c", "-Wa,--gsframe"]) else {
        return skip(name, "as has no --gsframe");
    };
    if sframe_version(&object) != Some(1) {
        return skip(name, "as does not write SFrame V1");
    }

    let found = diff(&[path(&object)]);
    assert_eq!(found.status, 1, "{found:?}");

    let causes = |function: &str| -> Vec<&str> {
        let causes = found.causes.get(function).into_iter().flatten();
        causes.map(String::as_str).collect()
    };
    // GNU as 2.40 writes `sp+0` for r10.
    assert_eq!(causes("other_register"), ["cfa-distance"]);
    assert_eq!(causes("ra_undefined"), ["root"]);
    assert_eq!(causes("ra_same"), ["return-address"]);
    assert_eq!(causes("ra_slot"), ["return-address"]);
    assert_eq!(causes("rbp_undefined"), ["register-lost"]);
    assert_eq!(causes("rbp_same"), ["register"]);
    assert_eq!(causes("right"), [""; 0]);

    // These functions are left out: the first two because V1 cannot express a row, the third
    // although it could.
    assert_eq!(causes("drap"), [""; 0]);
    assert_eq!(causes("ra_register"), [""; 0]);
    assert_eq!(causes("escape"), ["missing-function"]);

    for loss in ["cfa-register", "cfa-load", "ra-register"] {
        let loss = ("sframe".to_owned(), loss.to_owned());
        assert!(found.losses.contains(&loss), "{loss:?}: {found:?}");
    }
}

#[test]
fn the_instruction_at_which_the_tables_part_is_marked() {
    let name = "the_instruction_at_which_the_tables_part_is_marked";
    let scratch = Scratch::new();
    let Ok(object) = scratch.cc("wrong.s", WRONG, &["-c", "-Wa,--gsframe"]) else {
        return skip(name, "as has no --gsframe");
    };
    if sframe_version(&object) != Some(1) {
        return skip(name, "as does not write SFrame V1");
    }

    let found = diff(&[path(&object)]);
    let line = found
        .differences
        .iter()
        .find(|d| d["function"] == "rbp_same");
    let line = line.expect("the function");

    let code = line["code"].as_array().expect("instructions");
    let marked: Vec<&str> = code
        .iter()
        .filter(|i| i["is_marked"] == true)
        .filter_map(|i| i["text"].as_str())
        .collect();
    assert_eq!(marked, ["nop"], "{line}");
    // The code around it is shown, too, as the row is wrong because of what was executed before.
    assert!(code.iter().any(|i| i["text"] == "pop %rbp"), "{line}");

    // Two instructions, one row.
    assert_eq!(line["place"]["section"], ".text");
    assert_eq!(line["claims"][1]["rule"]["registers"]["rbp"], "*(cfa-16)");
}

#[test]
fn the_linkers_row_for_plt_got_is_shown() {
    // GNU ld 2.46 writes CFA = rsp + 16 for `.plt.got`, whose entries push nothing.
    let found = diff(&[path(&corpus("sframe/t_2.46"))]);
    assert_eq!(found.status, 1, "{found:?}");
    let wrong: Vec<&Value> = found
        .differences
        .iter()
        .filter(|d| d["gravity"] == "contradiction")
        .collect();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!(wrong[0]["causes"][0], "cfa-offset");
    assert_eq!(wrong[0]["start"], "0x1040");
    // Two bytes of padding behind the jump are not code.
    assert_eq!(wrong[0]["end"], "0x1046");
    assert_eq!(wrong[0]["claims"][0]["rule"]["cfa"], "rsp+8");
    assert_eq!(wrong[0]["claims"][1]["rule"]["cfa"], "rsp+16");
}

#[test]
fn a_plts_formula_and_its_repeated_rows_agree() {
    // The lazy PLT of both files is one formula in .eh_frame and a PCMASK function in .sframe.
    for name in ["t_2.40", "t_2.46"] {
        let found = diff(&[path(&corpus(&format!("sframe/{name}")))]);
        let in_plt = |d: &&Value| {
            let start = d["start"].as_str().and_then(|s| s.strip_prefix("0x"));
            let start = start.and_then(|s| u64::from_str_radix(s, 16).ok());
            start.is_some_and(|start| (0x1020..0x1040).contains(&start))
        };
        let wrong: Vec<&Value> = found.differences.iter().filter(in_plt).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        assert!(found.summary["bytes"].as_u64() > Some(200), "{name}");
    }
}

#[test]
fn flexible_rows_say_what_the_cfi_says() {
    let found = diff(&[path(&corpus("sframe/v3flex"))]);
    assert_eq!(found.status, 0, "{found:?}");
    assert!(found.differences.is_empty(), "{found:?}");
}

/// Two `.sframe` sections in a row (V2 with PC-relative starts), one for each function.
const CONCATENATED: &str = include_str!("tables_diff/concatenated.s");

#[test]
fn functions_of_a_second_section_are_shown_as_unread() {
    let name = "functions_of_a_second_section_are_shown_as_unread";
    let scratch = Scratch::new();
    let Ok(object) = scratch.cc("concatenated.s", CONCATENATED, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let found = diff(&[path(&object)]);
    assert_eq!(found.status, 1, "{found:?}");
    let causes: Vec<(&String, &Vec<String>)> = found.causes.iter().collect();
    assert_eq!(causes, [(&"second".to_owned(), &vec!["unread".to_owned()])]);
}

/// A function with its frame in one form or another: `@CFA@` and `@CODE@` are replaced.
const BUILD: &str = "
    .text
    @BEFORE@
    .globl f, g, h
    .type f, @function
f:  .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset @CFA@
    .cfi_offset rbx, -16
    call other
    pop %rbx
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size f, . - f
    .type g, @function
g:  .cfi_startproc
    sub $@CODE@, %rsp
    .cfi_def_cfa_offset @CODE@ + 8
    add $@CODE@, %rsp
    .cfi_def_cfa_offset 8
    ret
    .cfi_endproc
    .size g, . - g
    .type h, @function
h:  .cfi_startproc
    ret
    .cfi_endproc
    .size h, . - h
    @BEHIND@
    .type other, @function
other: ret
    .size other, . - other
";

#[test]
fn two_builds_are_compared_function_by_function() {
    let name = "two_builds_are_compared_function_by_function";
    let scratch = Scratch::new();
    let build = |name: &str, skip: &str, cfa: &str, code: &str| {
        // The callee moves, too.
        let source = BUILD.replace("@BEFORE@", skip).replace("@BEHIND@", skip);
        let source = source.replace("@CFA@", cfa).replace("@CODE@", code);
        scratch.cc(name, &source, &["-shared", "-nostdlib"])
    };
    let (Ok(first), Ok(second), Ok(third)) = (
        build("first.s", "", "16", "24"),
        build("second.s", ".skip 100, 0x90", "16", "24"),
        build("third.s", ".skip 64, 0x90", "24", "40"),
    ) else {
        return skip(name, "cc cannot link");
    };

    // Only addresses differ.
    let found = diff(&[path(&first), path(&second)]);
    assert_eq!(found.status, 0, "{found:?}");
    assert!(
        found.differences.is_empty() && found.changed.is_empty(),
        "{found:?}"
    );
    assert!(found.summary["functions"].as_u64() >= Some(4), "{found:?}");

    // A row of `f` differs, and the code of `g`.
    let found = diff(&[path(&first), path(&third)]);
    assert_eq!(found.status, 1, "{found:?}");
    assert_eq!(found.changed, ["g"]);
    assert_eq!(found.causes.keys().collect::<Vec<_>>(), ["f"]);
    assert_eq!(found.causes["f"], ["cfa-offset"]);
}

/// A module whose second ORC entry (layout of Linux 6.4) has another offset than its CFI, and
/// which saves a register that ORC does not describe.
const MODULE: &str = "
    .text
    .globl f
    .type f, @function
f:  .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset rbx, -16
    nop
    pop %rbx
    .cfi_def_cfa_offset 8
    .cfi_restore rbx
    ret
    .cfi_endproc
    .size f, . - f
    .section .orc_unwind_ip, \"a\"
    .long .text + 0 - .
    .long .text + 1 - .
    .long .text + 3 - .
    .long .text + 4 - .
    .section .orc_unwind, \"a\"
    .short 8, 0, 0x0205
    .short 24, 0, 0x0205
    .short 8, 0, 0x0205
    .short 0, 0, 0
    .section .orc_header, \"a\"
    .byte 0xfe,0x5d,0x32,0xbf,0x58,0x1b,0xd6,0x3b,0x2c,0xa9
    .byte 0xa5,0xc6,0x5b,0xa5,0xa6,0x25,0xea,0xb3,0xfe,0x24
";

#[test]
fn orc_entries_are_compared_with_the_cfi() {
    let name = "orc_entries_are_compared_with_the_cfi";
    let scratch = Scratch::new();
    let Ok(object) = scratch.cc("module.s", MODULE, &["-c"]) else {
        return skip(name, "cc cannot assemble");
    };
    let found = diff(&[path(&object)]);
    assert_eq!(found.status, 1, "{found:?}");
    assert_eq!(found.differences.len(), 1, "{found:?}");
    let wrong = &found.differences[0];
    assert_eq!(wrong["causes"][0], "cfa-offset");
    assert_eq!(wrong["place"]["offset"], "0x1");
    let len = |key: &str| {
        let text = wrong[key].as_str().and_then(|s| s.strip_prefix("0x"));
        text.and_then(|s| u64::from_str_radix(s, 16).ok())
            .expect("hexadecimal")
    };
    assert_eq!(len("end") - len("start"), 2);
    let loss = ("orc".to_owned(), "callee-saved".to_owned());
    assert!(found.losses.contains(&loss), "{found:?}");
}

#[test]
fn a_file_agrees_with_itself() {
    let name = "a_file_agrees_with_itself";
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    if !Path::new(libc).exists() {
        return skip(name, "there is no libc");
    }
    let found = diff(&[&format!("{libc}:eh_frame"), &format!("{libc}:eh_frame")]);
    assert_eq!(found.status, 0, "{found:?}");
    assert!(
        found.differences.is_empty() && found.losses.is_empty(),
        "{found:?}"
    );
    assert!(found.summary["rows"].as_u64() > Some(10_000), "{found:?}");
}

#[test]
fn what_cannot_be_compared_is_said() {
    let file = corpus("sframe/v3flex");
    assert_eq!(diff(&["/bin/true"]).status, 3);
    assert_eq!(diff(&[&format!("{}:orc", path(&file))]).status, 2);
    assert_eq!(diff(&["/etc/passwd"]).status, 2);
}
