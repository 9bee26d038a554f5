//! The rules that every run must keep.

/// A rule that must hold of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A record's frames are those of its thread's user stack.
    OwnStack,
    /// The chain in a sample is what the world had there.
    OwnChain,
    /// The sum of periods equals the events counted.
    Periods,
    /// What found no room is told.
    LossTold,
    /// A handler is called with its own context, where it is in place and nowhere else.
    WholeHandler,
    /// A cookie names one stay of one thread.
    Cookie,
    /// Every request gets its record.
    Answered,
    /// Every sample is written once, lost or dropped.
    Fate,
    /// A sample is stitched to its own user stack, or the reason is told.
    Stitched,
    /// A program sees its sample's thread, CPU, time, registers, period and stack, and runs alone.
    Program,
    /// The timers' tracepoint sees what becomes a sample and what the filters keep out.
    Traced,
    /// A sample's branch records are its thread's own, and those nearest to its leaf.
    OwnBranches,
    /// Where tasks have room for them, no switch takes branch records away.
    WholeBranches,
    /// Memory for branch records is there while it is used, is freed once, and none is left.
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

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, nanoseconds.
    pub time: u64,
    /// What was found.
    pub what: String,
}
