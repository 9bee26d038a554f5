//! Every task's stack of the dump of a machine, compared with drgn: whole processes that open the
//! dump and print all stacks, and the walks alone when everything is loaded. The chains are
//! compared first: both without user-space addresses, drgn's without inlined frames.
//!
//! `UNWIND_SIM_BENCH_VMCORE=VMCORE:VMLINUZ:DEBUG-VMLINUX cargo bench --bench vmcore`; docs/vmcore.md
//! says how to make these files. drgn is a Python package; `UNWIND_SIM_DRGN_PYTHON=PROGRAM` is the
//! Python that has it. With `--test` nothing is measured.
mod common;

use common::process::{BenchedProcess, Clock};
use common::report;
use common::timing::{Timing, cpu_time};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::model::Sample;
use unwind_sim_recordings::recording::Recording;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::kernel::{Code, FindCache, Kernel, Task, UnwinderKind, Version, perf};
use unwind_sim_unwind::memory::Regions;
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::walk::Limits;

const FILES: &str = "UNWIND_SIM_BENCH_VMCORE";
const PYTHON: &str = "UNWIND_SIM_DRGN_PYTHON";
const ROUNDS: usize = 7;
/// How many times as fast as drgn we want to be.
const GOAL_TIMES: f64 = 20.0;
/// Rounds of walks, each over all stacks: ours, of which the best counts, and drgn's.
const WALK_ROUNDS: usize = 200;
const DRGN_WALK_ROUNDS: &str = "5";
/// The status of a replay whose stacks have no recorded truth.
const NOTHING_JUDGED: i32 = 3;
/// Start of kernel addresses.
const KERNEL: u64 = 0xffff_8000_0000_0000;

struct Files {
    vmcore: PathBuf,
    vmlinuz: PathBuf,
    vmlinux: PathBuf,
}

/// The files that the environment names, or why there are none.
fn files() -> Result<Files, String> {
    let named = std::env::var_os(FILES).ok_or_else(|| format!("{FILES} is not set"))?;
    let paths: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let [vmcore, vmlinuz, vmlinux] = paths
        .try_into()
        .map_err(|_| format!("{FILES} is not VMCORE:VMLINUZ:DEBUG-VMLINUX"))?;
    for path in [&vmcore, &vmlinuz, &vmlinux] {
        std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(Files {
        vmcore,
        vmlinuz,
        vmlinux,
    })
}

/// drgn's script on the dump.
fn drgn(files: &Files) -> Command {
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| OsString::from("python3"));
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/benches/programs/drgn_stacks.py"
    );
    let mut command = Command::new(python);
    command.arg(script).arg(&files.vmcore).arg(&files.vmlinux);
    command
}

/// Chains by the number and name of the task.
type Chains = BTreeMap<(u64, String), Option<Vec<u64>>>;

/// What drgn found: its chains, and the CPU time of one of its walks, ns.
struct DrgnResult {
    chains: Chains,
    walk_ns: f64,
}

fn theirs(files: &Files) -> Result<DrgnResult, String> {
    let output = drgn(files).arg(DRGN_WALK_ROUNDS).output();
    let output = output.map_err(|e| e.to_string())?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "drgn: {}",
            why.lines().last().unwrap_or("no output")
        ));
    }

    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
    let lines = lines.map_err(|e| e.to_string())?;
    // The last line has the times.
    let (times, tasks) = lines.split_last().ok_or("drgn printed nothing")?;
    let seconds = |key: &str| times[key].as_f64().unwrap_or(f64::NAN);

    // Frames of user space, if drgn gives any, are left out.
    let chain = |task: &Value| {
        let pid = task["pid"].as_u64().unwrap_or(0);
        let name = task["name"].as_str().unwrap_or_default().to_owned();
        let chain = task["chain"].as_array();
        let chain = chain.map(|c| in_kernel(c.iter().filter_map(Value::as_u64)));
        ((pid, name), chain)
    };

    Ok(DrgnResult {
        chains: tasks.iter().map(chain).collect(),
        walk_ns: seconds("warm") * 1e9 / seconds("walked"),
    })
}

fn in_kernel(chain: impl Iterator<Item = u64>) -> Vec<u64> {
    chain.filter(|address| *address >= KERNEL).collect()
}

/// The dump, read by us.
struct LoadedDump {
    /// Each with the name of its task.
    samples: Vec<(Sample<'static>, String)>,
    space: AddressSpace,
}

fn open(path: &Path) -> Result<InputFile, String> {
    InputFile::open(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn ours(files: &Files) -> Result<LoadedDump, String> {
    let options = OpenOptions {
        kernel: Some(open(&files.vmlinuz)?),
        ..OpenOptions::default()
    };
    let recording = Recording::open(&open(&files.vmcore)?, &options);
    let recording = recording.map_err(|e| e.to_string())?;
    let (mut samples, mut space) = (Vec::new(), AddressSpace::new());
    let read = recording.views(&mut |view| {
        if samples.is_empty() {
            space = view.space.clone();
        }
        let (pid, tid) = (view.sample.pid, view.sample.tid);
        let name = view.world.and_then(|w| w.name(pid, tid)).unwrap_or("");
        samples.push((view.sample.clone().into_owned(), name.to_owned()));
        ControlFlow::Continue(())
    });
    read.map_err(|e| e.to_string())?;
    Ok(LoadedDump { samples, space })
}

/// A stack to walk.
struct Stack<'a> {
    tid: u32,
    name: &'a str,
    task: &'a Task,
    memory: Regions<'a>,
    start: Start,
}

impl Stack<'_> {
    /// Appends its addresses to `out`.
    fn walk(&self, code: &Code, finds: &mut FindCache, out: &mut Vec<u64>) {
        let (task, memory) = (self.task, &self.memory);
        let kernel = Kernel { code, task, memory };
        let limit = Limits::default().frames_max;
        let ended = perf::addresses(UnwinderKind::Orc, kernel, &self.start, limit, finds, out);
        black_box(&ended);
    }
}

fn stacks(ours: &LoadedDump) -> Vec<Stack<'_>> {
    let samples = ours.samples.iter();
    let stacks = samples.filter_map(|(sample, name)| {
        let memory = sample.memory();
        Some(Stack {
            tid: sample.tid,
            name,
            task: &sample.kernel.as_ref()?.task,
            start: sample.regs.start(Variant::Hardware, false, &memory).ok()?,
            memory,
        })
    });
    stacks.collect()
}

/// Walks all stacks, compares the chains with drgn's, and returns our CPU time for one walk, ns: the
/// best of [`WALK_ROUNDS`].
fn walks(ours: &LoadedDump, mut theirs: Chains) -> f64 {
    let stacks = stacks(ours);

    // All stacks of a dump are of one kernel.
    let task = stacks.first().map(|stack| stack.task);
    let version = task.and_then(|t| t.version).unwrap_or(Version::DEFAULT);
    let code = Code::new(&ours.space, version, task.and_then(|t| t.encoding));
    let mut finds = FindCache::default();

    let (mut equal, mut different, mut missing) = (0, 0, 0);
    for stack in &stacks {
        let mut chain = Vec::new();
        stack.walk(&code, &mut finds, &mut chain);
        // What is left in the end only drgn has.
        match theirs.remove(&(stack.tid.into(), stack.name.to_owned())) {
            None => missing += 1,
            Some(Some(theirs)) if theirs == in_kernel(chain.iter().copied()) => equal += 1,
            // Chains that differ are shown, not refused: drgn may be wrong, too.
            Some(theirs) => {
                different += 1;
                let (tid, name) = (stack.tid, stack.name);
                println!("{tid} {name}:\n  ours {chain:x?}\n  drgn {theirs:x?}");
            }
        }
    }

    println!(
        "{} tasks: {equal} equal, {different} different, {missing} only ours, {} only drgn's",
        stacks.len(),
        theirs.len()
    );

    // One vector for all walks, or its allocation would be measured.
    let mut out = Vec::new();
    let rounds = (0..WALK_ROUNDS).map(|_| {
        cpu_time(|| {
            for stack in &stacks {
                out.clear();
                stack.walk(&code, &mut finds, &mut out);
                black_box(&out);
            }
        })
    });

    // The best round: all others are the same work with disturbances.
    let best = rounds.min().unwrap_or_default();
    best.as_nanos() as f64 / stacks.len() as f64
}

/// Our command that prints all stacks, with this image of the kernel.
fn replay(name: &'static str, vmcore: &Path, kernel: &Path) -> BenchedProcess {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command
        .arg("replay")
        .arg(vmcore)
        .arg("--kernel")
        .arg(kernel);
    command.args(["--unwinder", "orc:kernel"]);
    BenchedProcess::new(name, command).accepting(NOTHING_JUDGED)
}

fn run(test: bool) -> Result<(), String> {
    let files = files()?;

    // The chains are compared in a test, too; only the times are left out then.
    let theirs = theirs(&files)?;
    let ours = ours(&files)?;
    let tasks = ours.samples.len() as f64;

    let drgn_walk = Timing::new("drgn", vec![theirs.walk_ns]);
    let our_walk = Timing::new("ours", vec![walks(&ours, theirs.chains)]);
    if test {
        return Ok(());
    }

    let mut all = [
        BenchedProcess::new("drgn", drgn(&files)),
        replay("ours", &files.vmcore, &files.vmlinuz),
        replay("ours", &files.vmcore, &files.vmlinux),
    ];
    for contestant in &mut all {
        // Once before, so that the files are in the page cache for everyone.
        contestant.warm_up()?;
    }

    // In turn, so that a change of the machine's speed meets all.
    for _ in 0..ROUNDS {
        for contestant in &mut all {
            contestant.run()?;
        }
    }

    report::note_load();
    report::head();
    let goal = Some(1.0 / GOAL_TIMES);

    for (clock, name, goal) in [(Clock::Cpu, "CPU", goal), (Clock::Wall, "wall", None)] {
        let [theirs, packed, plain] = all.each_ref().map(|c| c.figure(clock, tasks));

        // A compressed kernel image has to be unpacked first.
        for (kernel, ours) in [("vmlinuz", packed), ("vmlinux", plain)] {
            report::row(
                &format!("vmcore, {kernel}, {name}"),
                "task",
                &ours,
                &theirs,
                goal,
            );
        }
    }

    report::row("vmcore, walks alone", "task", &our_walk, &drgn_walk, goal);
    Ok(())
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    if let Err(why) = run(test) {
        println!("skipped: {why}");
    }
}
