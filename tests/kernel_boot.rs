//! Boots kernels, single-steps them, and compares unwinders with the truth. Needs
//! `UNWIND_SIM_SLOW=1`, and a folder with `vmlinuz-VERSION` in `UNWIND_SIM_KERNELS`.
//! `tests/kernel/boot.sh` does the work.

use crate::common::skip::skip;
use std::path::Path;
use std::process::Command;

const SLOW: &str = "UNWIND_SIM_SLOW";
const FOLDER: &str = "UNWIND_SIM_KERNELS";
/// Minimum percentage of instructions at which ORC is right. It is wrong in entry code and
/// retpolines (`docs/kernel-wrong-places.md`).
const RIGHT_MIN: f64 = 90.0;

#[test]
fn kernels_are_recorded_through_the_stub_of_qemu() {
    record("kernels_are_recorded_through_the_stub_of_qemu", "0", "1");
}

/// These kernels relocate themselves, and the page tables of user space do not map them.
#[test]
fn moved_kernels_on_two_processors_are_recorded() {
    record("moved_kernels_on_two_processors_are_recorded", "1", "2");
}

fn record(name: &str, kaslr: &str, processors: &str) {
    if std::env::var_os(SLOW).is_none() {
        return skip(name, format_args!("slow; set {SLOW}=1"));
    }
    let Some(folder) = std::env::var_os(FOLDER) else {
        return skip(name, format_args!("{FOLDER} names no folder with kernels"));
    };

    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let is_kernel = |name: &str| name.starts_with("vmlinuz-");
    let kernels = entries.filter(|e| e.file_name().to_str().is_some_and(is_kernel));

    let mut count = 0;
    for kernel in kernels {
        let out = tempfile::tempdir().expect("a folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/boot.sh");

        // The script boots the kernel, records it and compares what it recorded.
        let status = Command::new(script)
            .arg(kernel.path())
            .arg(out.path())
            .env("KASLR", kaslr)
            .env("SMP", processors)
            .env("UNWIND_SIM", env!("CARGO_BIN_EXE_unwind-sim"))
            .status()
            .expect("a shell");
        assert!(status.success(), "{}: {status}", kernel.path().display());

        for name in ["entry_SYSCALL_64.txt", "asm_exc_page_fault.txt"] {
            let text = std::fs::read_to_string(out.path().join(name)).expect("a comparison");
            let line = text
                .lines()
                .find(|l| l.starts_with("orc:kernel "))
                .expect("ORC");
            // The share is the last but one word.
            let right = line.split_whitespace().rev().nth(1).expect("a share");
            let right: f64 = right.parse().expect("a number");
            // Not all: ORC is wrong in entry code and retpolines.
            assert!(right >= RIGHT_MIN, "{name}: {line}");
        }
        count += 1;
    }
    assert!(count > 0, "{FOLDER} has no vmlinuz-VERSION");
}
