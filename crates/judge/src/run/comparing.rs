//! Comparisons, which only count.

use super::parts::{Parts, Watch};
use super::{Frames, Run, RunError};
use crate::compare::Comparison;
use crate::input::Input;
use std::sync::mpsc::{Sender, channel};
use unwind_sim_recordings::view::Filter;

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
        let Some((threads, parts)) = self.parts(threads, PARTS, input, filter) else {
            return self.compare_whole(input, filter, tell);
        };
        let parts = Parts::new(self, &parts, filter, Frames::Dropped);
        let (told, counts) = channel();
        let parts_ref = &parts;
        let worker = move || parts_ref.work(Teller { told, untold: 0 });
        parts.run(threads, worker, || {
            let mut samples = 0;
            for count in counts {
                samples += count;
                tell(samples);
            }
            Ok(())
        })
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
}

/// Tells how many samples were compared.
#[derive(Clone)]
struct Teller {
    told: Sender<u64>,
    untold: u64,
}

impl Watch for Teller {
    fn sample(&mut self) -> Result<(), RunError> {
        self.untold += 1;
        match self.untold {
            TOLD => self.end(false),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _failed: bool) -> Result<(), RunError> {
        // Nobody has to listen.
        let _ = self.told.send(std::mem::take(&mut self.untold));
        Ok(())
    }
}
