//! `-`: every command that reads a recording takes it from a pipe, and says the same of it.

use crate::cli::{THROWS, root, status, stderr, stdout, tool};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const DWARF: &str = "corpus/perfdata/dwarf.data";

/// Runs our program with these bytes on a pipe as standard input.
fn piped(args: &[&str], bytes: &[u8]) -> Output {
    let mut command = tool(args);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes
        .stderr(Stdio::piped())
        .spawn()
        .expect("our own program");
    // It may refuse its arguments without reading.
    let _ = child.stdin.take().expect("a pipe").write_all(bytes);
    child.wait_with_output().expect("it ends")
}

/// The output without what differs: the name of the recording, lines that repeat the command, and the
/// size of a page that has both.
fn plain(text: &str, name: &str) -> String {
    let is_other = |line: &&str| {
        line.contains(" bytes in ") || line.contains("unwind-sim ") || line.contains("\"command\"")
    };
    let lines = text.lines().filter(|line| !is_other(line));
    lines
        .map(|line| format!("{}\n", line.replace(name, "FILE")))
        .collect()
}

fn same_as_by_path(args: &[&str], file: &str) {
    // The same command, with the path in the place of `-`.
    let named: Vec<&str> = args
        .iter()
        .map(|&arg| if arg == "-" { file } else { arg })
        .collect();
    let by_path = crate::cli::run(&named);

    let bytes = std::fs::read(root(file)).expect("the recording");
    let by_pipe = piped(args, &bytes);

    assert_eq!(
        status(&by_pipe),
        status(&by_path),
        "{args:?}: {}",
        stderr(&by_pipe)
    );
    assert_eq!(
        plain(stdout(&by_pipe), "/dev/stdin"),
        plain(stdout(&by_path), file),
        "{args:?}"
    );
    assert_eq!(
        plain(stderr(&by_pipe), "/dev/stdin"),
        plain(stderr(&by_path), file),
        "{args:?}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn every_command_reads_a_recording_from_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("out.bin").to_string_lossy().into_owned();
    let page = folder
        .path()
        .join("out.html")
        .to_string_lossy()
        .into_owned();

    let commands: &[&[&str]] = &[
        &["replay", "-", "--unwinder", "dwarf"],
        &[
            "replay",
            "-",
            "--unwinder",
            "dwarf,fp",
            "--format",
            "folded",
        ],
        &["replay", "-", "--format", "perf-script"],
        &["compare", "-"],
        &["doctor", "-"],
        &["explain", "-", "--sample", "1"],
        &["inspect", "-"],
        &["import", "-", "-o", &output],
        &["extract", "-", "--sample", "1", "-o", &output],
        &["perf", "script", "-"],
        &["perf", "stitch", "-"],
        &["perf", "bpf", "corpus/bpf/profile.bpf.o", "-"],
        #[cfg(feature = "report")]
        &["report", "-", "-o", &page],
        &["step", "--json", "-"],
    ];

    // The output must be that of the same file by its path.
    for args in commands {
        same_as_by_path(args, DWARF);
    }

    // A trace, too.
    for args in [&["replay", "-", "--limit", "3"][..], &["compare", "-"]] {
        same_as_by_path(args, THROWS);
    }

    // Without the feature `report` nothing uses it.
    let _ = &page;
}

/// A file of which somebody has read a part is read from there, as a pipe is.
#[test]
#[cfg(target_os = "linux")]
fn a_file_is_read_from_where_it_is() {
    let tool = env!("CARGO_BIN_EXE_unwind-sim");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("both");
    let recording = std::fs::read(root(DWARF)).expect("the recording");
    std::fs::write(&file, [b"12345678", &recording[..]].concat()).expect("a file");
    let behind = |skipped: &str| {
        let script = format!("{{ {skipped} '{tool}' replay - --limit 1; }} <\"$0\"");
        let shell = Command::new("sh").args(["-c", &script]).arg(&file).output();
        shell.expect("a shell")
    };
    let whole = behind("");
    assert_eq!(status(&whole), 2, "{}", stderr(&whole));
    assert!(stderr(&whole).contains("/dev/stdin"), "{}", stderr(&whole));
    let rest = behind("dd bs=8 count=1 of=/dev/null 2>/dev/null;");
    assert_eq!(status(&rest), 3, "{}", stderr(&rest));
    assert!(stdout(&rest).starts_with("sample 0 "), "{}", stdout(&rest));
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_on_standard_input_is_checked() {
    let empty = piped(&["compare", "-"], b"");
    assert_eq!(status(&empty), 2);
    assert!(
        stderr(&empty).contains("/dev/stdin is an empty file"),
        "{}",
        stderr(&empty)
    );
    let both = piped(&["step", "--script", "-", "-"], b"x");
    assert_eq!(status(&both), 2);
    let told = "standard input cannot be both the recording and the script";
    assert!(stderr(&both).contains(told), "{}", stderr(&both));
    assert!(Path::new("/dev/stdin").exists());
}
