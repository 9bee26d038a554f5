//! Branch records of several samples put together, as `perf report --stitch-lbr` does.
//!
//! What a sample's ring has lost is sought in the thread's sample before. That makes one sample
//! hang on all before it, so the samples must come in their order, and all of them.

use crate::model::Sample;
use std::collections::HashMap;
use unwind_sim_perf_data::lbr_stitch::{Entry, LbrStitcher, Stack};
use unwind_sim_unwind::lbr;

/// A record, as the stitcher compares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Branch(lbr::Branch);

impl Entry for Branch {
    fn from(&self) -> u64 {
        self.0.from
    }
}

/// The state of all threads of a recording.
#[derive(Debug, Default)]
pub struct Stitching {
    /// By process, thread and place of the ring in the sample.
    threads: HashMap<(u32, u32, usize), LbrStitcher<Branch>>,
}

impl Stitching {
    /// The next sample of the recording: for each of its rings, where the calls were that samples
    /// before held and this one has lost, nearest first.
    pub fn next(&mut self, sample: &Sample<'_>) -> Vec<Vec<u64>> {
        let rings = sample.branches.iter().enumerate();
        rings.map(|(i, ring)| self.ring(sample, i, ring)).collect()
    }

    fn ring(&mut self, sample: &Sample<'_>, place: usize, ring: &lbr::BranchStack) -> Vec<u64> {
        let Some(hw_index) = ring.hw_index else {
            return Vec::new();
        };
        let key = (sample.pid, sample.tid, place);
        let new = || LbrStitcher::new(ring.depth);
        let stitcher = self.threads.entry(key).or_insert_with(new);
        let entries: Vec<Branch> = ring.entries.iter().copied().map(Branch).collect();
        let own = 1 + entries.len();
        let mut chain = stitcher.chain(0, Stack { entries, hw_index });
        chain.split_off(own.min(chain.len()))
    }
}
