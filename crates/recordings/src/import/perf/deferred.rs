//! The user chains that the kernel recorded at the return to user space, joined with their samples.
//!
//! Joining is [`stitch`](unwind_sim_perf_data::stitch)'s; this keeps the chains of a whole file.

use std::collections::HashMap;
use std::ops::ControlFlow;
use unwind_sim_perf_data::stitch::{Mode, Stitch, Stitcher, items};
use unwind_sim_perf_data::{PerfFile, flag};

/// Maximum number of addresses kept. A hostile file lets many samples share one long chain; those
/// beyond keep the chain that they were recorded with.
const ADDRESSES_MAX: usize = 1 << 25;

/// The chains of the samples whose user part was recorded later, by the number of the event.
#[derive(Debug, Default)]
pub struct Deferred {
    chains: HashMap<u64, Vec<u64>>,
}

impl Deferred {
    /// Joins the chains of `file`. Empty, without reading the events, if none was deferred.
    pub fn read(file: &PerfFile<'_>) -> Deferred {
        let mut deferred = Deferred::default();
        let is_on = |flags: u64| flags & (flag::DEFER_CALLCHAIN | flag::DEFER_OUTPUT) != 0;
        if !file.attrs().iter().any(|attr| is_on(attr.flags)) {
            return deferred;
        }
        let (mut stitcher, mut left) = (Stitcher::new(Mode::Own), ADDRESSES_MAX);
        stitcher.events(file.attrs());
        items(file, |item| {
            stitcher.push(item);
            deferred.take(&mut stitcher, &mut left);
            ControlFlow::Continue(())
        });
        stitcher.finish();
        deferred.take(&mut stitcher, &mut left);
        deferred
    }

    fn take(&mut self, stitcher: &mut Stitcher, left: &mut usize) {
        while let Some(sample) = stitcher.pop() {
            let is_joined = sample.how != Stitch::NotDeferred;
            if is_joined && let Some(rest) = left.checked_sub(sample.chain.len()) {
                *left = rest;
                self.chains.insert(sample.key, sample.chain);
            }
        }
    }

    /// The chain of the sample that is event number `event`, if it was joined.
    pub fn chain(&self, event: u64) -> Option<&[u64]> {
        self.chains.get(&event).map(Vec::as_slice)
    }
}
