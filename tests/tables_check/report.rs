//! The report of `tables check`: groups, who wrote the code, addresses of objects, SARIF, baselines.

use super::{check, lines};
use crate::common::compiler::{Scratch, run};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_judge::blame::KNOWN;
use unwind_sim_tables::blame::Cause;

/// A function whose row for the push comes an instruction late, with these instructions in front.
fn late(name: &str, front: &str) -> String {
    format!(
        "
        .type   {name}, @function
{name}: .cfi_startproc
        {front}
        pushq   %rbx
        movq    %rdi, %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        call    away
        popq    %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   {name}, . - {name}
"
    )
}

/// Like [`late`], but right.
fn right(name: &str) -> String {
    let push = "pushq   %rbx\n        movq    %rdi, %rbx\n        .cfi_def_cfa_offset 16";
    let right = "pushq   %rbx\n        .cfi_def_cfa_offset 16\n        movq    %rdi, %rbx";
    let late = late(name, "");
    assert!(late.contains(push));
    late.replace(push, right)
}

fn text(args: &[&str], file: &Path) -> String {
    String::from_utf8(check(args, file).stdout).expect("text")
}

fn object(scratch: &Scratch, name: &str, source: &str) -> PathBuf {
    scratch.cc(name, source, &["-c"]).expect("cc assembles")
}

#[test]
fn functions_of_one_pattern_are_one_group() {
    let scratch = Scratch::new();
    let mut source = String::new();
    for number in 0..30 {
        source += &late(&format!("late{number}"), "");
    }

    // Another cause: a register is changed without a row.
    source += "
        .type   changes, @function
changes: .cfi_startproc
        xorl    %r12d, %r12d
        ret
        .cfi_endproc
        .size   changes, . - changes
";

    let object = object(&scratch, "many.s", &source);
    let short = text(&[], &object);
    assert!(short.lines().count() < 60, "{short}");
    for part in [
        "US501 a push has no row of its own: 30 functions, 30 wrong claims\n",
        "US503 a callee-saved register is changed without a row: 1 function, 1 wrong claim\n",
        "written by hand",
        "  also late1 at .text+0x",
        "  and 21 more functions (--all)\n",
        "looks like hand-changed (docs/findings.md)",
    ] {
        assert!(short.contains(part), "{part}: {short}");
    }

    let all = text(&["--all"], &object);
    for number in 0..30 {
        let heading = format!("  late{number}: ");
        assert_eq!(short.contains(&heading), number == 0, "{short}");
        assert!(all.contains(&heading), "{all}");
    }

    // One group is left out.
    let limited = text(&["--limit", "1"], &object);
    assert!(
        limited.contains("and 1 more cause with 1 function (--limit)\n"),
        "{limited}"
    );

    // The lines are those of all findings.
    let lines = lines(&check(&["--json"], &object));
    let wrong = lines.iter().filter(|l| l["type"] == "wrong_row");
    let causes = wrong.map(|l| (l["cause"].as_str(), l["writer"]["kind"].as_str()));
    let mut causes: Vec<_> = causes.collect();
    causes.sort_unstable();
    let mut expected = vec![(Some("changed"), Some("hand"))];
    // Thirty functions with a push, behind the one that changes a register.
    expected.resize(31, (Some("push"), Some("hand")));
    assert_eq!(causes, expected);
}

/// Mono's files name no compiler, but its runtime looks for a symbol. The row of the epilogue stands
/// behind the prologue.
#[test]
fn monos_rows_are_a_class_of_their_own() {
    let scratch = Scratch::new();
    let source = "
        .cfi_sections .debug_frame
        .type   method, @function
method: .cfi_startproc
        sub     $24, %rsp
        .cfi_def_cfa_offset 32
        .cfi_remember_state
        mov     %rdi, (%rsp)
        .cfi_def_cfa %rsp, 8
        nop
        .cfi_restore_state
        add     $24, %rsp
        ret
        .cfi_endproc
        .size   method, . - method
        .data
        .globl  mono_aot_file_info
mono_aot_file_info:
        .quad   0
";

    // A library, so that the symbol that Mono looks for is exported.
    let options = ["-shared", "-nostdlib"];
    let file = scratch.cc("method.s", source, &options).expect("a library");
    // Both are printed: whose code it is, and that such rows are known of it.
    let text = text(&[], &file);
    let known = "looks like mono-mark (docs/findings.md)";
    assert!(text.contains(known), "{text}");
    assert!(
        text.contains("written by Mono's AOT compiler (symbol table)"),
        "{text}"
    );
}

#[test]
fn each_group_says_who_wrote_it() {
    let scratch = Scratch::new();

    // Inline assembly moves rsp, of which the compiler's table knows nothing.
    let source = r#"
        void away(void);
        void pushes(void) {
            away();
            __asm__ volatile("pushq %%rbx\n\tnop\n\tpopq %%rbx" ::: "memory");
            away();
        }
        void away(void) {}
        int main(void) { pushes(); return 0; }
    "#;
    let writer = |options: &[&str]| {
        let common = [
            "-O1",
            "-fno-inline",
            "-fomit-frame-pointer",
            // The push would overwrite a red zone.
            "-mno-red-zone",
        ];

        let options = [&common[..], options].concat();
        let file = scratch.cc("pushes.c", source, &options).expect("a program");
        let lines = lines(&check(&["--json"], &file));
        let wrong = lines.iter().find(|l| l["function"] == "pushes");
        let line = wrong.unwrap_or_else(|| panic!("{lines:#?}"));
        assert_eq!(line["cause"], "push", "{line}");

        let writer = &line["writer"];
        let tools = writer["tools"].as_array().expect("a list").clone();
        let of = |name: &str| writer[name].as_str().unwrap_or_default().to_owned();
        (of("kind"), tools, of("evidence"))
    };

    // With debug information, the unit names its compiler.
    let (kind, tools, evidence) = writer(&["-g"]);
    assert_eq!(
        (kind.as_str(), evidence.as_str()),
        ("compiler", "DW_AT_producer")
    );
    let producer = tools[0].as_str().unwrap_or_default();
    assert!(
        producer.contains('.') && !producer.contains(" -"),
        "{producer}"
    );

    // Without it, `.comment` names the tools of all units alike.
    let (kind, tools, evidence) = writer(&[]);
    assert_eq!((kind.as_str(), evidence.as_str()), ("either", ".comment"));
    assert!(!tools.is_empty());

    // No word of it is left.
    let strip = ["-s", "-Wl,--build-id=none"];
    let stripped = scratch.cc("bare.c", source, &strip).expect("a program");
    let bare = stripped.with_extension("bare");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["-R", ".comment"]).arg(&stripped).arg(&bare);
    run(&mut objcopy).expect("objcopy runs");

    let shown = text(&[], &bare);
    assert!(
        // Nothing may be claimed of a file that says nothing.
        !shown.contains("written") || shown.contains("by an unknown author"),
        "{shown}"
    );
}

#[test]
fn assembly_is_known_by_its_file() {
    let scratch = Scratch::new();
    let source = format!(".file \"by_hand.s\"\n.text\n{}", late("pushes", ""));
    let a = object(&scratch, "pushes.s", &source);
    let main = "void pushes(void); void away(void) {} int main(void) { return 0; }";
    let main = scratch.cc("main.c", main, &["-c"]).expect("cc compiles");
    let program = scratch.path("program");
    let mut cc = Command::new("cc");
    run(cc.arg(&a).arg(&main).arg("-o").arg(&program)).expect("cc links");
    let shown = text(&[], &program);
    assert!(
        shown.contains("written by hand (by_hand.s) (symbol table)\n"),
        "{shown}"
    );
}

/// Addresses of an object are made up: the report has none of them.
#[test]
fn addresses_of_objects_are_sections_and_offsets() {
    let scratch = Scratch::new();

    // Two sections whose functions refer to each other.
    let source = format!(
        ".text\n{}\n.section .text.far, \"ax\"\n{}\n{}",
        late("near", "call far"),
        right("far").replace("away", "near"),
        late("farther", "movq near(%rip), %rax\n jmp 1f\n1: nop"),
    );
    let object = object(&scratch, "two.s", &source);
    let shown = text(&["--explain", "--all"], &object);

    for part in [
        "call away",
        ".text+0x5: push %rbx",
        "way:   entry, .text+0x6\n",
        "-> .text.far+0x",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        !shown.contains("0x10") && !shown.contains("0x0000"),
        "{shown}"
    );

    // An address that a register is said to have, too.
    let source = "
        .text
        nop
f:      .cfi_startproc
        leaq    f(%rip), %rbx
        ret
        .cfi_endproc";
    let object = super::report::object(&scratch, "address.s", source);
    let shown = text(&[], &object);
    assert!(shown.contains("^ the row's rbx is .text+0x1\n"), "{shown}");
    assert!(shown.contains("lea .text+0x1,%rbx"), "{shown}");

    // Also of an empty function in an empty section.
    let empty = ".text\n.cfi_startproc\n.cfi_endproc\n";
    let object = super::report::object(&scratch, "empty.s", empty);
    // There is nothing to prove of an empty function, so `dump` shows its row.
    let mut dump = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let dumped = run(dump.args(["tables", "dump"]).arg(&object)).expect("it has a table");
    let dumped = String::from_utf8(dumped).expect("text");
    assert!(dumped.starts_with(".text+0x0 ? .eh_frame+"), "{dumped}");
}

fn sarif(file: &Path) -> Value {
    serde_json::from_slice(&check(&["--sarif"], file).stdout).expect("JSON")
}

fn results(log: &Value) -> &Vec<Value> {
    log["runs"][0]["results"].as_array().expect("results")
}

/// What Microsoft's validator (Sarif.Multitool 5.7) asks of a log without versions of sources.
#[test]
fn sarif_has_what_readers_need() {
    let scratch = Scratch::new();
    // A blank and a `#`, which a URI cannot have as they are (RFC 3986).
    let object = object(
        &scratch,
        "a b#.s",
        &format!(".text\n{}", late("late", "nop")),
    );
    let log = sarif(&object);

    let driver = &log["runs"][0]["tool"]["driver"];
    let rules = driver["rules"].as_array().expect("rules");
    for rule in rules {
        for name in ["shortDescription", "fullDescription", "help"] {
            let text = rule[name]["text"].as_str().expect("a text");
            assert!(!text.is_empty(), "{rule}");
        }
        assert!(
            rule["helpUri"]
                .as_str()
                .is_some_and(|uri| uri.starts_with("https://"))
        );
        let name = rule["name"].as_str().expect("a name");
        assert!(name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric));
        // An id in other letters is no name.
        let id = rule["id"].as_str().expect("an id");
        assert!(!id.eq_ignore_ascii_case(name), "{rule}");
    }

    // One defect gives one result, which refers to its rule by number and by name.
    let [result] = results(&log).as_slice() else {
        panic!("{log:#}");
    };
    let index = result["ruleIndex"].as_u64().expect("a number") as usize;
    // A reader may use either of the two, so both have to name the same rule.
    assert_eq!(rules[index]["id"], result["ruleId"]);
    assert!(
        result["message"]["text"]
            .as_str()
            .is_some_and(|text| text.ends_with('.'))
    );

    assert_eq!(result["properties"]["cause"], "push");
    let place = &result["locations"][0]["physicalLocation"];
    let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
    assert!(
        uri.starts_with("file:///") && uri.contains("a%20b%23"),
        "{uri}"
    );

    // A path that goes up would mean another folder behind a symbolic link.
    let folder = object.parent().expect("a folder");
    let up = folder.join("..").join(folder.file_name().expect("a name"));
    let log = sarif(&up.join(object.file_name().expect("a name")));
    let same = &results(&log)[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    let same = same.as_str().expect("a URI");
    assert!(
        same.starts_with("file:///") && !same.contains(".."),
        "{same}"
    );
    assert_eq!(same.rsplit('/').next(), uri.rsplit('/').next());

    // In an object, an address is a section and an offset. In the file, it is the instruction.
    assert_eq!(place["address"]["name"], ".text+0x2");
    assert!(place["address"]["absoluteAddress"].is_null());
    let number = |name: &str| place["region"][name].as_u64().expect("a number") as usize;
    let (start, len) = (number("byteOffset"), number("byteLength"));
    let bytes = std::fs::read(&object).expect("the object");
    assert_eq!(
        bytes[start..start + len],
        [0x48, 0x89, 0xfb],
        "mov %rdi, %rbx"
    );
}

/// A finding about an index is at bytes of the file, too.
#[test]
fn sarif_of_an_index_has_its_bytes() {
    let scratch = Scratch::new();
    let source = "
        .section .eh_frame, \"a\", @unwind
        .long 0
        .text
f:      .cfi_startproc
        ret
        .cfi_endproc";
    let object = object(&scratch, "terminator.s", source);
    let log = sarif(&object);
    let [result] = results(&log).as_slice() else {
        panic!("{log:#}");
    };
    assert_eq!(result["ruleId"], "terminator");
    let region = &result["locations"][0]["physicalLocation"]["region"];
    let start = region["byteOffset"].as_u64().expect("an offset") as usize;
    assert_eq!(region["byteLength"], 4);
    // Behind it is the CIE: its length, and a zero.
    let bytes = std::fs::read(&object).expect("the object");
    assert_eq!(bytes[start..start + 4], [0; 4]);
    assert_eq!(bytes[start + 4..start + 12], [20, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn fingerprints_survive_moved_code() {
    let scratch = Scratch::new();
    let prints = |file: &str, source: &str| {
        let object = object(&scratch, file, source);
        let log = sarif(&object);
        let prints = results(&log).iter().map(|result| {
            let print = result["partialFingerprints"]["unwindSim/v2"].as_str();
            print.expect("a fingerprint").to_owned()
        });
        let all: Vec<String> = prints.collect();
        let different: BTreeSet<String> = all.iter().cloned().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        different
    };
    let mut before = String::from(".text\n");
    let _ = write!(before, "{}{}", late("one", ""), late("other", ""));
    let mut after = String::from(".text\n.skip 64, 0x90\n");
    // The function is moved, and something in front of the row is new.
    let _ = write!(after, "{}{}", late("other", "nop\nnop"), late("one", ""));
    assert_eq!(prints("before.s", &before), prints("after.s", &after));
    let renamed = late("renamed", "");
    let renamed = prints("renamed.s", &format!(".text\n{renamed}"));
    assert!(renamed.is_disjoint(&prints("before.s", &before)));
}

#[test]
fn a_baseline_tells_functions_of_one_name_apart() {
    let scratch = Scratch::new();
    let part = |file: &str, twin: &str| object(&scratch, file, &format!(".text\n{twin}"));
    let linked = |folder: &str, objects: [&Path; 2]| {
        let out = scratch.path(folder);
        std::fs::create_dir_all(&out).expect("a folder");
        let out = out.join("twins.o");
        let mut ld = Command::new("ld");
        run(ld.args(["-r", "-o"]).arg(&out).args(objects)).expect("ld links");
        out
    };

    let wrong = part("a.s", &late("twin", ""));
    let right = part("b.s", &right("twin"));
    let also = part("c.s", &late("twin", "").replace("%rdi", "%rsi"));

    let first = linked("first", [&wrong, &right]);
    let known = scratch.path("known.json");
    std::fs::write(&known, check(&["--json"], &first).stdout).expect("writable");
    let known = known.to_str().expect("text");
    let status = |file: &Path| check(&["--baseline", known], file).status.code();
    assert_eq!(status(&first), Some(0));

    // The other one is wrong now, too, at the same distance.
    let both = linked("both", [&wrong, &also]);
    assert_eq!(status(&both), Some(1));
    let shown = text(&["--baseline", known], &both);
    assert!(
        shown.contains("mov %rsi,%rbx") && !shown.contains("mov %rdi,%rbx"),
        "{shown}"
    );

    // In the other order, it is the same one that is new.
    let turned = text(&["--baseline", known], &linked("turned", [&also, &wrong]));
    assert!(
        turned.contains("mov %rsi,%rbx") && !turned.contains("mov %rdi,%rbx"),
        "{turned}"
    );

    // A change behind the wrong row is no new one.
    let grown = part(
        "d.s",
        &late("twin", "").replace("call    away", "call away\n call away"),
    );
    assert_eq!(status(&linked("grown", [&grown, &right])), Some(0));
}

/// That code cannot be decoded is said once for a function, and for what reason.
#[test]
fn apx_is_undecodable_and_nothing_else() {
    let scratch = Scratch::new();
    let source = "
        .text
f:      .cfi_startproc
        push    %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset rbx, -16
        .byte   0xd5, 0x10, 0x89, 0xc7
        nop
        pop     %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc";

    // 0xd5 is the REX2 prefix of APX.
    let object = object(&scratch, "apx.s", source);
    let shown = text(&["--unproven"], &object);

    // Once at the function, and once in the sum by reasons.
    assert_eq!(shown.matches("  unproven (").count(), 2, "{shown}");

    for part in [
        "  unproven (undecodable) at .text+0x1: bytes that are not an instruction\n",
        "  unproven (undecodable): 1: bytes that are not an instruction\n",
        "  of these, 1 function with instructions of Intel's APX, which are not decoded\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// The page has the names of all causes and classes, and the class is a row of the page of findings.
#[test]
fn the_page_names_all_causes_and_classes() {
    let page = include_str!("../../docs/static-proof.md");
    for cause in Cause::ALL {
        let row = format!("| `{}` | {} |", cause.as_str(), cause.description());
        assert!(page.contains(&row), "docs/static-proof.md lacks: {row}");
    }
    for known in KNOWN {
        let row = format!("| `{}` | {} | {} |", known.id, known.who, known.what);
        assert!(page.contains(&row), "docs/static-proof.md lacks: {row}");
    }
}

#[test]
fn a_file_without_a_table_is_said_to_have_none() {
    let scratch = Scratch::new();
    let file = object(&scratch, "bare.s", "nothing: ret\n");

    let said = check(&[], &file);
    assert_eq!(said.status.code(), Some(3));
    let first = String::from_utf8_lossy(&said.stdout);
    let first = first.lines().next().unwrap_or_default();
    assert!(
        first.ends_with(": no unwind table: 0 functions, 0 rows, 0 bytes"),
        "{first}"
    );
}
