//! Stitches the branch records of consecutive samples, as `perf report --stitch-lbr` does.
//!
//! Calls that a sample's ring has lost are looked up in the thread's previous sample. Each sample
//! therefore depends on all earlier ones: pass every sample, in recording order.

use crate::model::Sample;
use std::collections::HashMap;
use unwind_sim_perf_data::lbr_stitch::{Entry, LbrStitcher, Stack};
use unwind_sim_unwind::lbr;

/// A branch record, with the equality that the stitcher needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Branch(lbr::Branch);

impl Entry for Branch {
    fn from(&self) -> u64 {
        self.0.from
    }
}

/// The stitching state of all threads of a recording.
#[derive(Debug, Default)]
pub struct Stitching {
    /// By process, thread and index of the ring in the sample.
    threads: HashMap<(u32, u32, usize), LbrStitcher<Branch>>,
}

impl Stitching {
    /// Takes the recording's next sample. For each of its rings, returns the addresses of calls
    /// that earlier samples held and this one has lost, nearest first.
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
