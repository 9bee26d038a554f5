//! Runs programs in the emulated machine: their output, how they end, and what is reported. The
//! programs are minimal; the kernel is tested in `emulator`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::cli::{run, status, stderr, stdout};
use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// A program that prints `hello` and ends as `end` says.
fn program(directory: &Path, name: &str, end: &str) -> String {
    let source = format!(
        ".globl _start\n_start: mov $1, %eax\n mov $1, %edi\n lea text(%rip), %rsi\n\
         mov $6, %edx\n syscall\n{end}\n.section .rodata\ntext: .ascii \"hello\\n\"\n"
    );
    let (input, output) = (directory.join(format!("{name}.S")), directory.join(name));
    std::fs::write(&input, source).expect("written");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-nostdlib", "-static", "-Wl,--build-id=none", "-o"]);
    let built = cc.arg(&output).arg(&input).status().expect("cc runs");
    assert!(built.success());
    output.display().to_string()
}

const EXIT_3: &str = " mov $60, %eax\n mov $3, %edi\n syscall";

fn emulated(arguments: &[&str], program: &str) -> Output {
    let mut all = vec!["emulate"];
    all.extend(arguments);
    all.extend(["--", program]);
    run(&all)
}

#[test]
fn a_program_prints_and_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = program(directory.path(), "three", EXIT_3);
    let output = emulated(&[], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 0));
    assert_eq!(stderr(&output), "unwind-sim: exited with status 3\n");
    let output = emulated(&["--status", "program", "--stats"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(
        stderr(&output).contains("\n8 instructions in "),
        "{}",
        stderr(&output)
    );
    let output = emulated(&["--max-instructions", "7"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(stderr(&output).contains("stopped"), "{}", stderr(&output));
    let output = emulated(&["--max-instructions", "8"], &path);
    assert_eq!(stderr(&output), "unwind-sim: exited with status 3\n");
}

#[test]
fn a_program_may_be_killed_or_not_modelled() {
    let directory = tempfile::tempdir().expect("a directory");
    // A load from address 8.
    let path = program(directory.path(), "fault", " mov 8, %rax");
    let output = emulated(&[], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 0));
    let said = stderr(&output);
    assert!(
        said.starts_with("unwind-sim: killed by signal 11 at 0x"),
        "{said}"
    );
    assert!(
        said.ends_with("0x8 cannot be read: nothing is mapped there\n"),
        "{said}"
    );

    // As a shell says it: 128 and the signal's number.
    let output = emulated(&["--status", "program"], &path);
    assert_eq!(status(&output), 128 + 11);

    // The machine has no AVX-512, so it stops instead of delivering SIGILL: status 3, whatever
    // `--status` asks for.
    let path = program(directory.path(), "vector", " vmovaps %zmm1, %zmm0");
    let output = emulated(&["--status", "program"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    let said = stderr(&output);
    assert!(
        said.contains("vmovaps: AVX512F is not modelled, in _start+0x1"),
        "{said}"
    );

    // 34 is `pause`, which no signal ends here.
    let path = program(directory.path(), "pause", " mov $34, %eax\n syscall");
    let output = emulated(&[], &path);
    assert_eq!(status(&output), 3);
    assert!(
        stderr(&output).contains("pause before"),
        "{}",
        stderr(&output)
    );

    // 139 is `sysfs`, 60 is `exit`: the call fails with an error that Linux might not give, so the
    // run proves nothing.
    let path = program(
        directory.path(),
        "call",
        " mov $139, %eax\n syscall\n mov $60, %eax\n syscall",
    );
    let output = emulated(&["--timeout", "60"], &path);
    assert_eq!(status(&output), 3);
    let said = stderr(&output);
    assert!(
        said.starts_with("unwind-sim: system call sysfs (139) is not modelled"),
        "{said}"
    );

    // An endless loop makes no system call, so only the limit ends it.
    let path = program(directory.path(), "loop", "1: jmp 1b");
    let output = emulated(&["--timeout", "0.01"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(
        stderr(&output).contains("the time limit was reached"),
        "{}",
        stderr(&output)
    );
}

/// Something not modelled is never a success, whatever the program does about it.
#[test]
fn a_program_whose_thread_is_not_started_is_flagged() {
    let directory = tempfile::tempdir().expect("a directory");
    // CLONE_VM | SIGHAND | THREAD, then CLONE_NEWUSER | SIGCHLD.
    for (name, flags, what) in [
        ("thread", "0x10900", "threads with files of their own"),
        ("process", "0x10000011", "processes with namespaces"),
    ] {
        // Call 56 is `clone`, 60 `exit`.
        let end = format!(
            " mov $56, %eax\n mov ${flags}, %edi\n xor %esi, %esi\n syscall\n\
             mov $60, %eax\n xor %edi, %edi\n syscall"
        );

        let path = program(directory.path(), name, &end);
        for how in ["run", "program"] {
            let output = emulated(&["--status", how], &path);
            assert_eq!(
                (stdout(&output), status(&output)),
                ("hello\n", 3),
                "{name} {how}"
            );
            let said = stderr(&output);
            assert!(
                said.contains("not modelled") && said.contains(what),
                "{said}"
            );
        }
    }
}

#[test]
fn an_instruction_of_another_level_is_invalid() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, code) in [
        ("avx", "vaddps %xmm0, %xmm1, %xmm2"),
        ("avx2", "vpaddd %ymm0, %ymm1, %ymm2"),
        ("fma", "vfmadd213ss %xmm0, %xmm1, %xmm2"),
        ("bmi1", "andn %rax, %rcx, %rdx"),
    ] {
        let end = format!(" nop\n {code}\n mov $60, %eax\n mov $7, %edi\n syscall");
        let path = program(directory.path(), name, &end);
        let output = emulated(&["--status", "program", "--cpu", "v2"], &path);
        assert_eq!((stdout(&output), status(&output)), ("hello\n", 128 + 4));
        let said = stderr(&output);
        assert!(said.contains("killed by signal 4"), "{said}");
        assert!(said.contains("(--cpu)"), "{said}");
        let output = emulated(&["--status", "program"], &path);
        assert_eq!((stdout(&output), status(&output)), ("hello\n", 7), "{name}");
    }
}

/// A file system of the kernel cannot be allowed, and of an unknown one the known names are said.
#[test]
fn only_file_systems_that_may_be_visible_can_be_allowed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = program(directory.path(), "allowed", EXIT_3);
    for name in ["fuse", "virtiofs", "nfs", "9p", "fuse.sshfs", "0x1234"] {
        let output = emulated(&["--allow-fs", name], &path);
        assert_eq!((stdout(&output), status(&output)), ("hello\n", 0), "{name}");
    }
    for (name, error) in [
        (
            "proc",
            "`proc` cannot be allowed: behind its files are the host's kernel",
        ),
        ("cgroup2", "`cgroup2` cannot be allowed"),
        ("0x9fa0", "`0x9fa0` cannot be allowed"),
        ("sshfs", "unknown file system `sshfs`; known: 9p, fuse, nfs"),
    ] {
        let output = emulated(&["--allow-fs", name], &path);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{name}");
        let said = stderr(&output);
        assert!(said.contains(error), "{said}");
    }
}

/// Runs a program whose input never comes, or whose output is never read.
fn ends_by_itself(program: &str) -> (i32, String) {
    let arguments = ["emulate", "--timeout", "0.5", "--", program];
    let mut command = crate::cli::tool(&arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(120) {
            child.kill().expect("it is a child");
            panic!("{program} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    (status.code().expect("it was not killed"), said)
}

#[test]
fn a_timeout_ends_what_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let call = |number, fd, count| {
        format!(
            "1: mov ${number}, %eax\n mov ${fd}, %edi\n lea text(%rip), %rsi\n\
             mov ${count}, %edx\n syscall\n jmp 1b"
        )
    };

    // `sub $16` keeps the stack's contents: the byte that never comes goes below them.
    let reads = "1: mov $0, %eax\n xor %edi, %edi\n sub $16, %rsp\n mov %rsp, %rsi\n\
                 mov $1, %edx\n syscall\n jmp 1b";
    let path = program(directory.path(), "reads", reads);
    let (status, said) = ends_by_itself(&path);
    assert_eq!(status, 3, "{said}");
    assert!(said.contains("timeout while read"), "{said}");

    let path = program(directory.path(), "writes", &call(1, 1, 6));
    let (status, said) = ends_by_itself(&path);
    assert_eq!(status, 3, "{said}");
    // Between two writes, or in one whose reader is slow.
    let ends = ["stopped: timeout", "stopped: the time limit was reached"];
    assert!(ends.iter().any(|end| said.contains(end)), "{said}");

    // A timer that fires forever, with its signal ignored, and `pause`.
    // 13 is `rt_sigaction`, 38 `setitimer` and 34 `pause`; the handler 1 is SIG_IGN.
    let ticks = " mov $13, %eax\n mov $14, %edi\n lea action(%rip), %rsi\n xor %edx, %edx\n\
         mov $8, %r10d\n syscall\n mov $38, %eax\n xor %edi, %edi\n lea timer(%rip), %rsi\n\
         xor %edx, %edx\n syscall\n mov $34, %eax\n syscall\n hlt\n.data\n\
         action: .quad 1, 0, 0, 0\n timer: .quad 0, 1, 0, 1";
    let path = program(directory.path(), "ticks", ticks);
    let (status, said) = ends_by_itself(&path);
    assert_eq!(status, 3, "{said}");
    assert!(said.contains("pause before"), "{said}");
}

/// Input that the program does not read is left for the next reader.
#[test]
fn a_program_reads_no_more_than_it_asks_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let reads = " sub $16, %rsp\n mov $0, %eax\n xor %edi, %edi\n mov %rsp, %rsi\n\
                 mov $3, %edx\n syscall\n mov $60, %eax\n xor %edi, %edi\n syscall";
    let path = program(directory.path(), "three", reads);
    let input = directory.path().join("input");
    std::fs::write(&input, "abcdef").expect("written");
    let mut file = std::fs::File::open(&input).expect("it is there");
    let mut command = crate::cli::tool(&["emulate", "--", &path]);
    command.stdin(file.try_clone().expect("a descriptor"));
    assert!(command.status().expect("the tool runs").success());
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "def");
}

#[test]
fn names_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a directory");
    let odd = std::ffi::OsStr::from_bytes(b"pro\xffgram");

    // Built under a plain name, since compilers and linkers need not take the other one.
    let plain = program(directory.path(), "plain", EXIT_3);
    let path = directory.path().join(odd);
    std::fs::rename(plain, &path).expect("renamed");
    let trace = directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"tr\xfface.bin"));

    // 0xff is in no UTF-8 text.
    for (command, wanted) in [("emulate", 0), ("record", 0), ("verify", 0)] {
        let mut tool = crate::cli::tool(&[command]);
        if command == "record" {
            tool.args(["--engine", "emulator", "--at", "every:1", "-o"])
                .arg(&trace);
        }
        let output = tool
            .arg("--")
            .arg(&path)
            .arg(odd)
            .output()
            .expect("the tool runs");

        let said = String::from_utf8_lossy(&output.stderr);
        // 101 is the status of a panic.
        assert_ne!(output.status.code(), Some(101), "{command}: {said}");
        // It may find something in the program, which is not the subject here.
        if command != "verify" {
            assert_eq!(output.status.code(), Some(wanted), "{command}: {said}");
        }
    }
}

/// No sample is taken after a call that does not return.
#[test]
fn nothing_is_sampled_behind_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let killed = " mov $39, %eax\n syscall\n mov %eax, %edi\n mov $15, %esi\n mov $62, %eax\n\
                  syscall\n nop\n nop";
    let waits = " mov $34, %eax\n syscall\n nop";
    for (name, end, samples) in [
        // 5 instructions for `hello`, and all but the last call.
        ("exits", " mov $60, %eax\n xor %edi, %edi\n syscall", 5 + 2),
        ("all", " mov $231, %eax\n xor %edi, %edi\n syscall", 5 + 2),
        ("killed", killed, 5 + 5),
        ("waits", waits, 5 + 1),
        ("faults", " nop\n mov 8, %rax", 5 + 1),
    ] {
        let path = program(directory.path(), name, end);
        let trace = directory.path().join("trace.bin").display().to_string();
        let at = ["--engine", "emulator", "--at", "every:1", "-o", &trace];
        run(&[&["record"], &at[..], &["--", &path]].concat());
        let output = run(&["compare", &trace]);
        let said = stdout(&output);
        let wanted = format!("{samples} samples: truth complete in {samples},");
        assert!(said.starts_with(&wanted), "{name}: {said}");
    }
}

/// Whoever runs the program, something not modelled gives status 3; a finding gives 1.
#[test]
fn what_is_not_modelled_has_one_status() {
    let directory = tempfile::tempdir().expect("a directory");
    // 56 is `clone`, here with CLONE_NEWUSER and SIGCHLD; 60 is `exit`.
    let forks = " mov $56, %eax\n mov $0x10000011, %edi\n syscall\n mov $60, %eax\n xor %edi, %edi\n syscall";
    let path = program(directory.path(), "forks", forks);
    let trace = directory.path().join("trace.bin").display().to_string();
    let page = directory.path().join("page.html").display().to_string();

    let record = ["record", "--engine", "emulator", "--at", "every:1"];
    let record = [&record[..], &["-o", &trace]].concat();
    let own = [&record[..], &["--status", "program"]].concat();
    let mut commands = vec![
        vec!["emulate"],
        vec!["emulate", "--status", "program"],
        vec!["verify", "--unwinder", "fp"],
        record,
        own,
        vec!["step", "--json"],
        vec!["report", "-o", &page],
    ];

    // `lockstep` traces the program on the processor, too.
    if unwind_sim_host::may_trace().is_ok() {
        commands.push(vec!["lockstep"]);
    }

    // The program itself exits with 0, which must not be taken for success.
    for command in commands {
        let output = run(&[&command[..], &["--", &path]].concat());
        let told = stderr(&output);
        assert!(told.contains("not modelled, "), "{command:?}: {told}");
        assert_eq!(status(&output), 3, "{command:?}: {told}");
    }

    assert!(Path::new(&trace).exists(), "the trace is kept");

    // A finding takes precedence: here a row that lacks a push.
    let wrong = " mov $56, %eax\n mov $0x10000011, %edi\n syscall\n call 1f\n mov $60, %eax\n xor %edi, %edi\n syscall\n\
                 1: .cfi_startproc\n push %rax\n nop\n pop %rax\n ret\n .cfi_endproc";
    let path = program(directory.path(), "wrong", wrong);
    let found = run(&["verify", "--unwinder", "dwarf", "--", &path]);
    assert_eq!(status(&found), 1, "{}{}", stdout(&found), stderr(&found));
    assert!(
        stderr(&found).contains("not modelled, "),
        "{}",
        stderr(&found)
    );
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    for (name, error) in [
        ("/nothing/there", "no such file"),
        ("/", "a folder, not a program"),
        ("no-such-program", "no program no-such-program in PATH"),
    ] {
        let output = emulated(&[], name);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{name}");
        assert!(stderr(&output).contains(error), "{}", stderr(&output));
    }
}
