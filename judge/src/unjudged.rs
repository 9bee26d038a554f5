//! Why a chain is not judged.

use std::fmt;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::truth::Truth;
use unwind_sim_unwind::verdict::Verdict;

/// Why a chain is not judged, or not to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unjudged {
    /// The recording has no truth.
    NoTruth,
    /// The truth ends before the root.
    TruthToDepth,
    /// The start skips every frame that is known.
    AllSkipped,
    /// The walk that stands for the truth ended so, before any root.
    ReferenceEnded(Code),
    /// perf recorded no user chain of this sample.
    NoChain,
    /// perf's chain is all right, and does not say whether it ended at a root.
    ChainWithoutEnd,
    /// perf's chain has as many addresses as the kernel stores.
    ChainCut,
    /// The kernel recorded nothing of this unwinder.
    NotRecorded,
}

impl Unjudged {
    /// Why `verdict`, by the frames of `truth` from index `from` on, is none.
    pub fn by_truth(verdict: Verdict, truth: &Truth, from: usize) -> Option<Unjudged> {
        let why = match truth {
            Truth::Unknown => Unjudged::NoTruth,
            truth if from >= truth.frames().len() => Unjudged::AllSkipped,
            Truth::Known(_) | Truth::Complete(_) => Unjudged::TruthToDepth,
        };
        (verdict == Verdict::Unjudged).then_some(why)
    }

    /// The stable word, for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unjudged::NoTruth => "no-truth",
            Unjudged::TruthToDepth => "truth-to-depth",
            Unjudged::AllSkipped => "all-skipped",
            Unjudged::ReferenceEnded(_) => "reference-ended",
            Unjudged::NoChain => "no-chain",
            Unjudged::ChainWithoutEnd => "chain-without-end",
            Unjudged::ChainCut => "chain-cut",
            Unjudged::NotRecorded => "not-recorded",
        }
    }

    /// How the reference ended.
    pub const fn code(self) -> Option<Code> {
        match self {
            Unjudged::ReferenceEnded(code) => Some(code),
            _ => None,
        }
    }
}

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unjudged::NoTruth => "no truth was recorded",
            Unjudged::TruthToDepth => "the truth is known only to a depth",
            Unjudged::AllSkipped => "the start skips every frame that is known",
            Unjudged::ReferenceEnded(code) => {
                return write!(f, "the reference ended with {code} {}", code.description());
            }
            Unjudged::NoChain => "perf recorded no user chain",
            Unjudged::ChainWithoutEnd => "perf's chain does not say whether it ended at a root",
            Unjudged::ChainCut => "perf's chain may have been cut at its limit",
            Unjudged::NotRecorded => "the kernel recorded nothing of this unwinder",
        })
    }
}
