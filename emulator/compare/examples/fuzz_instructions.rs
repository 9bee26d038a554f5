//! Compares the emulated machine with this machine's processor, instruction by instruction: `cargo
//! run --release -p unwind-sim-emulator-compare --example fuzz_instructions -- --cases 1000000000`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    use clap::Parser;
    use iced_x86::Code;
    use std::time::{Duration, Instant};
    use unwind_sim_emulator::Processor;
    use unwind_sim_emulator::differences::TABLE;
    use unwind_sim_emulator::processor::host::{self, host};
    use unwind_sim_emulator_compare::differential::{CaseFile, Fuzzer, TRAITS};
    use unwind_sim_emulator_native::single::Native;

    /// Fuzzes single instructions of the emulated machine.
    #[derive(Parser)]
    struct Arguments {
        /// Seed of the random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of cases.
        #[arg(long)]
        cases: Option<u64>,
        /// Duration in seconds; 30 by default if --cases is not given.
        #[arg(long)]
        seconds: Option<u64>,
        /// The emulated processor; by default the closest to this computer's.
        #[arg(long, value_parser = host::parse)]
        cpu: Option<Processor>,
        /// Run only codes whose name contains this.
        #[arg(long)]
        code: Option<String>,
        /// Stop after this many failures.
        #[arg(long, default_value_t = 10)]
        failures: usize,
        /// File to which to write, for each code, the number of cases with each trait: separated by
        /// tabs.
        #[arg(long)]
        table: Option<std::path::PathBuf>,
        /// Directory in which to save failures.
        #[arg(long)]
        save: Option<std::path::PathBuf>,
    }

    /// Number of cases between progress messages.
    const PROGRESS: u64 = 50_000_000;
    /// Number of cases that are enough for a code.
    const ENOUGH: u64 = 100_000;

    let arguments = Arguments::parse();
    let wanted = |code| {
        let name = format!("{code:?}");
        arguments
            .code
            .as_ref()
            .is_none_or(|part| name.contains(part))
    };
    let host = host();
    let processor = arguments.cpu.unwrap_or(host.processor);
    println!("{host}");

    // Codes that this computer's processor or the machine lacks are left out, so there may be none.
    let mut fuzzer = match Fuzzer::new(arguments.seed, processor, wanted) {
        Ok(fuzzer) => fuzzer,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::from(2);
        }
    };

    println!("seed {}, {} codes", arguments.seed, fuzzer.codes().count());
    if fuzzer.codes().next().is_none() {
        eprintln!("no code is modelled and has this in its name");
        return std::process::ExitCode::from(2);
    }

    let cases_max = arguments.cases.unwrap_or(u64::MAX);

    // A number of cases alone is a limit; without any, a run must still end.
    let seconds = match (arguments.seconds, arguments.cases) {
        (None, None) => 30,
        (seconds, _) => seconds.unwrap_or(u64::MAX),
    };

    let begin = Instant::now();
    let (mut cases, mut failures) = (0, 0);
    let mut seen = std::collections::HashMap::new();
    while cases < cases_max
        && failures < arguments.failures
        && begin.elapsed() < Duration::from_secs(seconds)
    {
        let failed = match fuzzer.batch() {
            Ok(failed) => failed,
            Err(error) => {
                eprintln!("{error}");
                return std::process::ExitCode::from(2);
            }
        };

        // A batch always runs whole, so the number of cases may exceed the limit by less than a
        // batch.
        cases += Native::BATCH as u64;
        for failure in failed {
            let code = failure.insn().code();
            let count: &mut u64 = seen.entry(code).or_default();
            *count += 1;
            // What is not an instruction has one code for all.
            if *count > 1 && code != Code::INVALID {
                continue;
            }

            failures += 1;
            let cpu = Some(failure.cpu);
            let file = CaseFile::new(&failure.case, failure.index, cpu, failure.native);
            let text = file.text(&failure.to_string());
            println!("{text}");

            // A failure that cannot be saved is on standard output already, so the run goes on.
            if let Some(folder) = &arguments.save {
                let path = folder.join(format!("{code:?}.txt").to_lowercase());
                if let Err(error) = std::fs::write(&path, text) {
                    eprintln!("{}: {error}", path.display());
                }
            }
        }

        // Once per interval: cases only ever grow by a batch.
        if cases % PROGRESS < Native::BATCH as u64 {
            println!("{cases} cases, {:.0} s", begin.elapsed().as_secs_f64());
        }
    }

    let time = begin.elapsed().as_secs_f64();
    println!(
        "{cases} cases in {time:.1} s: {:.3} M/s",
        cases as f64 / time / 1e6
    );

    // Which entries of the table of differences were needed, and how often. One that never is may
    // be wrong, or its instruction rare.
    for (entry, count) in TABLE
        .iter()
        .zip(fuzzer.open)
        .filter(|(_, count)| *count != 0)
    {
        println!("open by {}: {count}", entry.name);
    }
    println!(
        "void {}, disturbed {}, not modelled {}",
        fuzzer.void, fuzzer.disturbed, fuzzer.unsupported
    );

    // A hash map has no order of its own; the output of a seed should always be the same.
    let mut seen: Vec<_> = seen.into_iter().collect();
    seen.sort();
    println!("failures by code: {seen:?}");

    // The rarest codes first: they show what the generator hardly reaches.
    let mut codes: Vec<_> = fuzzer.codes().collect();
    codes.sort_by_key(|code| fuzzer.coverage.cases(*code));
    for code in codes.iter().take(10) {
        let (cases, faults) = (fuzzer.coverage.cases(*code), fuzzer.coverage.faults(*code));
        println!("{code:?}: {cases} cases agree, {faults} of them faults");
    }

    for (number, name) in TRAITS.iter().enumerate() {
        let counts = codes
            .iter()
            .map(|code| fuzzer.coverage.traits(*code)[number]);
        let (sum, some) = counts.fold((0, 0), |(sum, some), count| {
            (sum + count, some + u64::from(count != 0))
        });
        println!("{name}: {sum} cases of {some} codes");
    }

    if let Some(path) = &arguments.table {
        let mut text = format!("code\tcases\t{}\n", TRAITS.join("\t"));
        for code in &codes {
            let counts = fuzzer.coverage.traits(*code).map(|count| count.to_string());
            let cases = fuzzer.coverage.cases(*code);
            text += &format!("{code:?}\t{cases}\t{}\n", counts.join("\t"));
        }
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("{}: {error}", path.display());
        }
    }

    let few = |code: &&Code| fuzzer.coverage.cases(**code) < ENOUGH;
    println!("below {ENOUGH}: {}", codes.iter().filter(few).count());
    std::process::ExitCode::from(u8::from(failures != 0))
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}
