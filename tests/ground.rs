//! `--against proof`: the frames that the code proves are those of the shadow stack.

use crate::common::compiler::Scratch;
use crate::common::has_libc_of_throws;
use crate::common::skip::skip;
use std::path::Path;
use std::process::Command;
use unwind_sim_judge::cases;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::ground::{ProofTally, Proofs};
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::view::Filter;
use unwind_sim_tables::ground::FileArena;
use unwind_sim_unwind::truth::Truth;

/// Compares every proven frame of the recording with its truth. `files` says where whole files may
/// be; with the default, only what the recording has is used.
fn check(path: &Path, files: FinderOptions) -> ProofTally {
    let input = Input::open(path, &OpenOptions::default()).expect("a recording");
    check_input(path, &input, files)
}

fn check_input(path: &Path, input: &Input, files: FinderOptions) -> ProofTally {
    let shelf = FileArena::default();
    let mut proofs = Proofs::new(&shelf, files);
    let mut tally = ProofTally::default();
    let setting = Setting::default();

    let taken = input.for_each::<InputError>(&Filter::default(), &mut |view| {
        let proven = proofs.prove(view, &setting);
        tally.add(&proven);

        // The recording knows the truth; what was proven from the code must agree with it.
        let truth = &view.sample.truth;
        let (known, found) = (truth.frames(), proven.truth.frames());
        let place = format!("{}: sample {}", path.display(), view.number);
        if matches!(truth, Truth::Complete(_)) {
            // A proof may end earlier than the truth, but it never goes beyond it.
            assert!(
                found.len() <= known.len(),
                "{place}: {found:x?} is more than {known:x?}"
            );
            let ends = matches!(proven.truth, Truth::Complete(_));
            assert!(
                !ends || found.len() == known.len(),
                "{place}: ends too early"
            );
        }

        for (index, (found, known)) in found.iter().zip(known).enumerate() {
            // Of the last frame that is proven, the CFA need not be known.
            let is_last = index + 1 == proven.truth.frames().len();
            assert_eq!(
                (found.pc, found.kind),
                (known.pc, known.kind),
                "{place}, frame {index}: {found:x?} is not {known:x?}"
            );
            assert!(
                is_last || found.cfa == known.cfa,
                "{place}, frame {index}: {found:x?}, {known:x?}"
            );
            // Not every recording has the callee-saved registers of each true frame.
            if let (Some(found), Some(known)) = (found.saved, known.saved) {
                assert_eq!(
                    found, known,
                    "{place}, frame {index}: callee-saved registers"
                );
            }
        }
        Ok(())
    });

    taken.expect("a whole recording");
    println!("{}: {}", path.display(), tally.text());
    tally
}

#[test]
fn proven_frames_of_the_corpus_are_true() {
    let path = Path::new("corpus/traces/throws.bin");
    // Whole files of the machine count: 3.63 frames a sample with the recording's libraries, and 1.18
    // without any of them.
    let tally = check(path, FinderOptions::default());
    assert_eq!(tally.samples, 2920);
    // 1 is the sampled frame itself.
    let least = if has_libc_of_throws() {
        DEPTH_OF_THROWS_MIN
    } else {
        DEPTH_WITHOUT_LIBRARIES_MIN
    };
    assert!(tally.mean_depth_hundredths() > Some(least), "{tally:?}");
    check(path, FinderOptions::system());
}

/// The least mean depth of `throws.bin`, in hundredths of a frame.
const DEPTH_OF_THROWS_MIN: u64 = 130;
/// The same where there are no files of it.
const DEPTH_WITHOUT_LIBRARIES_MIN: u64 = 115;

/// Recursion, a frame of variable size, callbacks, and a function without a row.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
volatile long sink;
__asm__(
    ".text\n.globl unlisted\n.type unlisted,@function\nunlisted:\n"
    "push %rbx\nsub $40,%rsp\nmov %rdi,%rbx\nmov %rsi,%rdi\ncall *%rbx\n"
    "add $40,%rsp\npop %rbx\nret\n.size unlisted,.-unlisted\n");
extern void unlisted(void (*)(long), long);
static int order(const void *a, const void *b) { sink++; return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) static long sized(long n) {
    char *room = __builtin_alloca(n * 16 + 16);
    memset(room, (int)n, n * 16);
    return n < 1 ? room[0] : sized(n - 1) + room[n];
}
__attribute__((noinline)) static void leaf(long n) { for (long i = 0; i < n; i++) sink += i; }
int main(void) {
    int all[64];
    for (int i = 0; i < 64; i++) all[i] = (i * 37) & 63;
    qsort(all, 64, sizeof *all, order);
    sink += sized(12);
    unlisted(leaf, 50);
    return 0;
}
"#;

/// Records a program in the emulated machine, and compares.
#[test]
fn proven_frames_of_compiled_programs_are_true() {
    let scratch = Scratch::new();

    let mut depths = Vec::new();

    // With and without optimization, frame pointers and tables: what can be proven does not depend
    // on tables.
    for (name, flags) in [
        ("o0", &["-O0"][..]),
        ("o2", &["-O2"]),
        ("fp", &["-O2", "-fno-omit-frame-pointer"]),
        (
            "bare",
            &[
                "-O2",
                "-fno-asynchronous-unwind-tables",
                "-fno-unwind-tables",
            ],
        ),
        ("static", &["-O2", "-static"]),
    ] {
        let program = match scratch.cc(&format!("{name}.c"), PROGRAM, flags) {
            Ok(program) => program,
            Err(error) => {
                eprintln!("{error}");
                skip(
                    "proven_frames_of_compiled_programs_are_true",
                    format!("cc {name} does not work here"),
                );
                continue;
            }
        };

        let trace = scratch.path(&format!("{name}.bin"));

        // From `main` on: what comes before is the C library's.
        let done = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
            .args([
                "record", "--engine", "emulator", "--from", "main", "--at", "every:7", "-o",
            ])
            .arg(&trace)
            .arg("--")
            .arg(&program)
            .output()
            .expect("our program");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );

        let tally = check(&trace, FinderOptions::system());
        depths.push((name, tally.mean_depth_hundredths()));
    }

    // Chains of one frame would all be true, and show nothing.
    for (name, depth) in depths {
        assert!(depth > Some(DEPTH_OF_PROGRAMS_MIN), "{name}: {depth:?}");
    }
}

/// The least mean depth of the compiled programs, in hundredths of a frame.
const DEPTH_OF_PROGRAMS_MIN: u64 = 200;

/// The cases have wrong and missing rows on purpose, signal frames, switched stacks and jumps out of
/// functions.
#[test]
fn proven_frames_of_cases_are_true() {
    let mut folders = vec![Path::new("corpus/cases").to_owned()];
    let (mut cases, mut frames) = (0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                // Their samples are changed on purpose, so that not even the first frame is true.
                if !path.ends_with("corrupt") {
                    folders.push(path);
                }
                continue;
            }

            if path.extension().is_none_or(|ending| ending != "s") {
                continue;
            }
            // Needs the assembler; `cases` says so where it is missing, and compares what the machine
            // records with the processor, which takes a hundred times as long.
            let case = InputFile::open(&path).expect("it is there");
            if let Ok(trace) = cases::emulated_trace_of(&case, &CaseLimits::default()) {
                let input = Input::from_trace(trace);
                let tally = check_input(&path, &input, FinderOptions::default());
                cases += 1;
                frames += tally.frames;
            }
        }
    }

    match cases {
        0 => skip(
            "proven_frames_of_cases_are_true",
            "no case can be built here",
        ),
        cases => assert!(frames > cases, "{frames} frames in {cases} cases"),
    }
}

/// Programs of this machine, with whatever libraries they have.
#[test]
fn proven_frames_of_installed_programs_are_true() {
    let name = "proven_frames_of_installed_programs_are_true";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }

    let scratch = Scratch::new();

    // Short runs of different programs.
    let programs: [&[&str]; 8] = [
        &["/bin/ls", "-la", "/usr/bin"],
        &["/usr/bin/git", "--version"],
        &[
            "/usr/bin/perl",
            "-e",
            "print join(',', sort map { $_ * 7 % 31 } 1..200)",
        ],
        &[
            "/usr/bin/python3",
            "-c",
            "import json; print(json.dumps({'a': [1, 2.5, 'x']}))",
        ],
        &["/usr/bin/openssl", "version"],
        &[
            "/bin/bash",
            "-c",
            "for i in 1 2 3; do echo $((i * 7)); done",
        ],
        &["/usr/bin/sort", "/etc/services"],
        &["/usr/bin/gdb", "--version"],
    ];

    for (number, program) in programs.iter().enumerate() {
        // 997 is a prime: samples do not fall into step with loops.
        let trace = scratch.path(&format!("{number}.bin"));
        let done = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
            .args(["record", "--engine", "emulator", "--at", "every:997", "-o"])
            .arg(&trace)
            .arg("--")
            .args(*program)
            .output()
            .expect("our program");

        // What is not installed, or not modelled, leaves no recording.
        if trace.exists() {
            check(&trace, FinderOptions::system());
        } else {
            println!("{}: {}", program[0], String::from_utf8_lossy(&done.stderr));
        }
    }
}
