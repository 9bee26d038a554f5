//! Pipes: every command takes from standard input, and from a pipe of a shell, what it takes from a file, and
//! says the same of it.

use crate::cli::guess_capture;
use crate::cli::{SEED, THROWS, root, status, stderr, stdout, tool};
use std::io::Write;
use std::path::{Path, PathBuf};
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

/// The output of a command that was given `file` by a name that is `name`, without what differs.
fn said(output: &Output, name: &str) -> (i32, String, String) {
    let [out, err] = [stdout(output), stderr(output)].map(|text| plain(text, name));
    (status(output), out, err)
}

/// Runs a command, in which `@` is the input, with a pipe in its place: as standard input, and as a shell
/// passes the output of a command (`<(COMMAND)`). Both must say what it says of the file.
fn same_as_by_path(args: &[&str], file: &Path) {
    let name = file.to_str().expect("UTF-8");
    let with = |name: &str| -> Vec<String> {
        let words = args.iter().map(|&arg| if arg == "@" { name } else { arg });
        words.map(str::to_owned).collect()
    };
    let by_path = with(name);
    let by_path: Vec<&str> = by_path.iter().map(String::as_str).collect();
    let by_path = said(&crate::cli::run(&by_path), name);
    assert_ne!(by_path.0, 2, "{args:?} of {name}: {}", by_path.2);

    let bytes = std::fs::read(file).expect("the input");
    let dash = with("-");
    let dash: Vec<&str> = dash.iter().map(String::as_str).collect();
    let by_pipe = said(&piped(&dash, &bytes), "/dev/stdin");
    assert_eq!(by_pipe, by_path, "{args:?} of {name}");

    same_as_substituted(args, file, &by_path);
}

/// A pipe with a number of its own, as of `<(cat FILE)` in a shell that has it.
fn same_as_substituted(args: &[&str], file: &Path, by_path: &(i32, String, String)) {
    const PIPE: &str = "/dev/fd/9";
    let script = r#"input=$1; shift; cat "$input" | "$0" "$@" 9<&0 </dev/null"#;
    let words = args.iter().map(|arg| arg.replace('@', PIPE));
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_unwind-sim")]);
    shell.arg(file).args(words).current_dir(root(""));
    crate::cli::without_terminal(&mut shell);
    let output = shell.output().expect("a shell");
    assert_eq!(
        said(&output, PIPE),
        *by_path,
        "{args:?} of {}",
        file.display()
    );
}

/// Every command that reads a recording or another input, `@`, by the kind of file that it reads.
fn readers(folder: &Path) -> Vec<(PathBuf, Vec<Vec<String>>)> {
    let output = folder.join("out.bin").to_string_lossy().into_owned();
    let page = folder.join("out.html").to_string_lossy().into_owned();
    // The names have no extension, as a pipe has none: the content must say what it is.
    let copy = |from: &str, name: &str| {
        let mut bytes = std::fs::read(root(from)).expect("a file");
        if from.ends_with(".zst") {
            // As a person has it: only the repository packs it.
            bytes = zstd::decode_all(&bytes[..]).expect("zstd");
        }
        let path = folder.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    // Outputs have the same names in all runs, as messages name them.
    let words = |commands: &[&[&str]]| -> Vec<Vec<String>> {
        let put = |word: &&str| match *word {
            "OUT" => output.clone(),
            "PAGE" => page.clone(),
            word => word.to_owned(),
        };
        let words = |command: &&[&str]| command.iter().map(put).collect();
        commands.iter().map(words).collect()
    };

    let every = words(&[
        &["replay", "@", "--unwinder", "dwarf"],
        &[
            "replay",
            "@",
            "--unwinder",
            "dwarf,fp",
            "--format",
            "folded",
        ],
        &["replay", "@", "--format", "perf-script"],
        &["compare", "@"],
        &["doctor", "@"],
        &["explain", "@", "--sample", "0"],
        &["inspect", "@"],
        #[cfg(feature = "machine")]
        &["extract", "@", "--sample", "0", "-o", "OUT"],
        #[cfg(feature = "report")]
        &["report", "@", "-o", "PAGE"],
        #[cfg(feature = "machine")]
        &["step", "--json", "--count", "2", "@"],
    ]);
    let import = words(&[&["import", "@", "-o", "OUT"]]);
    let scrub = words(&[&["scrub", "@", "-o", "OUT"]]);
    let perf = words(&[
        #[cfg(feature = "perf")]
        &["perf", "script", "@"],
        #[cfg(feature = "perf")]
        &["perf", "stitch", "@"],
        #[cfg(feature = "perf")]
        &["perf", "bpf", "corpus/bpf/profile.bpf.o", "@"],
    ]);
    let elf = words(&[
        &["inspect", "@"],
        &["tables", "dump", "@"],
        &["tables", "check", "@"],
        &["tables", "diff", "@", "/bin/true"],
        &["tables", "convert", "@", "--to", "sframe-v3", "-o", "OUT"],
        &["tables", "generate", "@", "--to", "sframe-v3", "-o", "OUT"],
    ]);

    vec![
        (copy(SEED, "trace"), [&every[..], &scrub].concat()),
        (copy(THROWS, "throws"), every[..4].to_vec()),
        (
            copy(DWARF, "perf"),
            [&every[..], &import, &scrub, &perf].concat(),
        ),
        (
            copy("corpus/perfdata/fp-pipe.data", "perf-pipe"),
            [&every[3..4], &every[6..7], &perf[..]].concat(),
        ),
        (
            copy("corpus/cores/threads.core.zst", "core"),
            [&every[..], &import, &scrub].concat(),
        ),
        (copy("/bin/true", "elf"), elf),
    ]
}

#[test]
#[cfg(target_os = "linux")]
fn every_command_reads_from_a_pipe_what_it_reads_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, commands) in readers(folder.path()) {
        for args in commands {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            same_as_by_path(&args, &file);
        }
    }
}

/// Two pipes at once are two files.
#[test]
#[cfg(target_os = "linux")]
fn two_pipes_are_compared() {
    let script = r#"cat "$1" | { cat "$2" | "$0" tables diff /dev/fd/8 /dev/fd/9 9<&0; } 8<&0"#;
    let [old, new] = ["corpus/sframe/t_2.40", "corpus/sframe/t_2.46"];
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_unwind-sim"), old, new]);
    let output = shell.current_dir(root("")).output().expect("a shell");
    let by_path = crate::cli::run(&["tables", "diff", old, new]);
    let by_path = said(&by_path, old);
    let (status, out, _) = said(&output, "/dev/fd/8");
    assert_eq!(status, by_path.0, "{}", stderr(&output));
    assert_eq!(out.replace("/dev/fd/9", new), by_path.1);
    assert!(out.contains("/dev/fd/9"), "{out}");
}

/// What a command reads besides a recording: a baseline, the image of a kernel, a list of its symbols, a
/// scenario, names, lines for a page.
#[test]
#[cfg(target_os = "linux")]
fn every_other_input_comes_through_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    // Files with the content that the pipes will have, for the run by path.
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let page = folder.path().join("page.html");
    let page = page.to_str().expect("UTF-8");

    let shown = crate::cli::run(&["compare", SEED, "--regs", "fake:v5.1", "--json"]);
    let lines = put("lines", stdout(&shown));
    let checked = crate::cli::run(&["tables", "check", "/bin/true", "--json"]);
    let checked = put("checked", stdout(&checked));
    let names = put("names", "no-such-command\n");
    // Frames are shown with the last part of its path, which is that of the pipe.
    let map = put("9", guess_capture::SYSTEM_MAP);
    let capture = put("points.json", &guess_capture::capture().to_string());
    let capture = capture.to_str().expect("UTF-8");
    let kernel = root("fuzz/corpus/kernel_image/vmlinux");
    let scenario = root("corpus/scenarios/upstream/d1_late-sample.txt");
    let kallsyms = root("corpus/perfdata/script/kallsyms.txt");

    // A baseline has to come from a run with the same options.
    let compare = ["compare", SEED, "--regs", "fake:v5.1", "--baseline", "@"];
    let commands: &[(&[&str], &Path)] = &[
        (&compare, &lines),
        (&["compare", SEED, "--kernel", "@"], &kernel),
        (&["inspect", "@"], &kernel),
        (
            &["replay", capture, "--system-map", "@", "--as", "perf"],
            &map,
        ),
        #[cfg(feature = "report")]
        (&["report", "@", "-o", page], &checked),
        #[cfg(feature = "perf")]
        (&["perf", "run", "@"], &scenario),
        #[cfg(feature = "perf")]
        (&["perf", "script", DWARF, "--comms", "file://@"], &names),
        #[cfg(feature = "perf")]
        (&["perf", "script", DWARF, "--kallsyms", "@"], &kallsyms),
    ];
    for (args, file) in commands {
        let name = file.to_str().expect("UTF-8");
        let by_path: Vec<String> = args.iter().map(|arg| arg.replace('@', name)).collect();
        let by_path: Vec<&str> = by_path.iter().map(String::as_str).collect();
        let by_path = said(&crate::cli::run(&by_path), name);
        assert_ne!(by_path.0, 2, "{args:?}: {}", by_path.2);
        same_as_substituted(args, file, &by_path);
    }
    // Without these features nothing uses some.
    let _ = (page, &names, &scenario, &kallsyms, &checked);
}

/// gdb talks through standard input, so no recording comes from there.
#[test]
#[cfg(feature = "serve")]
fn standard_input_is_not_both_gdbs_and_a_recording() {
    for recording in ["-", "/dev/stdin"] {
        let output = crate::cli::run(&["gdbserver", "-", recording]);
        assert_eq!(status(&output), 2);
        assert!(
            stderr(&output).contains("cannot be both"),
            "{}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "");
    }
}

/// A case is known by its name, which a pipe has not: there its claim says what it is.
#[test]
#[cfg(all(target_os = "linux", feature = "machine"))]
fn a_case_comes_through_a_pipe() {
    let case = root("corpus/cases/frame/leaf-keeps-data-in-the-red-zone.s");
    let name = case.to_str().expect("UTF-8");
    let by_path = crate::cli::run(&["compare", name]);
    let text = std::fs::read(&case).expect("the case");
    let by_pipe = piped(&["compare", "-"], &text);
    let (by_path, by_pipe) = (said(&by_path, name), said(&by_pipe, "/dev/stdin"));
    assert_eq!(by_path.0, 0, "{}", by_path.2);
    // Its program has another name, and so another stack: no addresses.
    let matrix = |text: &str| text.split("\n\n").next().map(str::to_owned);
    assert_eq!(matrix(&by_pipe.1), matrix(&by_path.1));
    assert_eq!((by_pipe.0, by_pipe.2), (by_path.0, by_path.2));
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
