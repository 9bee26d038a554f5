//! Nothing is lost or harmed: output files, signals to a recorder, odd arguments.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::cli::{SEED, THROWS, ends_with, run, status, stderr, tool};
use crate::common::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use unwind_sim_recordings::trace::{Trace, TraceErrorKind};

/// Echoes each byte that it reads, after a call of `work`; ends with status 7.
const ECHO: &str = r#"
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((noinline)) void work(void) { __asm__ volatile("" ::: "memory"); }
int main(void) {
    char byte;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    while (read(0, &byte, 1) == 1) {
        work();
        if (write(1, &byte, 1) != 1)
            return 1;
    }
    return 7;
}
"#;

/// How long anything here may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |e: std::io::Result<std::fs::DirEntry>| e.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|e| name(e).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn build_echo(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("echo.c"), folder.join("echo"));
    std::fs::write(&source, ECHO).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"]).args([&program, &source]);
    assert!(cc.status().expect("a C compiler").success());
    program
}

fn may_trace(test: &str) -> bool {
    let may = unwind_sim_host::may_trace();
    if may.is_err() {
        skip(test, "ptrace is not allowed here");
    }
    may.is_ok()
}

/// The echo program's input and output.
struct Echo {
    input: ChildStdin,
    output: ChildStdout,
}

impl Echo {
    fn of(child: &mut Child) -> Echo {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Echo {
            input: input.expect("a pipe"),
            output: output.expect("a pipe"),
        }
    }

    /// Checks that the program answers.
    fn answers(&mut self) {
        let mut byte = [0];
        self.input.write_all(b"x").expect("the program reads");
        self.output
            .read_exact(&mut byte)
            .expect("the program answers");
        assert_eq!(&byte, b"x");
    }

    /// Ends the program, and checks that it has nothing more to say.
    fn ends(mut self) {
        drop(self.input);
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).expect("its end");
        assert!(rest.is_empty());
    }
}

fn waited(child: &mut Child, what: &str) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{what} did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn piped(mut command: Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Signals that end a recorder. A signal ignored here, like SIGHUP under `nohup`, is also ignored
/// by child processes, and a recorder keeps it ignored.
fn ending() -> Vec<Signal> {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.map(|mask| u64::from_str_radix(mask.trim(), 16));
    let ignored = ignored.expect("a mask").expect("a hexadecimal number");
    let all = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
    ];
    let is_ignored = |signal: &Signal| ignored & 1 << (*signal as i32 - 1) != 0;
    let ending: Vec<_> = all.into_iter().filter(|s| !is_ignored(s)).collect();
    assert!(!ending.is_empty());
    ending
}

/// A recorder told to end restores the program's code, releases the program, writes the trace, and
/// ends by the signal.
#[test]
fn a_signal_to_the_recorder_ends_the_recording_and_not_the_program() {
    const TEST: &str = "a_signal_to_the_recorder_ends_the_recording_and_not_the_program";
    if !may_trace(TEST) {
        return;
    }

    let folder = tempfile::tempdir().expect("a folder");
    let program = build_echo(folder.path());
    let path = folder.path().join("out.bin");

    for signal in ending() {
        let mut echo = piped(Command::new(&program));
        let pid = echo.id().to_string();
        let mut ends = Echo::of(&mut echo);

        // It runs before anybody is attached to it.
        ends.answers();
        let mut recorder = piped(tool(&[
            "record",
            "--at",
            "work",
            "-o",
            text(&path),
            "-p",
            &pid,
        ]));

        // The signal must not come before there is something to write.
        sampled(&path, &mut ends);
        let to = Pid::from_raw(i32::try_from(recorder.id()).expect("a pid"));
        kill(to, signal).expect("our child");
        let ended = waited(&mut recorder, "the recorder");
        assert_eq!(ended.signal(), Some(signal as i32), "{signal}");

        ends.answers();

        // The program still answers, and ends by itself.
        ends.ends();
        assert_eq!(waited(&mut echo, "the program").code(), Some(7), "{signal}");

        whole(&path, folder.path());
    }
}

/// The same for a program that the recorder started.
#[test]
fn a_program_that_was_started_runs_on_when_its_recorder_is_told_to_end() {
    const TEST: &str = "a_program_that_was_started_runs_on_when_its_recorder_is_told_to_end";
    if !may_trace(TEST) {
        return;
    }

    let folder = tempfile::tempdir().expect("a folder");
    let program = build_echo(folder.path());
    let path = folder.path().join("out.bin");

    for (signal, how) in ending()
        .into_iter()
        .zip([&[][..], &["--truth"], &[], &["--truth"]])
    {
        let args = ["record", "--at", "work", "-o", text(&path)];
        let args = [&args[..], how, &["--", text(&program)]].concat();
        let mut recorder = piped(tool(&args));
        let mut ends = Echo::of(&mut recorder);

        // The signal must not come before there is something to write.
        sampled(&path, &mut ends);

        let to = Pid::from_raw(i32::try_from(recorder.id()).expect("a pid"));
        kill(to, signal).expect("our child");
        let ended = waited(&mut recorder, "the recorder");
        assert_eq!(ended.signal(), Some(signal as i32), "{signal}");

        // The program runs on without its recorder.
        ends.answers();
        ends.ends();
        whole(&path, folder.path());
    }
}

/// In the emulated machine the program ends with its recorder, and the recording is whole: both
/// while the program computes, and while it waits for input that never comes.
#[test]
fn a_signal_ends_a_recording_in_the_machine() {
    // It writes a byte first, so that the test knows that it runs.
    const LOOP: &str = "#include <unistd.h>\nint main(int n, char **v) { write(1, \"x\", 1);\n\
                        for (;;) if (n > 1) { char c; read(0, &c, 1); } }\n";

    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("loop.c"), folder.path().join("loop"));
    std::fs::write(&source, LOOP).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static", "-o"]).args([&program, &source]);
    assert!(cc.status().expect("a C compiler").success());

    let path = folder.path().join("out.bin");
    for signal in ending() {
        for waits in [&[][..], &["waits"]] {
            let args = ["record", "--engine", "emulator", "--at", "call"];
            let args = [&args[..], &["-o", text(&path), "--", text(&program)], waits].concat();
            let mut recorder = piped(tool(&args));

            let mut byte = [0];
            let out = recorder.stdout.as_mut().expect("a pipe");

            // Not before: a signal at the start would leave nothing to write.
            out.read_exact(&mut byte).expect("the program runs");

            let to = Pid::from_raw(i32::try_from(recorder.id()).expect("a pid"));
            kill(to, signal).expect("our child");
            let ended = waited(&mut recorder, "the recorder");
            assert_eq!(ended.signal(), Some(signal as i32), "{signal} {waits:?}");

            let mut said = String::new();
            let err = recorder.stderr.as_mut().expect("a pipe");
            err.read_to_string(&mut said).expect("text");

            // The message says why the recording is short.
            assert!(said.contains("; stopped by a signal\n"), "{said}");

            // What was recorded until then is a whole trace.
            let trace = Trace::open(&path).expect("a trace");
            assert!(trace.cut().is_none() && !trace.is_empty(), "{signal}");
            assert!(trace.meta().instructions > 0, "{signal}");

            assert_eq!(names(folder.path()), ["loop", "loop.c", "out.bin"]);
            std::fs::remove_file(&path).expect("a file");
        }
    }
}

/// What a killed recorder has written ends with a whole block.
#[test]
fn a_killed_recording_is_read_to_its_last_block() {
    if !may_trace("a_killed_recording_is_read_to_its_last_block") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = build_echo(folder.path());
    let path = folder.path().join("out.bin");
    let args = ["record", "--at", "work", "-o", text(&path), "--"];
    let mut recorder = piped(tool(&[&args[..], &[text(&program)]].concat()));
    let mut ends = Echo::of(&mut recorder);
    sampled(&path, &mut ends);
    recorder.kill().expect("our child");
    assert_eq!(waited(&mut recorder, "the recorder").signal(), Some(9));
    assert!(!path.exists());
    let trace = Trace::open(folder.path().join("out.bin.partial")).expect("a trace");
    let cut = trace.cut().expect("it was cut short");
    let at_the_end = matches!(cut.kind, TraceErrorKind::Short { left: 0, .. });
    assert!(at_the_end && trace.images().len() > 1, "{cut}");
}

/// Lets the program work until the recorder has certainly taken a sample.
fn sampled(path: &Path, ends: &mut Echo) {
    let partial = path.with_extension("bin.partial");
    let began = Instant::now();
    while !partial.exists() {
        assert!(began.elapsed() < PATIENCE, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The recorder may still be attaching when the first answers come.
    for _ in 0..50 {
        ends.answers();
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that the trace is finished and the only new file.
fn whole(path: &Path, folder: &Path) {
    let trace = Trace::open(path).expect("a trace");
    assert!(trace.cut().is_none() && !trace.is_empty());
    assert_eq!(names(folder), ["echo", "echo.c", "out.bin"]);
    std::fs::remove_file(path).expect("our file");
}

#[test]
fn a_failed_recording_leaves_the_earlier_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.bin");
    std::fs::copy(SEED, &path).expect("a copy");
    let before = std::fs::read(&path).expect("a trace");

    // Failures before the program starts, and when it has ended without a sample.
    let mut ways: Vec<&[&str]> = vec![
        &[
            "--engine",
            "emulator",
            "--at",
            "no_such_function",
            "--",
            "/bin/true",
        ],
        &[
            "--engine",
            "emulator",
            "--at",
            "every:10",
            "--",
            "/no/such/program",
        ],
        &[
            "--engine",
            "emulator",
            "--at",
            "nonsense:3",
            "--",
            "/bin/true",
        ],
    ];

    // These are recorded with ptrace, which may be forbidden.
    if may_trace("a_failed_recording_leaves_the_earlier_one") {
        ways.push(&["--at", "no_such_function", "--", "/bin/true"]);
        ways.push(&["--", "/no/such/program"]);
    }

    for args in ways {
        let output = run(&[&["record", "-o", text(&path)], args].concat());
        assert!(matches!(status(&output), 2 | 3), "{}", stderr(&output));
        // 2 if it cannot start, 3 if no sample was taken: in both cases there is nothing to put in
        // the old one's place.
        let now = std::fs::read(&path).expect("the earlier trace");
        assert!(now == before, "{args:?}: {}", stderr(&output));

        // No partial file is left beside it.
        assert_eq!(names(folder.path()), ["out.bin"], "{args:?}");
    }
}

/// A full disk, simulated by a limit on the size of files.
#[test]
fn an_output_that_fails_leaves_the_earlier_file_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    std::fs::write(&path, "earlier").expect("a file");
    let limited = |args: &[&str]| {
        let mut shell = Command::new("sh");
        // With the signal ignored, a write beyond the limit fails.
        let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
        shell.args(["-c", script, env!("CARGO_BIN_EXE_unwind-sim")]);
        let output = shell.args(args).current_dir(crate::cli::root("")).output();
        let output = output.expect("a shell");
        assert_eq!(status(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text(&path)), "{}", stderr(&output));
        let now = std::fs::read_to_string(&path).expect("the earlier file");
        assert_eq!(now, "earlier", "{args:?}");
    };
    limited(&["replay", THROWS, "--unwinder", "dwarf", "-o", text(&path)]);
    limited(&["replay", THROWS, "--format", "pprof", "-o", text(&path)]);
    let emulated = ["record", "--engine", "emulator", "--at", "every:1"];
    limited(&[&emulated[..], &["-o", text(&path), "--", "/bin/true"]].concat());
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn devices_pipes_and_links_stay_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let emulated = |path: &Path| {
        let args = ["record", "--engine", "emulator", "--at", "every:5000", "-o"];
        ends_with(0, &[&args[..], &[text(path), "--", "/bin/true"]].concat());
    };

    emulated(Path::new("/dev/null"));
    let null = std::fs::metadata("/dev/null").expect("a device");
    assert!(null.file_type().is_char_device());

    // What a link names is written, not the link.
    let link = folder.path().join("link.bin");
    symlink("real.bin", &link).expect("a link");
    emulated(&link);
    ends_with(0, &["extract", SEED, "-o", text(&link)]);
    assert!(link.is_symlink());
    assert_eq!(names(folder.path()), ["link.bin", "real.bin"]);

    let real = folder.path().join("real.bin");

    // A file that is replaced keeps its permissions.
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("our file");
    emulated(&link);
    let mode = std::fs::metadata(&real).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);

    // Standard output by its names.
    let direct = run(&["replay", SEED, "--format", "folded"]);
    assert!(!direct.stdout.is_empty());
    for name in ["/dev/stdout", "-"] {
        let named = run(&["replay", SEED, "--format", "folded", "-o", name]);
        assert_eq!(named.stdout, direct.stdout, "{name}");
    }
}

/// Arguments and paths need not be UTF-8.
#[test]
fn arguments_are_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let odd = folder.path().join(OsStr::from_bytes(b"odd-\xff.bin"));
    let mut engines: Vec<&[&str]> = vec![&["--engine", "emulator", "--at", "every:5000"]];
    if may_trace("arguments_are_bytes") {
        engines.push(&["--at", "syscall"]);
    }
    for engine in engines {
        let mut record = tool(&["record"]);
        record.args(engine).arg("-o").arg(&odd);
        record.args([OsString::from("--"), OsString::from("/bin/true")]);
        record.arg(OsStr::from_bytes(b"\xfe argument"));
        let output = record.output().expect("the tool");
        assert_eq!(status(&output), 0, "{}", stderr_lossy(&output.stderr));
        let trace = Trace::open(&odd).expect("a trace");
        assert!(!trace.is_empty());
        for command in ["inspect", "compare", "replay"] {
            let output = tool(&[command]).arg(&odd).output().expect("the tool");
            let said = stderr_lossy(&output.stderr);
            assert!(matches!(status(&output), 0 | 1 | 3), "{command}: {said}");
        }
    }
}

fn stderr_lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a signal interrupts leaves nothing: no partial output, no temporary folder, no process that an
/// unwinder of the user has started.
#[test]
fn an_interrupted_command_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let [temporary, out, script, pid] =
        ["tmp", "out", "own.sh", "pid"].map(|name| folder.path().join(name));

    // The script renames its file, so that nobody reads half a number.
    let own = "#!/bin/sh\nsleep 1000 &\necho $! >\"$0.new\"\nmv \"$0.new\" \"${0%/*}/pid\"\nwait\n";
    std::fs::write(&script, own).expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("ours");

    for signal in ending()
        .into_iter()
        .filter(|signal| *signal != Signal::SIGUSR1)
    {
        std::fs::create_dir_all(&temporary).expect("a folder");
        // In quotes, since the path of a temporary folder may have a blank.
        let unwinder = format!("cmd:'{}'", text(&script));
        let args = ["replay", SEED, "-o", text(&out), "--unwinder", &unwinder];
        let mut command = tool(&args);
        command.env("TMPDIR", &temporary);
        let mut child = piped(command);

        let began = Instant::now();

        // The unwinder has started when its file is there.
        while !pid.exists() {
            assert!(began.elapsed() < PATIENCE, "the unwinder does not start");
            std::thread::sleep(Duration::from_millis(5));
        }

        let started = std::fs::read_to_string(&pid).expect("a number");
        let to = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        kill(to, signal).expect("our child");
        // Ended by the signal itself: a shell sees that it was interrupted.
        let ended = waited(&mut child, "replay");
        assert_eq!(ended.signal(), Some(signal as i32), "{signal}");

        // A process of the unwinder, which must be ended, too.
        let started = Path::new("/proc").join(started.trim());
        while is_running(&started) {
            assert!(began.elapsed() < PATIENCE, "its process is still there");
            std::thread::sleep(Duration::from_millis(5));
        }

        assert_eq!(names(folder.path()), ["own.sh", "pid", "tmp"], "{signal}");
        assert!(names(&temporary).is_empty(), "{signal}");
        std::fs::remove_file(&pid).expect("a file");
    }
}

/// Whether the process of a folder of `/proc` runs: one that ended may wait for its parent.
fn is_running(process: &Path) -> bool {
    let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !state.trim_start().starts_with(['Z', 'X']))
}
