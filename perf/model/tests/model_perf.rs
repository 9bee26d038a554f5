//! perf reads the files of the model's runs: as many samples as were written, with their chains.
//!
//! Without deferral, which perf knows from 6.19 on, and without branch records, which perf prints
//! in place of user frames.

use std::path::Path;
use std::process::Command;
use unwind_sim_perf_data::callchain::is_marker;
use unwind_sim_perf_model::{Body, EPOCH_NS, Scenario, Schedule, World, perf_data};

const SEEDS: u64 = 16;

fn world(seed: u64) -> World {
    let mut schedule = Schedule::random(seed, 900, None);
    for event in &mut schedule.events {
        (event.defer_callchain, event.defer_output) = (false, false);
        event.branch_stack = false;
    }
    let mut world = schedule.world().expect("a seed's events are accepted");
    schedule.run(&mut world);
    world
}

/// Thread, CPU, time and frames.
type Sample = (i32, u16, u64, Vec<u64>);

fn samples(world: &World) -> Vec<Sample> {
    let mut samples = Vec::new();
    for record in world.records() {
        let chain = match &record.body {
            Body::Sample { chain, .. } => chain.as_slice(),
            Body::Raw { .. } => &[],
            _ => continue,
        };
        let frames = chain.iter().copied().filter(|&word| !is_marker(word));
        let time = record.time + EPOCH_NS;
        samples.push((record.tid, record.cpu, time, frames.collect()));
    }
    samples.sort();
    samples
}

/// `TID [CPU] SECONDS.NANOSECONDS:` and a line for each frame.
fn parse(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(frame) = line.strip_prefix('\t') {
            let frame = u64::from_str_radix(frame.trim(), 16).expect("an address");
            samples.last_mut().expect("a sample before").3.push(frame);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let cpu = words[1].trim_matches(['[', ']']).parse().expect("a CPU");
        let time = words[2].trim_end_matches(':').replace('.', "");
        let tid = words[0].parse().expect("a thread");
        samples.push((tid, cpu, time.parse().expect("a time"), Vec::new()));
    }
    samples.sort();
    samples
}

fn perf(args: &[&str], path: &Path) -> Option<std::process::Output> {
    Command::new("perf")
        .args(args)
        .arg("-i")
        .arg(path)
        .output()
        .ok()
}

#[test]
fn perf_reads_the_runs_of_the_model() {
    let folder = std::env::temp_dir();
    let mut count = 0;
    for seed in 0..SEEDS {
        let world = world(seed);
        let path = folder.join(format!(
            "unwind-sim-model-{}-{seed}.data",
            std::process::id()
        ));
        std::fs::write(&path, perf_data(&world).expect("it can be written")).expect("a file");
        let script = perf(&["script", "--ns", "-F", "tid,cpu,time,ip"], &path);
        let dump = perf(&["report", "-D"], &path);
        let report = perf(&["report", "--stdio"], &path);
        std::fs::remove_file(&path).expect("it is there");
        let (Some(script), Some(dump), Some(report)) = (script, dump, report) else {
            return crate::skip::skip("perf_reads_the_runs_of_the_model", "perf is not installed");
        };

        // perf must accept the file in all three ways.
        for output in [&script, &dump, &report] {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "seed {seed}: {errors}");
        }
        // The samples in the order of time, as perf script prints them.
        let expected = samples(&world);
        let found = parse(&String::from_utf8_lossy(&script.stdout));
        assert_eq!(found, expected, "seed {seed}");
        let dump = String::from_utf8_lossy(&dump.stdout);
        let dumped = dump.matches("PERF_RECORD_SAMPLE(").count();
        assert_eq!(dumped, expected.len(), "seed {seed}");
        count += expected.len();
    }
    assert!(count > 300, "only {count} samples");
}

/// Tracepoints and probes have their names, and print what their formats say.
#[test]
fn perf_knows_tracepoints_and_uprobes() {
    let text = "event kmem:mm_page_alloc tracepoint no-defer\nevent probe uprobe no-defer\n\
                stack f3 0x403000 0x402018\ntask 1 f3\nswitch 0 1\nsyscall 0\n\
                sample 0 kmem:mm_page_alloc\nstep 0 9\nleave 0\nfinish 0\n\
                user 0 f3 entry\nuprobe 0\nfinish 0\n";
    let world = Scenario::parse(text)
        .and_then(|s| s.run())
        // A file of its own, so that tests can run at the same time.
        .expect("a scenario");
    let name = format!("unwind-sim-tracepoints-{}.data", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, perf_data(&world).expect("it can be written")).expect("a file");
    let script = perf(&["script", "-F", "event,trace"], &path);
    std::fs::remove_file(&path).expect("it is there");
    let Some(script) = script else {
        return crate::skip::skip(
            "perf_knows_tracepoints_and_uprobes",
            "perf is not installed",
        );
    };
    let text = String::from_utf8_lossy(&script.stdout);

    // perf formats both by the formats in the file.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let expected = ["kmem:mm_page_alloc: cpu=0", "probe_model:probe: (403000)"];
    assert_eq!(
        lines,
        expected,
        "{}",
        String::from_utf8_lossy(&script.stderr)
    );
}
