//! Deliberate defects of the model, which show that the rules find them.

use unwind_sim_perf_lbr::Mutation;

/// A deliberate defect of the model, which the oracle must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The deferred unwind writes into the CPU's callchain buffer of task context.
    SharedBuffer,
    /// The record with the user frames repeats the last period.
    PeriodTwice,
    /// A full ring drops records without counting them.
    LostUntold,
    /// The cached frames survive the return to user space.
    StaleCache,
    /// The cookie survives the return to user space.
    CookieReused,
    /// A handler and its context are replaced one after the other.
    HalfReplacedHandler,
    /// The walk from a mark drops frames with `sp < first_frame` instead of `sp <= first_frame`.
    SkipLess,
    /// Branch records are not restored at a switch.
    WipeAtSwitch,
    /// Memory for branch records is freed while a switch on another CPU uses it.
    UseAfterFree,
    /// Memory for branch records is freed both when the event is closed and when the task exits.
    DoubleFree,
    /// A task that exits leaks its memory for branch records.
    LeakAtExit,
    /// Branch records are saved and restored only where a switch changes the cgroup.
    SaveAtCgroupSwitch,
    /// Contexts change hands at a switch without the branch records in them.
    SwapWithoutData,
    /// Branch records are assumed to be in the ring still, though others were saved since.
    SkipWithoutLogId,
    /// Linux 7.2 as it is: restoring branch records does not reset whose records were saved from
    /// the ring last. Everywhere else in the model this is fixed.
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

    /// The corresponding defect of branch records, if it is one of those.
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

    /// The mutant with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.as_str() == name)
    }
}
