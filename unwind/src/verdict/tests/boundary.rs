//! The registers of user space at the end of a kernel's chain.

use super::*;
use crate::kernel::{Task, UserBoundary, UserRegs};

#[test]
fn a_kernel_chain_is_right_only_with_the_users_registers() {
    let boundary = UserBoundary {
        ip: 0x40_1000,
        sp: 0x7ff0,
        pushed_at: Some(0x9000),
    };
    let task = Task::default();
    let right = UserRegs {
        at: 0x9000,
        ip: 0x40_1000,
        sp: 0x7ff0,
    };

    let judged = |verdict, user_regs, refused| {
        let mut chain = Chain::default();
        (chain.user_regs, chain.refused) = (user_regs, refused);
        judge_boundary(verdict, &chain, 3, &boundary, &task)
    };

    let wrong = Some(UserRegs { ip: 0, ..right });
    for verdict in [Verdict::Ok, Verdict::OkUnproven] {
        assert_eq!(judged(verdict, Some(right), false), verdict);
        assert_eq!(judged(verdict, None, false), verdict);
        assert_eq!(judged(verdict, wrong, false), Verdict::Wrong { at: 3 });
        assert_eq!(judged(verdict, wrong, true), Verdict::Refused);
    }

    // What was wrong before stays wrong.
    let truncated = Verdict::Truncated { at: 1 };
    assert_eq!(judged(truncated, wrong, false), truncated);

    // If only the end was judged wrong, the chain has all frames; this chain has none at all.
    let (count, at) = (1, 3);
    for verdict in [Verdict::Truncated { at }, Verdict::Extra { count, at }] {
        assert_eq!(judged(verdict, wrong, false), verdict);

        // With three frames of three, the end counts; with two known ones, it does not.
        let mut chain = True::of(3).chain();
        chain.user_regs = wrong;
        let judged = judge_boundary(verdict, &chain, 3, &boundary, &task);
        assert_eq!(judged, Verdict::Wrong { at });
        let judged = judge_boundary(verdict, &chain, 2, &boundary, &task);
        assert_eq!(judged, verdict);
    }
}
