//! Judges the registers of user space at the end of a kernel's chain.

use super::Verdict;
use crate::chain::Chain;
use crate::kernel::{Task, UserBoundary};

/// Also judges the end of a kernel's chain. A chain that has all `frames` true frames, but then
/// takes the wrong registers for those of user space, is wrong after the last frame.
pub fn judge_boundary(
    verdict: Verdict,
    chain: &Chain,
    frames: usize,
    boundary: &UserBoundary,
    task: &Task,
) -> Verdict {
    let is_right = |found| boundary.is(found, task);
    let at = frames as u32;
    // Its end may already have been judged wrong; the registers are more informative.
    let has_all = match verdict {
        Verdict::Ok | Verdict::OkUnproven => true,
        Verdict::Extra { at: end, .. } | Verdict::Truncated { at: end } => {
            end == at && chain.frames.len() == frames
        }
        _ => false,
    };

    // A chain without registers of user space has made no claim about them.
    if !has_all || chain.user_regs.as_ref().is_none_or(is_right) {
        verdict
    } else if chain.refused {
        Verdict::Refused
    } else {
        Verdict::Wrong { at }
    }
}
