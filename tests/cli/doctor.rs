//! `doctor`: which code broke how many stacks.

mod chains;
mod field;
mod precise;

use crate::cli::{THROWS, ends_with, run, snapshot_text, status, stderr, without_places};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const MISSING: &str = "corpus/perfdata/norow.data";
const CHAINS: &str = "corpus/perfdata/fp-pipe.data";
const DEFERRED: &str = "corpus/perfdata/threads4-switch-defer.data";
const BRANCHES: &str = "corpus/perfdata/LBR-stitch-grow.data";

fn lines(args: &[&str]) -> Vec<Value> {
    lines_with(1, args)
}

/// The lines of a report that ends with this status.
fn lines_with(status: i32, args: &[&str]) -> Vec<Value> {
    let text = ends_with(status, &[args, &["--json"]].concat());
    let parse = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

/// The text with its wrapped lines joined. A complaint's lines begin with one of a few words.
fn unwrapped(text: &str) -> String {
    const INDENT: &str = "          ";
    const FIRST: [&str; 5] = ["in ", "written by ", "do: ", "unwind-sim ", "US"];
    let mut out = String::new();
    for line in text.lines() {
        let own = line.strip_prefix(INDENT);
        let own = own.filter(|own| !own.starts_with(' '));
        match own.filter(|own| !FIRST.iter().any(|first| own.starts_with(first))) {
            Some(rest) => out.push_str(&format!(" {rest}")),
            None if out.is_empty() => out.push_str(line),
            None => out.push_str(&format!("\n{line}")),
        }
    }
    out.push('\n');
    out
}

#[test]
fn one_screen_says_what_broke_the_stacks() {
    let screen = ends_with(1, &["doctor", THROWS]);
    assert!(screen.lines().count() <= 40, "{screen}");

    // Where lines break depends on the lengths of names.
    let text = unwrapped(&screen);

    // Who wrote the libraries, and what their code proves, is known only where they are installed.
    let known = |line: &str| match line.trim_start().split_once(' ') {
        Some(("do:", _)) => "          do: ..\n".to_owned(),
        Some(("written", rest)) => match rest.split_once("; eh_frame ") {
            Some((_, row)) => format!("          written ..; eh_frame {row}"),
            None => "          written ..\n".to_owned(),
        },
        _ => line.to_owned(),
    };
    let masked: String = text.split_inclusive('\n').map(known).collect();
    snapshot_text(
        "doctor-throws",
        &format!("unwind-sim doctor {THROWS}"),
        &masked,
    );

    assert!(
        text.contains("GCC builds its start files without rows"),
        "{text}"
    );
    assert!(
        !text.contains("--unwinder dwarf+fp") && !text.contains("--call-graph"),
        "{text}"
    );

    // Only commands and names of files are longer.
    let is_long = |line: &&str| line.len() > 80 && line.starts_with("          ");
    let long = screen.lines().filter(is_long);
    assert!(
        long.clone().all(|line| line.contains("unwind-sim ")),
        "{screen}"
    );
}

/// As many stacks are broken as `compare` finds wrong, apart from the true ones whose root has no
/// mark.
#[test]
fn as_many_are_broken_as_compare_finds() {
    let report = lines(&["doctor", THROWS, "--unwinder", "dwarf"]);
    let (last, complaints) = report.split_last().expect("lines");
    assert_eq!(last["unwinders"][1]["unwinder"], "dwarf");
    let broken = last["unwinders"][1]["broken"].as_u64().expect("a number");
    let stacks = complaints
        .iter()
        .map(|c| c["stacks"].as_u64().expect("a number"));
    // Each broken stack belongs to one complaint.
    assert_eq!(stacks.sum::<u64>(), broken);

    let compared = ends_with(1, &["compare", THROWS, "--unwinder", "dwarf", "--json"]);
    let column: Value =
        serde_json::from_str(compared.lines().next().expect("a line")).expect("JSON");
    let verdicts = column["verdicts"].as_object().expect("verdicts");

    // The verdicts that say that a chain is not the true one.
    let wrong = ["wrong", "missing", "extra", "truncated"];
    let wrong: u64 = wrong
        .iter()
        .filter_map(|w| verdicts.get(*w)?.as_u64())
        .sum();
    assert_eq!(broken, wrong);

    let row = complaints
        .iter()
        .find(|c| c["kind"] == "wrong-row")
        .expect("a wrong row");
    assert_eq!(row["functions"][0]["function"], "_Unwind_RaiseException");
    assert_eq!(row["row"]["table"], "eh_frame");
}

#[test]
fn missing_files_and_generated_code_are_told_apart() {
    let report = lines(&["doctor", MISSING, "--symfs", "corpus"]);
    let dwarf = report.iter().filter(|c| c["unwinder"] == "dwarf");
    let kinds: Vec<&str> = dwarf.filter_map(|c| c["kind"].as_str()).collect();
    assert_eq!(kinds, ["no-file", "jit"]);
}

/// A recording without registers still has perf's chains. There is no sample that `explain` could
/// show.
#[test]
fn chains_without_registers_are_examined() {
    let report = lines_with(3, &["doctor", CHAINS, "--symfs", "corpus"]);
    let last = report.last().expect("a line");
    assert_eq!(last["unwinders"][0]["unwinder"], "perf");
    // The programs are not there, so that nothing is known of their frames.
    assert_eq!(last["unwinders"][0]["unknown"], 14);
    assert_eq!(report[0]["kind"], "no-file");
    assert_eq!(report[0]["end"], "unknown");
    let text = ends_with(3, &["doctor", CHAINS, "--symfs", "corpus"]);
    assert!(!text.contains("unwind-sim explain"), "{text}");
}

/// The command that shows a stack shows the same fault.
#[test]
fn the_command_for_a_stack_works() {
    let text = ends_with(1, &["doctor", THROWS, "--unwinder", "fp"]);
    let command = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("unwind-sim "));
    let words: Vec<&str> = command.expect("a command").split(' ').collect();
    let shown = ends_with(0, &words);
    assert!(shown.contains("US51"), "{shown}");
}

#[test]
fn nothing_to_judge_and_bad_input() {
    let empty = ends_with(3, &["doctor", "corpus/perfdata/G-empty-record.data"]);
    assert!(empty.contains("--call-graph dwarf"), "{empty}");
    for file in ["README.md", "corpus/perfdata", "no-such-file"] {
        let output = run(&["doctor", file]);
        assert_eq!(status(&output), 2, "{file}: {}", stderr(&output));
    }
    // Cut short at every length: an error or a part of the report, never a panic.
    let whole = std::fs::read("corpus/perfdata/norow.data").expect("a recording");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.data");
    for length in (0..whole.len()).step_by(whole.len() / 24) {
        std::fs::write(&path, &whole[..length]).expect("a file");
        let output = run(&["doctor", &path.to_string_lossy()]);
        assert!(
            [1, 2, 3].contains(&status(&output)),
            "{length}: {}",
            stderr(&output)
        );
    }
}

/// A proof that ends says where and why.
#[test]
fn explain_says_where_the_proof_ends() {
    let sample = ["explain", THROWS, "--sample", "2", "--against", "proof"];
    let shown = without_places(&ends_with(0, &sample));
    let line = shown
        .lines()
        .find(|l| l.starts_with("the proof ends with frame "));
    assert!(line.is_some(), "{shown}");
}

/// User chains that the kernel recorded at the return to user space belong to their samples.
#[test]
fn deferred_chains_are_joined() {
    let report = lines_with(3, &["doctor", DEFERRED, "--symfs", "corpus"]);
    let last = report.last().expect("a line");
    assert_eq!(last["unwinders"][0]["unwinder"], "perf");
    let count = |name: &str| last["unwinders"][0][name].as_u64().expect("a number");
    assert_eq!(count("whole") + count("broken") + count("unknown"), 137);
    assert_eq!(last["samples"], 137);
}

/// A recording of branch records is judged by them, and not advised to record or stitch them again.
#[test]
fn branch_records_are_judged_by_themselves() {
    let report = lines(&["doctor", BRANCHES, "--symfs", "corpus"]);
    assert_eq!(report[0]["unwinder"], "lbr");
    assert_eq!(report[0]["kind"], "branch-records");
    let advice = report[0]["advice"].as_str().expect("text");
    assert!(!advice.contains("lbr"), "{advice}");
    assert!(advice.contains("--call-graph dwarf"), "{advice}");
}

#[test]
fn what_cannot_be_judged_is_said() {
    let asked = ends_with(3, &["doctor", CHAINS, "--unwinder", "dwarf"]);
    assert!(asked.contains("none of which dwarf can walk"), "{asked}");
    let none = ends_with(3, &["doctor", CHAINS, "--tid", "4000000000"]);
    assert!(none.starts_with("no sample passes"), "{none}");
    assert!(!none.contains("record"), "{none}");
    let one = ends_with(
        1,
        &["doctor", MISSING, "--sample", "0", "--symfs", "corpus"],
    );
    assert!(
        one.starts_with("1 sample; 1 of 1 stack by dwarf is broken"),
        "{one}"
    );
}

/// What is wrong with a file, and by which build ID to look for it.
#[test]
fn files_are_told_apart_by_what_is_wrong() {
    const ID: &str = "afb71b40c3a2e2decec8e66e3af62acfe35d6ac6";
    let folder = tempfile::tempdir().expect("a folder");
    let symfs = folder.path().to_str().expect("text");
    let of = |report: &[Value]| report.iter().find(|c| c["image"] == "/opt/norow").cloned();
    let missing = of(&lines(&["doctor", MISSING, "--symfs", symfs])).expect("a complaint");
    assert_eq!(missing["kind"], "no-file");
    let advice = missing["advice"].as_str().expect("text");
    assert!(advice.contains(&format!("executable {ID})")), "{advice}");
    let opt = folder.path().join("opt");
    std::fs::create_dir(&opt).expect("a folder");
    std::fs::write(opt.join("norow"), "no ELF").expect("a file");
    let damaged = of(&lines(&["doctor", MISSING, "--symfs", symfs])).expect("a complaint");
    assert_eq!(damaged["kind"], "unreadable-file");
    let note = damaged["notes"][0].as_str().expect("text");
    assert!(note.contains("not an ELF file"), "{note}");
    let windows = [b"MZ".as_slice(), &[0; 58], &[64, 0, 0, 0], b"PE\0\0"].concat();
    std::fs::write(opt.join("norow"), windows).expect("a file");
    let other = of(&lines(&["doctor", MISSING, "--symfs", symfs])).expect("a complaint");
    assert_eq!(other["kind"], "not-elf");
    let advice = other["advice"].as_str().expect("text");
    assert!(!advice.contains("install"), "{advice}");
}

/// A program whose function `bottom` is called when its stack is as a test wants it.
fn stack_of(folder: &Path, body: &str) -> PathBuf {
    let (source, program) = (folder.join("p.c"), folder.join("p"));
    let head = "volatile long sink;\n\
                __attribute__((noinline)) void bottom(void) { sink++; }\n";
    std::fs::write(&source, format!("{head}{body}")).expect("a source");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-w", "-fno-stack-protector", "-o"]);
    let built = cc.arg(&program).arg(&source).status();
    assert!(built.expect("cc is installed").success());
    let trace = folder.join("trace.bin");
    let [trace_arg, program] = [&trace, &program].map(|p| p.to_str().expect("text"));
    let record = [
        "record", "--engine", "emulator", "--at", "bottom", "-o", trace_arg, "--", program,
    ];
    run(&record);
    trace
}

#[test]
fn endless_recursion_is_not_a_fault_of_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = stack_of(
        folder.path(),
        "__attribute__((noinline)) long down(long n) {\n\
           if (n == 0) { bottom(); return 0; }\n\
           long r = down(n - 1); sink++; return r + n; }\n\
         int main(void) { return down(3000) < 0; }\n",
    );
    let trace = trace.to_str().expect("text");
    let args = ["doctor", trace, "--unwinder", "dwarf", "--max-frames"];
    let report = lines(&[&args[..], &["1500"]].concat());
    assert_eq!(report[0]["kind"], "endless-recursion", "{report:?}");
    assert_eq!(report[0]["functions"][0]["function"], "down");
    assert_eq!(report[0]["author"], "compiler");
    // The debug information names the compiler, with whatever name it has.
    assert!(report[0]["producer"].is_string(), "{report:?}");
    // Too few frames to know.
    let report = lines(&[&args[..], &["500"]].concat());
    assert_eq!(report[0]["kind"], "frame-limit", "{report:?}");
}

#[test]
fn an_overwritten_return_address_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = stack_of(
        folder.path(),
        "__attribute__((noinline)) void poke(volatile long *at) { at[1] = 0x4141414141414141; }\n\
         __attribute__((noinline)) void smash(void) {\n\
           poke(__builtin_frame_address(0)); bottom(); sink++; }\n\
         int main(void) { smash(); sink++; return 0; }\n",
    );
    let report = lines(&["doctor", trace.to_str().expect("text")]);
    assert_eq!(report[0]["kind"], "overwritten-return", "{report:?}");
    assert_eq!(report[0]["functions"][0]["function"], "smash");
    let note = report[0]["notes"][0].as_str().expect("text");
    assert!(note.contains("0x4141414141414141"), "{note}");
}

const CODE: u64 = 0x40_1000;
const STACK: u64 = 0x7ffd_0000_0000;

/// A core (ELF, `NT_PRSTATUS` of Linux `include/uapi/linux/elfcore.h`) of a thread with code in
/// memory without a file, whose stack has `words` from rsp upwards.
fn core(rip: u64, rsp: u64, rbp: u64, words: &[u64]) -> Vec<u8> {
    const PAGE: usize = 4096;

    // `struct elf_prstatus` has 336 bytes: the thread's id is at 32, and at 112 are the registers,
    // in the order of `struct user_regs_struct`.
    let mut status = vec![0; 336];
    status[32..36].copy_from_slice(&7_u32.to_le_bytes());
    // 0x33 is `__USER_CS`; 0x202 is IF and bit 1, which is always set (Intel SDM volume 1).
    for (register, value) in [(4, rbp), (16, rip), (17, 0x33), (18, 0x202), (19, rsp)] {
        let at = 112 + 8 * register;
        status[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }

    let word32 = |n: usize| u32::try_from(n).expect("small").to_le_bytes();
    let note = [
        &word32(5)[..],
        &word32(status.len()),
        &word32(1),
        b"CORE\0\0\0\0",
        &status,
    ]
    .concat();

    // Type and flags; offset, address, physical address, size in the file and in memory; alignment.
    let header =
        |kind: u32, flags: u32, offset: usize, address: u64, file: usize, memory: usize| {
            let (offset, file, memory) = (offset as u64, file as u64, memory as u64);
            let words = [offset, address, 0, file, memory, 4].map(u64::to_le_bytes);
            [
                &kind.to_le_bytes()[..],
                &flags.to_le_bytes(),
                words.as_flattened(),
            ]
            .concat()
        };

    // The file's header: 4 is ET_CORE, 62 is EM_X86_64.
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([4, 0, 62, 0, 1, 0, 0, 0]);
    out.extend([0, 64, 0].map(u64::to_le_bytes).as_flattened());
    out.extend([0, 0, 0, 0, 64, 0, 56, 0, 3, 0, 0, 0, 0, 0, 0, 0]);

    // A PT_NOTE (4) and two PT_LOAD (1); the code is not in the file.
    out.extend(header(4, 4, 64 + 3 * 56, 0, note.len(), 0));
    out.extend(header(1, 5, PAGE, CODE, 0, PAGE));
    out.extend(header(1, 6, PAGE, STACK, PAGE, PAGE));
    out.extend(note);
    out.resize(PAGE, 0);

    let mut stack = vec![0; PAGE];
    let at = usize::try_from(rsp.saturating_sub(STACK)).expect("small");
    for (word, place) in words.iter().zip(stack[at..].chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }

    out.extend(stack);
    out
}

fn complaint_about(core: &[u8], more: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("core");
    std::fs::write(&path, core).expect("a core");
    let args = [&["doctor", path.to_str().expect("text")], more].concat();
    let first = lines(&args).swap_remove(0);
    let advice = first["advice"].as_str().expect("text");
    assert!(
        !advice.contains("perf record") && !advice.contains("--call-graph"),
        "{advice}"
    );
    first
}

#[test]
fn a_jump_to_no_code_is_blamed_on_its_caller() {
    let called = complaint_about(&core(0, STACK + 64, 0, &[CODE + 16]), &[]);
    assert_eq!(called["kind"], "bad-jump");
    assert_eq!(called["image"], "//anon");
    let note = called["notes"][0].as_str().expect("text");
    assert!(note.starts_with("the pc is 0x0, a null pointer"), "{note}");
    let jumped = complaint_about(&core(0x1234_5678, STACK + 64, 0, &[7]), &[]);
    assert_eq!(jumped["kind"], "bad-jump");
    let note = jumped["notes"][0].as_str().expect("text");
    assert!(
        note.contains("not an address of code; the word at rsp is not"),
        "{note}"
    );
}

#[test]
fn a_core_that_was_cut_short_is_told_from_one_that_lacks_memory() {
    let frame = STACK + 1024;
    let mut cut = core(CODE + 16, STACK + 64, frame, &[]);
    cut.truncate(cut.len() - 3584);
    let found = complaint_about(&cut, &["--unwinder", "fp"]);
    assert_eq!(found["kind"], "cut-core", "{found}");
    let elsewhere = core(CODE + 16, STACK + 64, STACK + 0x10_0000, &[]);
    let found = complaint_about(&elsewhere, &["--unwinder", "fp"]);
    assert_eq!(found["kind"], "not-recorded", "{found}");
}

/// A stack that overflowed: rsp is below the lowest page, the frame pointer still on the stack.
#[test]
fn an_overflowed_stack_is_walked() {
    let below = STACK - 32;
    let mut overflowed = core(CODE + 16, below, STACK, &[]);
    let stack = overflowed.len() - 4096;
    let saved = [STACK + 32, CODE + 32].map(u64::to_le_bytes);
    overflowed[stack..stack + 16].copy_from_slice(saved.as_flattened());
    let next = [0, CODE + 48].map(u64::to_le_bytes);
    overflowed[stack + 32..stack + 48].copy_from_slice(next.as_flattened());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("core");
    std::fs::write(&path, overflowed).expect("a core");
    let path = path.to_str().expect("text");
    let replayed = run(&["replay", path, "--unwinder", "fp"]);
    let text = crate::cli::stdout(&replayed);
    assert!(text.contains("401020") && text.contains("401030"), "{text}");
}
