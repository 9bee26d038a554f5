//! The user boundary: the registers with which user space was left, where the kernel keeps them,
//! and whether a walk ended there.

use super::stacks::StackType;
use super::task::Task;
use crate::pt_regs::PT_REGS_LEN;

/// The registers with which user space was left. Part of the ground truth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserBoundary {
    /// The user's rip.
    pub ip: u64,
    /// The user's rsp.
    pub sp: u64,
    /// Address of the `struct pt_regs` whose iret frame the processor pushed. `None` for a system
    /// call, where the entry code pushes all of it.
    pub pushed_at: Option<u64>,
}

/// The registers with which a walk left the kernel. If it is right, they are those of user space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserRegs {
    /// Address of the `struct pt_regs`.
    pub at: u64,
    /// rip in that `struct pt_regs`.
    pub ip: u64,
    /// rsp in that `struct pt_regs`.
    pub sp: u64,
}

impl UserBoundary {
    /// The places where `task` keeps these registers: what the processor pushed, the entry code's
    /// copy at the end of the task's stack (`task_pt_regs`), and the copy that it makes at the end
    /// of the entry stack on the way back (`swapgs_restore_regs_and_return_to_usermode`).
    pub fn places(&self, task: &Task) -> impl Iterator<Item = u64> {
        let entry = task.stacks.iter().find(|s| s.kind == StackType::Entry);
        let way_back = entry.and_then(|s| s.end.checked_sub(PT_REGS_LEN));
        let places = [self.pushed_at, task_pt_regs(task), way_back];
        places.into_iter().flatten()
    }

    /// Whether `found` are the registers with which user space was left, in a place where `task`
    /// keeps them.
    pub fn is(&self, found: &UserRegs, task: &Task) -> bool {
        (found.ip, found.sp) == (self.ip, self.sp) && self.places(task).any(|at| at == found.at)
    }
}

/// Address of the registers with which a task entered the kernel, at the end of its stack.
pub(super) fn task_pt_regs(task: &Task) -> Option<u64> {
    let own = task.stacks.iter().find(|s| s.kind == StackType::Task)?;
    own.end
        .checked_sub(PT_REGS_LEN.checked_add(task.top_padding)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::StackInfo;
    use alloc::vec;

    const END: u64 = 0x8000;

    fn task() -> Task {
        Task {
            stacks: vec![StackInfo {
                kind: StackType::Task,
                begin: END - 0x4000,
                end: END,
                next_sp: 0,
            }],
            ..Task::default()
        }
    }

    #[test]
    fn values_and_places_must_be_right() {
        let boundary = UserBoundary {
            ip: 0x40_1000,
            sp: 0x7ff0,
            pushed_at: Some(0x9000),
        };
        let right = UserRegs {
            at: END - PT_REGS_LEN,
            ip: 0x40_1000,
            sp: 0x7ff0,
        };

        // Two places are right: where the entry pushed them, and the end of the stack.
        let is = |found| boundary.is(&found, &task());
        assert!(is(right));
        assert!(is(UserRegs {
            at: 0x9000,
            ..right
        }));

        // Neither a neighbouring place nor another value will do.
        assert!(!is(UserRegs {
            at: 0x9008,
            ..right
        }));
        assert!(!is(UserRegs {
            at: END - PT_REGS_LEN - 8,
            ..right
        }));
        assert!(!is(UserRegs {
            ip: 0x40_1001,
            ..right
        }));
        assert!(!is(UserRegs {
            sp: 0x7ff8,
            ..right
        }));

        // A system call pushes nothing itself: the kernel saves the registers at the stack's end.
        let system_call = UserBoundary {
            pushed_at: None,
            ..boundary
        };
        assert!(system_call.is(&right, &task()));
        assert!(!system_call.is(
            &UserRegs {
                at: 0x9000,
                ..right
            },
            &task()
        ));
    }

    #[test]
    fn the_way_back_leads_over_the_entry_stack() {
        let boundary = UserBoundary {
            ip: 1,
            sp: 2,
            pushed_at: None,
        };
        let mut task = task();
        let entry = |kind| StackInfo {
            kind,
            begin: 0x1000,
            end: 0x2000,
            next_sp: 0,
        };
        task.stacks.insert(0, entry(StackType::Irq));
        task.stacks.push(entry(StackType::Entry));
        task.stacks[2].end = 0x3000;
        let places: alloc::vec::Vec<u64> = boundary.places(&task).collect();
        assert_eq!(places, [END - PT_REGS_LEN, 0x3000 - PT_REGS_LEN]);
    }

    #[test]
    fn padding_at_the_end_of_the_stack_counts() {
        let padded = Task {
            top_padding: 16,
            ..task()
        };
        assert_eq!(task_pt_regs(&padded), Some(END - PT_REGS_LEN - 16));
        let hostile = Task {
            top_padding: u64::MAX,
            ..task()
        };
        assert_eq!(task_pt_regs(&hostile), None);
        assert_eq!(task_pt_regs(&Task::default()), None);
    }
}
