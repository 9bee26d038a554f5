//! Benchmarks unwinding every task's stack of a vmcore: stacks per second compared with drgn, and
//! the cost of a step of the kernel's ORC unwinder compared with our user-space walk over the same
//! table and stacks.
//!
//! Run `cargo run --release -p unwind-sim-recordings --example vmcore -- VMCORE VMLINUZ
//! [DEBUG-VMLINUX]`. With the last argument drgn is run too (`drgn_stacks.py`, Python package
//! drgn), and the chains are compared: both without user-space addresses, drgn's without inlined
//! frames.

use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use unwind_sim_recordings::import::{ImportItem, ImportOptions, import};
use unwind_sim_recordings::model::{Item, Sample};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Addresses, End};
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::kernel::perf::{Visit, callchain};
use unwind_sim_unwind::kernel::{Code, Finds, Kernel, UnwinderKind, Version};
use unwind_sim_unwind::memory::Regions;
use unwind_sim_unwind::orc::Orc;
use unwind_sim_unwind::start::{Start, Variant};
use unwind_sim_unwind::walk::{Limits, Place, walk};

/// Each figure is the best of this many rounds, each of at least this duration.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(60);
/// Number of drgn's walks over all stacks with warm caches.
const DRGN_ROUNDS: &str = "10";
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// An imported dump.
struct Dump {
    samples: Vec<Sample<'static>>,
    /// The task name of each sample.
    names: Vec<String>,
    world: World,
}

fn open(vmcore: &str, kernel: &str) -> Result<Dump, Box<dyn Error>> {
    let options = ImportOptions {
        kernel: Some(PathBuf::from(kernel)),
        ..ImportOptions::default()
    };
    let (mut images, mut world) = (Vec::new(), World::new());
    let (mut samples, mut names) = (Vec::new(), Vec::new());
    let imported = import(vmcore.as_ref(), &options, &mut |item| {
        match item {
            ImportItem::Image { image, .. } => images.push(image),
            ImportItem::Item(Item::Event(event)) => world.apply(&event, &images),
            ImportItem::Item(Item::Sample(sample)) => {
                let name = world.name(sample.pid, sample.tid);
                names.push(name.unwrap_or_default().to_owned());
                samples.push(sample.into_owned());
            }
        }
        ControlFlow::Continue(())
    })?;
    for problem in &imported.problems {
        eprintln!("{problem}");
    }
    Ok(Dump {
        samples,
        names,
        world,
    })
}

/// The inputs of a walk of one sample.
struct Stack<'a> {
    sample: &'a Sample<'static>,
    memory: Regions<'a>,
    start: Start,
}

fn stacks(dump: &Dump) -> Vec<Stack<'_>> {
    let samples = dump.samples.iter();
    samples
        .filter_map(|sample| {
            let memory = sample.memory();
            let start = sample.regs.start(Variant::Hardware, false, &memory).ok()?;
            Some(Stack {
                sample,
                memory,
                start,
            })
        })
        .collect()
}

/// Appends the addresses of one stack, found by the kernel's ORC unwinder. Returns the number of
/// steps.
fn kernel_chain(code: &Code, stack: &Stack<'_>, finds: &mut Finds, out: &mut Vec<u64>) -> u64 {
    let Some(sample) = &stack.sample.kernel else {
        return 0;
    };
    let kernel = Kernel {
        code,
        task: &sample.task,
        memory: &stack.memory,
    };
    let mut steps = 0;
    let limit = Limits::default().frames_max;
    let mut visit = |visit: Visit<'_, Regions<'_>>| match visit {
        Visit::Ip(ip) => out.push(ip),
        Visit::Stored(_, address) => {
            steps += 1;
            out.push(address);
        }
        Visit::Skipped(_) | Visit::Last(_) => {}
    };
    let ended = callchain(
        UnwinderKind::Orc,
        kernel,
        &stack.start,
        limit,
        finds,
        &mut visit,
    );
    black_box(&ended);
    steps
}

/// The best time for one call of each of `runs`, measured alternately.
fn best<const N: usize>(mut runs: [&mut dyn FnMut(); N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (run, best) in runs.iter_mut().zip(&mut best) {
            let (start, mut calls) = (Instant::now(), 0);
            while start.elapsed() < ROUND {
                run();
                calls += 1;
            }
            *best = (*best).min(start.elapsed() / calls);
        }
    }
    best
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [vmcore, kernel, debug @ ..] = &args[..] else {
        return Err("usage: vmcore VMCORE VMLINUZ [DEBUG-VMLINUX]".into());
    };
    let begin = Instant::now();
    let dump = open(vmcore, kernel)?;
    let imported = begin.elapsed();
    let stacks = stacks(&dump);
    let task = stacks
        .iter()
        .find_map(|s| Some(&s.sample.kernel.as_ref()?.task));
    let version = task.and_then(|task| task.version);
    let encoding = task.and_then(|task| task.encoding);
    let space = dump.world.space(0);
    let code = Code::new(space, version.unwrap_or(Version::DEFAULT), encoding);
    let mut finds = Finds::default();
    let chains: Vec<Vec<u64>> = stacks
        .iter()
        .map(|stack| {
            let mut out = Vec::new();
            kernel_chain(&code, stack, &mut finds, &mut out);
            out
        })
        .collect();
    let end_to_end = begin.elapsed();
    println!(
        "{} tasks, {} addresses; import {imported:.1?}, end to end {end_to_end:.1?}",
        stacks.len(),
        chains.iter().map(Vec::len).sum::<usize>()
    );

    let (mut out, mut steps) = (Vec::new(), 0);
    let mut by_kernel = || {
        steps = 0;
        for stack in &stacks {
            out.clear();
            steps += kernel_chain(&code, stack, &mut finds, &mut out);
            black_box(&out);
        }
    };
    // The same stacks by the user-space walk.
    let orc = Orc::new(None, Tables::default());
    let (mut cache, limits) = (Cache::default(), Limits::default());
    let (mut sink, mut frames) = (Addresses::default(), 0);
    let mut by_user = || {
        frames = 0;
        for Stack { memory, start, .. } in &stacks {
            sink.0.clear();
            let place = Place { space, memory };
            let end: End = walk(&orc, &place, start, &limits, &mut cache, &mut sink);
            black_box(&end);
            frames += sink.0.len() as u64;
        }
    };
    let [kernel_time, user_time] = best([&mut by_kernel, &mut by_user]);
    let rate = |time: Duration| stacks.len() as f64 / time.as_secs_f64();
    let each = |time: Duration, count: u64| time.as_secs_f64() * 1e9 / count as f64;
    let (ours, theirs) = (each(kernel_time, steps), each(user_time, frames));
    println!(
        "kernel ORC    {:>10.0} stacks/s  {steps} steps, {ours:.1} ns each",
        rate(kernel_time)
    );
    println!(
        "user ORC      {:>10.0} stacks/s  {frames} frames, {theirs:.1} ns each",
        rate(user_time)
    );
    println!(
        "a kernel step is {:.2} of a user step (goal: at most 1.5)",
        ours / theirs
    );
    let [debug, ..] = debug else {
        return Ok(());
    };
    let mut python = Command::new("python3");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/drgn_stacks.py");
    let output = python.args([script, vmcore, debug, DRGN_ROUNDS]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let lines = std::str::from_utf8(&output.stdout)?.lines();
    let lines: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    let (times, tasks) = lines.split_last().ok_or("drgn printed nothing")?;
    let number = |key: &str| times[key].as_f64().unwrap_or(f64::NAN);
    let theirs = number("walked") / number("warm");
    println!(
        "drgn          {theirs:>10.0} stacks/s  end to end {:.1} ms",
        number("end_to_end") * 1e3
    );
    println!(
        "ours is {:.0} times drgn's rate (goal: at least 20); end to end {:.1} times",
        rate(kernel_time) / theirs,
        number("end_to_end") / end_to_end.as_secs_f64()
    );
    compare(&dump, &stacks, &chains, tasks);
    Ok(())
}

/// Counts equal chains and prints the others.
fn compare(dump: &Dump, stacks: &[Stack<'_>], ours: &[Vec<u64>], theirs: &[Value]) {
    let mut by_task: BTreeMap<(u64, &str), &Value> = BTreeMap::new();
    for task in theirs {
        let name = task["name"].as_str().unwrap_or_default();
        by_task.insert((task["pid"].as_u64().unwrap_or(0), name), &task["chain"]);
    }
    let (mut equal, mut different, mut missing) = (0, 0, 0);
    for ((stack, ours), name) in stacks.iter().zip(ours).zip(&dump.names) {
        let tid = stack.sample.tid;
        let Some(found) = by_task.remove(&(u64::from(tid), name.as_str())) else {
            missing += 1;
            println!("{tid} {name}: drgn has no such task");
            continue;
        };
        let in_kernel = |address: &u64| *address >= KERNEL;
        let theirs: Option<Vec<u64>> = found.as_array().map(|chain| {
            let addresses = chain.iter().filter_map(Value::as_u64);
            addresses.filter(in_kernel).collect()
        });
        let plain: Vec<u64> = ours.iter().copied().filter(in_kernel).collect();
        if theirs.as_ref() == Some(&plain) {
            equal += 1;
            continue;
        }
        different += 1;
        println!("{tid} {name}:");
        println!("  ours {plain:x?}");
        match theirs {
            Some(theirs) => println!("  drgn {theirs:x?}"),
            None => println!("  drgn {found}"),
        }
    }
    println!(
        "{equal} equal, {different} different, {missing} only ours, {} only drgn's",
        by_task.len()
    );
}
