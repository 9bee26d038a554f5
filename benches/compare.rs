//! Compares `compare` and `replay --json` on traces with known truth with what they cannot do
//! without: reading the trace, and the same walks, addresses only. Then compares `import` of a
//! perf.data followed by `compare` with the same walks straight from the file. CPU time, in turn.
//!
//! `cargo bench --bench compare` records its own trace in the emulated machine;
//! `UNWIND_SIM_BENCH_TRACES=FILE:FILE` uses others. With `--test` nothing is measured.
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::process::{BenchedProcess, Clock};
use common::programs::{self, Scratch};
use common::recording::{self, RECIPES, RecordingSpec};
use common::report;
use common::timing::{Timing, cpu_time};
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::spec;
use unwind_sim_judge::stacks::{self, Consumer, Taken};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_recordings::view::{Filter, MemoryView};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Addresses;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::walk::{Limits, WalkTarget};

const ROUNDS: usize = 7;
const GOAL: f64 = 2.0;
/// How often the time of the walks an import and a comparison may take.
const GOAL_IMPORTED: f64 = 2.0;
const IMPORTED: [&str; 2] = ["dwarf", "fp"];
const TABLES: [&str; 4] = ["dwarf", "sframe", "orc", "fp"];
const GUESS: &str = "guess";
/// The status of a comparison that finds what is wrong.
const DIFFERENCE: i32 = 1;
const PROGRAM: &str = "ls -lR /usr/include | sort | uniq -c | tail -1";

/// Reads the trace and walks every stack with every engine; returns the number of samples and
/// frames.
fn addresses(input: &Input, engines: &[Engine]) -> Result<(u64, u64), InputError> {
    let mut caches: Vec<Cache> = engines.iter().map(|_| Cache::new()).collect();
    let mut out = Addresses::default();
    let (mut samples, mut frames) = (0, 0);
    input.for_each::<InputError>(&Filter::default(), &mut |view| {
        samples += 1;
        let memory = view.memory(MemoryView::Cpu);
        let place = WalkTarget {
            space: view.space,
            memory: &memory,
        };
        for (engine, cache) in engines.iter().zip(&mut caches) {
            out.0.clear();
            if let Ok(start) = engine.start(view.sample, Variant::Hardware, false, &memory) {
                engine.addresses(&place, &start, &Limits::default(), cache, &mut out);
            }
            frames += out.0.len() as u64;
        }
        Ok(())
    })?;
    Ok((samples, frames))
}

/// Our command on the trace, with these unwinders.
fn command(name: &'static str, args: &[&str], trace: &Path, unwinders: &str) -> BenchedProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(args).arg(trace);
    command.args(["--unwinder", unwinders]);
    BenchedProcess::new(name, command).accepting(DIFFERENCE)
}

/// Work, ours, the peer, and the highest ratio wanted.
type Comparison = (String, Timing, Timing, Option<f64>);

fn measure(
    title: &str,
    trace: &Path,
    names: &[&str],
    test: bool,
) -> Result<Vec<Comparison>, String> {
    let engines: Result<Vec<Engine>, _> = names.iter().map(|name| spec::engine(name)).collect();
    let engines = engines.map_err(|e| e.to_string())?;
    let named = format!("{title} {}", names.join(","));

    // What the processes do, too: opening the file, and the first walk through each function.
    let base = || {
        let input = Input::open(trace, &OpenOptions::default())?;
        addresses(&input, &engines)
    };

    // Once without a clock, which also reads the files into the page cache.
    let (samples, frames) = base().map_err(|e| e.to_string())?;
    println!("{named}: {samples} samples, {frames} frames");

    let unwinders = names.join(",");
    let mut ours = [
        command("compare", &["compare", "--threads", "1"], trace, &unwinders),
        command("replay --json", &["replay", "--json"], trace, &unwinders),
    ];

    // Both take turns, so that a change of the machine's speed meets both.
    let rounds = if test { 1 } else { ROUNDS };
    let mut base_ns = Vec::new();
    for _ in 0..rounds {
        base_ns.push(cpu_time(|| drop(std::hint::black_box(base()))).as_nanos() as f64);
        for contestant in &mut ours {
            contestant.run()?;
        }
    }

    if test {
        return Ok(Vec::new());
    }

    let per_sample = base_ns.into_iter().map(|ns| ns / samples.max(1) as f64);
    let base = Timing::new("read and addresses", per_sample.collect());
    let mut figures = vec![base.clone()];
    figures.extend(ours.iter().map(|c| c.figure(Clock::Cpu, samples as f64)));
    report::print(&named, "sample", &figures, None);

    // There is no goal with the stack scan.
    let goal = (!names.contains(&GUESS)).then_some(GOAL);
    let lines = figures.drain(1..).map(|figure| {
        let work = format!("{named} {}", figure.name);
        (work, figure, base.clone(), goal)
    });
    Ok(lines.collect())
}

/// From a perf.data to addresses with every engine, on this thread. Returns the number of stacks and
/// frames.
fn direct(path: &Path, engines: &[Engine]) -> Result<(u64, u64), String> {
    struct Frames(u64);
    impl Consumer for Frames {
        fn stack(&mut self, taken: &Taken<'_>) {
            self.0 += taken.pcs.len() as u64;
        }
    }
    let (mut walked, mut frames) = (0, Frames(0));
    for engine in engines {
        let map = map_file(path).map_err(|e| e.to_string())?;
        let file = PerfFile::parse((*map).as_ref()).map_err(|e| e.to_string())?;
        walked = stacks::replay_alone(&file, &stacks::plain_options(engine), &mut frames).stacks;
    }
    Ok((walked, frames.0))
}

/// Imports a perf.data and compares the trace, against the same walks straight from the file.
fn imported(
    scratch: &Scratch,
    recipe: &RecordingSpec,
    test: bool,
) -> Result<Option<Comparison>, String> {
    let recording = recording::obtain(scratch, recipe)?;
    let engines: Result<Vec<Engine>, _> = IMPORTED.iter().map(|name| spec::engine(name)).collect();
    let engines = engines.map_err(|e| e.to_string())?;

    let trace = scratch.join("imported.bin");
    let mut both = Command::new("/bin/sh");

    // One shell runs both commands, so that their time is measured together.
    both.args([
        "-c",
        r#""$0" import "$1" -o "$2" && "$0" compare "$2" --threads 1 --unwinder "$3""#,
    ])
    .arg(env!("CARGO_BIN_EXE_unwind-sim"))
    .args([&recording, &trace])
    .arg(IMPORTED.join(","));

    // The same walks without a trace in between are what the import adds to.
    let (walked, frames) = direct(&recording, &engines)?;
    let mut ours = BenchedProcess::new("import, compare", both).accepting(DIFFERENCE);
    ours.warm_up()?;

    // A faster walk of other stacks would be no comparison.
    let input = Input::open(&trace, &OpenOptions::default()).map_err(|e| e.to_string())?;
    let read = addresses(&input, &engines).map_err(|e| e.to_string())?;
    assert_eq!(
        read,
        (walked, frames),
        "{}: the trace is another",
        recipe.name
    );
    println!("{}: {walked} stacks, {frames} frames", recipe.name);

    if test {
        return Ok(None);
    }

    let mut base_ns = Vec::new();
    for _ in 0..ROUNDS {
        let work = || drop(std::hint::black_box(direct(&recording, &engines)));
        base_ns.push(cpu_time(work).as_nanos() as f64);
        ours.run()?;
    }

    let per_stack = base_ns.into_iter().map(|ns| ns / walked.max(1) as f64);
    let base = Timing::new("addresses from the file", per_stack.collect());
    let ours = ours.figure(Clock::Cpu, walked as f64);
    let work = format!("{}, import and compare", recipe.name);
    Ok(Some((work, ours, base, Some(GOAL_IMPORTED))))
}

/// Records a pipeline of programs in the emulated machine, which knows the truth.
fn record(scratch: &Scratch) -> Result<PathBuf, String> {
    let trace = scratch.join("trace.bin");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["record", "--engine", "emulator", "--at", "every:2000", "-o"]);
    command.arg(&trace).args(["--", "/bin/sh", "-c", PROGRAM]);
    programs::run(&mut command)?;
    Ok(trace)
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let scratch = Scratch::new();

    // Traces of one's own, or one that is recorded now.
    let traces = match std::env::var_os("UNWIND_SIM_BENCH_TRACES") {
        Some(paths) => std::env::split_paths(&paths).map(Ok).collect(),
        None => vec![record(&scratch)],
    };

    let mut lines = Vec::new();
    for trace in traces {
        let measured = trace.and_then(|trace| {
            let name = trace.file_name().unwrap_or_default();
            let title = name.to_string_lossy().into_owned();
            let mut lines = measure(&title, &trace, &TABLES, test)?;

            // Once more with the stack scan.
            lines.extend(measure(
                &title,
                &trace,
                &[&TABLES[..], &[GUESS]].concat(),
                test,
            )?);
            Ok(lines)
        });
        match measured {
            Ok(more) => lines.extend(more),
            Err(reason) => println!("skipped: {reason}"),
        }
    }

    // A test leaves out the big recordings.
    for recipe in RECIPES.iter().filter(|recipe| !(test && recipe.big)) {
        match imported(&scratch, recipe, test) {
            Ok(line) => lines.extend(line),
            Err(reason) => println!("skipped: {}: {reason}", recipe.name),
        }
    }

    report::note_load();
    if !test {
        report::head();
    }
    for (work, ours, peer, goal) in &lines {
        report::row(work, "sample", ours, peer, *goal);
    }
    report::finish();
}
