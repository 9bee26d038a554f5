//! Walks single samples of a perf.data, for callers that need the stack at once.

use super::batch::Batch;
use super::leader::Leader;
use super::unwind::{How, Unwinding};
use std::sync::Arc;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::{Event, Record, Sample};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::image::AddressSpace;

/// Follows a recording and walks the requested samples.
pub struct Single<'a> {
    leader: Leader<fn(Batch) -> Batch>,
    unwinding: Unwinding<'a>,
}

/// A walked stack.
#[derive(Debug)]
pub struct Walked<'a> {
    /// The pcs, innermost first.
    pub pcs: &'a [u64],
    /// The indices of the pcs that are not return addresses.
    pub exact: &'a [u32],
    /// The process's address space.
    pub space: Arc<AddressSpace>,
}

impl<'a> Single<'a> {
    /// Starts at the beginning of the recording.
    pub fn new(file: &PerfFile<'_>, files: &FinderOptions, how: How<'a>) -> Single<'a> {
        let keep: fn(Batch) -> Batch = |batch| batch;
        Single {
            leader: Leader::new(file, files, Filter::default(), false, keep),
            unwinding: Unwinding::new(how, None),
        }
    }

    /// Handles an event; must be called for every event that is not a sample.
    pub fn event(&mut self, event: &Event<'_>) {
        if !matches!(event.record, Record::Sample(_)) {
            self.leader.event(event);
        }
    }

    /// Walks a sample's user stack; `None` if it has no registers or no stack.
    pub fn walk(&mut self, sample: &Sample<'_>) -> Option<Walked<'_>> {
        let pid = u32::try_from(sample.pid()?).ok()?;
        let space = self.leader.space(pid);
        let (pcs, exact) = self.unwinding.walk_sample(sample, &space)?;
        Some(Walked { pcs, exact, space })
    }
}
