//! The registers of user space at the end of a kernel's chain.

use super::Verdict;
use crate::chain::Chain;
use crate::kernel::{Task, UserBoundary};

/// Judges the end of a kernel's chain too: one that has all true frames, the last of `frames`
/// included, and then takes other registers for those of user space is wrong behind that frame.
pub fn judge_boundary(
    verdict: Verdict,
    chain: &Chain,
    frames: usize,
    boundary: &UserBoundary,
    task: &Task,
) -> Verdict {
    let is_right = |found| boundary.is(found, task);
    let at = frames as u32;
    // Its end may have been found wrong by itself: those registers say more.
    let has_all = match verdict {
        Verdict::Ok | Verdict::OkUnproven => true,
        Verdict::Extra { at: end, .. } | Verdict::Truncated { at: end } => {
            end == at && chain.frames.len() == frames
        }
        _ => false,
    };
    match has_all && !chain.user_regs.as_ref().is_none_or(is_right) {
        false => verdict,
        true if chain.refused => Verdict::Refused,
        true => Verdict::Wrong { at },
    }
}
