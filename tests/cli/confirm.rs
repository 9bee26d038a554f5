//! `replay --confirm`: what happens after a core was taken says which frames were true.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::cli::{ends_with, run, status, stderr, stdout};
use crate::common::no_ptrace;
use crate::common::skip::skip;
use crate::common::tools::is_missing;
use std::path::Path;
use std::process::Command;

/// `leaf` is called by `mid`, through a word that looks like a frame of `outer`, by `_start`.
const PROGRAM: &str = "
        .globl _start, leaf
leaf:   .cfi_startproc
        mov     $1, %eax
        ret
        .cfi_endproc
mid:    .cfi_startproc
        sub     $24, %rsp
        .cfi_def_cfa_offset CFA
        lea     outer+5(%rip), %rax
        mov     %rax, 8(%rsp)
        call    leaf
        add     $24, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
outer:  .cfi_startproc
        call    mid
        ret
        .cfi_endproc
_start: .cfi_startproc
        .cfi_undefined rip
        call    outer
        mov     $60, %eax
        xor     %edi, %edi
        syscall
        .cfi_endproc
";

/// The core of the program at its leaf; where `mid` claims that its CFA is so far above rsp.
fn core(folder: &Path, cfa: u32) -> String {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (source, program, core) = (path("p.s"), path("p"), path("core"));
    let text = PROGRAM.replace("CFA", &cfa.to_string());
    std::fs::write(&source, text).expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-o", &program, &source]);
    assert!(cc.status().expect("cc runs").success());
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "break leaf", "-ex", "run"]);
    gdb.args(["-ex", &format!("generate-core-file {core}"), &program]);
    let output = gdb.output().expect("gdb runs");
    assert!(folder.join("core").is_file(), "{}", stderr(&output));
    core
}

#[test]
fn frames_that_execution_returns_to_are_confirmed() {
    if let Some(why) = no_ptrace() {
        return skip("frames_that_execution_returns_to_are_confirmed", why);
    }
    if is_missing("frames_that_execution_returns_to_are_confirmed", "gdb") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let core_path = core(folder.path(), 32);

    let right = ["replay", &core_path, "--unwinder", "dwarf", "--confirm"];
    let text = ends_with(0, &right);
    let all = "  of 3 callers: 3 confirmed, 0 contradicted, 0 unjudged\n";
    assert!(text.ends_with(all), "{text}");
    // 60 is `exit`.
    assert!(text.contains("system call 60 cannot be answered"), "{text}");

    // Three instructions lead back into `mid`, and no farther.
    let text = ends_with(0, &[&right[..], &["--max-instructions", "3"]].concat());
    let one = "  of 3 callers: 1 confirmed, 0 contradicted, 2 unjudged\n";
    assert!(text.ends_with(one), "{text}");

    let none = run(&[&right[..], &["--max-instructions", "1"]].concat());
    assert_eq!(status(&none), 3, "{}", stdout(&none));

    // The scan takes the data for a frame.
    let text = ends_with(
        0,
        &["replay", &core_path, "--unwinder", "guess", "--confirm"],
    );
    assert!(text.contains("3 confirmed, 1 contradicted"), "{text}");
}

#[test]
fn a_frame_that_execution_passes_by_is_contradicted() {
    if let Some(why) = no_ptrace() {
        return skip("a_frame_that_execution_passes_by_is_contradicted", why);
    }
    if is_missing("a_frame_that_execution_passes_by_is_contradicted", "gdb") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), 16);
    let wrong = run(&["replay", &core, "--unwinder", "dwarf", "--confirm"]);
    assert_eq!(status(&wrong), 1, "{}", stdout(&wrong));
    let told = stdout(&wrong);
    assert!(
        told.contains("frame 2: its return address should be at"),
        "{told}"
    );
}

/// Blocks in `leaf`, until an alarm comes, which gdb stops at. Behind it `mid` and `outer` ask the
/// kernel for a file, memory, the time, to wait, and to wait for what nobody does.
const BLOCKS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int pipes[2];
__attribute__((noinline)) int leaf(void) {
    char byte;
    alarm(1);
    return BLOCKED;
}
__attribute__((noinline)) int mid(void) {
    struct timespec time = {0, 1000};
    int failed = leaf() != -1 || errno != EINTR;
    failed |= open("/etc/passwd", O_RDONLY) != -1 || errno != ENOENT;
    failed |= write(77, "", 1) != -1 || errno != EBADF;
    failed |= syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time) != 0;
    return failed ? 0 : 1;
}
__attribute__((noinline)) int outer(void) {
    static int word;
    int right = mid();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int *page = mmap(0, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (!right || page == MAP_FAILED) __builtin_trap();
    *page = 1;
    syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0);
    return errno == EINTR ? *page : 2;
}
int main(void) {
    if (pipe(pipes)) return 3;
    int status = outer();
    if (status != 1) __builtin_trap();
    return status;
}
"#;

/// What a thread in each of these calls was asleep in, is over when it goes on: the call was
/// interrupted, and the rest of the calls are answered.
#[test]
fn threads_that_sleep_in_the_kernel_go_on() {
    if let Some(why) = no_ptrace() {
        return skip("threads_that_sleep_in_the_kernel_go_on", why);
    }
    if is_missing("threads_that_sleep_in_the_kernel_go_on", "gdb") {
        return;
    }

    // Each sleeps until a signal comes, in another call.
    let calls = [
        "read(pipes[0], &byte, 1)",
        "syscall(SYS_futex, &pipes, FUTEX_WAIT, pipes[0], 0, 0, 0)",
        "nanosleep(&(struct timespec){1000, 0}, 0)",
    ];

    for call in calls {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (source, program, core) = (path("p.c"), path("p"), path("core"));
        std::fs::write(&source, BLOCKS.replace("BLOCKED", call)).expect("written");

        let mut cc = Command::new("cc");
        cc.args(["-O1", "-static", "-o", &program, &source]);
        assert!(cc.status().expect("cc runs").success());

        let mut gdb = Command::new("gdb");

        // gdb writes the core at SIGALRM, which the program sends itself.
        gdb.args(["-nx", "-batch", "-ex", "handle SIGALRM stop", "-ex", "run"]);
        gdb.args(["-ex", &format!("generate-core-file {core}"), &program]);
        let output = gdb.output().expect("gdb runs");
        assert!(Path::new(&core).is_file(), "{}", stderr(&output));

        let args = ["replay", &core, "--unwinder", "dwarf", "--confirm"];
        let text = ends_with(0, &args);
        assert!(
            text.contains("confirmed (") && text.contains(" after assumed results), 0 contra"),
            "{call}: {text}"
        );
        assert!(text.contains("openat 1"), "{call}: {text}");
        // System call 231 is `exit_group`.
        assert!(
            text.contains("stopped at") && text.contains("system call 231 cannot be answered"),
            "{call}: {text}"
        );

        let text = ends_with(0, &[&args[..], &["--json"]].concat());
        let lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line
        });
        let lines: Vec<_> = lines.collect();
        let one = |kind: &str| {
            let line = lines.iter().find(|line| line["type"] == kind);
            line.unwrap_or_else(|| panic!("no {kind}: {text}"))
        };

        // The call in which it slept.
        assert_eq!(one("resumed")["interrupted"], 1, "{call}: {text}");
        let confirmed = one("confirmed");
        assert_eq!(confirmed["contradicted"], 0, "{call}: {text}");
        // `leaf`'s, `mid`, `outer`, `main` and who called it; those that the kernel answered to
        // before they returned are without `mid`.
        let count = confirmed["confirmed"].as_u64().expect("a number");
        assert!(count >= 4, "{call}: {text}");
        let assumed = confirmed["confirmed_assumed"].as_u64().expect("a number");
        assert!((2..count).contains(&assumed), "{call}: {text}");

        let last = lines.last().expect("a line");
        assert_eq!(
            (&last["type"], &last["confirmed"]),
            (&"summary".into(), &count.into())
        );
    }
}
