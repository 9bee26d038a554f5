//! Runs one unwinder on a perf.data, with one thread for each consumer.

use super::batch::Batch;
use super::leader::Leader;
use super::task::Consumer;
use super::unwind::{How, Unwinding};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use unwind_sim_perf_data::{PerfError, PerfFile, Stop};
use unwind_sim_recordings::files::{FileProblem, FinderOptions};
use unwind_sim_recordings::gaps::Gaps;
use unwind_sim_recordings::import::{ImportError, Skip};
use unwind_sim_recordings::view::Filter;

/// The maximum number of waiting batches for each worker.
const WAITING: usize = 4;

/// The options of a replay.
#[derive(Clone)]
pub struct ReplayOptions<'a> {
    /// How to walk.
    pub how: How<'a>,
    /// The samples to walk.
    pub filter: Filter,
    /// Of a perf.data, only the samples of the event with this index.
    pub event: Option<usize>,
    /// Where to find image files.
    pub files: FinderOptions,
}

/// Counts of the samples of a replay.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Samples that could be walked, including those outside `--sample` and `--limit`, but without
    /// those of other threads and times.
    pub samples: u64,
    /// Walked stacks.
    pub stacks: u64,
    /// What could not be read, and the skipped samples.
    pub gaps: Gaps,
    /// The first thousand problems with image files.
    pub file_problems: Vec<FileProblem>,
    /// The number of problems with image files.
    pub file_problem_count: u64,
}

impl Counts {
    fn add(&mut self, unwinding: &Unwinding<'_>) {
        self.samples += unwinding.seen;
        self.stacks += unwinding.stacks;
        for (&why, count) in &unwinding.skipped {
            *self.gaps.skipped.entry(why).or_default() += count;
        }
    }
}

/// Walks every sample and passes the chains to the consumers, each on its own thread. The first one
/// belongs to this thread, which also reads the file. Which consumer gets which part of the
/// recording is not deterministic, unless there is only one.
///
/// Only the user part of a stack is walked; the kernel's part is as perf recorded it.
pub fn replay<C: Consumer + Send>(
    file: &PerfFile<'_>,
    options: &ReplayOptions<'_>,
    consumers: &mut [C],
) -> Counts {
    let Some((mine, others)) = consumers.split_first_mut() else {
        return Counts::default();
    };

    // Samples can be counted in order only if one worker sees them all.
    let Filter { sample, limit, .. } = options.filter;
    if others.is_empty() || sample.is_some() || limit.is_some() {
        return replay_alone(file, options, mine);
    }

    let mut counts = Counts::default();
    let mut unwinding = Unwinding::new(options.how, options.event);
    let (sender, receiver) = sync_channel::<Batch>(WAITING * others.len());
    let receiver = &Mutex::new(receiver);

    std::thread::scope(|scope| {
        let workers: Vec<_> = others
            .iter_mut()
            .map(|consumer| scope.spawn(move || work(file, options, receiver, consumer)))
            .collect();

        read(file, options, false, &mut counts, |batch| {
            let number = batch.number;
            // The workers are busy, so this thread takes the batch.
            if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
                sender.try_send(batch)
            {
                unwinding.take(file, &batch, mine);
            }

            // The batch is with a worker now, so the next samples go into a new one.
            Batch::numbered(number + 1)
        });

        // Without a sender the workers end when the channel is empty; until then this thread helps.
        drop(sender);
        while let Some(batch) = next(receiver) {
            unwinding.take(file, &batch, mine);
        }

        counts.add(&unwinding);

        // A worker's panic is passed on: its counts are missing, and the rest would look complete.
        for worker in workers {
            match worker.join() {
                Ok(unwinding) => counts.add(&unwinding),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });

    counts
}

/// Like [`replay`], on this thread alone.
pub fn replay_alone<C: Consumer>(
    file: &PerfFile<'_>,
    options: &ReplayOptions<'_>,
    consumer: &mut C,
) -> Counts {
    let mut counts = Counts::default();
    let mut unwinding = Unwinding::new(options.how, options.event);
    unwinding.only = options.filter.sample;
    unwinding.left = options.filter.limit.unwrap_or(u64::MAX);
    read(file, options, true, &mut counts, |mut batch| {
        unwinding.take(file, &batch, consumer);
        batch.reset();
        batch
    });
    counts.add(&unwinding);
    counts
}

/// Reads the file and sends batches.
fn read(
    file: &PerfFile<'_>,
    options: &ReplayOptions<'_>,
    eager: bool,
    counts: &mut Counts,
    send: impl FnMut(Batch) -> Batch,
) {
    let mut leader = Leader::new(file, &options.files, options.filter, eager, send);
    let summary = file.for_each_ordered(|event| {
        leader.event(&event);
        ControlFlow::Continue(())
    });

    let (finder, skipped) = leader.finish();
    counts.file_problems = finder.problems().to_vec();
    counts.file_problem_count = finder.problem_count();
    counts.gaps.skipped = skipped;
    if summary.skipped != 0 {
        *counts.gaps.skipped.entry(Skip::Damaged).or_default() += summary.skipped;
    }

    let mut problem = |error: PerfError| counts.gaps.add(ImportError::Perf(error));
    file.problems().iter().copied().for_each(&mut problem);
    summary.first_skipped.map(&mut problem);

    // What came before the error was walked, so it is only reported.
    if let Stop::Error(error) = summary.stop {
        problem(error);
    }
}

fn next(receiver: &Mutex<Receiver<Batch>>) -> Option<Batch> {
    let receiver = receiver
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    receiver.recv().ok()
}

fn work<'a, C: Consumer>(
    file: &PerfFile<'_>,
    options: &ReplayOptions<'a>,
    receiver: &Mutex<Receiver<Batch>>,
    consumer: &mut C,
) -> Unwinding<'a> {
    let mut unwinding = Unwinding::new(options.how, options.event);
    while let Some(batch) = next(receiver) {
        unwinding.take(file, &batch, consumer);
    }
    unwinding
}
