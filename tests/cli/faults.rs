//! Calls on files that fail: each call of a command on its files fails once, in turn, or transfers
//! one byte. Whatever fails, no file is lost, nothing is left, and the status is right.
//!
//! A library below the C library makes calls fail (`faults/shim.c`).
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::cli::{SEED, root};
use crate::common::skip::skip;
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SHIM: &str = include_str!("faults/shim.c");
/// The variable that asks for all calls and all errors.
const SLOW: &str = "UNWIND_SIM_SLOW";
/// What an output file holds before.
const EARLIER: &[u8] = b"earlier\n";

/// Each command with an output, and some that only read. Paths are below the temporary folder.
const COMMANDS: [&str; 29] = [
    "extract in/seed.bin --sample 0 -o out/o.bin",
    "extract in/seed.bin --sample 0 --scrub -o out/o.bin",
    "import in/perf.data -o out/o.bin",
    "import in/core -o out/o.bin",
    "scrub in/seed.bin -o out/o.bin",
    "scrub in/perf.data -o out/o.data",
    "replay in/seed.bin -u orc -o out/o.txt",
    "replay in/seed.bin -u orc --format pprof -o out/o.pb",
    "replay in/seed.bin -u orc --json",
    "compare in/seed.bin --json",
    "doctor in/seed.bin --json",
    "explain in/seed.bin",
    "inspect in/perf.data",
    "report in/seed.bin -o out/o.html",
    "step --json --count 2 in/seed.bin",
    "tables check in/prog",
    "tables convert in/prog --to sframe-v2 -o out/prog",
    "tables convert in/prog --to sframe-v2 -o in/prog",
    "tables generate in/prog --to sframe-v2 -o out/prog",
    "tables merge in/prog -o out/prog",
    "tables dump in/prog",
    "perf script in/perf.data",
    "perf run -o out/o.data in/scenario.txt",
    "perf run --bless in/scenario.txt",
    "perf stitch in/deferred.data",
    "cases bless in/case.s",
    "emulate --print-schedule out/o.txt -- in/prog",
    "record --engine emulator --at every:2 -o out/o.bin -- in/prog",
    "verify -u dwarf --json -- in/prog",
];

/// The errors that a call can have; more than the first only where all are tried.
fn errors(call: &str) -> &'static [Errno] {
    match call {
        "open" | "openat" => &[Errno::EACCES, Errno::EINTR, Errno::EMFILE, Errno::ENOSPC],
        "read" | "pread" | "readv" => &[Errno::EIO, Errno::EINTR],
        "write" | "pwrite" | "writev" => &[Errno::ENOSPC, Errno::EINTR, Errno::EIO],
        "mmap" => &[Errno::ENOMEM],
        "rename" | "opendir" | "chmod" | "fchmod" => &[Errno::EACCES, Errno::EIO],
        "mkdir" | "ftruncate" => &[Errno::ENOSPC, Errno::EIO],
        _ => &[Errno::EIO],
    }
}

type Tree = BTreeMap<String, Vec<u8>>;

/// A folder with inputs, and where commands run in it.
struct FaultBench {
    folder: tempfile::TempDir,
    shim: PathBuf,
    inputs: Tree,
    /// What is in the folder of the commands, after the last of them.
    there: RefCell<Tree>,
}

/// What a command did.
#[derive(Clone)]
struct CommandResult {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    files: Tree,
}

/// Text without what differs from run to run: the names of temporary files.
fn settled(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split(".tmp");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out += ".tmp";
        out += part.get(6..).unwrap_or_default();
    }
    let mut parts = out.split("unwind-sim-case-");
    let mut settled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        settled += "unwind-sim-case-";
        settled += part.get(6..).unwrap_or_default();
    }
    settled
}

fn read_tree(folder: &Path, below: &Path, tree: &mut Tree) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path
            .strip_prefix(below)
            .expect("below")
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            tree.insert(name + "/", Vec::new());
            read_tree(&path, below, tree);
        } else {
            tree.insert(name, std::fs::read(&path).expect("a file"));
        }
    }
}

impl FaultBench {
    /// `None` if there is no C compiler.
    fn new() -> Option<FaultBench> {
        let folder = tempfile::tempdir().expect("a folder");
        let tools = folder.path().join("tools");
        std::fs::create_dir(&tools).expect("a folder");

        let (source, shim) = (tools.join("shim.c"), tools.join("shim.so"));

        // A library that is loaded first and lets single calls fail.
        std::fs::write(&source, SHIM).expect("a file");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&shim, &source])
            .arg("-ldl");
        if !cc.output().is_ok_and(|output| output.status.success()) {
            return None;
        }

        // A static program, so that commands have something to run that needs no libraries.
        let case = root("corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s");
        let prog = tools.join("prog");
        let mut cc = Command::new("cc");
        cc.args(["-nostdlib", "-static", "-g0", "-o"]).arg(&prog);
        cc.arg(format!("-Wa,-I,{}", root("corpus/cases").display()))
            .arg(&case);
        assert!(cc.status().expect("a C compiler").success());

        // With a table of SFrame, which `tables merge` needs, where the assembler writes none.
        let with_table = tools.join("with-table");
        let mut convert = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        convert
            .args(["tables", "convert", "--to", "sframe-v2", "-o"])
            .args([&with_table, &prog]);
        assert!(convert.output().expect("it starts").status.success());

        let inputs = [
            ("seed.bin", root(SEED)),
            ("perf.data", root("corpus/perfdata/dwarf.data")),
            (
                "deferred.data",
                root("corpus/perfdata/deferred-by-dummy.data"),
            ),
            (
                "scenario.txt",
                root("corpus/scenarios/upstream/d1_late-sample.txt"),
            ),
            ("prelude.inc", root("corpus/cases/prelude.inc")),
            ("prog", with_table),
        ];
        let read = |(name, path): (&str, PathBuf)| {
            (
                format!("in/{name}"),
                std::fs::read(&path).expect("an input"),
            )
        };
        let mut inputs: Tree = inputs.into_iter().map(read).collect();

        // Without its expectation, so that there is something to bless.
        let text = std::fs::read_to_string(&case).expect("a case");
        let lines = text.lines().filter(|line| !line.starts_with("#="));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        inputs.insert("in/case.s".to_owned(), text.into_bytes());

        // The core of the corpus is compressed.
        let core = std::fs::read(root("corpus/cores/stacks.core.zst")).expect("a core");
        let core = zstd::decode_all(&core[..]).expect("zstd");
        inputs.insert("in/core".to_owned(), core);

        Some(FaultBench {
            folder,
            shim,
            inputs,
            there: RefCell::default(),
        })
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Makes the folder what it was before the last command, with `earlier` as a file if given. Files
    /// that are as they should be stay: most do, and there are a thousand commands.
    fn prepare(&self, earlier: Option<&str>) -> Tree {
        let work = self.work();
        let mut wanted = self.inputs.clone();
        for name in ["in", "out", "tmp"] {
            std::fs::create_dir_all(work.join(name)).expect("a folder");
            wanted.insert(format!("{name}/"), Vec::new());
        }
        if let Some(name) = earlier {
            wanted.insert(name.to_owned(), EARLIER.to_vec());
        }

        let mut there = self.there.borrow_mut();
        // What is in a folder has a later name than the folder.
        for (name, bytes) in there.iter().rev() {
            let path = work.join(name);
            match wanted.get(name) {
                Some(wanted) if wanted == bytes => {}
                _ if name.ends_with('/') => std::fs::remove_dir(&path).expect("our folder"),
                _ => std::fs::remove_file(&path).expect("our file"),
            }
        }
        for (name, bytes) in &wanted {
            if there.get(name) != Some(bytes) && !name.ends_with('/') {
                std::fs::write(work.join(name), bytes).expect("a file");
            }
        }
        use std::os::unix::fs::PermissionsExt;

        // A file that was just written is not executable.
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(work.join("in/prog"), mode).expect("our file");
        *there = wanted.clone();
        wanted
    }

    /// Runs a command with the shim.
    fn run(&self, command: &str, shim: &[(&str, String)]) -> CommandResult {
        let work = self.work();
        let mut tool = Command::new("timeout");
        tool.args(["120", env!("CARGO_BIN_EXE_unwind-sim")])
            .args(command.split(' '));
        crate::cli::without_terminal(&mut tool);
        tool.current_dir(&work).stdin(Stdio::null());
        tool.env("TMPDIR", work.join("tmp"));
        tool.env("FAULT_BELOW", &work);
        tool.env("LD_PRELOAD", &self.shim);
        tool.env("FAULT_PROGRAM", "unwind-sim");
        tool.envs(shim.iter().map(|(name, value)| (*name, value)));
        let output = tool.output().expect("it starts");
        let mut files = Tree::new();
        read_tree(&work, &work, &mut files);
        self.there.replace(files.clone());
        CommandResult {
            status: output.status.code(),
            stdout: settled(&output.stdout),
            stderr: settled(&output.stderr),
            files,
        }
    }
}

/// The file that a command makes, if it makes one.
fn output_of(before: &Tree, after: &Tree) -> Option<String> {
    let new = |name: &&String| name.starts_with("out/") && !before.contains_key(*name);
    after.keys().find(new).cloned()
}

/// A call that failed.
struct Fault<'a> {
    call: &'a str,
    path: &'a str,
    error: Errno,
}

/// Whether a message gives the reason of a fault, as the system's error or the kind that it is of.
fn gives_reason(text: &str, error: Errno) -> bool {
    let io = std::io::Error::from(error);
    text.contains(&format!("os error {}", error as i32)) || text.contains(&io.kind().to_string())
}

/// Whether two files hold the same, but for what differs from run to run.
fn is_same_file(one: Option<&Vec<u8>>, other: Option<&Vec<u8>>) -> bool {
    match (one, other) {
        // Nearly all are the same as they are, and settling them takes longer than most commands.
        (Some(one), Some(other)) => one == other || settled(one) == settled(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// What is wrong with what a command did at a fault, if anything.
fn wrong(
    fault: &Fault<'_>,
    before: &Tree,
    base: &CommandResult,
    done: &CommandResult,
) -> Vec<String> {
    let mut out = Vec::new();

    // A signal, or a status that no command documents.
    let Some(status) = done.status.filter(|status| *status <= 3) else {
        return vec![format!("it ended with {:?}", done.status)];
    };

    let is_same = Some(status) == base.status;
    let all = format!("{}{}", done.stdout, done.stderr);

    let is_told = is_same && gives_reason(&all, fault.error);
    let is_removal = ["unlink", "unlinkat", "rmdir"].contains(&fault.call);

    for name in before
        .keys()
        .chain(done.files.keys())
        .chain(base.files.keys())
    {
        let now = done.files.get(name);
        let as_before = is_same_file(now, before.get(name));
        let as_new = is_same_file(now, base.files.get(name));
        // What the command makes without a part of its input is whole, and the part is named.
        let is_other = is_told && base.files.contains_key(name) && now.is_some();
        if as_before || is_other || as_new && (is_same || now.is_some()) {
            continue;
        }
        // What cannot be removed stays, and a partial recording is kept on purpose and named.
        let is_new = !before.contains_key(name);
        let is_kept = name.ends_with(".partial") && done.stderr.contains(name.as_str());
        if !is_new || !(is_removal || is_kept) {
            out.push(format!(
                "{name} is neither as before nor as without the fault"
            ));
        }
    }

    // An interrupted call is made again by the library or by us, so that nothing may differ.
    if fault.error == Errno::EINTR {
        if !is_same || done.stdout != base.stdout {
            out.push("an interrupted call was not made again".to_owned());
        }
    } else if !is_same {
        if status == 2 && done.stderr.is_empty() {
            out.push("status 2 without a word".to_owned());
        } else if !gives_reason(&all, fault.error) {
            out.push("the reason is not told".to_owned());
        }

        let file = Path::new(fault.path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let file = settled(file.trim_end_matches(".partial").as_bytes());

        // A temporary file has a name that nobody knows, so the message says what it is for.
        let is_temporary = fault.path.contains("/tmp/") && all.contains("temporary");
        if status == 2 && !fault.path.starts_with('<') && !all.contains(&file) && !is_temporary {
            let input = before.keys().any(|name| all.contains(name.as_str()));
            if !input {
                out.push(format!("{file} is not named"));
            }
        }
    }

    out
}

/// Tries one command with all faults that are wanted. Adds what is wrong, each once.
fn try_command(bench: &FaultBench, command: &str, all: bool, found: &mut BTreeSet<String>) -> u64 {
    let bare = bench.prepare(None);
    let plain = bench.run(command, &[]);
    // The next runs find an older file where they write theirs: after a fault it must still be
    // whole.
    let earlier = output_of(&bare, &plain.files);
    let before = bench.prepare(earlier.as_deref());

    let log = bench.folder.path().join("log");
    let _ = std::fs::remove_file(&log);
    let base = bench.run(command, &[("FAULT_LOG", log.display().to_string())]);
    assert!(
        matches!(base.status, Some(0 | 1)),
        "{command}: {:?} {}",
        base.status,
        base.stderr
    );

    bench.prepare(earlier.as_deref());
    // Reads and writes may be short at any time (`man 2 read`); here they all are.
    let short = bench.run(command, &[("FAULT_SHORT", "1".to_owned())]);
    let is_as_whole = (short.status, &short.stdout) == (base.status, &base.stdout)
        && short.files.keys().eq(base.files.keys())
        && short
            .files
            .iter()
            .all(|(name, bytes)| is_same_file(Some(bytes), base.files.get(name)));
    if !is_as_whole {
        found.insert(format!(
            "{command}: single bytes give another result: {}",
            short.stderr
        ));
    }

    let mut seen: HashMap<String, u32> = HashMap::new();
    let text = std::fs::read_to_string(&log).expect("the log");
    let mut tried = 0;
    for (index, line) in text.lines().enumerate() {
        let (call, path) = line.split_once(' ').expect("a call and a path");
        let times = seen.entry(settled(line.as_bytes())).or_default();
        *times += 1;

        // Each kind of call once, unless all are wanted.
        if !all && *times > 1 {
            continue;
        }

        let errors = errors(call);
        let errors = if all { errors } else { &errors[..1] };
        for &error in errors {
            bench.prepare(earlier.as_deref());
            let shim = [
                ("FAULT_AT", (index + 1).to_string()),
                ("FAULT_ERRNO", (error as i32).to_string()),
            ];
            let done = bench.run(command, &shim);
            tried += 1;
            let fault = Fault { call, path, error };

            // With what the command said, which is needed to see what happened.
            for what in wrong(&fault, &before, &base, &done) {
                found.insert(format!(
                    "{command}: {error} of {call} {path}: {what}\n  {}{}",
                    done.stdout, done.stderr
                ));
            }
        }
    }

    tried
}

/// Each call on a file of its own fails once: the first of each function on each file with one
/// error or, if all are wanted, every one with every error.
#[test]
fn a_call_that_fails_loses_nothing_and_is_told() {
    const TEST: &str = "a_call_that_fails_loses_nothing_and_is_told";
    let Some(bench) = FaultBench::new() else {
        return skip(TEST, "no C compiler makes a shared library here");
    };
    let all = std::env::var_os(SLOW).is_some();
    let mut found = BTreeSet::new();
    let mut tried = 0;
    for command in COMMANDS {
        tried += try_command(&bench, command, all, &mut found);
    }
    let found: Vec<String> = found.into_iter().collect();
    assert!(
        found.is_empty(),
        "{} of {tried} faults:\n{}",
        found.len(),
        found.join("\n")
    );
    assert!(tried > 300, "the calls are not counted: {tried}");
}
