//! The speed of our walks and imports, by counting: the instructions that they and their peers need
//! for the same work, in one statically linked program (`benches/counted.rs`) in the emulated
//! machine. The machine counts exactly, so a change is a change of the code.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SELF: &str = env!("CARGO_BIN_EXE_unwind-sim");
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What is compared, and the ratio of our instructions to the peer's that is held.
const HELD: [(&str, &str, f64); 7] = [
    ("ours dwarf warm", "framehop warm", 0.0700),
    ("ours sframe warm", "framehop warm", 0.0709),
    ("ours orc warm", "framehop warm", 0.0700),
    ("ours dwarf first", "framehop first", 0.6016),
    ("ours sframe first", "framehop first", 0.6008),
    ("ours orc first", "framehop first", 0.5807),
    (
        "ours dwarf import",
        "linux-perf-data + framehop import",
        0.4378,
    ),
];
/// How far a ratio may be from the one that is held.
const TOLERANCE: f64 = 0.05;
/// Work is done once and this many times, and the difference is counted, so that neither the start
/// of the program nor the first use of its memory matters.
const TIMES: u64 = 4;

/// The number of functions through which stacks go.
const FUNCTIONS: u64 = 2000;

/// A library of functions as a compiler writes them, at the same addresses on every machine: they
/// save up to five registers, and have a frame of up to 504 bytes; every fifth has a frame pointer.
fn functions() -> String {
    let mut text = String::from(".text\n");
    let mut random = 1u64;
    let mut below = |end: u64| {
        // Knuth's generator for MMIX, so that the functions are the same everywhere.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a generator have short periods.
        (random >> 33) % end
    };

    for number in 0..FUNCTIONS {
        let mut line = |line: &str| writeln!(text, "{line}").expect("memory");
        line(&format!(".type f{number}, @function"));
        line(&format!("f{number}: .cfi_startproc"));

        let (has_frame_pointer, mut offset) = (number % 5 == 0, 8);
        let mut saved = ["rbp", "rbx", "r12", "r13", "r14"];
        if !has_frame_pointer {
            // Without a frame pointer, rbp is a register like the others, and comes last.
            saved.rotate_left(1);
        }
        let saved = &saved[..below(6) as usize];

        for (index, register) in saved.iter().enumerate() {
            offset += 8;
            line(&format!("push %{register}"));
            if !has_frame_pointer || index == 0 {
                line(&format!(".cfi_def_cfa_offset {offset}"));
            }
            line(&format!(".cfi_offset %{register}, {}", -offset));
            if has_frame_pointer && index == 0 {
                line("mov %rsp, %rbp");
                line(".cfi_def_cfa_register %rbp");
            }
        }

        // With rbp as its base, the CFA does not move with rsp.
        let by_rbp = has_frame_pointer && !saved.is_empty();
        let frame = 8 * below(64) as i64;
        line(&format!("sub ${frame}, %rsp"));
        if !by_rbp {
            line(&format!(".cfi_adjust_cfa_offset {frame}"));
        }

        line(&format!(".skip {}, 0x90", 8 + below(120)));

        // What follows the epilogue has the rows from before it.
        line(".cfi_remember_state");
        line(&format!("add ${frame}, %rsp"));
        if !by_rbp {
            line(&format!(".cfi_adjust_cfa_offset {}", -frame));
        }

        for register in saved.iter().rev() {
            line(&format!("pop %{register}"));
            match by_rbp {
                true if *register == "rbp" => line(".cfi_def_cfa %rsp, 8"),
                true => {}
                false => line(".cfi_adjust_cfa_offset -8"),
            }
        }

        line("ret");
        line(".cfi_restore_state");
        // Never reached; without an instruction here, the restored row would cover nothing.
        line("ud2");
        line(".cfi_endproc");
    }
    text
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &errors
}

/// Builds the program, with Cargo's default settings, as `cargo bench` does.
fn build(folder: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counted");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--locked",
            "--profile",
            "bench",
            "--no-default-features",
        ])
        .args(["--bench", "counted", "--target", TARGET])
        .arg("--target-dir")
        .arg(&target)
        .arg("--message-format=json")
        // A static program, as the instructions of a dynamic linker would be counted, too.
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        // Cargo prefers this variable to the one above.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_PROFILE_BENCH_OPT_LEVEL");

    let said = output(&mut cargo);
    let mut messages = said.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_program = message["target"]["name"] == "counted";
        message["executable"]
            .as_str()
            .filter(|_| is_program)
            .map(PathBuf::from)
    });
    let built = messages.next_back().expect("cargo says where it is");

    // The address of its path is part of the work.
    let program = folder.join("counted");
    std::fs::copy(built, &program).expect("it is copied");
    program
}

/// The instructions that the program executes in the machine to do some work so many times.
fn executed(program: &Path, folder: &Path, name: &str, times: u64) -> u64 {
    let mut command = Command::new(SELF);
    command.args(["emulate", "--stats", "--"]);
    command.arg(program).args(["run", name, &times.to_string()]);
    let said = output(command.arg(folder));
    let count = said.split_once(" instructions").map(|(before, _)| before);
    let count = count.and_then(|before| before.rsplit(char::is_whitespace).next());
    let count = count.map(|count| count.replace(',', "").parse());
    match count {
        Some(Ok(count)) => count,
        _ => panic!("no number of instructions: {said}"),
    }
}

#[test]
fn our_instructions_keep_their_ratio_to_the_peers() {
    let name = "our_instructions_keep_their_ratio_to_the_peers";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }

    let scratch = Scratch::new();
    let folder = scratch.path("");
    let folder = folder.as_path();
    let library = scratch.cc(
        "functions.s",
        &functions(),
        &["-shared", "-nostdlib", "-Wl,-Ttext=0x100000"],
    );
    let library = library.expect("an assembler and a linker");
    std::fs::rename(library, folder.join("functions.so")).expect("it is renamed");

    let program = build(folder);
    // It has checked that all give the same addresses.
    let list = output(Command::new(&program).arg("write").arg(folder));

    let counted = |name: &str| {
        assert!(list.lines().any(|known| known == name), "{name}: {list}");
        // What comes before the work is in both, and falls out.
        executed(&program, folder, name, 1 + TIMES) - executed(&program, folder, name, 1)
    };

    let mut changed = Vec::new();
    for (ours, peer, held) in HELD {
        let (mine, theirs) = (counted(ours), counted(peer));
        let ratio = mine as f64 / theirs as f64;
        println!("{ours} {mine} | {peer} {theirs} | ratio {ratio:.4}, held {held:.4}");

        // Both directions: a gain that is not written down could be lost unseen.
        if (ratio / held - 1.0).abs() > TOLERANCE {
            changed.push(format!("{ours} / {peer}: {ratio:.4}, held {held:.4}"));
        }
    }

    assert!(
        changed.is_empty(),
        "more than {TOLERANCE} from what is held; a gain is to be held, too: {changed:#?}"
    );
}
