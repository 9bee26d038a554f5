//! Random programs: the verification finds nothing in right tables, and an injected defect exactly
//! where it is. `UNWIND_SIM_SEED` is the first seed; `UNWIND_SIM_SLOW=1` tries many more.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::common::{no_ptrace, skip::skip};
use std::collections::BTreeMap;
use std::mem::discriminant;
use unwind_sim_tests_random::programs::{
    DefectKind, DefectOutcome, RandomProgram, Verifier, shrink,
};

/// The first seed.
const SEED: &str = "UNWIND_SIM_SEED";
/// Set to 1 to try many programs.
const SLOW: &str = "UNWIND_SIM_SLOW";
const PROGRAMS: u64 = 120;
const PROGRAMS_SLOW: u64 = 20_000;
/// The number of programs that are single-stepped under ptrace.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const PROGRAMS_TRACED: usize = 12;
/// Maximum percentage of executed defects that may change nothing.
const EQUIVALENT_MAX: f64 = 2.0;
/// Minimum number of executed defects for which this is checked.
const EXECUTED_MIN: u64 = 2000;

fn first_seed() -> u64 {
    let given = std::env::var(SEED).ok();
    given.map_or(0, |text| text.parse().expect("UNWIND_SIM_SEED is a number"))
}

/// The command that tries a seed, and some after it, again.
fn again(seed: u64) -> String {
    format!("{SEED}={seed} cargo test --test suite random_programs::right_tables")
}

/// Tries programs; on a failure, panics with the smallest program that fails in the same way.
fn try_programs(
    programs: impl Iterator<Item = RandomProgram>,
) -> BTreeMap<(DefectKind, DefectOutcome), u64> {
    let bench = Verifier::new().expect("a temporary directory");
    let mut fates = BTreeMap::new();
    for program in programs {
        let problem = match bench.try_program(&program) {
            // Programs without a defect count nowhere.
            Ok(tried) => {
                if let Some(defect) = tried.defect {
                    *fates.entry(defect).or_default() += 1;
                }
                continue;
            }
            Err(problem) => problem,
        };

        // Only the same kind of failure counts: a smaller program with another one would mislead.
        let small = shrink(&program, |other| {
            let again = bench.try_program(other);
            again.is_err_and(|other| discriminant(&other) == discriminant(&problem))
        });
        panic!(
            "{}\n{problem}\nas this one:\n{small:#?}",
            again(program.seed)
        );
    }

    fates
}

#[test]
fn right_tables_are_right_and_defects_are_found_where_they_are() {
    let slow = std::env::var(SLOW).is_ok_and(|value| value == "1");
    let first = first_seed();
    let seeds = first..first.saturating_add(if slow { PROGRAMS_SLOW } else { PROGRAMS });
    println!("{SEED}={first}, seeds {seeds:?}");
    let fates = try_programs(seeds.map(RandomProgram::random));

    let of = |wanted: DefectOutcome| -> u64 {
        let counts = fates.iter().filter(|((_, fate), _)| *fate == wanted);
        counts.map(|(_, count)| count).sum()
    };

    let (found, equivalent) = (of(DefectOutcome::Found), of(DefectOutcome::Equivalent));
    println!(
        "{found} found, {equivalent} equivalent, {} not executed",
        of(DefectOutcome::NotExecuted)
    );

    // A defect that is not found where it is has already failed the test.
    assert!(found > 0);

    // The share of a few would be chance.
    let executed = found + equivalent;
    if executed >= EXECUTED_MIN {
        let share = 100.0 * equivalent as f64 / executed as f64;
        assert!(share <= EQUIVALENT_MAX, "{share:.1} % are equivalent");
        for kind in DefectKind::ALL {
            assert!(
                fates.contains_key(&(kind, DefectOutcome::Found)),
                "{}",
                kind.as_str()
            );
        }
    }
}

/// The programs check themselves whether a register was lost; here on the real processor.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn programs_run_on_this_processor_too() {
    let bench = Verifier::new().expect("a temporary directory");
    for seed in 0..100 {
        let program = RandomProgram::random(seed);
        let path = bench.executable(&program).expect("a program");
        let status = run(&path);
        assert!(status.expect("it runs").success(), "seed {seed}");
    }
}

/// Runs a program that was just written. Another test's child may briefly hold the file open for
/// writing between fork and exec.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn run(path: &std::path::Path) -> std::io::Result<std::process::ExitStatus> {
    let mut tries = 0..1000;
    loop {
        let status = std::process::Command::new(path).status();
        let is_busy = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ExecutableFileBusy;
        if !status.as_ref().is_err_and(is_busy) || tries.next().is_none() {
            return status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The truth that is kept under ptrace, and walks by the right table, are the same at every instruction;
/// in programs that call by jumps, too.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn the_truth_of_programs_is_right_under_ptrace() {
    if let Some(why) = no_ptrace() {
        return skip("the_truth_of_programs_is_right_under_ptrace", &why);
    }

    let bench = Verifier::new().expect("a temporary directory");
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let trace = folder.path().join("trace.bin");

    // Programs that differ with and without jumps: only these have calls by jumps.
    let jumps = (0..).map(RandomProgram::random).filter(|program| {
        let (with, without) = (program, RandomProgram::by_calls(program.seed));
        with.handlers.is_none() && with.functions != without.functions
    });

    for program in jumps.take(PROGRAMS_TRACED) {
        let seed = program.seed;
        let path = bench.executable(&program).expect("a program");
        let command = |arguments: &[&std::ffi::OsStr]| {
            let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
            program.args(arguments).output().expect("it runs")
        };

        // A sample at every instruction.
        let record = ["record", "--truth", "--at", "every:1", "-o"].map(AsRef::as_ref);
        let record =
            command(&[&record[..], &[trace.as_ref(), "--".as_ref(), path.as_ref()]].concat());
        assert!(record.status.success(), "seed {seed}: {record:?}");

        // DWARF's rows are right, so any difference is one of the truth.
        let compare = [
            "compare".as_ref(),
            trace.as_ref(),
            "-u".as_ref(),
            "dwarf".as_ref(),
        ];
        let compare = command(&compare);
        let text = String::from_utf8_lossy(&compare.stdout);
        assert!(compare.status.success(), "seed {seed}: {text}");
    }
}

/// The case made from a program is the same program, built by another assembler.
#[test]
fn programs_become_cases() {
    let bench = Verifier::new().expect("a temporary directory");
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    for (seed, with_defect) in (0..8).zip([false, true].into_iter().cycle()) {
        let program = RandomProgram::random(seed);
        let about = ("transfer", "A random program ends as it should.");
        let case = bench.case(&program, with_defect, about).expect("a case");
        let path = folder.path().join(format!("random-{seed}.s"));
        std::fs::write(&path, &case).expect("a file");

        let mut verify = std::process::Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        let output = verify
            .args(["verify", "--unwinder", "dwarf"])
            .arg(&path)
            .output();
        let output = output.expect("it runs");

        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.starts_with("exited with status 0"),
            "seed {seed}: {text}"
        );

        // No directive describes a retpoline's `ret` correctly, and a defect that the format has no
        // word for replaces the right directives.
        let is_right = !text.contains("retpoline") && (!with_defect || case.contains("#! inject"));
        assert!(!is_right || output.status.success(), "seed {seed}: {text}");
    }
}

/// Seeds with equal claims of different rows, pushes into slots that a claim names, zeros where a
/// return address is looked for, unmarked signal frames, and `alloca` in recursive functions.
#[test]
fn what_once_went_wrong_is_right() {
    let seeds = [
        2, 20, 287, 388, 466, 582, 855, 1029, 3333, 37_658, 53_639, 54_533,
    ];
    try_programs(seeds.into_iter().map(RandomProgram::by_calls));
}

#[test]
fn a_seed_gives_the_same_program_again() {
    for seed in 0..50 {
        assert_eq!(RandomProgram::random(seed), RandomProgram::random(seed));
    }
    assert_ne!(RandomProgram::random(1), RandomProgram::random(2));
}

#[test]
fn a_program_shrinks_to_what_matters() {
    let program = (0..)
        .map(RandomProgram::random)
        .find(|p| p.handlers.is_some() && p.finish == 2);
    let program = program.expect("most seeds give one sooner or later");
    let small = shrink(&program, |other| other.finish == 2);
    assert_eq!((small.functions.len(), small.finish), (1, 2));
    assert!(small.functions[0].body.is_empty() && small.handlers.is_none());
}
