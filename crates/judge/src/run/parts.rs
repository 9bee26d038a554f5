//! Runs on several threads, where the recording can be read in parts.

use super::{Frames, Run, RunError, Walker};
use crate::compare::Comparison;
use crate::engine::{Engine, Outcome};
use crate::input::{Input, InputError};
use crate::run::Against;
use crate::unwinders;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use unwind_sim_recordings::parts::{Part, PartReader};
use unwind_sim_recordings::view::{Filter, View};

/// Sees the outcomes of the parts that one thread takes.
pub(super) trait Watch {
    /// A part begins.
    fn begin(&mut self, _index: usize) {}

    /// Sees an outcome, after it was counted.
    fn outcome(
        &mut self,
        _view: &View<'_>,
        _column: usize,
        _outcome: &Outcome,
    ) -> Result<(), RunError> {
        Ok(())
    }

    /// All outcomes of a sample were seen.
    fn sample(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    /// The part ends, here if it `failed`.
    fn end(&mut self, failed: bool) -> Result<(), RunError>;
}

/// The parts of a recording, which threads take one after the other.
pub(super) struct Parts<'a> {
    run: &'a Run,
    parts: &'a [Part<'a>],
    filter: &'a Filter,
    frames: Frames,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// The comparisons of some parts, each with the part's number.
pub(super) type Done = Vec<(usize, Result<Comparison, RunError>)>;

impl<'a> Parts<'a> {
    pub(super) fn new(
        run: &'a Run,
        parts: &'a [Part<'a>],
        filter: &'a Filter,
        frames: Frames,
    ) -> Parts<'a> {
        Parts {
            run,
            parts,
            filter,
            frames,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// After a failure, no later part matters. Every earlier one has been begun.
    fn claim(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.parts.len() && !self.failed.load(Ordering::Relaxed)).then_some(index)
    }

    /// Makes the threads stop after their present part.
    pub(super) fn stop(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// One thread's work: takes parts until there are no more.
    pub(super) fn work(&self, mut watch: impl Watch) -> Done {
        let mut walker = Walker::new(self.run, self.frames);
        let mut reader = PartReader::default();
        let mut done = Vec::new();
        while let Some(index) = self.claim() {
            watch.begin(index);
            let compared = self.part(&self.parts[index], &mut reader, &mut walker, &mut watch);
            let ended = watch.end(compared.is_err());
            let compared = compared.and_then(|compared| ended.map(|()| compared));
            if compared.is_err() {
                self.stop();
            }
            done.push((index, compared));
        }
        done
    }

    fn part(
        &self,
        part: &Part<'_>,
        reader: &mut PartReader,
        walker: &mut Walker<'_>,
        watch: &mut impl Watch,
    ) -> Result<Comparison, RunError> {
        let mut comparison = Comparison::new(walker.columns.len());

        // The reader has errors of its own, so that of a walk is kept beside it.
        let mut failed = Ok(());

        let read = reader.views(part, &mut |view: &View<'_>| {
            if !self.filter.lets_through(view) {
                return ControlFlow::Continue(());
            }

            comparison.add_sample(view);
            failed = walker
                .walk(view, &mut |view, column, outcome| {
                    comparison.add(column, view, outcome, self.run.group_by);
                    watch.outcome(view, column, outcome)
                })
                .and_then(|()| watch.sample());

            match failed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });

        read.map_err(InputError::from)?;
        failed.map(|()| comparison)
    }

    /// Runs `worker` on threads, and `listen` on this one meanwhile. Returns the comparison of all
    /// parts, or the error of the first that failed.
    pub(super) fn run(
        &self,
        threads: usize,
        worker: impl FnOnce() -> Done + Send + Clone,
        listen: impl FnOnce() -> Result<(), RunError>,
    ) -> Result<Comparison, RunError> {
        let (mut done, listened) = std::thread::scope(|scope| {
            let threads = threads.min(self.parts.len());
            // The last one is moved, so that what the workers send on is closed when they end.
            let workers: Vec<_> = std::iter::repeat_n(worker, threads)
                .map(|worker| scope.spawn(worker))
                .collect();

            let listened = listen();
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            };

            let done = workers.into_iter().flat_map(join).collect::<Done>();
            (done, listened)
        });

        listened?;

        // In the order of the recording, so that the result does not depend on which thread was
        // first.
        done.sort_by_key(|(index, _)| *index);
        let mut comparison = Comparison::new(self.run.columns().len());
        for (_, compared) in done {
            comparison.merge(compared?);
        }

        Ok(comparison)
    }
}

impl Run {
    /// The parts in which to read the recording, at most `count` for each thread, and the number of
    /// threads; `None` if one thread should read it as a whole. 0 threads mean one for each
    /// processor.
    pub(super) fn parts<'i>(
        &self,
        threads: usize,
        count: usize,
        input: &'i Input,
        filter: &Filter,
    ) -> Option<(usize, Vec<Part<'i>>)> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { processors() } else { threads };
        let in_order = filter.limit.is_some()
            || filter.sample.is_some()
            || filter.stitch
            || self.is_in_order();
        if threads == 1 || in_order {
            return None;
        }
        let parts = input.parts(threads.saturating_mul(count))?;
        (parts.len() > 1).then_some((threads, parts))
    }

    /// Whether samples must be taken in order: a proof is for one sample at a time, and a program of
    /// the user's own may remember what it was asked.
    fn is_in_order(&self) -> bool {
        let is_ours = |engine: &Engine| {
            let name = engine.name();
            let plain = name.split([':', '+']).next().unwrap_or(name);
            !matches!(engine, Engine::Other(_)) || unwinders::ALL.contains(&plain)
        };
        let against = match &self.against {
            Against::Proof(_) => true,
            Against::Engine(engine) => !is_ours(engine),
            Against::Truth | Against::Perf | Against::Kernel => false,
        };
        against || self.wants_stitching() || !self.engines.iter().all(is_ours)
    }
}
