//! What a recording lacks is told: its end, or samples that cannot be used.

use crate::cli::{THROWS, root, run, status, stderr, stdout};
use std::path::PathBuf;

/// Files that were cut short, each with a part of the message about it.
fn cut_files(folder: &std::path::Path) -> Vec<(String, &'static str)> {
    let read = |name: &str| std::fs::read(root(name)).expect("the corpus");

    // One of each kind of recording, cut at a place with a known message.
    let cuts = [
        (
            "cut.bin",
            read(THROWS),
            5000,
            "offset 0xf68: the file ends after 1056 of 90776 bytes",
        ),
        (
            "cut.data",
            read("corpus/perfdata/dwarf.data"),
            9000,
            "data section at offset 0x",
        ),
        (
            "pipe.data",
            read("corpus/perfdata/fp-pipe.data"),
            4000,
            "record at offset 0xf94: record of 144 bytes, but only 12 bytes are left: 132 are missing",
        ),
        (
            "core",
            read("corpus/cores/small"),
            700,
            "PT_LOAD at offset 0x260: 36 bytes from here on lie outside the file of 700 bytes",
        ),
    ];

    // The sizes are those of the corpus: another file needs another place for its cut.
    let write = |(name, bytes, len, told): (&str, Vec<u8>, usize, _)| {
        let path: PathBuf = folder.join(name);
        std::fs::write(&path, &bytes[..bytes.len().min(len)]).expect("written");
        (path.to_string_lossy().into_owned(), told)
    };
    cuts.into_iter().map(write).collect()
}

/// Every command that reads recordings says that one was cut short, where, and how much is missing;
/// once.
#[test]
fn a_recording_that_was_cut_short_is_said_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out.bin").to_string_lossy().into_owned();
    for (file, told) in cut_files(folder.path()) {
        for args in [
            &["compare"][..],
            &["replay"],
            &["replay", "--format", "folded"],
            &["explain"],
            &["doctor"],
            &["extract", "-o", &output],
            &["import", "-o", &output],
        ] {
            // A trace needs no import.
            if args[0] == "import" && file.ends_with(".bin") {
                continue;
            }

            let ran = run(&[args, &[&file]].concat());
            let said = stderr(&ran);
            let lines = said.lines().filter(|line| line.contains("was cut short"));
            let lines: Vec<&str> = lines.collect();

            // Once, though a command may read the file several times.
            let [line] = lines[..] else {
                panic!("{args:?} {file}: {said}");
            };

            assert!(line.contains("; what is there is used: "), "{line}");
            assert!(
                line.contains(&file) && line.contains(told),
                "{args:?} {line}"
            );
        }

        // `inspect` shows what is there, so it says it among the facts.
        let inspected = run(&["inspect", &file]);
        let shown = stdout(&inspected);
        assert!(shown.contains(told), "{file}: {shown}");
    }
}

/// What is there of a recording that was cut short is used: the exit status is that of the rest, by
/// every command.
#[test]
fn a_recording_that_was_cut_short_has_the_status_of_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out.bin").to_string_lossy().into_owned();
    let handler = "corpus/bpf/profile.bpf.o";
    for (name, missing) in [("dwarf.data", 5044), ("fp-pipe.data", 20)] {
        let whole = format!("corpus/perfdata/{name}");
        let bytes = std::fs::read(root(&whole)).expect("the corpus");
        let file = folder.path().join(name);

        // The cut is inside the data, so that whole records are left.
        std::fs::write(&file, &bytes[..bytes.len() - missing]).expect("written");
        let file = file.to_str().expect("a path");

        for args in [
            &["perf", "script"][..],
            &["perf", "script", "--format", "folded"],
            &["perf", "script", "--unwinder", "fp"],
            &["perf", "stitch"],
            &["perf", "bpf", handler],
            &["replay", "--format", "pprof"],
            &["replay", "--format", "perf-script"],
            &["replay"],
            &["compare"],
            &["doctor"],
            &["import", "-o", &output],
        ] {
            let (cut, whole) = (
                run(&[args, &[file]].concat()),
                run(&[args, &[&whole]].concat()),
            );
            // Enough is left for the same status: missing samples are reported, and are not an error.
            assert_eq!(status(&cut), status(&whole), "{args:?} {}", stderr(&cut));

            // It is said once, with the file's name.
            let said = stderr(&cut);
            let lines = said.lines().filter(|line| line.contains("was cut short"));
            let lines: Vec<&str> = lines.collect();
            let [line] = lines[..] else {
                panic!("{args:?} {file}: {said}");
            };
            assert!(line.contains(file), "{args:?} {line}");
        }
    }
}

/// A recording without a usable sample: why, and what to do.
#[test]
fn samples_that_cannot_be_used_are_counted_with_the_reason() {
    let file = "corpus/perfdata/fp-pipe.data";
    for args in [&["compare", file][..], &["replay", file]] {
        let ran = run(args);
        assert_eq!(status(&ran), 3);
        let said = stderr(&ran);
        let why = "14 left out: no user registers were recorded; record with";
        assert!(said.contains(why), "{said}");
        let next = format!("next: unwind-sim doctor {file}, for the chains that perf recorded");
        assert!(said.contains(&next), "{said}");
    }
    // What was not read is not counted.
    let one = run(&["replay", "corpus/perfdata/dwarf.data", "--limit", "1"]);
    let told = stderr(&one);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("unwind-sim: exit status 3: "), "{told}");
}

/// Of a deep recursion, the first and the last frames are explained.
#[test]
fn frames_that_repeat_are_folded() {
    let case = "corpus/cases/frame/recursion-gives-the-same-pc-many-times.s";
    let explained = |more: &[&str]| {
        let ran = run(&[&["explain", case, "--unwinder", "dwarf"], more].concat());
        assert_eq!(status(&ran), 0, "{}", stderr(&ran));
        stdout(&ran).to_owned()
    };
    let (folded, all) = (explained(&[]), explained(&["--all"]));
    let details = |text: &str| text.lines().filter(|l| l.starts_with("frame ")).count();
    // One more is the step behind the root, which found none.
    assert_eq!((details(&folded), details(&all)), (5, 43));
    let line = "... 38 frames that repeat the frame above (--all shows them)";
    assert_eq!(folded.matches(line).count(), 2, "{folded}");
    assert!(folded.contains("\nframe 40: return address") && !folded.contains("\nframe 20:"));
    assert!(!all.contains("that repeat"));

    // A folded frame can be asked for.
    let one = explained(&["--frame", "20"]);
    assert!(one.contains("\nframe 20: return address"), "{one}");

    // The list of `replay`, too, but not what machines read.
    let replayed = |more: &[&str]| {
        let ran = run(&[&["replay", case, "--unwinder", "dwarf"], more].concat());
        stdout(&ran).to_owned()
    };
    let (folded, all) = (replayed(&[]), replayed(&["--all"]));
    assert_eq!(folded.matches(line).count(), 1, "{folded}");

    // One line stands for 38.
    assert_eq!(all.lines().count(), folded.lines().count() + 37);
    assert!(!all.contains("that repeat"));
    for format in [&["--json"][..], &["--format", "folded"]] {
        let text = replayed(format);
        assert!(!text.contains("that repeat"), "{text}");
        assert!(text.matches("rec").count() >= 40, "{text}");
    }
}

/// A chain that agrees as far as its reference goes is not judged: the exit status says so, as the
/// column does.
#[test]
fn agreement_to_a_depth_is_not_a_judgement() {
    let compared = run(&[
        "compare",
        "corpus/perfdata/kernel-frames.data",
        "-u",
        "dwarf",
    ]);
    let dwarf = stdout(&compared).lines().find(|l| l.starts_with("dwarf"));
    let words: Vec<&str> = dwarf.expect("a line").split_whitespace().collect();
    assert_eq!(words[..3], ["dwarf", "3", "0"], "unjudged, judged");
    assert_eq!(status(&compared), 3);
}
