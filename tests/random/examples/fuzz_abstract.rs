//! Compares what `tables check` takes instructions to do with what they do: `cargo run --release -p
//! unwind-sim-tests-random --example fuzz_abstract -- --cases 100000000`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    use clap::Parser;
    use std::collections::HashMap;
    use std::time::{Duration, Instant};
    use unwind_sim_emulator_native::single::Native;
    use unwind_sim_recordings::progress::Progress;
    use unwind_sim_tests_random::abstraction::Fuzzer;

    /// Tests the abstract semantics of single instructions.
    #[derive(Parser)]
    struct Arguments {
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of concrete states.
        #[arg(long)]
        cases: Option<u64>,
        /// Duration in seconds; 30 by default if --cases is not given.
        #[arg(long)]
        seconds: Option<u64>,
        /// Only in the machine, not on this processor.
        #[arg(long)]
        machine: bool,
        /// Run only codes whose name contains this.
        #[arg(long)]
        code: Option<String>,
        /// Show this many failures of each code.
        #[arg(long, default_value_t = 1)]
        each: u64,
        /// File to which to write, for each code, how many of the places that it wrote are known.
        #[arg(long)]
        table: Option<std::path::PathBuf>,
    }

    let arguments = Arguments::parse();
    let wanted = |code| {
        let name = format!("{code:?}");
        arguments
            .code
            .as_ref()
            .is_none_or(|part| name.contains(part))
    };

    let mut fuzzer = match Fuzzer::new(arguments.seed, !arguments.machine, wanted) {
        Ok(fuzzer) => fuzzer,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::from(2);
        }
    };
    println!("seed {}, {} codes", arguments.seed, fuzzer.codes().len());
    if fuzzer.codes().is_empty() {
        eprintln!("no code is executed and has this in its name");
        return std::process::ExitCode::from(2);
    }

    // A number of cases alone is a limit; without any, a run must still end.
    let cases_max = arguments.cases.unwrap_or(u64::MAX);
    let seconds = match (arguments.seconds, arguments.cases) {
        (None, None) => 30,
        (seconds, _) => seconds.unwrap_or(u64::MAX),
    };

    let begin = Instant::now();
    let mut progress = Progress::new("cases", true);
    // Failures by code: one defect of a rule fails in many states.
    let mut seen = HashMap::new();
    let mut cases = 0;
    while cases < cases_max && begin.elapsed() < Duration::from_secs(seconds) {
        let failures = match fuzzer.batch() {
            Ok(failures) => failures,
            Err(error) => {
                eprintln!("{error}");
                return std::process::ExitCode::from(2);
            }
        };

        // Whole batches only, so the last one may go past the limit.
        cases += Native::BATCH as u64;
        for failure in failures {
            let count: &mut u64 = seen.entry(failure.insn.code()).or_default();
            *count += 1;

            // The rest are counted only: failures of one code are usually the same defect.
            if *count <= arguments.each {
                println!("{failure}\n");
            }
        }
        progress.tell(cases);
    }

    // Before anything else is printed, since it may still own the line of the terminal.
    drop(progress);
    println!(
        "{cases} cases in {:.1} s; executed to the end on the processor: {}, in the machine: {}",
        begin.elapsed().as_secs_f64(),
        fuzzer.executed[0],
        fuzzer.executed[1]
    );

    // In a fixed order, so that two runs can be compared.
    let mut failed: Vec<_> = seen.into_iter().collect();
    // A hash map's order changes from run to run.
    failed.sort();
    println!("failures by code: {failed:?}");
    let done = |code| fuzzer.precision.of(code).0;

    // A code that never wrote anything was not tested, whatever passed.
    let silent = fuzzer
        .codes()
        .iter()
        .filter(|code| done(**code) == 0)
        .count();
    println!("codes that wrote nothing: {silent}");

    // One row for each code: the places that it wrote, and those that are exactly known.
    if let Some(path) = &arguments.table {
        let rows = fuzzer.codes().iter().map(|code| {
            let (written, exact) = fuzzer.precision.of(*code);
            format!("{code:?}\t{written}\t{exact}\n")
        });
        if let Err(error) = std::fs::write(path, rows.collect::<String>()) {
            eprintln!("{}: {error}", path.display());
        }
    }
    std::process::ExitCode::from(u8::from(!failed.is_empty()))
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}
