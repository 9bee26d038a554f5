//! One sample of a perf.data at a time, for who needs its stack at once.

use super::batch::Batch;
use super::leader::Leader;
use super::unwind::{How, Unwinding};
use crate::input::Filter;
use unwind_sim_corpus::files::FinderOptions;
use unwind_sim_perf::PerfFile;
use unwind_sim_perf::data::{Event, Record, Sample};

/// Follows a recording, and walks the samples that it is asked for.
pub struct Single<'a> {
    leader: Leader<fn(Batch) -> Batch>,
    unwinding: Unwinding<'a>,
}

impl<'a> Single<'a> {
    /// At the recording's beginning.
    pub fn new(file: &PerfFile<'_>, files: &FinderOptions, how: How<'a>) -> Single<'a> {
        let keep: fn(Batch) -> Batch = |batch| batch;
        Single {
            leader: Leader::new(file, files, Filter::default(), false, keep),
            unwinding: Unwinding::new(how),
        }
    }

    /// Takes every event but samples.
    pub fn event(&mut self, event: &Event<'_>) {
        if !matches!(event.record, Record::Sample(_)) {
            let _ = self.leader.event(event);
        }
    }

    /// The pcs of a sample's user stack, innermost first, and the indexes of those that are no
    /// return addresses; `None` if it has no registers or no stack.
    pub fn walk(&mut self, sample: &Sample<'_>) -> Option<(&[u64], &[u32])> {
        let pid = u32::try_from(sample.pid()?).ok()?;
        let space = self.leader.space(pid);
        self.unwinding.walk_sample(sample, &space)
    }
}
