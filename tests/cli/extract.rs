//! `extract -o case.s`: a recorded sample becomes a program that has the same chain.

use crate::{THROWS, ends_with, run, snapshot, status, stderr};
use std::path::Path;
use unwind_sim::cases;
use unwind_sim_corpus::case::Cell;
use unwind_sim_unwind::verdict::Verdict;

/// Samples here and there in a program that throws exceptions, out of the loader, libc and
/// libstdc++.
const SAMPLES: [&str; 6] = ["0", "194", "1000", "1455", "2231", "2813"];

fn extract(folder: &Path, trace: &str, sample: &str) -> std::path::PathBuf {
    let path = folder.join(format!("sample-{sample}.s"));
    let file = path.to_string_lossy().into_owned();
    ends_with(0, &["extract", trace, "--sample", sample, "-o", &file]);
    path
}

/// It builds, runs, has the chain that it states, and the unwinders are as right or wrong as they
/// were in the recording.
#[test]
fn a_sample_becomes_a_case_that_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    for sample in SAMPLES {
        let path = extract(folder.path(), THROWS, sample);
        let case = cases::read(&path).expect("a sound case");
        assert!(
            case.header.right.iter().any(|c| c.unwinder == "dwarf"),
            "{sample}"
        );
        cases::bless(&path, &[]).unwrap_or_else(|e| panic!("{sample}: {e}"));
        cases::check(&path).unwrap_or_else(|e| panic!("{sample}: {e}"));
        let blessed = cases::read(&path).expect("a sound case");
        let matrix = blessed.expected.expect("it was blessed");
        let dwarf = matrix.cell("sample", "dwarf");
        assert!(
            matches!(
                dwarf,
                Some(Cell::Judged {
                    verdict: Verdict::Ok,
                    ..
                })
            ),
            "{sample}: {dwarf:?}"
        );
    }
}

#[test]
fn what_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let refused = |args: &[&str], what: &str| {
        let output = run(args);
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    };
    let case = file("case.s");
    refused(&["extract", THROWS, "-o", &case], "--sample N");
    let seed = crate::SEED;
    refused(
        &["extract", seed, "--sample", "2", "-o", &case],
        "fake registers",
    );
    let perf = "corpus/perfdata/dwarf.data";
    refused(&["extract", perf, "--sample", "0", "-o", &case], "no truth");
    let name = file("Not_Kebab.s");
    refused(
        &["extract", THROWS, "--sample", "0", "-o", &name],
        "Not_Kebab",
    );
    for (name, what) in [
        ("signal/signal-frame-on-the-normal-stack", "signal"),
        (
            "dwarf/plt-formula-depends-on-the-low-bits-of-the-pc",
            "expression",
        ),
        (
            "dwarf/cfa-on-a-scratch-register-while-it-lives",
            "register that a call may change",
        ),
    ] {
        let from = format!("corpus/cases/{name}.s");
        refused(&["extract", &from, "--sample", "0", "-o", &case], what);
    }
}

#[test]
fn a_case_as_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = extract(folder.path(), THROWS, "1000");
    let text = std::fs::read_to_string(path).expect("the case");
    let header: String = text.lines().take(7).map(|l| format!("{l}\n")).collect();
    insta::with_settings!({
        snapshot_path => crate::root("snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("cli-extracted-header", header.replace("sample-1000", "NAME")) });
    snapshot("extract-without-output", &["extract", THROWS]);
}
