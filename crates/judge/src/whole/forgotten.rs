//! Chains of recordings with truth, judged again without it: is what is called whole right?

use super::{Seen, Whole, judge};
use crate::engine::Outcome;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::verdict::Verdict;

/// What was said without the truth of chains that are the true one, and of those that are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forgotten {
    /// True chains, called whole, broken and unknown.
    pub right: [u64; 3],
    /// Other chains, called whole, broken and unknown.
    pub wrong: [u64; 3],
}

impl Forgotten {
    /// Judges a chain again whose truth is known to the root. Kernel stacks are left out, and walks
    /// that did not begin.
    pub fn add(&mut self, view: &View<'_>, outcome: &Outcome, cache: &mut Cache) {
        let is_user = view.sample.kernel.is_none() && view.sample.truth.is_complete();
        if !is_user || outcome.verdict == Verdict::Unsupported {
            return;
        }

        let chain = &outcome.chain;
        let Some(whole) = judge(view, &Seen::of_chain(chain), &chain.end, cache) else {
            return;
        };

        let index = match whole {
            Whole::Yes(_) => 0,
            Whole::No(_) => 1,
            Whole::Unknown(_) => 2,
        };

        // A chain by luck is the true one as well.
        let known = outcome.ground.known;
        let is_true = match outcome.verdict {
            Verdict::Ok | Verdict::OkUnproven => true,
            // It has all frames, but its table does not mark the root.
            Verdict::Truncated { at } => at == known,
            Verdict::Extra { .. } => chain.frames.len() == known as usize,
            _ => false,
        };

        if is_true {
            self.right[index] += 1
        } else {
            self.wrong[index] += 1
        }
    }
}
