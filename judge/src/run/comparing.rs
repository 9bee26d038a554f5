//! Comparisons, on several threads where the recording can be read in parts.

use super::{Against, Frames, Run, RunError, Walker};
use crate::compare::Comparison;
use crate::engine::Engine;
use crate::input::{Input, InputError};
use crate::unwinders;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use unwind_sim_recordings::parts::Part;
use unwind_sim_recordings::view::{Filter, View};

/// The number of parts for each thread: some take longer than others.
const PARTS: usize = 4;
/// The number of samples after which a thread says how many it has compared.
const TOLD: u64 = 64;

impl Run {
    /// Compares all samples that pass `filter`.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn compare(&self, input: &Input, filter: &Filter) -> Result<Comparison, RunError> {
        self.compare_on(1, input, filter, &mut |_| {})
    }

    /// Like [`Run::compare`], on as many threads; 0 means one for each processor. The result is the
    /// same. Calls `tell` with the number of samples so far.
    ///
    /// # Errors
    /// See [`Run::compare`].
    pub fn compare_on(
        &self,
        threads: usize,
        input: &Input,
        filter: &Filter,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Comparison, RunError> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { processors() } else { threads };
        let in_order = filter.limit.is_some()
            || filter.sample.is_some()
            || filter.stitch
            || self.is_in_order();
        match input.parts(threads.saturating_mul(PARTS)) {
            Some(parts) if threads > 1 && parts.len() > 1 && !in_order => {
                self.compare_parts(threads, &parts, filter, tell)
            }
            _ => self.compare_whole(input, filter, tell),
        }
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

    fn compare_whole(
        &self,
        input: &Input,
        filter: &Filter,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Comparison, RunError> {
        let mut comparison = Comparison::new(self.columns().len());
        let mut last = None;
        self.for_each_as(
            input,
            filter,
            Frames::Dropped,
            &mut |view, column, outcome| {
                if last.replace(view.number) != Some(view.number) {
                    comparison.add_sample(view);
                    tell(comparison.samples);
                }
                comparison.add(column, view, outcome, self.group_by);
                Ok(())
            },
        )?;
        Ok(comparison)
    }

    fn compare_parts(
        &self,
        threads: usize,
        parts: &[Part<'_>],
        filter: &Filter,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Comparison, RunError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        // After a failure, no later part matters. Every earlier one has been begun.
        let claim = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            (index < parts.len() && !failed.load(Ordering::Relaxed)).then_some(index)
        };
        let work = |told: Sender<u64>| {
            let mut walker = Walker::new(self, Frames::Dropped);
            let mut done = Vec::new();
            while let Some(index) = claim() {
                let compared = self.compare_part(&parts[index], &mut walker, filter, &told);
                failed.fetch_or(compared.is_err(), Ordering::Relaxed);
                done.push((index, compared));
            }
            done
        };
        let mut done = std::thread::scope(|scope| {
            let (told, counts) = channel();
            let workers = threads.min(parts.len());
            let workers: Vec<_> = (0..workers)
                .map(|_| {
                    let told = told.clone();
                    scope.spawn(|| work(told))
                })
                .collect();
            drop(told);
            let mut samples = 0;
            for count in counts {
                samples += count;
                tell(samples);
            }
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().flat_map(join).collect::<Vec<_>>()
        });
        done.sort_by_key(|(index, _)| *index);
        let mut comparison = Comparison::new(self.columns().len());
        for (_, compared) in done {
            comparison.merge(compared?);
        }
        Ok(comparison)
    }

    fn compare_part(
        &self,
        part: &Part<'_>,
        walker: &mut Walker<'_>,
        filter: &Filter,
        told: &Sender<u64>,
    ) -> Result<Comparison, RunError> {
        let mut comparison = Comparison::new(walker.columns.len());
        let mut failed = Ok(());
        let mut untold = 0;
        let read = part.views(&mut |view: &View<'_>| {
            if !filter.lets_through(view) {
                return ControlFlow::Continue(());
            }
            comparison.add_sample(view);
            failed = walker.walk(view, &mut |view, column, outcome| {
                comparison.add(column, view, outcome, self.group_by);
                Ok(())
            });
            untold += 1;
            if untold == TOLD {
                // Nobody has to listen.
                let _ = told.send(std::mem::take(&mut untold));
            }
            match failed {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        let _ = told.send(untold);
        read.map_err(InputError::from)?;
        failed.map(|()| comparison)
    }
}
