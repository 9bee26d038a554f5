//! An input is opened once, whatever a command does with it: commands are run in a process of this test,
//! whose one function that opens files counts.

use crate::cli::{SEED, ends_with, root};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unwind_sim_recordings::open;

/// Says that this process is the one in which a command is run: the input and the words, one a line.
const COUNTED: &str = "UNWIND_SIM_TEST_COUNTED";
const NAME: &str = "cli::opens::an_input_is_opened_once";
/// Stands before the count, on standard error.
const TIMES: &str = "times opened: ";

/// A command, in which `@` is the input and `OUT` a file to write.
type Words = &'static [&'static str];

/// What every command of a recording does.
const RECORDINGS: &[Words] = &[
    &["replay", "@"],
    &["replay", "@", "--unwinder", "all"],
    &[
        "replay",
        "@",
        "--unwinder",
        "dwarf,fp",
        "--format",
        "folded",
    ],
    &["replay", "@", "--format", "perf-script"],
    &["replay", "@", "--as", "perf"],
    &["compare", "@"],
    &["doctor", "@"],
    &["explain", "@"],
    &["inspect", "@"],
    #[cfg(feature = "machine")]
    &["replay", "@", "--confirm"],
    #[cfg(feature = "machine")]
    &["extract", "@", "--sample", "0", "-o", "OUT"],
    #[cfg(feature = "machine")]
    &["step", "@", "--json", "--count", "1"],
    #[cfg(feature = "report")]
    &["report", "@", "--count", "1", "-o", "OUT"],
];
/// Of what was not made for this program, besides.
const OTHERS: &[Words] = &[&["import", "@", "-o", "OUT"]];
const SCRUB: &[Words] = &[&["scrub", "@", "-o", "OUT"]];
#[cfg(feature = "perf")]
const PERF: &[Words] = &[
    &["perf", "script", "@"],
    &["perf", "stitch", "@"],
    &["perf", "bpf", "corpus/bpf/profile.bpf.o", "@"],
];
#[cfg(not(feature = "perf"))]
const PERF: &[Words] = &[];
const ELF: &[Words] = &[
    &["inspect", "@"],
    &["inspect", "@", "--rows", "main"],
    &["tables", "dump", "@"],
    &["tables", "check", "@"],
    &["tables", "diff", "@", "/bin/true"],
    &["tables", "convert", "@", "--to", "sframe-v3", "-o", "OUT"],
    &["tables", "generate", "@", "--to", "sframe-v3", "-o", "OUT"],
];
const KERNEL: &[Words] = &[
    &["inspect", "@"],
    &["compare", "corpus/traces/seed-004.bin", "--kernel", "@"],
    #[cfg(feature = "machine")]
    &["emulate", "--kernel", "@", "--max-instructions", "1000"],
];
const LINES: &[Words] = &[
    &["compare", "corpus/traces/seed-004.bin", "--baseline", "@"],
    #[cfg(feature = "report")]
    &["report", "@", "-o", "OUT"],
];

/// Runs the command whose words and input these lines are, and says how often it opened the input.
fn count(lines: &str) {
    let mut lines = lines.lines();
    let file = lines.next().expect("an input");
    unwind_sim::run(lines.map(OsString::from).collect());
    let times = open::times_opened(Path::new(file)).expect("the input is still there");
    eprintln!("\n{TIMES}{times}");
}

/// How often a command opens `file`, in a process of its own.
fn times_opened(words: Words, file: &Path, out: &Path) -> u32 {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let mut lines = vec![text(file), "unwind-sim".to_owned()];
    lines.extend(words.iter().map(|&word| match word {
        "@" => text(file),
        "OUT" => text(out),
        word => word.to_owned(),
    }));

    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", NAME, "--nocapture"]);
    command.env(COUNTED, lines.join("\n")).current_dir(root(""));
    let output = command.stdin(Stdio::null()).output().expect("it runs");

    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let times = said.lines().find_map(|line| line.strip_prefix(TIMES));
    let times = times.unwrap_or_else(|| panic!("{words:?}: {said}"));
    times.parse().expect("a number")
}

/// Inputs of each kind in `folder`, and the commands that read them.
fn inputs(folder: &Path) -> Vec<(PathBuf, Vec<Words>)> {
    // Copies in a folder of the test: an input is identified by its file, and nothing else opens these.
    let copy = |from: &str, name: &str| {
        let mut bytes = std::fs::read(root(from)).expect("a file");
        if from.ends_with(".zst") {
            bytes = zstd::decode_all(&bytes[..]).expect("zstd");
        }
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };

    let lines = folder.join("lines");
    // The findings of one command, which others read.
    let text = ends_with(1, &["compare", SEED, "--regs", "fake:v5.1", "--json"]);
    std::fs::write(&lines, text).expect("a file");

    vec![
        (copy(SEED, "trace"), [RECORDINGS, SCRUB].concat()),
        (
            copy("corpus/perfdata/dwarf.data", "perf"),
            [RECORDINGS, OTHERS, SCRUB, PERF].concat(),
        ),
        (
            copy("corpus/perfdata/fp-pipe.data", "perf-pipe"),
            [RECORDINGS, OTHERS].concat(),
        ),
        (
            copy("corpus/cores/threads.core.zst", "core"),
            [RECORDINGS, OTHERS, SCRUB].concat(),
        ),
        (copy("corpus/bpf/profile.bpf.o", "bpf"), vec![ELF[0]]),
        (copy("/bin/true", "elf"), ELF.to_vec()),
        (
            copy("fuzz/corpus/kernel_image/vmlinux", "vmlinux"),
            KERNEL.to_vec(),
        ),
        (lines, LINES.to_vec()),
    ]
}

#[test]
fn an_input_is_opened_once() {
    if let Ok(lines) = std::env::var(COUNTED) {
        return count(&lines);
    }

    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut wrong = Vec::new();
    for (file, commands) in inputs(folder.path()) {
        for words in commands {
            let times = times_opened(words, &file, &out);
            if times != 1 {
                let name = file.file_name().expect("a name").display();
                wrong.push(format!("{name}: {words:?}: {times} times"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
