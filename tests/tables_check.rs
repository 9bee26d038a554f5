//! `tables check`: wrong rows are found, right ones are proven.

mod report;

use crate::common::compiler::Scratch;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn check(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let output = command
        .args(["--color", "never", "tables", "check"])
        .args(args)
        .arg(file)
        .output();
    output.expect("the tool runs")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("text");
    let line = |line| serde_json::from_str::<Value>(line).expect("JSON");
    text.lines().map(line).collect()
}

fn late(scratch: &Scratch) -> PathBuf {
    let source = include_str!("tables_check/late.s");
    scratch.cc("late.s", source, &["-c"]).expect("cc assembles")
}

#[test]
fn a_row_that_is_late_is_found_at_its_instruction_with_the_right_row() {
    let scratch = Scratch::new();
    let object = late(&scratch);
    let output = check(&["--json"], &object);
    assert_eq!(output.status.code(), Some(1));
    let lines = lines(&output);
    let wrong: Vec<&Value> = lines.iter().filter(|l| l["type"] == "wrong_row").collect();
    assert_eq!(wrong.len(), 1, "{lines:#?}");
    assert_eq!(wrong[0]["function"], "late");
    assert_eq!(wrong[0]["code"], "US501");
    assert_eq!(wrong[0]["found"], "cfa-8");
    assert_eq!(wrong[0]["right"]["cfa"], "rsp+16");
    // `good` has 13 bytes; the push in `late` has one.
    let place = &wrong[0]["place"];
    assert_eq!(place["section"], ".text");
    let start = u64::from_str_radix(&wrong[0]["function_start"].as_str().expect("hex")[2..], 16);
    let address = u64::from_str_radix(&wrong[0]["address"].as_str().expect("hex")[2..], 16);
    assert_eq!(address.expect("hex") - start.expect("hex"), 1);
    let sum = lines.last().expect("a summary");
    assert_eq!(sum["proven"]["functions"], 1);
    assert_eq!(sum["contradicted"]["functions"], 1);
}

#[test]
fn the_text_marks_the_instruction() {
    let scratch = Scratch::new();
    let output = check(&["--explain"], &late(&scratch));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    let marked = lines.find(|line| line.trim_start().starts_with('>'));
    assert!(
        marked.is_some_and(|line| line.ends_with("mov %rdi,%rbx")),
        "{text}"
    );
    let caret = lines.next().unwrap_or_default();
    assert!(
        caret.contains("^ the row's CFA is cfa-8, as rsp is cfa-16 here"),
        "{text}"
    );
    assert!(text.contains("right: cfa=rsp+16\n"), "{text}");
    assert!(text.contains("way:   entry"), "{text}");
}

#[test]
fn without_assumptions_a_call_leaves_the_rest_unproven() {
    let scratch = Scratch::new();
    let source = "
        .globl alone
        .type alone, @function
alone:
        .cfi_startproc
        xorl %eax, %eax
        ret
        .cfi_endproc
        .size alone, . - alone
        .globl calls
        .type calls, @function
calls:
        .cfi_startproc
        subq $8, %rsp
        .cfi_def_cfa_offset 16
        call other
        addq $8, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size calls, . - calls
";

    let object = scratch
        .cc("calls.s", source, &["-c"])
        .expect("cc assembles");

    // After a call, rsp is only known if callees are assumed to return as they should.
    for (assume, proven) in [("all", 2), ("callees", 2), ("none", 1), ("stores", 1)] {
        // The other function calls nothing, so it is proven always.
        let output = check(&["--json", "--assume", assume], &object);
        assert_eq!(output.status.code(), Some(0), "{assume}");
        let sum = lines(&output).pop().expect("a summary");
        assert_eq!(sum["proven"]["functions"], proven, "{assume}");
    }
}

/// OCaml's marks around the first function, and none around the second.
#[test]
fn a_row_claims_what_the_convention_of_its_code_keeps() {
    let scratch = Scratch::new();

    // Both overwrite rbx without saving it, which System V's convention forbids (psABI), and
    // OCaml's does not.
    let source = "
        .text
        .globl camlA__code_begin
camlA__code_begin:
        .type ocaml, @function
ocaml:
        .cfi_startproc
        xorl %ebx, %ebx
        ret
        .cfi_endproc
        .size ocaml, . - ocaml
        .globl camlA__code_end
camlA__code_end:
        .type c, @function
c:
        .cfi_startproc
        xorl %ebx, %ebx
        ret
        .cfi_endproc
        .size c, . - c
";
    let object = scratch.cc("both.s", source, &["-c"]).expect("cc assembles");
    let wrong = |more: &[&str]| {
        let output = check(&[&["--json"], more].concat(), &object);
        let mut lines = lines(&output);
        let sum = lines.pop().expect("a summary");
        let named = lines.iter().filter_map(|line| line["function"].as_str());
        let named: Vec<String> = named.map(str::to_owned).collect();
        (named, sum["conventions"].clone(), output.status.code())
    };

    // By default the convention follows from the file's own marks.
    let (named, conventions, status) = wrong(&[]);
    assert_eq!((named, status), (vec!["c".to_owned()], Some(1)));

    let count = |convention, evidence, functions| {
        serde_json::json!({
            "convention": convention, "evidence": evidence, "functions": functions
        })
    };
    let both = serde_json::json!([count("system-v", "none", 1), count("ocaml", "symbols", 1)]);
    assert_eq!(conventions, both);

    let all = vec!["ocaml".to_owned(), "c".to_owned()];

    // What the user says counts more than the marks.
    assert_eq!(wrong(&["--abi", "system-v"]).0, all);
    let (named, conventions, status) = wrong(&["--abi", "ocaml"]);
    assert_eq!((named, status), (Vec::new(), Some(0)));
    assert_eq!(conventions, serde_json::json!([count("ocaml", "given", 2)]));

    // With all callee-saved registers claimed, both rows are wrong.
    assert_eq!(wrong(&["--claims", "cfa,ra,callee-saved"]).0, all);
    assert_eq!(wrong(&["--claims", "cfa,ra,rbp"]).2, Some(0));

    let text = String::from_utf8(check(&[], &object).stdout).expect("text");
    for line in [
        "  convention system-v: 1 function: nothing in the file says otherwise",
        "  convention ocaml: 1 function: symbols mark the compiler's code",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }

    // Claims without a CFA, of a single register, and an unknown convention.
    for bad in [
        ["--claims", "ra"],
        ["--claims", "cfa,rbx"],
        ["--abi", "cdecl"],
    ] {
        assert_eq!(check(&bad, &object).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_baseline_makes_wrong_rows_known() {
    let scratch = Scratch::new();
    let object = late(&scratch);
    let baseline = scratch.path("known.json");
    std::fs::write(&baseline, check(&["--json"], &object).stdout).expect("writable");
    let known = baseline.to_str().expect("text");
    let output = check(&["--json", "--baseline", known], &object);
    assert_eq!(output.status.code(), Some(0));
    let lines = lines(&output);
    assert_eq!(lines[0]["type"], "unproven");
    assert!(lines[0]["doubts"]["known"].is_string(), "{}", lines[0]);
    for wrong in ["", "{}\n", "no JSON\n"] {
        std::fs::write(&baseline, wrong).expect("writable");
        let output = check(&["--baseline", known], &object);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn sarif_names_the_place_and_the_rule() {
    let scratch = Scratch::new();
    let output = check(&["--sarif"], &late(&scratch));
    assert_eq!(output.status.code(), Some(1));
    let log: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().expect("results");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["ruleId"], "US501");
    let place = &results[0]["locations"][0]["physicalLocation"]["address"];
    assert_eq!(place["fullyQualifiedName"], "late+0x1");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array();
    assert!(
        rules
            .expect("rules")
            .iter()
            .any(|rule| rule["id"] == "US501")
    );
}

/// The lines about unproven functions of an object.
fn unproven(object: &Path) -> Vec<Value> {
    let output = check(&["--json"], object);
    assert_eq!(output.status.code(), Some(0));
    let unproven = |line: &Value| line["type"] == "unproven";
    lines(&output).into_iter().filter(unproven).collect()
}

#[test]
fn rows_that_cannot_be_read_are_wrong_where_code_reaches_them() {
    let scratch = Scratch::new();
    // 0x3e is no instruction of DWARF or GNU.
    for (name, before, at) in [
        ("all", "", Some("0x1000")),
        ("rest", "nop", Some("0x1001")),
        ("unreached", "ret", None),
    ] {
        let source = format!(
            "        .globl f
f:      .cfi_startproc
        {before}
        .cfi_escape 0x3e
        ret
        .cfi_endproc
        .size f, . - f
"
        );

        let name = format!("{name}.s");
        let object = scratch.cc(&name, &source, &["-c"]).expect("cc assembles");

        // Behind `ret` no code needs the row, so there is only a doubt.
        let Some(at) = at else {
            let unproven = unproven(&object);
            assert_eq!(unproven.len(), 1, "{name}");
            assert!(
                unproven[0]["doubts"]["unreadable"].is_string(),
                "{name}: {}",
                unproven[0]
            );
            continue;
        };

        let output = check(&["--json"], &object);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let lines = lines(&output);
        let wrong: Vec<&Value> = lines.iter().filter(|l| l["type"] == "wrong_row").collect();
        assert_eq!(wrong.len(), 1, "{name}");
        assert_eq!(wrong[0]["code"], "US504", "{name}");

        // The first address without a readable row.
        assert_eq!(wrong[0]["address"], at, "{name}");
    }
}

#[test]
fn functions_that_share_code_are_counted() {
    let scratch = Scratch::new();
    // The second FDE covers the last byte of the first, which says something else there.
    let source = "        .text
f:      nop
g:      ret
h:
        .section .eh_frame,\"a\",@progbits
cie:    .long 2f - 1f
1:      .long 0
        .byte 1
        .string \"\"
        .uleb128 1
        .sleb128 -8
        .byte 16, 0x0c, 7, 8, 0x90, 1, 0
        .balign 4
2:      .long 4f - 3f
3:      .long 3b - cie
        .quad f, h - f
        .byte 0x41, 0x0e, 16
4:      .long 6f - 5f
5:      .long 5b - cie
        .quad g, h - g
6:
";

    let object = scratch
        .cc("shared.s", source, &["-c"])
        .expect("cc assembles");
    let unproven = unproven(&object);
    // Only one of the two: what the other one says of the shared byte is right.
    assert_eq!(unproven.len(), 1);
    assert!(
        unproven[0]["doubts"]["overlap"].is_string(),
        "{}",
        unproven[0]
    );

    // Both functions are counted, although they have a byte in common.
    let sum = lines(&check(&["--json"], &object))
        .pop()
        .expect("a summary");
    assert_eq!(sum["all"]["functions"], 2);
    assert_eq!(sum["proven"]["functions"], 1);
}

#[test]
fn the_self_test_prints_its_score() {
    let scratch = Scratch::new();
    let output = check(&["--self-test", "40"], &late(&scratch));
    assert_eq!(output.status.code(), Some(0));

    let text = String::from_utf8(output.stdout).expect("text");
    let all = text
        .lines()
        .find(|line| line.trim_start().starts_with("all "));
    let all = all.expect("a line for all kinds");
    assert!(all.contains(" caught ") && all.ends_with(" %"), "{text}");

    // A kind without a defect has no score: what is equivalent was neither caught nor missed.
    let mut equivalents = 0;
    for line in text.lines().filter(|line| line.contains(" caught ")) {
        let counts: Vec<u64> = line
            .split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect();

        // A share is no whole number, so it is not among them.
        let [caught, equivalent, missed] = counts[..] else {
            panic!("{line}");
        };
        equivalents += equivalent;

        let expected = match caught + missed {
            0 => " missed         -".to_owned(),
            all => format!(" {:.2} %", 100.0 * caught as f64 / all as f64),
        };
        assert!(line.ends_with(&expected), "{text}");
    }

    // Such kinds have to occur.
    assert!(text.lines().any(|line| line.ends_with(" -")), "{text}");
    assert!(equivalents > 0, "{text}");
}

#[test]
fn the_report_does_not_depend_on_the_number_of_threads() {
    let program = Path::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let tables = Path::new("/bin/bash");
    let file = if tables.exists() { tables } else { program };
    let one = check(&["--json", "--threads", "1"], file);
    let four = check(&["--json", "--threads", "4"], file);
    assert!(!one.stdout.is_empty());
    assert!(one.stdout == four.stdout);
}

#[test]
fn what_cannot_be_checked_is_an_error_or_status_3() {
    let scratch = Scratch::new();
    let text = scratch.path("text");
    std::fs::write(&text, "hello\n").expect("the folder is writable");
    assert_eq!(check(&[], &text).status.code(), Some(2));
    assert_eq!(
        check(&["--assume", "luck"], &late(&scratch)).status.code(),
        Some(2)
    );
    let bare = "        .text\n        ret\n";
    let object = scratch.cc("bare.s", bare, &["-c"]).expect("cc assembles");
    assert_eq!(check(&[], &object).status.code(), Some(3));
}

/// Where nothing relocates the rows of an object, they are right for the layout of the file, as in what
/// wasmtime compiles ahead.
#[test]
fn an_object_that_nothing_relocates_is_used_as_it_lies_in_the_file() {
    let scratch = Scratch::new();
    let source = include_str!("tables_check/late.s");
    let options = ["-shared", "-nostdlib", "-Wl,-z,noseparate-code"];
    let library = scratch.cc("late.s", source, &options).expect("cc links");
    let linked = lines(&check(&["--json"], &library));

    // `e_type` of what was linked becomes ET_REL; its addresses are then those of its sections' offsets.
    let mut bytes = std::fs::read(&library).expect("the library");
    bytes[16] = 1;
    let object = scratch.path("final.o");
    std::fs::write(&object, bytes).expect("the folder is writable");
    let output = check(&["--json"], &object);
    assert_eq!(output.status.code(), Some(1));

    let sum = |lines: &[Value]| {
        let last = lines.last().expect("a summary");
        (last["proven"].clone(), last["contradicted"].clone())
    };
    assert_eq!(sum(&lines(&output)), sum(&linked));
    assert_eq!(sum(&linked).1["functions"], 1);
}

/// A part of a function that only a jump table leads to, by the names that compilers give parts. Under
/// another name it is a function, and its row is wrong at the start of one.
#[test]
fn parts_are_known_by_their_names() {
    let scratch = Scratch::new();
    let checked = |name: &str| {
        // A jump through a table enters the part, with the frame of `f`.
        let source = format!(
            "        .text
        .globl  f
        .type   f, @function
f:      .cfi_startproc
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        lea     table(%rip), %rax
        movslq  (%rax,%rdi,4), %rcx
        add     %rax, %rcx
        jmp     *%rcx
        .cfi_endproc
        .size   f, .-f
        .type   {name}, @function
{name}: .cfi_startproc
        .cfi_def_cfa_offset 32
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   {name}, .-{name}
        .section .rodata
table:  .long   {name}-table
"
        );
        let options = ["-shared", "-nostdlib"];
        let library = scratch.cc("part.s", &source, &options).expect("cc links");
        let sum = lines(&check(&["--json"], &library));
        let sum = sum.last().expect("a summary").clone();
        sum["contradicted"]["functions"].as_u64().expect("a number")
    };

    // `.cold` is a part of a function for GCC and LLVM; the other two are LLVM's.
    for name in ["f.cold", "f.cold.1", "f.__part.1", "f.eh"] {
        assert_eq!(checked(name), 0, "{name}");
    }
    // Another function is entered with the frame of a call, which its row contradicts.
    assert_eq!(checked("g"), 1);
}

/// What `*.so` matches has scripts of the linker among it; the files behind them are checked, too.
#[test]
fn a_file_that_cannot_be_read_does_not_keep_the_others_from_being_checked() {
    let scratch = Scratch::new();
    let text = scratch.path("libc.so");
    std::fs::write(&text, "GROUP ( libc.so.6 )\n").expect("the folder is writable");
    let text = text.to_str().expect("UTF-8");
    let gone = scratch.path("gone.so");

    let output = check(
        &["--json", text, gone.to_str().expect("UTF-8")],
        &late(&scratch),
    );
    assert_eq!(output.status.code(), Some(2));
    let wrong = |line: &Value| line["type"] == "wrong_row";
    assert_eq!(lines(&output).iter().filter(|line| wrong(line)).count(), 1);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "libc.so is a text file",
        "cannot open",
        "2 of 3 files could not be checked",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Programs of the system: nearly all of their rows can be proven, and what cannot has a reason.
#[test]
fn nearly_all_rows_of_real_programs_are_proven() {
    let programs = ["/bin/bash", "/bin/ls", "/usr/bin/perl", "/usr/bin/git"];
    let mut functions = [0u64; 2];
    for path in programs.map(Path::new).into_iter().filter(|p| p.exists()) {
        let output = check(&["--json"], path);
        let lines = lines(&output);
        let sum = lines.last().expect("a summary");
        let count = |key: &str| sum[key]["functions"].as_u64().expect("a number");
        functions[0] += count("proven");
        functions[1] += count("all");
        let unproven = lines.iter().filter(|l| l["type"] == "unproven");
        for line in unproven {
            let doubts = line["doubts"].as_object().expect("doubts");
            assert!(!doubts.is_empty(), "{line}");
        }
    }
    let [proven, all] = functions;
    assert!(all > 1000, "{all}");
    assert!(proven * 100 >= all * 98, "{proven} of {all}");
}

/// A compressed table gives what the plain one does, in `check` and in `dump`.
#[test]
fn compressed_tables_are_read() {
    let scratch = Scratch::new();
    let source = "int f(int x) { return x + 1; }\nint main(void) { return f(2); }\n";

    // Only `.debug_frame`, which is the table that can be compressed.
    let options = [
        "-g",
        "-O1",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let plain = scratch.cc("two.c", source, &options).expect("cc builds");

    let printed = |file: &Path| {
        let checked = check(&["--json"], file);
        let mut dump = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let dumped = dump.args(["tables", "dump"]).arg(file).output();
        let dumped = dumped.expect("the tool runs");

        // Without any warning.
        assert_eq!(String::from_utf8_lossy(&dumped.stderr), "");
        let counts = lines(&checked).last().expect("a summary")["rows"].clone();
        (counts, String::from_utf8_lossy(&dumped.stdout).into_owned())
    };

    let expected = printed(&plain);
    assert!(expected.1.contains(".debug_frame"), "{}", expected.1);
    for how in ["zlib", "zstd"] {
        let packed = plain.with_extension(how);
        let option = format!("--compress-debug-sections={how}");
        let mut objcopy = Command::new("objcopy");
        let made = objcopy.arg(option).args([&plain, &packed]).status();
        assert!(made.expect("binutils").success());
        assert_eq!(printed(&packed), expected, "{how}");
    }
}

/// A claim that is wrong on a way that may not exist is unproven, and both ways are shown.
#[test]
fn of_a_guess_both_ways_are_shown() {
    let scratch = Scratch::new();
    let source = include_str!("tables_check/guessed.s");
    let program = scratch
        .cc("guessed.s", source, &["-shared", "-nostdlib"])
        .expect("cc assembles and links");
    let output = check(&["--json", "--unproven"], &program);

    // A guess is no contradiction.
    assert_eq!(output.status.code(), Some(0));
    let lines = lines(&output);
    let guess_of = |name: &str| {
        let function = lines.iter().find(|l| l["function"] == name);
        let function = function.expect("the function is unproven");
        assert_eq!(function["reason"], "guessed");
        let guesses = function["guesses"].as_array().expect("guesses");
        assert_eq!(guesses.len(), 1, "{guesses:#?}");
        let start = number(&function["start"]);
        (guesses[0].clone(), start)
    };

    // Offsets in the function, as in the listing of its source.
    let (fill, start) = guess_of("fill");
    assert_eq!(fill["register"], "rbx");
    assert_eq!(number(&fill["store"]) - start, 0x20);
    let fork = &fill["fork"];
    let places = ["address", "to", "other"].map(|key| number(&fork[key]) - start);
    assert_eq!(places, [0x1e, 0x20, 0x2a]);

    // Here rsp itself differs between both ways, so there is no store.
    let (choose, start) = guess_of("choose");
    assert_eq!(choose["register"], "rsp");
    assert_eq!(choose["store"], Value::Null);
    assert_eq!(number(&choose["fork"]["address"]) - start, 0x12);
    assert_eq!(choose["fork"]["to"], choose["path"][0][1]);

    let text = String::from_utf8(check(&["--unproven"], &program).stdout).expect("text");
    for line in [
        "    one way: entry, 0x",
        "    another: at 0x",
        " is a guess\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

fn number(hex: &Value) -> u64 {
    let digits = hex.as_str().and_then(|text| text.strip_prefix("0x"));
    digits.map_or(0, |digits| u64::from_str_radix(digits, 16).expect("hex"))
}
