//! The rules that hold for every run.

/// A rule that must hold for every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A record's frames are those of its thread's user stack.
    OwnStack,
    /// The chain in a sample is the one that the world had there.
    OwnChain,
    /// The sum of periods equals the events counted.
    Periods,
    /// Records that did not fit are counted.
    LossTold,
    /// A handler is called with its own context, where it is installed and nowhere else.
    WholeHandler,
    /// A cookie belongs to one stay of one thread in the kernel.
    Cookie,
    /// Every request gets its record.
    Answered,
    /// Every sample is written once, lost or dropped.
    Fate,
    /// A sample is stitched to its own user stack, or has a reason why not.
    Stitched,
    /// A program sees its sample's thread, CPU, time, registers, period and stack, and runs alone.
    Program,
    /// The timers' tracepoint sees the overflows that become samples and those that are filtered.
    Traced,
    /// A sample's branch records are its thread's own, and those nearest to its leaf.
    OwnBranches,
    /// If tasks have memory for them, branch records survive every switch.
    WholeBranches,
    /// Memory for branch records exists while it is used, is freed once, and is never leaked.
    BranchMemory,
}

impl Rule {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OwnStack => "own-stack",
            Self::OwnChain => "own-chain",
            Self::Periods => "periods",
            Self::LossTold => "loss-told",
            Self::WholeHandler => "whole-handler",
            Self::Cookie => "cookie",
            Self::Answered => "answered",
            Self::Fate => "fate",
            Self::Stitched => "stitched",
            Self::Program => "program",
            Self::Traced => "traced",
            Self::OwnBranches => "own-branches",
            Self::WholeBranches => "whole-branches",
            Self::BranchMemory => "branch-memory",
        }
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Time, nanoseconds.
    pub time: u64,
    /// What was found.
    pub what: String,
}
