//! Ten million instructions: time and memory (slow).

use crate::step::{root, tool};
use std::time::Instant;

/// A shell that counts: more than ten million instructions, after which it is stopped.
const COUNT: &str = "i=0; while [ $i -lt 9000 ]; do i=$((i+1)); done";

/// The peak of resident memory of the children that were waited for, bytes.
fn children_peak() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
    usage.expect("usage").max_rss().unsigned_abs() * 1024
}

#[test]
fn ten_million_instructions_fit_and_are_near() {
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return crate::common::skip::skip(
            "ten_million_instructions_fit_and_are_near",
            "slow; set UNWIND_SIM_SLOW=1",
        );
    }

    let limit = ["--max-instructions", "10000000", "--clear-env"];
    let program = [&limit[..], &["--", "/bin/sh", "-c", COUNT]].concat();

    let play = |script: &str| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), script).expect("it is written");
        let mut command = tool(&["--size", "100x30", "--script"]);
        command
            .arg(file.path())
            .args(&program)
            .current_dir(root(""));

        let begin = Instant::now();
        let output = command.output().expect("it runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        (
            begin.elapsed(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };

    let (_, screen) = play("End");
    assert!(children_peak() < 512 << 20, "{} bytes", children_peak());
    assert!(
        screen.contains("instruction 10000000 of 10000001"),
        "{screen}"
    );

    // A hundred more places, forwards and backwards, far apart.
    let mut places = String::from("End");
    for nth in 0..50 {
        // The step and 7,000,000 have no common factor, so no place comes twice.
        let number = 1_000_000 + (nth * 7_919_777) % 7_000_000;
        places.push_str(&format!(" g \"{number}\" Enter S"));
    }

    // What the program takes to start and to run is not counted.
    let (once, _) = play("End");
    let (all, _) = play(&places);

    let each = all.saturating_sub(once) / 100;

    // In milliseconds.
    let most = if cfg!(debug_assertions) { 2_000 } else { 100 };
    assert!(each.as_millis() < most, "{each:?} for each place");
}
