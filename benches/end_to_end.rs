//! Compares whole processes on one recording, in turn, in several rounds: our commands with `samply
//! import` and `perf script`. Measures CPU time, wall time and the peak of anonymous memory.
//!
//! `cargo bench --bench end_to_end`; recordings as in `perfdata.rs`. samply is found in the path or
//! by the variable `SAMPLY`.
mod common;
mod ours;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::programs::Scratch;
use common::recording::{self, RECIPES, RecordingSpec};
use common::report;
use common::timing::{Timing, children_cpu};

const PERF: &str = "perf script";
const SAMPLY: &str = "samply import";
/// The same program, long and short, to compare memory.
const RECORDINGS: [&str; 2] = ["recurse-big", "recurse-small"];
const ROUNDS_BIG: usize = 3;
const ROUNDS_SMALL: usize = 5;
/// Allowed difference in peak anonymous memory between a small and a big recording.
const ANONYMOUS_SLACK_KB: u64 = 32 << 10;

/// A program to run, its measured costs, and the peer to compare with.
struct BenchedProgram {
    name: String,
    command: Command,
    goal: Option<(&'static str, f64)>,
    cpu_ns: Vec<f64>,
    wall_ns: Vec<f64>,
    anonymous_kb: u64,
}

impl BenchedProgram {
    fn new(name: &str, command: Command, goal: Option<(&'static str, f64)>) -> BenchedProgram {
        let name = name.to_owned();
        BenchedProgram {
            name,
            command,
            goal,
            cpu_ns: vec![],
            wall_ns: vec![],
            anonymous_kb: 0,
        }
    }

    fn figure(&self, times: &[f64], stacks: u64) -> Timing {
        let per_stack = times.iter().map(|t| t / stacks.max(1) as f64);
        Timing::new(&self.name, per_stack.collect())
    }
}

/// Waits for the child while watching its anonymous memory; `None` if it failed.
fn watch(child: &mut Child, anonymous_kb: &mut u64) -> Option<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    let status = format!("/proc/{}/status", child.id());
    loop {
        if let Some(exit) = child.try_wait().ok()? {
            return exit.success().then_some(());
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        let kb = line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok());
        *anonymous_kb = (*anonymous_kb).max(kb.unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Runs a contestant once, with its output in `output`.
fn run_once(contestant: &mut BenchedProgram, output: &Path) -> Result<(), String> {
    let failed = |why: &str| format!("{}: {why}", contestant.name);
    let file = File::create(output).map_err(|e| failed(&e.to_string()))?;
    let (cpu, wall) = (children_cpu(), Instant::now());
    let command = contestant
        .command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| failed(&e.to_string()))?;
    let mut anonymous_kb = contestant.anonymous_kb;
    watch(&mut child, &mut anonymous_kb).ok_or_else(|| failed("failed"))?;
    contestant.anonymous_kb = anonymous_kb;
    contestant.wall_ns.push(wall.elapsed().as_nanos() as f64);
    contestant
        .cpu_ns
        .push((children_cpu() - cpu).as_nanos() as f64);
    Ok(())
}

fn samply() -> Command {
    Command::new(std::env::var_os("SAMPLY").map_or(PathBuf::from("samply"), PathBuf::from))
}

/// The peers that are installed, and our commands.
fn contestants(scratch: &Scratch, recording: &Path) -> Vec<BenchedProgram> {
    let mut all = Vec::new();
    let mut perf = Command::new("perf");

    // Without inlined functions, which need debug information.
    perf.args(["script", "--no-inline", "-F", "comm,tid,time,ip", "-i"])
        .arg(recording);
    all.push(BenchedProgram::new(PERF, perf, None));

    let there = samply()
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // A missing program is an error here, one that cannot run a bad status.
    if there.is_ok_and(|s| s.success()) {
        let mut command = samply();
        command.args(["import", "--save-only", "--no-open", "-o"]);
        command.arg(scratch.join("samply.json.gz")).arg(recording);
        all.push(BenchedProgram::new(SAMPLY, command, None));
    } else {
        println!("skipped: {SAMPLY}: no samply (cargo install samply, or SAMPLY=PATH)");
    }

    // Only ours have goals; the peers are what they are relative to.
    all.extend(
        ours::commands(recording)
            .into_iter()
            .map(|o| BenchedProgram::new(o.name, o.command, Some((o.against, o.times_goal)))),
    );
    all
}

/// Counts the samples of a recording by their header lines in perf script's output.
fn samples(output: &Path) -> u64 {
    let text = std::fs::read(output).unwrap_or_default();
    let heads = text.split(|b| *b == b'\n').filter(|line| {
        // A header line ends with the colon after the time; a frame's line has only an address.
        line.ends_with(b":") || line.ends_with(b": ")
    });
    heads.count() as u64
}

/// Runs and reports all contestants on one recording; returns the memory peak of each of ours.
fn measure(scratch: &Scratch, recipe: &RecordingSpec) -> Result<Vec<(String, u64)>, String> {
    let recording = recording::obtain(scratch, recipe)?;
    let mut all = contestants(scratch, &recording);
    let rounds = if recipe.big { ROUNDS_BIG } else { ROUNDS_SMALL };
    let output = scratch.join("output");

    // How many stacks there are is counted in perf's output: it is the same for all.
    let mut stacks = 0;
    for _ in 0..rounds {
        // In turn, so that a change of the machine's speed meets all.
        for contestant in &mut all {
            run_once(contestant, &output)?;
            if contestant.name == PERF && stacks == 0 {
                stacks = samples(&output);
            }
        }
    }

    // Processor time and wall time differ where a program uses several threads.
    let cpu: Vec<Timing> = all.iter().map(|c| c.figure(&c.cpu_ns, stacks)).collect();
    let wall: Vec<Timing> = all.iter().map(|c| c.figure(&c.wall_ns, stacks)).collect();
    println!("{}: {stacks} stacks", recipe.name);
    report::print("CPU", "stack", &cpu, None);
    report::note_load();
    report::print("wall", "stack", &wall, None);

    for (contestant, figure) in all.iter().zip(&cpu) {
        println!(
            "{:<14} {:<26} {:>8.0} k stacks/s, {} KB anonymous",
            "",
            contestant.name,
            1e6 / figure.median_ns(),
            contestant.anonymous_kb
        );
    }

    report::head();
    for contestant in &all {
        let Some((peer, times)) = contestant.goal else {
            continue;
        };
        for (clock, figures) in [("CPU", &cpu), ("wall", &wall)] {
            // A peer that is not installed has no figure.
            let ours = report::find(figures, &contestant.name);
            if let (Some(ours), Some(peer)) = (ours, report::find(figures, peer)) {
                let work = format!("{}, {}, {clock}", recipe.name, contestant.name);
                report::row(&work, "stack", ours, peer, Some(1.0 / times));
            }
        }
    }

    let ours = all.into_iter().filter(|c| c.goal.is_some());
    Ok(ours.map(|c| (c.name, c.anonymous_kb)).collect())
}

fn main() {
    // Only whole programs are measured: there is nothing that a test could check quickly.
    if std::env::args().any(|a| a == "--test") {
        return;
    }

    let scratch = Scratch::new();
    let mut peaks: Vec<(bool, String, u64)> = Vec::new();
    for recipe in RECIPES.iter().filter(|r| RECORDINGS.contains(&r.name)) {
        match measure(&scratch, recipe) {
            Ok(ours) => peaks.extend(ours.into_iter().map(|(name, kb)| (recipe.big, name, kb))),
            Err(reason) => println!("skipped: {}: {reason}", recipe.name),
        }
    }

    // Memory must not grow with the recording, so the peak of a big one is compared with that of a
    // small one.
    for (_, name, big_kb) in peaks.iter().filter(|(big, ..)| *big) {
        let small = peaks.iter().find(|(big, n, _)| !big && n == name);
        let Some((.., small_kb)) = small else {
            continue;
        };
        let verdict = if *big_kb <= small_kb + ANONYMOUS_SLACK_KB {
            "steady"
        } else {
            "GROWS"
        };
        println!("{name}: anonymous memory {small_kb} KB small, {big_kb} KB big: {verdict}");
    }

    report::finish();
}
