//! `compare` and `replay` with `--threads N` write the same bytes whatever N is: counts, first
//! samples, order, errors.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::{Outcome, Setting};
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::{Against, Describe, Run, RunError};
use unwind_sim_judge::spec;
use unwind_sim_recordings::model::Item;
use unwind_sim_recordings::trace::{BLOCK_HEADER_BYTES, BlockType, Trace, TraceWriter};
use unwind_sim_recordings::view::{Filter, View};

/// Numbers of threads besides 1; 0 is as many as there are processors.
const THREADS: [&str; 4] = ["2", "3", "7", "0"];
const COMMANDS: [&[&str]; 7] = [
    &["compare"],
    &["compare", "--json"],
    &["compare", "--group-by", "insn"],
    &[
        "compare",
        "--json",
        "--group-by",
        "function",
        "--unwinder",
        "orc,fp",
    ],
    &[
        "compare",
        "--against",
        "dwarf",
        "--unwinder",
        "sframe,fp,guess",
    ],
    &["replay", "--unwinder", "dwarf,fp"],
    &["replay", "--json", "--unwinder", "all"],
];
/// How often the samples of a trace are repeated, and how many are in a block.
const TIMES: usize = 9;
const IN_BLOCK: u64 = 2;
/// The number of samples taken from a trace.
const SAMPLES_MAX: usize = 24;

fn traces() -> Vec<PathBuf> {
    let folder = std::fs::read_dir("corpus/traces").expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    paths.sort();
    paths
}

/// The trace in many blocks: its events once, and its samples over and over, each pass from another
/// one on, so that the first sample of a group is in any block.
fn in_blocks(path: &Path) -> Vec<u8> {
    let trace = Trace::open(path).expect("a trace");
    let mut writer = TraceWriter::new(Vec::new(), trace.meta()).expect("a writer");
    for image in trace.images() {
        writer.add_image(image).expect("an image");
    }

    // Events first: mappings hold for all samples that follow.
    let mut samples = Vec::new();
    for item in trace.items() {
        match item.expect("an item") {
            Item::Sample(sample) if samples.len() < SAMPLES_MAX => samples.push(sample),
            // Later events would change the mappings under the samples that are repeated.
            Item::Sample(_) => break,
            event => writer.item(&event).expect("an event"),
        }
    }

    let mut written = 0;
    for pass in 0..TIMES {
        for i in 0..samples.len() {
            let sample = &samples[(i + pass) % samples.len()];
            writer.sample(sample).expect("a sample");
            written += 1;

            // A block ends at a flush.
            if written % IN_BLOCK == 0 {
                writer.flush().expect("a block");
            }
        }
    }

    writer.finish().expect("a trace")
}

/// What a command writes, without the number of threads in the command that it repeats.
fn written(trace: &Path, words: &[&str], threads: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(words).arg(trace);
    let output = command.args(["--threads", threads]).output();
    let output = output.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let all = format!("{:?}\n{out}\n{err}", output.status.code());
    all.replace(&format!(" --threads {threads}"), "")
}

/// Checks that a command writes the same with one thread and with each of these numbers. Returns what
/// it writes.
fn assert_same_of(trace: &Path, words: &[&str], others: &[&str]) -> String {
    let one = written(trace, words, "1");
    for threads in others {
        let other = written(trace, words, threads);
        assert!(
            one == other,
            "{} {words:?} on {threads} threads:\n{other}\nand on one:\n{one}",
            trace.display()
        );
    }
    one
}

/// All commands with one thread and with another number, each with the next one; with
/// `UNWIND_SIM_SLOW=1` with all of them. Returns what they write.
fn assert_same(trace: &Path, number: &mut usize) -> String {
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let mut all = String::new();
    for words in COMMANDS {
        let others = if is_slow {
            &THREADS[..]
        } else {
            &THREADS[*number % THREADS.len()..][..1]
        };
        *number += 1;
        all += &assert_same_of(trace, words, others);
    }
    all
}

#[test]
fn every_number_of_threads_writes_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut divided, mut number) = (0, 0);
    for path in traces() {
        let trace = folder.path().join(path.file_name().expect("a name"));
        std::fs::write(&trace, in_blocks(&path)).expect("it is written");
        divided += usize::from(Trace::open(&trace).expect("a trace").chunks().len() > 3);
        assert_same(&trace, &mut number);
    }
    assert!(divided > 2, "only {divided} traces have many blocks");
}

#[test]
fn a_damaged_block_is_reported_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = in_blocks(Path::new("corpus/traces/throws.bin"));
    let path = folder.path().join("damaged.bin");
    std::fs::write(&path, &bytes).expect("it is written");

    let blocks: Vec<u64> = {
        let trace = Trace::open(&path).expect("a trace");
        let blocks = trace.blocks();
        let samples = blocks.filter(|b| b.block_type == Some(BlockType::Samples));
        samples.map(|block| block.offset).collect()
    };
    assert!(blocks.len() > 8);

    let mut number = 0;
    // One block, and two: the first is reported.
    for damaged in [vec![5], vec![1], vec![3, 6]] {
        let mut bytes = bytes.clone();
        for &block in &damaged {
            // Inside the block, behind its header.
            bytes[(blocks[block] + BLOCK_HEADER_BYTES) as usize + 9] ^= 0x55;
        }

        std::fs::write(&path, &bytes).expect("it is written");
        let text = assert_same(&path, &mut number);
        assert!(text.contains("damaged.bin"), "{text}");
        assert!(!text.contains("Some(0)"), "{text}");
    }
}

fn by_frame_pointers() -> Run {
    Run {
        engines: vec![spec::engine("fp").expect("an unwinder")],
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::Cause,
    }
}

fn in_memory() -> Input {
    let bytes = in_blocks(Path::new("corpus/traces/throws.bin"));
    Input::from_trace(Trace::from_bytes(bytes).expect("a trace"))
}

/// However the output ends, no thread waits for its turn for ever.
#[test]
fn threads_end_with_the_output() {
    struct LineEncoder;
    impl Describe for LineEncoder {
        fn describe(
            &mut self,
            view: &View<'_>,
            _: usize,
            _: &Outcome,
            out: &mut Vec<u8>,
        ) -> Result<(), RunError> {
            Ok(writeln!(out, "{}", view.number)?)
        }
    }

    /// Takes some pieces, and then fails or panics.
    struct FailingWriter {
        left: usize,
        panics: bool,
    }

    impl Write for FailingWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let Some(left) = self.left.checked_sub(1) else {
                assert!(!self.panics, "the output panics");
                return Err(std::io::ErrorKind::StorageFull.into());
            };
            self.left = left;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // Three threads take turns to write their pieces.
    let (run, input) = (by_frame_pointers(), in_memory());

    // At the first piece and after some, with an error and with a panic.
    for (left, panics) in [(0, false), (3, false), (0, true), (3, true)] {
        let mut out = FailingWriter { left, panics };
        let write = || run.write_on(3, &input, &Filter::default(), || LineEncoder, &mut out);
        match std::panic::catch_unwind(AssertUnwindSafe(write)) {
            Ok(Err(RunError::Output(error))) => {
                assert!(!panics && error.kind() == std::io::ErrorKind::StorageFull);
            }
            Ok(other) => panic!("{:?}", other.map(drop)),
            // A panic of the output goes through, and no thread is left waiting.
            Err(_) => assert!(panics),
        }
    }
}

/// Threads that are faster than the reader of the output wait for it.
#[test]
fn no_thread_is_far_ahead_of_the_output() {
    const WORKERS: usize = 3;

    /// Counts what was described.
    struct Counter<'c>(&'c AtomicU64);
    impl Describe for Counter<'_> {
        fn describe(
            &mut self,
            view: &View<'_>,
            _: usize,
            _: &Outcome,
            out: &mut Vec<u8>,
        ) -> Result<(), RunError> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(writeln!(out, "{}", view.number)?)
        }
    }

    /// Takes its time, and sees how far ahead the threads are of what it has got.
    struct SlowWriter<'c> {
        described: &'c AtomicU64,
        written: String,
    }

    impl Write for SlowWriter<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let written = self.written.lines().count() as u64;
            // Slow enough that the threads would run far ahead if nothing held them.
            std::thread::sleep(Duration::from_millis(2));

            // What was described, but not yet written, is what the threads hold in memory.
            let ahead = self.described.load(Ordering::SeqCst) - written;
            assert!(
                ahead <= WORKERS as u64 * IN_BLOCK,
                "{ahead} after {written}"
            );
            self.written += std::str::from_utf8(bytes).expect("text");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let (run, input) = (by_frame_pointers(), in_memory());
    let count = AtomicU64::new(0);
    let mut out = SlowWriter {
        described: &count,
        written: String::new(),
    };
    let filter = Filter::default();
    // All threads count in one place, so that the writer sees what any of them has described.
    let comparison = run.write_on(WORKERS, &input, &filter, || Counter(&count), &mut out);

    let samples = comparison.expect("it is read").samples;
    // Each sample's number is its line, so a line that is lost or out of place shows.
    let numbers = (0..samples).map(|number| format!("{number}\n"));

    // Many more blocks than threads, or none could be ahead; and all in order.
    assert!(samples > 20 * IN_BLOCK);
    assert_eq!(out.written, numbers.collect::<String>());
}
