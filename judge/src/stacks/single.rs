//! One sample of a perf.data at a time, for who needs its stack at once.

use super::batch::Batch;
use super::leader::Leader;
use super::unwind::{How, Unwinding};
use std::sync::Arc;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{Event, Record, Sample};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::image::AddressSpace;

/// Follows a recording, and walks the samples that it is asked for.
pub struct Single<'a> {
    leader: Leader<fn(Batch) -> Batch>,
    unwinding: Unwinding<'a>,
}

/// A stack, and where it was walked.
#[derive(Debug)]
pub struct Walked<'a> {
    /// Its pcs, innermost first.
    pub pcs: &'a [u64],
    /// The indexes of those that are no return addresses.
    pub exact: &'a [u32],
    /// The process's memory.
    pub space: Arc<AddressSpace>,
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
            self.leader.event(event);
        }
    }

    /// A sample's user stack; `None` if it has no registers or no stack.
    pub fn walk(&mut self, sample: &Sample<'_>) -> Option<Walked<'_>> {
        let pid = u32::try_from(sample.pid()?).ok()?;
        let space = self.leader.space(pid);
        let (pcs, exact) = self.unwinding.walk_sample(sample, &space)?;
        Some(Walked { pcs, exact, space })
    }
}
