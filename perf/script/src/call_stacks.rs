//! Branch records in place of user frames: in call-stack mode they hold the address of each call.

use std::collections::HashMap;

use unwind_sim_perf_data::callchain::{Callchain, PERF_CONTEXT_USER};
use unwind_sim_perf_data::lbr_stitch::{LbrStitcher, Stack};
use unwind_sim_perf_data::{BranchEntry, PerfFile, Sample, branch_sample_type};

/// The call stacks of a recording's threads.
pub(super) struct CallStacks {
    /// By thread id; `None` without stitching.
    stitchers: Option<HashMap<i32, LbrStitcher<BranchEntry>>>,
    /// Number of branch records of the processor.
    depth: u32,
}

impl CallStacks {
    /// Call stacks for `file`. Like perf, stitches only if `stitched` is set and the file gives the
    /// number of branch records (`branches` of the core PMU's capabilities).
    pub(super) fn new(file: &PerfFile<'_>, stitched: bool) -> Self {
        let depth = file.features().branch_records();
        Self {
            stitchers: (stitched && depth.is_some()).then(HashMap::new),
            depth: depth.unwrap_or(0),
        }
    }

    /// The sample's chain, with all of its user part but the first address replaced by the branch
    /// stack. `None` if the sample has no call stack, or if the user part does not start within the
    /// first `words_max` words (`resolve_lbr_callchain_sample` in `tools/perf/util/machine.c`).
    pub(super) fn chain(
        &mut self,
        sample: &Sample<'_>,
        own: Callchain<'_>,
        words_max: usize,
    ) -> Option<Vec<u64>> {
        let attr = sample.attr();
        if attr.branch_sample_type & branch_sample_type::CALL_STACK == 0 {
            return None;
        }

        // Without entries there is nothing that could replace the user part.
        let branches = sample.branch_stack().ok().flatten()?;

        // The kernel part stays: perf takes call stacks of branch records for user space only.
        let mut first = own.words().take(words_max);
        let kernel = first.position(|word| word == PERF_CONTEXT_USER)?;
        let mut words: Vec<u64> = own.words().take(kernel + 1).collect();
        let ip = own.get(kernel + 1);

        // Stitching needs the hardware index; without one the entries are taken as they are.
        match (&mut self.stitchers, branches.hw_index, ip) {
            (Some(stitchers), Some(hw_index), Some(ip)) => {
                let stitcher = stitchers
                    .entry(sample.tid().unwrap_or(-1))
                    .or_insert_with(|| LbrStitcher::new(self.depth));
                // The list of earlier stacks is one for each thread.
                let entries = branches.entries().collect();
                words.extend(stitcher.chain(ip, Stack { entries, hw_index }));
            }
            _ => {
                words.extend(ip);
                words.extend(branches.entries().map(|branch| branch.from));
            }
        }

        Some(words)
    }
}
