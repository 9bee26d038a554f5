//! Profile formats: read back, all agree with the text of `perf script` for the same recording;
//! other tools read them, where installed.

mod readers;
mod truth;
mod whole;

use crate::common::decode::{self, Stacks};
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_view::perf::recording::Recording;
use unwind_sim_view::perf::script::{Options, profile};
use unwind_sim_view::profile::Format;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name)
}

/// The standard output of our own program.
fn printed(args: &[&str], recording: &Path) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    let output = command
        .args(args)
        .arg(recording)
        .output()
        .expect("our own program");
    let told = String::from_utf8_lossy(&output.stderr);
    // Wrong stacks do not matter here.
    assert!(output.status.code().is_some_and(|code| code <= 1), "{told}");
    output.stdout
}

/// `perf script` of a corpus recording, in this format.
fn script(format: &str, name: &str) -> Vec<u8> {
    let symfs = corpus("perfdata/script/symfs");
    let kallsyms = corpus("perfdata/script/kallsyms.txt");
    let (symfs, kallsyms) = (symfs.to_str().unwrap(), kallsyms.to_str().unwrap());
    let mut args = vec!["perf", "script", "--symfs", symfs, "--kallsyms", kallsyms];
    args.extend(["--format", format]);
    printed(&args, &corpus(&format!("perfdata/{name}.data")))
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

fn same(name: &str, found: &Stacks, expected: &Stacks) {
    let only = |a: &Stacks, b: &Stacks| -> Vec<String> {
        let differs = |(stack, count): &(&String, &u64)| b.get(*stack) != Some(*count);
        let lines = a.iter().filter(differs).take(3);
        lines
            .map(|(stack, count)| format!("{stack} {count}"))
            .collect()
    };
    let (more, less) = (only(found, expected), only(expected, found));
    assert!(
        more.is_empty() && less.is_empty(),
        "{name}: {more:#?} instead of {less:#?}"
    );
}

/// Recordings with chains from frame pointers, branches, stack copies and deferred records, of one
/// event and of several.
const RECORDINGS: [&str; 11] = [
    "fp-pipe",
    "LBR-stitch-grow",
    "minidebug",
    "norow",
    "A-two-samples-one-record",
    "C-two-tids",
    "G-empty-record",
    "I-user-mode-sample",
    "J-delivery-order",
    "poll-syscalls-defer",
    "threads4-switch-defer",
];

#[test]
fn all_formats_hold_the_stacks_of_the_text() {
    let mut several = 0;
    for name in RECORDINGS {
        // The text is compared with perf's own elsewhere, so here it is the reference.
        let (expected, periods) = decode::text(&utf8(script("perf-script", name)));
        assert!(!expected.is_empty(), "{name}");
        // With one event only, sums of different events could not be mixed up.
        several += usize::from(periods.len() > 1);

        // Each format is read by a decoder of this test, and gives the same stacks.
        same(
            name,
            &decode::folded(&utf8(script("folded", name))),
            &expected,
        );
        same(
            name,
            &decode::speedscope(&script("speedscope", name)),
            &expected,
        );

        let firefox = decode::unzipped(&script("firefox", name));
        same(name, &decode::firefox(&firefox), &expected);

        let pprof = decode::unzipped(&script("pprof", name));
        let (stacks, sums) = decode::pprof(&pprof);
        same(name, &stacks, &expected);

        // pprof also has the sum of the periods of each event.
        for (event, period) in periods {
            assert_eq!(
                sums.get(&format!("{event}_event")),
                Some(&period),
                "{name}: {event}"
            );
        }
    }
    assert!(several > 0, "no recording has several events");
}

#[test]
fn replays_of_several_unwinders_are_told_apart_and_say_where_they_stopped() {
    for name in ["traces/throws.bin", "perfdata/dwarf.data"] {
        let recording = corpus(name);
        let of = |format: &str, unwinders: &str| {
            let args = ["replay", "--unwinder", unwinders, "--format", format];
            printed(&args, &recording)
        };

        let expected = decode::folded(&utf8(of("folded", "dwarf,fp")));
        let one = |unwinder| decode::folded(&utf8(of("folded", unwinder)));
        // Two runs of one unwinder each, put together by hand, are what one run of both must give.
        let mut both = Stacks::new();
        for unwinder in ["dwarf", "fp"] {
            for (stack, count) in one(unwinder) {
                let (thread, frames) = stack.split_once(';').unwrap_or((&stack, ""));
                let line = format!("{thread} [{unwinder}];{frames}");
                both.insert(line.trim_end_matches(';').to_owned(), count);
            }
        }
        same(name, &expected, &both);

        let text = decode::text(&utf8(of("perf-script", "dwarf,fp"))).0;
        same(name, &text, &expected);

        let speedscope = decode::speedscope(&of("speedscope", "dwarf,fp"));
        let firefox = decode::firefox(&decode::unzipped(&of("firefox", "dwarf,fp")));
        let (pprof, sums) = decode::pprof(&decode::unzipped(&of("pprof", "dwarf,fp")));
        // Each unwinder has each sample once.
        assert_eq!(sums["dwarf_sample"], sums["fp_sample"]);

        for stacks in [speedscope, firefox, pprof] {
            // Folded stacks have no place for why a walk stopped; the other formats have it as a
            // frame.
            let (stacks, stopped) = decode::without_reasons(stacks);
            same(name, &stacks, &expected);
            // The frame pointer unwinder gets nowhere in code without frame pointers.
            assert!(stopped > 0, "{name}");
        }
    }
}

#[test]
fn damaged_recordings_give_what_is_left_of_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = std::fs::read(corpus("perfdata/fp-pipe.data")).expect("the recording");
    let (mut written, mut refused) = (0, 0);
    let formats = [
        Format::Folded,
        Format::Speedscope,
        Format::Firefox,
        Format::Pprof,
    ];

    // The step is prime, so that every field of a record is hit.
    for (at, format) in (0..whole.len())
        .step_by(61)
        .zip(formats.into_iter().cycle())
    {
        let mut bytes = whole.clone();

        // One bit of one byte.
        bytes[at] ^= 1 << (at % 8);
        let path = file(&folder, "perf.data", &bytes);
        let places = Places {
            symfs: Some(corpus("perfdata/script/symfs")),
            ..Places::default()
        };

        let mut out = Vec::new();
        let recording = Recording::open(&path).unwrap();
        match profile(
            &recording,
            &Options::default(),
            places,
            format,
            None,
            &mut out,
        ) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Ok(_) => {
                // What is written must be well formed, whatever is in it.
                let stacks = match format {
                    Format::Folded => decode::folded(&utf8(out)),
                    Format::Speedscope => decode::speedscope(&out),
                    Format::Firefox => decode::firefox(&decode::unzipped(&out)),
                    _ => decode::pprof(&decode::unzipped(&out)).0,
                };
                written += usize::from(!stacks.is_empty());
            }
        }
    }

    // Most damage leaves something that can be used.
    assert!(written > refused, "{written} against {refused}");
}

#[test]
fn a_file_is_there_when_it_is_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("profile");
    let name = corpus("perfdata/fp-pipe.data");

    for (args, fits) in [
        (["perf", "script", "--format", "folded"], true),
        (["replay", "--unwinder", "dwarf", "--format"], false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = command.args(args);
        let output = if fits {
            output.arg(&name)
        } else {
            // Something that is not a recording gives no file.
            output.arg("pprof").arg(corpus("perfdata/README.md"))
        };

        let status = output
            .arg("-o")
            .arg(&path)
            .output()
            .expect("our own program")
            .status;
        assert_eq!((status.success(), path.exists()), (fits, fits));

        if fits {
            let text = std::fs::read_to_string(&path).expect("the profile");
            assert!(!decode::folded(&text).is_empty());
            std::fs::remove_file(&path).expect("the profile");
        }

        // What is incomplete is written under another name.
        let left = std::fs::read_dir(folder.path())
            .expect("the folder")
            .count();
        assert_eq!(left, 0, "no temporary file is left");
    }
}

/// Whether a program can be run.
fn is_there(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|out| out.status.success())
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is there");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
    utf8(output.stdout)
}

/// Writes a temporary file.
fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}
