//! Scenarios of the sampling model: each prints what its file says; malformed ones give an error
//! that says what is wrong and where.

use std::path::{Path, PathBuf};
use unwind_sim::perf::run;
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_model::SCENARIO_BYTES_MAX;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_view::perf::stitch;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/scenarios")
        .join(folder);
    let entries = std::fs::read_dir(&folder).expect("the folder");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: nothing there", folder.display());
    paths
}

/// Folders of scenarios that run.
const FOLDERS: [&str; 6] = [
    "upstream", "rfc2023", "handlers", "sampling", "lbr", "sources",
];

fn opened(path: &Path) -> InputFile {
    InputFile::open(path).expect("it is there")
}

#[test]
fn scenarios_print_what_their_files_say() {
    let mut faults = Vec::new();
    for folder in FOLDERS {
        for path in files(folder) {
            match run::run(&opened(&path), None, None) {
                Ok(outcome) if outcome.output == outcome.expected => {}
                Ok(_) => faults.push(format!("unwind-sim perf run --bless {}", path.display())),
                Err(error) => faults.push(error.to_string()),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// With its output it could not be read any more: it stays as it is.
#[test]
fn a_scenario_is_not_blessed_into_one_that_is_too_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.txt");
    let short = std::fs::read_to_string(&files("upstream")[0]).expect("a scenario is text");
    // All of its lines but those of output, and a comment.
    let text = unwind_sim_perf_model::bless(&short, "");
    let comment = "#".repeat(SCENARIO_BYTES_MAX - text.len() - 1);
    let text = text + &comment + "\n";
    std::fs::write(&path, &text).expect("it can be written");

    let run = run::run(&opened(&path), None, None).expect("it can be run");
    assert!(text.len() + run.output.len() > SCENARIO_BYTES_MAX);
    let error = run::run_and_bless(&opened(&path)).err().expect("too long");
    assert!(error.to_string().contains("it is unchanged"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("text"), text);
}

/// All scenarios with an injected defect break a rule, and no others do.
#[test]
fn only_defects_break_rules() {
    for folder in FOLDERS {
        for path in files(folder) {
            let text = std::fs::read_to_string(&path).expect("a scenario is text");
            let has_defect = text.lines().any(|line| line.starts_with("mutant "));
            let breaks = text.lines().any(|line| line.starts_with("= broken: "));
            assert_eq!(has_defect, breaks, "{}", path.display());
        }
    }
}

#[test]
fn malformed_scenarios_say_what_is_wrong() {
    for path in files("errors") {
        let text = std::fs::read_to_string(&path).expect("a scenario is text");
        let expected = text.lines().find_map(|line| line.strip_prefix("= "));
        let error = run::run(&opened(&path), None, None)
            .map(|outcome| outcome.output)
            .expect_err("it is malformed")
            .to_string();
        let message = error.split_once(".txt: ").map(|(_, message)| message);
        assert_eq!(message, expected, "{}", path.display());
    }
}

/// A seed's schedule, written as a scenario, runs as the schedule did.
#[test]
fn a_seed_is_a_scenario() {
    for seed in 0..20 {
        let (text, _) = run::run_seed(seed, 300).expect("a schedule is a scenario");
        let again = run::run_seed(seed, 300).expect("and again").0;
        assert_eq!(text, again, "seed {seed}");
        assert!(!text.contains("= broken: "), "seed {seed}");
    }
}

/// Other interleavings of a scenario break no rule; with a defect some do.
#[test]
fn a_seed_varies_a_scenario() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/scenarios");
    for name in ["upstream/d1_late-sample.txt", "sources/program.txt"] {
        for seed in 0..10 {
            let (text, _) = run::run_varied(&opened(&folder.join(name)), seed).expect("a scenario");
            assert!(!text.contains("= broken: "), "{name}, seed {seed}");
        }
    }
    let mutant = folder.join("upstream/r000_8_period-twice.txt");
    let (text, _) = run::run_varied(&opened(&mutant), 1).expect("a scenario");
    assert!(text.contains("= broken: periods"));
}

/// A run written by the command as a recording, then stitched, gives each sample what the run says.
#[test]
fn a_run_is_written_as_a_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("late.data");
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .args([
            "perf",
            "run",
            "corpus/scenarios/upstream/d1_late-sample.txt",
            "-o",
        ])
        .arg(&path)
        .output()
        .expect("it runs");
    assert!(run.status.success());
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .collect();
    assert_eq!(names.len(), 1, "no temporary file is left");
    let stitching = stitch::stitch(&opened(&path), Mode::Perf72).expect("a recording");
    let tally = stitching.tally();
    assert_eq!((tally.deferred, tally.stitched, tally.late), (2, 2, 1));
}
