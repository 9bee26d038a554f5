//! Programs that choose their code by the processor's model, and not by its features: the default
//! processors are models for which compilers choose code that the machine executes.

use super::{native, options, start};
use crate::skip::skip;
use std::path::Path;
use std::process::Command;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};

const TEST: &str = "clones_for_the_default_processors_are_executed";
/// More than the dynamic linker and the program execute.
const INSTRUCTIONS_MAX: u64 = 20_000_000;

#[test]
fn clones_for_the_default_processors_are_executed() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("clones");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linux/clones.c");
    let built = Command::new("cc")
        .args(["-O3", "-o"])
        .args([&program, &source])
        .output()
        .expect("cc runs");

    if !built.status.success() {
        return skip(TEST, "cc has no target_clones by processor");
    }

    let real = native(&program, &[], directory.path());
    let real = String::from_utf8_lossy(&real.stdout).into_owned();

    // The result must not depend on the code that was chosen.
    let sum = real.lines().next().expect("a sum");
    assert!(sum.starts_with("sum "), "{real}");

    let run = |cpu: &str| {
        let processor = match cpu {
            "" => Processor::default(),
            cpu => cpu.parse().expect("a processor"),
        };

        let options = ProcessOptions {
            processor,
            ..options(&program, &[], directory.path())
        };

        let mut kernel = start(&program, options);
        let outcome = kernel.run(INSTRUCTIONS_MAX, &mut ());
        let said = String::from_utf8_lossy(kernel.stdout()).into_owned();
        assert_eq!(outcome, Outcome::Exited(0), "{cpu}: {outcome}");
        assert_eq!(said.lines().next(), Some(sum), "{cpu}");

        // The machine does not model AVX-512, so no processor may look as if it had it.
        assert!(said.contains("skylake-avx512 0\n"), "{cpu}: {said}");
        assert!(said.contains("avx512f 0 "), "{cpu}: {said}");
        said
    };

    // The default processor looks like a Skylake, `v2` like a Nehalem.
    assert!(run("").contains("avx2 1\nskylake-avx512 0\nskylake 1 nehalem 0\n"));
    assert!(run("v2").contains("avx2 0\nskylake-avx512 0\nskylake 0 nehalem 1\n"));
    for cpu in [
        "v1",
        "v1,amd",
        "v2,amd",
        "v3,amd",
        "v3,amd:zen3",
        "v3,intel:skylake",
    ] {
        run(cpu);
    }
}
