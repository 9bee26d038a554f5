//! Defects that are put into the model on purpose, so that its rules can be seen to find them.

use crate::lbr::Mutation;

/// A defect put into the model on purpose; each must be found by the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The deferred unwind writes into the CPU's callchain buffer of task context.
    SharedBuffer,
    /// The record with the user frames carries the last period once more.
    PeriodTwice,
    /// A full ring drops without a word.
    LostUntold,
    /// The frames found are kept over the return to user space.
    StaleCache,
    /// The cookie is kept over the return to user space.
    CookieReused,
    /// A handler and its context are replaced one after the other.
    HalfReplacedHandler,
    /// The walk from a mark drops `sp < first_frame` and not `sp <= first_frame`.
    SkipLess,
    /// Branch records are not restored at a switch.
    WipeAtSwitch,
    /// Memory for branch records is freed while a switch on another CPU uses it.
    UseAfterFree,
    /// Memory for branch records is freed by who closes the event and by the task's end.
    DoubleFree,
    /// A task's end leaves its memory for branch records.
    LeakAtExit,
    /// Branch records are saved and restored only where a switch changes the cgroup.
    SaveAtCgroupSwitch,
    /// Contexts change hands at a switch without the branch records in them.
    SwapWithoutData,
    /// Branch records count as still in the ring though others were saved since.
    SkipWithoutLogId,
    /// Linux 7.2 as it is: whoever restores branch records does not forget whose were saved from
    /// the ring last. All else here has this mended.
    Linux,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::SharedBuffer,
        Self::PeriodTwice,
        Self::LostUntold,
        Self::StaleCache,
        Self::CookieReused,
        Self::HalfReplacedHandler,
        Self::SkipLess,
        Self::WipeAtSwitch,
        Self::UseAfterFree,
        Self::DoubleFree,
        Self::LeakAtExit,
        Self::SaveAtCgroupSwitch,
        Self::SwapWithoutData,
        Self::SkipWithoutLogId,
        Self::Linux,
    ];

    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SharedBuffer => "shared-buffer",
            Self::PeriodTwice => "period-twice",
            Self::LostUntold => "lost-untold",
            Self::StaleCache => "stale-cache",
            Self::CookieReused => "cookie-reused",
            Self::HalfReplacedHandler => "half-replaced-handler",
            Self::SkipLess => "skip-less",
            Self::WipeAtSwitch => "wipe-at-switch",
            Self::UseAfterFree => "use-after-free",
            Self::DoubleFree => "double-free",
            Self::LeakAtExit => "leak-at-exit",
            Self::SaveAtCgroupSwitch => "save-at-cgroup-switch",
            Self::SwapWithoutData => "swap-without-data",
            Self::SkipWithoutLogId => "skip-without-log-id",
            Self::Linux => "linux",
        }
    }

    /// The defect of how branch records are kept that it is, if it is one.
    pub(super) const fn of_branches(self) -> Option<Mutation> {
        Some(match self {
            Self::WipeAtSwitch => Mutation::WipeAtSwitch,
            Self::UseAfterFree => Mutation::FreeAtOnce,
            Self::DoubleFree => Mutation::FreeTwice,
            Self::LeakAtExit => Mutation::LeakAtExit,
            Self::SaveAtCgroupSwitch => Mutation::SaveAtCgroupSwitch,
            Self::SwapWithoutData => Mutation::SwapWithoutData,
            Self::SkipWithoutLogId => Mutation::SkipWithoutLogId,
            Self::Linux => Mutation::None,
            _ => return None,
        })
    }

    /// The mutant of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.as_str() == name)
    }
}
