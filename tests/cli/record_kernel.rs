//! `record --kernel`: what does not go with a kernel that is booted is refused, and the right command is
//! named. What is recorded of a small kernel is tested in `record`, of real ones by `.ci/kernel`.
#![cfg(feature = "machine")]

use crate::cli::emulate_kernel::image::{self, HALT};
use crate::cli::{run, status, stderr};

#[test]
fn what_does_not_go_with_a_booted_kernel_is_refused() {
    let booted = ["--kernel", "vmlinuz", "--init", "init"];
    let stub = "unwind-sim record --engine gdb HOST:PORT --kernel vmlinuz";
    let program = "unwind-sim record --kernel vmlinuz --init ls";
    let place = "--at perf_callchain_kernel";
    let needed = "the following required arguments were not provided";
    for (words, told) in [
        (
            &["--engine", "gdb", "--kernel", "vmlinuz", "--init", "init"][..],
            stub,
        ),
        (
            &[
                "--engine", "gdb", "host:1", "--kernel", "vmlinuz", "--initrd", "i",
            ],
            stub,
        ),
        (
            &["--engine", "ptrace", "--kernel", "vmlinuz"],
            "--engine ptrace runs programs",
        ),
        (&["--kernel", "vmlinuz", "--", "ls"], program),
        (&["--kernel", "vmlinuz", "--init", "i", "--", "ls"], program),
        (
            &["--kernel", "6.12"],
            "unwind-sim record --kernel FILE --init PROG",
        ),
        (&["--init", "init"], needed),
        (&["--append", "quiet", "--", "ls"], needed),
        (
            &[
                "--engine", "gdb", "host:1", "--kernel", "vmlinuz", "--append", "quiet",
            ],
            "--append is for a kernel that is booted",
        ),
        (&[&booted[..], &["--at", "vfs_read"]].concat(), place),
        (&[&booted[..], &["--at", "every:100"]].concat(), place),
        (
            &[&booted[..], &["--from", "main"]].concat(),
            "--from does not go with",
        ),
        (
            &[&booted[..], &["--lbr", "16"]].concat(),
            "--lbr does not go with",
        ),
        (
            &[&booted[..], &["--root", "/tmp"]].concat(),
            "--root does not go with",
        ),
        (
            &[&booted[..], &["--force"]].concat(),
            "--force does not go with",
        ),
        (
            &[&booted[..], &["--status", "program"]].concat(),
            "--status does not go with",
        ),
    ] {
        let output = run(&[&["record"], words].concat());
        let said = stderr(&output);
        assert_eq!(status(&output), 2, "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
}

#[test]
fn a_kernel_without_symbols_is_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vmlinux");
    std::fs::write(&path, image::vmlinux(&[HALT])).expect("written");
    let path = path.display().to_string();
    let output = run(&["record", "--kernel", &path, "-o", &format!("{path}.bin")]);
    let said = stderr(&output);
    assert_eq!(status(&output), 2, "{said}");
    assert!(
        said.contains("has no symbols of the code that switches"),
        "{said}"
    );
    assert!(!std::path::Path::new(&format!("{path}.bin")).exists());
}
