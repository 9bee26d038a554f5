//! Files that commands write, whole or not at all, and ELF files that `inspect` reads.

use crate::cli::{SEED, THROWS, ends_with, root, run, status};
use crate::common::skip::skip;
use std::path::Path;
use std::process::Command;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |e: std::io::Result<std::fs::DirEntry>| e.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|e| name(e).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn an_output_file_is_what_standard_output_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let file = path.to_string_lossy().into_owned();
    for args in [
        &["replay", SEED][..],
        &["replay", SEED, "--json"],
        &["replay", THROWS, "--format", "folded"],
    ] {
        let direct = run(args);
        let output = run(&[args, &["-o", &file]].concat());
        assert_eq!(status(&output), status(&direct));
        // With -o, nothing goes to standard output, so that a pipe does not get it twice.
        assert!(output.stdout.is_empty());

        let without_command = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            // In quotes where the folder's name has a space.
            text.replace(&format!(" -o {file}"), "")
                .replace(&format!(" -o '{file}'"), "")
        };

        let written = std::fs::read(&path).expect("the file");
        assert_eq!(
            without_command(&written),
            without_command(&direct.stdout),
            "{args:?}"
        );

        // No file of another name is left.
        assert_eq!(names(folder.path()), ["out"]);
    }
}

/// The old file stays until the new one is whole, and nothing else is left.
#[test]
fn a_failure_leaves_no_file_and_changes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let damaged = folder.path().join("damaged.bin");
    let mut bytes = std::fs::read(root(THROWS)).expect("a trace");

    // Somewhere among the samples: found only when the rest has already been written.
    let at = bytes.len() - 2000;
    bytes[at] ^= 0xff;
    std::fs::write(&damaged, bytes).expect("a file");
    let damaged = damaged.to_string_lossy().into_owned();

    for name in ["out.bin", "out.s", "out.txt"] {
        let path = folder.path().join(name);
        let file = path.to_string_lossy().into_owned();
        // With and without an older file, which must neither vanish nor be cut.
        for old in [None, Some("what was there")] {
            if let Some(old) = old {
                std::fs::write(&path, old).expect("a file");
            }
            // A damaged trace, a file that is no recording, a sample that there is not, and three
            // samples for one case.
            let args: &[&[&str]] = match name {
                "out.bin" => &[
                    &["extract", &damaged, "-o", &file],
                    &["import", "README.md", "-o", &file],
                    &["extract", SEED, "--sample", "77", "-o", &file],
                ],
                "out.s" => &[&["extract", SEED, "-o", &file]],
                _ => &[
                    &["replay", &damaged, "-o", &file],
                    &["replay", "no/such/file", "-o", &file],
                ],
            };

            for args in args {
                let output = run(args);
                assert_eq!(status(&output), 2, "{args:?}");
                match old {
                    None => assert!(!path.exists(), "{args:?}"),
                    Some(old) => {
                        let now = std::fs::read_to_string(&path).expect("the file");
                        assert_eq!(now, old, "{args:?}");
                    }
                }
                // The damaged input, and the old output if there was one; no temporary file.
                let others = names(folder.path());
                assert!(others.len() <= 2, "{args:?} left {others:?}");
            }
        }

        std::fs::remove_file(&path).expect("our file");
    }
}

#[test]
fn an_extracted_sample_is_judged_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.bin");
    let file = path.to_string_lossy().into_owned();
    for scrub in [&[][..], &["--scrub"]] {
        let args = ["extract", THROWS, "--sample", "1000", "-o", &file];
        ends_with(0, &[&args[..], scrub].concat());
        let whole = run(&[
            "replay",
            THROWS,
            "--sample",
            "1000",
            "--unwinder",
            "dwarf,orc,fp",
        ]);
        let part = run(&["replay", &file, "--unwinder", "dwarf,orc,fp"]);
        assert_eq!(status(&part), status(&whole));
        let text = |output: &std::process::Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.replace("sample 1000 ", "sample 0 ")
        };
        assert_eq!(text(&part), text(&whole), "{scrub:?}");
    }
}

/// The units of a real library equal those that readelf counts.
#[test]
fn units_are_counted_as_readelf_counts_them() {
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    let readelf = Command::new("readelf")
        // If a separate debug file is missing, following the link to it is an error.
        .args(["--debug-dump=no-follow-links", "--debug-dump=frames", libc])
        .output();
    let readelf = match readelf {
        Ok(output) if output.status.success() => output.stdout,
        _ => {
            return skip(
                "units_are_counted_as_readelf_counts_them",
                "no readelf, or no libc",
            );
        }
    };

    let readelf = String::from_utf8_lossy(&readelf);

    // readelf prints one such line for each FDE.
    let fdes = readelf.lines().filter(|l| l.contains(" FDE cie=")).count();

    let text = ends_with(0, &["inspect", libc]);
    let table = text.split("\n.eh_frame:").nth(1).expect("an .eh_frame");

    let number = |key: &str| {
        let line = table.lines().find(|l| l.trim_start().starts_with(key));
        line.and_then(|l| l.split_whitespace().nth(1))
            .expect("a number")
            .to_owned()
    };

    assert_eq!(number("units"), fdes.to_string());
    // A unit that cannot be read is counted apart, and would be missing above.
    assert_eq!(number("malformed"), "0");
}
