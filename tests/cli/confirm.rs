//! `replay --confirm`: what happens after a core was taken says which frames were true.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::common::no_ptrace;
use crate::common::skip::skip;
use crate::{ends_with, run, status, stderr, stdout};
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
    let folder = tempfile::tempdir().expect("a folder");
    let core_path = core(folder.path(), 32);
    let right = ["replay", &core_path, "--unwinder", "dwarf", "--confirm"];
    let text = ends_with(0, &right);
    let all = "  of 3 callers: 3 confirmed, 0 contradicted, 0 unjudged\n";
    assert!(text.ends_with(all), "{text}");
    assert!(
        text.contains("it asked the kernel, system call 60"),
        "{text}"
    );
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
    let folder = tempfile::tempdir().expect("a folder");
    let core = core(folder.path(), 16);
    let wrong = run(&["replay", &core, "--unwinder", "dwarf", "--confirm"]);
    assert_eq!(status(&wrong), 1, "{}", stdout(&wrong));
    let told = stdout(&wrong);
    assert!(
        told.contains("frame 2: it is to be returned to from"),
        "{told}"
    );
}
