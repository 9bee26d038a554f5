//! Profiles of perf.data: unwinding directly and through a trace, perf's own unwinder, and the
//! formats must agree.

use crate::common::decode::{self, Stacks as Folded};
use crate::common::skip::skip;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_judge::stacks::{self, Source};
use unwind_sim_judge::stacks::{Consumer, Taken};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{Record, record_type};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::start::Variant;
use unwind_sim_view::profile::{self, Format};

/// Several processes, forks and execs, partly in libraries.
const WORK: &str = "for i in 1 2 3; do seq 30000 | sort -R | md5sum; done";

/// Three functions that save registers on the stack, up to 30 deep. perf 6.1 unwinds it without
/// trouble, unlike programs that spend their time in libraries.
const FIB: &str = "
static volatile long sink;
static long odd(long n, long a, long b);
static long even(long n, long a, long b) { return n < 2 ? a : odd(n - 1, b, a + b) + sink; }
static long odd(long n, long a, long b) { return n < 2 ? b : even(n - 1, a + 1, b) * a + sink; }
static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) + even(n % 7, n, sink); }
int main(void) { for (int i = 0; i < 40; i++) sink += fib(25 + i % 3); return 0; }
";

/// Makes a new recording; `None` if this machine cannot make one.
fn record(name: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    record_into(name, dir, &["sh", "-c", WORK])
}

/// Whether the file is a perf.data with at least one sample.
fn has_samples(path: &Path) -> bool {
    let Ok(owner) = map_file(path) else {
        return false;
    };
    PerfFile::parse((*owner).as_ref()).is_ok_and(|file| {
        let mut records = file.records().map_while(Result::ok);
        records.any(|record| record.kind == record_type::SAMPLE)
    })
}

fn record_into(
    name: &str,
    dir: tempfile::TempDir,
    command: &[&str],
) -> Option<(tempfile::TempDir, PathBuf)> {
    let path = dir.path().join("perf.data");

    let mut perf = Command::new("perf");

    // Only user space, with copies of 8 KiB of the stack.
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock:u",
        "-F",
        "4000",
        "--call-graph",
        "dwarf,8192",
    ]);
    perf.arg("-o").arg(&path).arg("--").args(command);
    let done = perf
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();

    match done {
        // It ends with 0 and without a sample where it cannot read the kernel's list of events.
        Ok(status) if status.success() && has_samples(&path) => Some((dir, path)),
        _ => {
            skip(name, "perf record does not work here");
            None
        }
    }
}

fn run(unwinder: &str) -> Run {
    Run {
        engines: vec![spec::engine(unwinder).expect("one of ours")],
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::Cause,
    }
}

fn opened(path: &Path) -> Input {
    Input::open(path, &OpenOptions::default()).expect("a recording")
}

fn source(input: &Input) -> Source<'_> {
    Source {
        input,
        event: None,
        filter: Filter::default(),
    }
}

/// Process, thread, time and pcs of each stack.
type Stacks = Vec<(u32, u32, u64, Vec<u64>)>;

fn direct(path: &Path, unwinder: &str) -> Stacks {
    let owner = map_file(path).expect("the recording");
    let file = PerfFile::parse((*owner).as_ref()).expect("a perf.data");
    let engine = spec::engine(unwinder).expect("one of ours");
    let mut stacks = Vec::new();
    let counts = stacks::addresses(
        &file,
        &stacks::plain_options(&engine),
        &mut |pid, tid, time, pcs: &[u64]| stacks.push((pid, tid, time, pcs.to_vec())),
    );
    assert_eq!(counts.stacks, stacks.len() as u64);
    stacks
}

fn over_a_trace(path: &Path, unwinder: &str) -> Stacks {
    let input = Input::open(path, &OpenOptions::default()).expect("an import");
    let run = run(unwinder);
    let mut stacks = Vec::new();
    run.for_each(&input, &Filter::default(), &mut |view, _, outcome| {
        let pcs = outcome
            .chain
            .frames
            .iter()
            .map(|frame| frame.pc.value())
            .collect();
        stacks.push((view.sample.pid, view.sample.tid, view.sample.time, pcs));
        Ok(())
    })
    .expect("a trace");
    stacks
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus/perfdata")
        .join(name)
}

#[test]
fn the_direct_way_finds_what_the_way_over_a_trace_finds() {
    let name = "the_direct_way_finds_what_the_way_over_a_trace_finds";
    let mut files = vec![corpus("dwarf.data"), corpus("dwarf-zstd.data")];
    let recorded = record(name);

    // With what perf records here, if it can.
    files.extend(recorded.iter().map(|(_, path)| path.clone()));

    for path in files {
        for unwinder in ["dwarf", "fp", "guess"] {
            // Both ways have readers of their own for samples and mappings, so they can differ.
            let (found, expected) = (direct(&path, unwinder), over_a_trace(&path, unwinder));
            // Two empty lists would be equal.
            assert!(!found.is_empty(), "{}", path.display());
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(
                    found,
                    expected,
                    "{}: {unwinder}: sample {at}",
                    path.display()
                );
            }
            assert_eq!(
                found.len(),
                expected.len(),
                "{}: {unwinder}",
                path.display()
            );
        }
    }
}

fn folded(source: &Source<'_>, unwinder: &str, threads: usize) -> (String, profile::Written) {
    let mut out = Vec::new();
    let written =
        profile::write(source, &run(unwinder), Format::Folded, threads, &mut out).expect("folded");
    (String::from_utf8(out).expect("text"), written)
}

/// The counts by stack.
fn parse(folded: &str) -> BTreeMap<&str, u64> {
    let lines = folded.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').expect("a stack and a count");
        (stack, count.parse().expect("a number"))
    });
    lines.collect()
}

#[test]
fn folded_stacks_hold_every_sample_once_whatever_the_threads() {
    let name = "folded_stacks_hold_every_sample_once_whatever_the_threads";
    let Some((_dir, path)) = record(name) else {
        return;
    };
    let (one, written) = folded(&source(&opened(&path)), "dwarf", 1);
    let lines = parse(&one);
    assert_eq!(lines.values().sum::<u64>(), written.stacks);

    // Nothing is counted twice, and equal stacks are added up.
    assert_eq!(
        lines.len(),
        one.lines().count(),
        "each stack is on one line"
    );

    assert!(written.stacks > 50, "too few samples: {}", written.stacks);
    assert!(
        lines.keys().any(|stack| stack.starts_with("sort;")),
        "{one}"
    );

    // The order of threads must not show.
    for threads in [2, 3] {
        assert!(
            folded(&source(&opened(&path)), "dwarf", threads).0 == one,
            "{threads} threads"
        );
    }

    // The same through a trace.
    let trace = path.with_extension("bin");
    let done = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .arg("import")
        .arg(&path)
        .arg("-o")
        .arg(&trace)
        .output()
        .expect("our own program");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );

    let (traced, over_trace) = folded(&source(&opened(&trace)), "dwarf", 1);
    assert_eq!(over_trace.stacks, written.stacks);
    // Byte for byte: an import must lose neither samples nor names.
    assert!(traced == one, "over a trace:\n{traced}\ndirectly:\n{one}");
}

#[test]
fn filters_choose_samples() {
    let name = "filters_choose_samples";
    let Some((_dir, path)) = record(name) else {
        return;
    };

    // Without any filter: what the others are compared with.
    let all = direct(&path, "dwarf");

    let with = |filter| {
        let input = opened(&path);
        let source = Source {
            filter,
            ..source(&input)
        };
        folded(&source, "dwarf", 2).1.stacks
    };

    // A thread that surely has samples.
    let tid = all[all.len() / 2].1;
    let of_tid = all.iter().filter(|stack| stack.1 == tid).count() as u64;
    assert_eq!(
        with(Filter {
            tid: Some(tid),
            ..Filter::default()
        }),
        of_tid
    );
    assert_eq!(
        with(Filter {
            limit: Some(7),
            ..Filter::default()
        }),
        7
    );
    assert_eq!(
        with(Filter {
            sample: Some(3),
            ..Filter::default()
        }),
        1
    );

    // The end of a span of time does not belong to it.
    let (from, to) = (all[5].2, all[9].2);
    let during = all
        .iter()
        .filter(|stack| (from..to).contains(&stack.2))
        .count() as u64;
    assert_eq!(
        with(Filter {
            time: Some((from, to)),
            ..Filter::default()
        }),
        during
    );

    // Samples are numbered from 0, so this is one too many.
    let beyond = Filter {
        sample: Some(all.len() as u64),
        ..Filter::default()
    };
    // A number that does not exist is an error, not an empty profile.
    let input = opened(&path);
    let source = Source {
        filter: beyond,
        ..source(&input)
    };
    let error =
        profile::write(&source, &run("dwarf"), Format::Folded, 1, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no sample"), "{error}");
}

#[test]
fn the_firefox_profile_holds_the_stacks_that_the_folded_ones_do() {
    let name = "the_firefox_profile_holds_the_stacks_that_the_folded_ones_do";
    let Some((_dir, path)) = record(name) else {
        return;
    };

    let profile = |threads| {
        let input = opened(&path);
        let (source, mut out) = (source(&input), Vec::new());
        let written = profile::write(&source, &run("dwarf"), Format::Firefox, threads, &mut out);
        (decode::unzipped(&out), written.expect("a profile").stacks)
    };

    let (one, stacks) = profile(1);

    // Byte for byte, however many threads work.
    for threads in [2, 3] {
        assert!(profile(threads).0 == one, "{threads} threads");
    }

    let json: serde_json::Value = serde_json::from_slice(&one).expect("JSON");
    // The program and the C library at least.
    assert!(
        json["libs"].as_array().is_some_and(|libs| libs.len() >= 2),
        "{}",
        json["libs"]
    );

    // The Firefox profile has a thread's last name, folded stacks its name at the time of the
    // sample.
    let frames = |stacks: Folded| {
        let mut out = Folded::new();
        for (stack, count) in decode::without_reasons(stacks).0 {
            let frames = stack.split_once(';').map_or("", |(_, frames)| frames);
            *out.entry(frames.to_owned()).or_default() += count;
        }
        out
    };
    let found = frames(decode::firefox(&one));
    assert_eq!(found.values().sum::<u64>(), stacks);

    let (text, _) = folded(&source(&opened(&path)), "dwarf", 1);
    assert_eq!(found, frames(decode::folded(&text)));
}

/// Thread, microseconds, and the addresses that perf shows: inside the call, as offsets in files.
type ShownSamples = Vec<(u32, u64, Vec<u64>)>;

/// The mappings of each process: start, end, offset in the file.
#[derive(Default)]
struct Maps(BTreeMap<i32, Vec<(u64, u64, u64)>>);

impl Maps {
    fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Mmap(map) => {
                let end = map.address + map.length;
                self.0
                    .entry(map.pid)
                    .or_default()
                    .push((map.address, end, map.file_offset));
            }
            Record::Comm(comm) if comm.exec => drop(self.0.remove(&comm.pid)),
            Record::Fork(task) if task.pid != task.ppid => {
                let inherited = self.0.get(&task.ppid).cloned().unwrap_or_default();
                self.0.insert(task.pid, inherited);
            }
            _ => {}
        }
    }

    fn file_offset(&self, pid: i32, address: u64) -> u64 {
        let maps = self.0.get(&pid).map_or(&[][..], Vec::as_slice);
        let of = maps
            .iter()
            .rev()
            .find(|(start, end, _)| (*start..*end).contains(&address));
        of.map_or(address, |(start, _, offset)| address - start + offset)
    }
}

/// The stacks found by perf's own unwinder.
fn perf_script(path: &Path) -> ShownSamples {
    // Without inlined functions, each address is one frame.
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-inline", "-F", "tid,time,ip", "-i"])
        .arg(path);

    let out = perf
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .expect("perf script");
    let text = String::from_utf8(out.stdout).expect("text");

    let mut stacks: ShownSamples = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // A head is `tid time:`, and what follows until the next is its stack.
        match line.strip_suffix(':').and_then(|head| head.split_once(' ')) {
            Some((tid, time)) => {
                // perf prints microseconds, although the recording has nanoseconds.
                let (s, us) = time.trim().split_once('.').expect("seconds");
                let us: u64 = us.parse().expect("microseconds");
                let s: u64 = s.parse().expect("seconds");
                stacks.push((
                    tid.parse().expect("a thread"),
                    s * 1_000_000 + us,
                    Vec::new(),
                ));
            }
            None => {
                let address = u64::from_str_radix(line, 16).expect("an address");
                // perf shows -1 above `_start`, whose return address is zero.
                if address != u64::MAX {
                    stacks.last_mut().expect("a head before").2.push(address);
                }
            }
        }
    }

    stacks
}

#[derive(Default)]
struct SampleCollector(ShownSamples);

impl Consumer for SampleCollector {
    fn stack(&mut self, taken: &Taken<'_>) {
        let lookups = (0..taken.pcs.len()).map(|at| taken.lookup(at)).collect();
        self.0.push((taken.task.tid, taken.time / 1000, lookups));
    }
}

#[test]
fn chains_agree_with_perfs_own_unwinder() {
    let name = "chains_agree_with_perfs_own_unwinder";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (code, program) = (dir.path().join("fib.c"), dir.path().join("fib"));
    std::fs::write(&code, FIB).expect("a temporary file");
    let mut cc = Command::new("cc");

    // Calls that are inlined would be no frames.
    let made = cc
        .args(["-O2", "-fno-inline", "-o"])
        .arg(&program)
        .arg(&code)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return skip(name, "no C compiler");
    }

    let command = program.to_str().expect("a path in UTF-8").to_owned();
    let Some((_dir, path)) = record_into(name, dir, &[&command]) else {
        return;
    };

    let expected = perf_script(&path);
    let owner = map_file(&path).expect("the recording");
    let file = PerfFile::parse((*owner).as_ref()).expect("a perf.data");
    let engine = spec::engine("dwarf").expect("one of ours");
    let mut options = stacks::plain_options(&engine);

    // perf unwinds from the registers that were sampled.
    options.how.variant = Some(Variant::Hardware);
    let mut found = [SampleCollector::default()];
    stacks::replay(&file, &options, &mut found);
    let [SampleCollector(mut found)] = found;

    // perf shows offsets in files, by the mappings of that moment.
    let (mut maps, mut at) = (Maps::default(), 0);
    file.for_each_ordered(|event| {
        if let Record::Sample(sample) = event.record {
            let pid = sample.pid().expect("a process");
            for address in &mut found[at].2 {
                *address = maps.file_offset(pid, *address);
            }
            at += 1;
        }
        maps.apply(&event.record);
        ControlFlow::Continue(())
    });

    assert_eq!((found.len(), at), (expected.len(), expected.len()));

    // Samples are in the same order in both.
    let (mut equal, mut shorter) = (0, 0);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        equal += usize::from(found.2 == expected.2);
        shorter +=
            usize::from(found.2.len() < expected.2.len() && expected.2.starts_with(&found.2));
    }

    // The few that differ are at the end of the copy: libunwind requires every slot to be in it.
    let all = found.len();
    assert!(all > 50, "too few samples: {all}");
    assert!(equal * 100 >= all * 98, "only {equal} of {all} are equal");
    assert!(
        shorter * 100 <= all,
        "{shorter} of {all} are shorter than perf's"
    );
}

#[test]
fn a_profile_goes_through_a_pipe_as_it_is() {
    let path = corpus("dwarf.data");
    for (name, format) in [("folded", Format::Folded), ("firefox", Format::Firefox)] {
        let mut expected = Vec::new();
        let written = profile::write(
            &source(&opened(&path)),
            &run("dwarf"),
            format,
            1,
            &mut expected,
        );
        let out = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
            .args(["replay", "--format", name])
            .arg(&path)
            .output()
            .expect("our own program");
        assert!(out.status.success() && written.expect("a profile").stacks > 0);
        let plain = |bytes: &[u8]| match format {
            Format::Folded => bytes.to_vec(),
            _ => decode::unzipped(bytes),
        };
        assert!(plain(&out.stdout) == plain(&expected), "{name}");
    }
}

#[test]
fn damaged_recordings_give_what_is_left_of_them() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("perf.data");
    let whole = std::fs::read(corpus("dwarf.data")).expect("the recording");
    let mut stacks = 0;

    // The step is prime, so that every field of a record is hit.
    for at in (0..whole.len()).step_by(61) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);

        // With the damage inside, and cut off where it is.
        for len in [bytes.len(), at] {
            std::fs::write(&path, &bytes[..len]).expect("a temporary file");
            let threads = 1 + at % 2;
            let mut out = Vec::new();

            // Without its first bytes it is not a recording at all.
            let input = match Input::open(&path, &OpenOptions::default()) {
                Ok(input) => input,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    continue;
                }
            };
            match profile::write(
                &source(&input),
                &run("dwarf"),
                Format::Folded,
                threads,
                &mut out,
            ) {
                Err(error) => assert!(!error.to_string().is_empty()),
                Ok(written) => {
                    let text = String::from_utf8(out).expect("text");
                    let counts: u64 = parse(&text).values().sum();
                    assert_eq!(counts, written.stacks, "byte {at} of {len}");
                    stacks += written.stacks;
                }
            }
        }
    }

    assert!(stacks > 0, "no stack survived");
}

#[test]
fn compressed_recordings_are_shared_among_threads() {
    let path = corpus("dwarf-zstd.data");
    let (one, written) = folded(&source(&opened(&path)), "dwarf", 1);
    assert!(written.stacks > 0);
    for threads in [2, 4] {
        let (text, counts) = folded(&source(&opened(&path)), "dwarf", threads);
        assert!(text == one);
        assert_eq!(format!("{counts:?}"), format!("{written:?}"));
    }
}
