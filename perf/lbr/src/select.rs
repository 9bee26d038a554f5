//! The filters of branches: the hardware's (`LBR_SELECT`), and then the kernel's.
//!
//! Bits of `MSR_LBR_SELECT`: Intel SDM volume 3B, "Filtering of Last Branch Records". Their use:
//! `arch/x86/events/intel/lbr.c` (Linux 7.2), `hsw_lbr_sel_map`.

use super::ring::{Branch, Kind};
use thiserror::Error;

/// Bits of `perf_event_attr.branch_sample_type` that request branches.
#[allow(missing_docs, reason = "the names are those of the kernel's header")]
pub mod branch_type {
    pub const USER: u64 = 1;
    pub const KERNEL: u64 = 1 << 1;
    pub const HV: u64 = 1 << 2;
    pub const ANY: u64 = 1 << 3;
    pub const ANY_CALL: u64 = 1 << 4;
    pub const ANY_RETURN: u64 = 1 << 5;
    pub const IND_CALL: u64 = 1 << 6;
    pub const COND: u64 = 1 << 10;
    pub const CALL_STACK: u64 = 1 << 11;
    pub const IND_JUMP: u64 = 1 << 12;
    pub const CALL: u64 = 1 << 13;
}

use branch_type as bt;

/// Bits of `LBR_SELECT`. Except for the last one, a set bit suppresses branches.
struct Hw;

impl Hw {
    const KERNEL: u32 = 1;
    const USER: u32 = 1 << 1;
    const JCC: u32 = 1 << 2;
    const REL_CALL: u32 = 1 << 3;
    const IND_CALL: u32 = 1 << 4;
    const RETURN: u32 = 1 << 5;
    const IND_JMP: u32 = 1 << 6;
    const REL_JMP: u32 = 1 << 7;
    const FAR: u32 = 1 << 8;
    const CALL_STACK: u32 = 1 << 9;
    const ANY: u32 = Self::JCC
        | Self::REL_CALL
        | Self::IND_CALL
        | Self::RETURN
        | Self::IND_JMP
        | Self::REL_JMP
        | Self::FAR;
    const ALL: u32 = 0x3ff;
}

/// The hardware bits for each requested bit (`hsw_lbr_sel_map`).
const MAP: [(u64, u32); 11] = [
    (bt::USER, Hw::USER),
    (bt::KERNEL, Hw::KERNEL),
    (bt::HV, 0),
    (bt::ANY, Hw::ANY),
    (bt::ANY_CALL, Hw::REL_CALL | Hw::IND_CALL | Hw::FAR),
    (bt::ANY_RETURN, Hw::RETURN | Hw::FAR),
    (bt::IND_CALL, Hw::IND_CALL),
    (bt::COND, Hw::JCC),
    (
        bt::CALL_STACK,
        Hw::REL_CALL | Hw::IND_CALL | Hw::RETURN | Hw::CALL_STACK,
    ),
    (bt::IND_JUMP, Hw::IND_JMP),
    (bt::CALL, Hw::REL_CALL),
];

/// Why a filter cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    /// Unknown bits (`EOPNOTSUPP`).
    #[error("branch types {0:#x} are not supported")]
    Unsupported(u64),
    /// Call-stack mode can only be combined with USER and KERNEL (`EINVAL`).
    #[error("call-stack mode cannot be combined with branch types {0:#x}")]
    CallStackWith(u64),
    /// No privilege level. The kernel never gets here, as it first fills in the event's own.
    #[error("neither user nor kernel branches are requested")]
    NoLevel,
}

/// A filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select {
    asked: u64,
    register: u32,
}

impl Select {
    /// Call-stack mode in user space only, as `perf record --call-graph lbr` requests.
    pub const CALL_STACK_USER: Self = Self {
        asked: bt::CALL_STACK | bt::USER,
        // Kept: returns and calls that end in user space.
        register: (Hw::ALL & !Hw::CALL_STACK)
            ^ (Hw::REL_CALL | Hw::IND_CALL | Hw::RETURN | Hw::CALL_STACK | Hw::USER),
    };

    /// The filter for bits of [`branch_type`].
    ///
    /// # Errors
    /// If the kernel refuses the bits.
    pub fn new(asked: u64) -> Result<Self, SelectError> {
        let known = MAP.iter().fold(0, |known, (bit, _)| known | bit);
        if asked & !known != 0 {
            return Err(SelectError::Unsupported(asked & !known));
        }
        let levels = bt::USER | bt::KERNEL;
        let beside = asked & !(levels | bt::CALL_STACK);
        if asked & bt::CALL_STACK != 0 && beside != 0 {
            return Err(SelectError::CallStackWith(beside));
        }
        if asked & levels == 0 {
            return Err(SelectError::NoLevel);
        }
        let wanted = MAP.iter().filter(|(bit, _)| asked & bit != 0);
        let mask = wanted.fold(0, |mask, (_, bits)| mask | bits);
        // All bits suppress, except for call-stack mode.
        let register = mask ^ (Hw::ALL & !Hw::CALL_STACK);
        Ok(Self { asked, register })
    }

    /// The value of `LBR_SELECT`.
    pub const fn register(self) -> u32 {
        self.register
    }

    /// Whether calls push and returns pop.
    pub const fn is_call_stack(self) -> bool {
        self.register & Hw::CALL_STACK != 0
    }

    /// Whether the hardware records (or, in call-stack mode, acts on) a branch. The privilege level
    /// is that of the target.
    pub(super) fn records(self, branch: &Branch) -> bool {
        let kind = match branch.kind {
            Kind::Call => Hw::REL_CALL,
            Kind::IndirectCall => Hw::IND_CALL,
            Kind::Return => Hw::RETURN,
            Kind::Jump => Hw::REL_JMP,
            Kind::IndirectJump => Hw::IND_JMP,
            Kind::Conditional => Hw::JCC,
            Kind::Far => Hw::FAR,
        };
        let level = if is_kernel(branch.to) {
            Hw::KERNEL
        } else {
            Hw::USER
        };
        self.register & (kind | level) == 0
    }

    /// Whether the kernel leaves a recorded branch in the sample: its type must be requested, and
    /// with USER alone it must not come from the kernel.
    pub(super) fn keeps(self, branch: &Branch) -> bool {
        let asked = self.asked;
        if is_kernel(branch.from) && asked & bt::KERNEL == 0 {
            return false;
        }
        if asked & bt::ANY != 0 {
            return true;
        }
        let by = match branch.kind {
            Kind::Call => bt::ANY_CALL | bt::CALL | bt::CALL_STACK,
            Kind::IndirectCall => bt::ANY_CALL | bt::IND_CALL | bt::CALL_STACK,
            Kind::Return => bt::ANY_RETURN | bt::CALL_STACK,
            Kind::Conditional => bt::COND,
            Kind::IndirectJump => bt::IND_JUMP,
            Kind::Jump => 0,
            // A system call or an interrupt counts as a call, its end as a return.
            Kind::Far if is_kernel(branch.to) => bt::ANY_CALL,
            Kind::Far => bt::ANY_RETURN,
        };
        asked & by != 0
    }
}

/// Whether an address is in the kernel.
fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}
