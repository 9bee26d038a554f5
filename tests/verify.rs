//! `verify` on the corpus of cases: every injected defect is found at its row, skipping redundant
//! checks does not change the report, and walks agree with single frames.

use std::path::{Path, PathBuf};
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};
use unwind_sim_judge::case::Machine;
use unwind_sim_judge::cases::BuiltCase;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::verify::{self, Check, Request, Run};
use unwind_sim_judge::{cases, spec};
use unwind_sim_view::verification;

/// More than any case executes.
const INSTRUCTIONS_MAX: u64 = 5_000_000;

/// Cases of more instructions are run without skipping only if they are in [`LONG`], or with
/// `UNWIND_SIM_SLOW=1`: all but one of them begin with the same 80,000 instructions, which load the C
/// library, and that one repeats a call.
const LONG_INSTRUCTIONS: u64 = 50_000;
/// Of what loads the C library: what is unwound by it, and what changes its stack by it.
const LONG: [&str; 2] = [
    "exception-lands-in-its-catcher",
    "context-made-by-makecontext",
];

fn engines(names: &[&str]) -> Vec<Engine> {
    let engine = |name: &&str| spec::engine(name).expect("a known unwinder");
    names.iter().map(engine).collect()
}

fn all_cases() -> Vec<PathBuf> {
    let mut paths = cases::find(Path::new("corpus/cases")).expect("the corpus is there");
    // Kernels are not programs.
    paths.retain(|path| cases::read(path).is_ok_and(|c| c.header.machine == Machine::Process));
    paths
}

fn run(path: &Path, defect: bool, engines: &[Engine], elide: bool) -> Run {
    let built = cases::build_case(path, defect).expect("the case can be built");
    run_built(&built, engines, elide)
}

fn run_built(built: &BuiltCase, engines: &[Engine], elide: bool) -> Run {
    let program = RunningProgram {
        path: built.path.as_os_str().as_encoded_bytes().to_vec(),
        options: ProcessOptions {
            args: vec![b"case".to_vec()],
            ..ProcessOptions::default()
        },
    };
    let request = Request {
        engines,
        setting: Setting::default(),
        elide,
        each: true,
        tables_from: None,
        instructions_max: INSTRUCTIONS_MAX,
        timeout: None,
    };
    verify::run(program, &request, &mut |_| {}).expect("the case can be started")
}

fn text(names: &[String], run: &Run) -> String {
    verification::text(&verification::Subject {
        names,
        results: &run.results,
        coverage: &[],
        again: &|unwinder, address| {
            format!("unwind-sim verify --unwinder {unwinder} --only {address:#x} -- case")
        },
        all: true,
    })
}

#[test]
fn every_injected_defect_is_found_at_its_row() {
    let engines = engines(&["dwarf"]);
    let mut found = 0;
    for path in all_cases() {
        let case = cases::read(&path).expect("a case");
        let Some(inject) = &case.header.inject else {
            continue;
        };
        let run = run(&path, true, &engines, true);

        let mappings = run.space.mappings().iter();
        let symbols = mappings.flat_map(|m| m.image.iter().flat_map(|i| i.symbols()));

        // The label is at the row that the defect changes.
        let label = symbols.clone().find(|s| s.name == inject.label);
        let label = label.expect("the label is in the program").address;

        let pinned = run.results.findings.iter().any(|finding| {
            let contradiction = &finding.contradiction;
            match &contradiction.row {
                Some(row) => (row.source.start..row.source.end).contains(&label),
                // Without a row, the address itself has to be the label's.
                None => {
                    let at = finding.contradiction.pc;
                    at.symbol_address() == label || at.value() == label
                }
            }
        });

        assert_eq!(
            pinned,
            // An equivalent defect changes nothing, and must not be found.
            inject.equivalent.is_none(),
            "{}\n{}",
            path.display(),
            text(&["dwarf".to_owned()], &run)
        );
        found += u32::from(pinned);
    }

    assert!(found >= 20, "{found} defects found");
}

#[test]
fn what_is_skipped_changes_nothing_and_walks_agree_with_single_frames() {
    let names = ["dwarf", "sframe", "orc", "fp"];
    let engines = engines(&names);
    let names = names.map(str::to_owned);
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let (mut ran, mut long) = (0, 0);
    for path in all_cases() {
        let built = cases::build_case(&path, false).expect("the case can be built");
        let quick = run_built(&built, &engines, true);
        let shown = path.display();
        let case = cases::read(&path).expect("a case");
        let is_long = quick.results.instructions > LONG_INSTRUCTIONS;

        // Without skipping, long cases take long: only a few are chosen.
        if is_slow || !is_long || LONG.contains(&case.name.as_str()) {
            let slow = run_built(&built, &engines, false);
            assert_eq!(text(&names, &quick), text(&names, &slow), "{shown}");
            long += usize::from(is_long);
        }

        // Walks and single frames are two ways to the same answer: where they differ, one of ours
        // is wrong.
        assert_eq!(quick.results.disagreements, [], "{shown}");
        let truth = &quick.results.truth;
        assert!(truth.unknown <= case.header.truth_unknown_max, "{shown}");
        match &quick.end {
            End::Outcome(Outcome::Exited(status)) => assert_eq!(*status, 0, "{shown}"),
            // Threads are not modelled: the program gives up.
            end => assert!(case.name.contains("thread"), "{shown}: {end}"),
        }
        ran += 1;
    }
    assert!(ran > 100 && long >= LONG.len(), "{ran} and {long}");
}

/// A table that is right for one program is wrong for another: uses the tables of a case with its
/// defect on the code of the case without it.
#[test]
fn tables_of_another_file_are_held_against_the_code() {
    let path = Path::new("corpus/cases/defect/late-row-behind-a-push.s");
    let engines = engines(&["dwarf"]);
    let right = run(path, false, &engines, true);

    // With its own tables nothing is wrong but what comes at returns.
    assert!(
        right
            .results
            .findings
            .iter()
            .all(|f| f.check == Check::AtReturn),
        "{}",
        text(&["dwarf".to_owned()], &right)
    );

    // The program has the right tables; those of the other build are compared with what it does.
    let wrong = cases::build_case(path, true).expect("the case can be built");
    let built = cases::build_case(path, false).expect("the case can be built");
    let program = RunningProgram {
        path: built.path.as_os_str().as_encoded_bytes().to_vec(),
        options: ProcessOptions {
            args: vec![b"case".to_vec()],
            ..ProcessOptions::default()
        },
    };

    let request = Request {
        engines: &engines,
        setting: Setting::default(),
        elide: true,
        each: true,
        // The rows of the other build, by its file.
        tables_from: Some(wrong.path.clone()),
        instructions_max: INSTRUCTIONS_MAX,
        timeout: None,
    };

    let run = verify::run(program, &request, &mut |_| {}).expect("the case can be started");
    assert!(!run.results.findings.is_empty());
    assert!(verify::unexpected(&engines, &run.results, false, None));
}

/// The mark of a signal frame on a called function makes nothing wrong by itself: only where the row
/// behind the call is another one.
#[test]
fn a_mark_on_a_called_function_is_judged_by_the_row_that_is_read() {
    let engines = engines(&["dwarf"]);
    for (name, is_right) in [
        ("mark-on-a-called-function", true),
        ("mark-where-the-callers-rows-differ", false),
    ] {
        let path = format!("corpus/cases/signal/{name}.s");
        let run = run(Path::new(&path), false, &engines, true);
        let mut findings = run.results.findings.iter();
        let text = text(&["dwarf".to_owned()], &run);
        assert_eq!(
            findings.all(|f| f.check == Check::AtReturn),
            is_right,
            "{text}"
        );
    }
}
