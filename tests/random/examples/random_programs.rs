//! Tests the verification with random programs: `cargo run --release -p unwind-sim-tests-random --example
//! random_programs -- --count 100000`.

use clap::Parser;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::process::ExitCode;
use std::time::Instant;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_tests_random::programs::{
    DefectOutcome, RandomProgram, TrialError, Verifier, shrink,
};

/// Tries programs, each with the right table and with one defect.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of programs.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// Stop after this many failures.
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Shrink the programs that fail, and print them.
    #[arg(long)]
    shrink: bool,
    /// Print the first program as a case, and try nothing: `right`, or with its `defect`.
    #[arg(long, value_name = "WHICH")]
    case: Option<String>,
    /// Print the seeds of defects that are equivalent.
    #[arg(long)]
    equivalent: bool,
    /// Programs in which only call instructions make frames.
    #[arg(long)]
    by_calls: bool,
}

impl Arguments {
    fn program(&self, seed: u64) -> RandomProgram {
        if self.by_calls {
            RandomProgram::by_calls(seed)
        } else {
            RandomProgram::random(seed)
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bench = match Verifier::new() {
        Ok(bench) => bench,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };

    // One program as a case for the corpus, and no trial.
    if let Some(which) = &arguments.case {
        let program = arguments.program(arguments.seed);
        let about = (
            "transfer",
            "A random program ends with all registers as they were.",
        );
        return match bench.case(&program, which == "defect", about) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("{problem}");
                ExitCode::from(2)
            }
        };
    }

    let begin = Instant::now();
    let mut progress = Progress::new("programs", true);

    // Counts of all programs that passed; a failed one has none.
    let (mut programs, mut failures) = (0_u64, 0);
    let (mut instructions, mut calls, mut signals, mut lost) = (0, 0, 0, 0);
    let mut defects: BTreeMap<_, BTreeMap<DefectOutcome, u64>> = BTreeMap::new();
    for seed in (arguments.seed..).take(arguments.count as usize) {
        let program = arguments.program(seed);
        programs += 1;
        progress.tell(programs);
        match bench.try_program(&program) {
            Ok(tried) => {
                instructions += tried.instructions;
                calls += tried.calls;
                signals += tried.signals;
                lost += tried.lost;
                if let Some((kind, fate)) = tried.defect {
                    // An equivalent defect gives the same values at all executed instructions.
                    if arguments.equivalent && fate == DefectOutcome::Equivalent {
                        println!("seed {seed}: {} is equivalent", kind.as_str());
                    }
                    *defects.entry(kind).or_default().entry(fate).or_default() += 1;
                }
            }
            Err(problem) => {
                println!("seed {seed}: {problem}");
                if arguments.shrink {
                    // Only the same kind of failure counts, or shrinking would end at another
                    // defect.
                    let same = |other: &RandomProgram| {
                        let again = bench.try_program(other);
                        again.is_err_and(|p| discriminant(&p) == discriminant(&problem))
                    };
                    let small = shrink(&program, same);
                    println!("{small:#?}");
                    let is_defect = matches!(problem, TrialError::Defect { .. });
                    let about = ("transfer", "A random program verifies.");

                    // What is small enough becomes a case, which can be debugged without this
                    // program.
                    match bench.case(&small, is_defect, about) {
                        Ok(text) => println!("{text}"),
                        Err(problem) => println!("no case: {problem}"),
                    }
                }

                // Failures often have one cause, so the run ends after a few.
                failures += 1;
                if failures >= arguments.failures {
                    break;
                }
            }
        }
    }

    // The line of progress must end before the results are printed.
    drop(progress);
    let time = begin.elapsed().as_secs_f64();
    println!(
        "{programs} programs from seed {} in {time:.1} s: {:.0} a second; {failures} failed",
        arguments.seed,
        programs as f64 / time
    );
    println!("{instructions} instructions, {calls} calls, {signals} signals, {lost} losses");

    // The columns, in this order.
    let fates = [
        DefectOutcome::Found,
        DefectOutcome::Equivalent,
        DefectOutcome::NotExecuted,
    ];
    let mut sums = [0; 3];
    println!(
        "{:18}{:>10}{:>12}{:>14}",
        "defect", "found", "equivalent", "not executed"
    );

    for (kind, counts) in &defects {
        let counts = fates.map(|fate| counts.get(&fate).copied().unwrap_or(0));
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
        let [found, equivalent, not] = counts;
        println!("{:18}{found:>10}{equivalent:>12}{not:>14}", kind.as_str());
    }

    let [found, equivalent, not] = sums;
    println!("{:18}{found:>10}{equivalent:>12}{not:>14}", "all");
    ExitCode::from(u8::from(failures != 0))
}
