//! Both commands of the README share one build: the tests enable no feature, in a crate that the
//! program has, which the program does not enable, too. Else that crate, and all above it, would be
//! built twice; before this test that were all packages of the workspace.

use crate::none;
use crate::skip::skip;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Crates with their enabled features, as `cargo tree` lists them; `None` where another user than the
/// one who built runs the tests, and cannot run Cargo.
fn crates(args: &[&str]) -> Option<BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());

    // Only with what Cargo has already: the test uses no network.
    let output = Command::new(cargo)
        .args([
            "tree",
            "--offline",
            "--prefix",
            "none",
            "--format",
            "{p} {f}",
        ])
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output();

    if let Err(error) = &output
        && error.kind() == ErrorKind::PermissionDenied
    {
        return None;
    }

    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    // `(*)` marks what was listed before.
    let lines = text.lines();
    Some(
        lines
            .map(|line| line.trim_end_matches(" (*)").to_owned())
            .collect(),
    )
}

#[test]
fn the_program_and_the_tests_build_each_crate_once() {
    let program = crates(&["-p", "unwind-sim", "-e", "normal,build"]);
    let tests = crates(&["--workspace", "-e", "normal,build,dev"]);
    let (Some(program), Some(tests)) = (program, tests) else {
        let test = "the_program_and_the_tests_build_each_crate_once";
        return skip(test, "cargo cannot be run by this user");
    };
    assert!(program.len() > 100 && tests.len() > program.len());

    let only_program = program.difference(&tests);
    none(
        &only_program
            .map(|line| format!("the tests build this with other features: {line}"))
            .collect::<Vec<_>>(),
    );
}
