//! Why a chain is not judged.

use crate::ground::Ending;
use std::fmt;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::truth::Truth;
use unwind_sim_unwind::verdict::Verdict;

/// Why a chain is not judged, or not up to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unjudged {
    /// The recording has no truth.
    NoTruth,
    /// The truth ends before the root.
    TruthToDepth,
    /// The proof goes no further, and why.
    ProofEnded(Ending),
    /// The start skips every known frame.
    AllSkipped,
    /// The reference walk ended with this code, before any root.
    ReferenceEnded(Code),
    /// perf recorded no user chain for this sample.
    NoChain,
    /// perf recorded no kernel chain for this sample, or it was in user space.
    NoKernelChain,
    /// perf's chain is right as far as it goes, but does not say whether it ended at a root.
    ChainWithoutEnd,
    /// perf's chain has as many addresses as the kernel stores.
    ChainCut,
    /// The recorded kernel guessed its chain, which proves nothing to another unwinder.
    GuessedByKernel,
    /// The kernel recorded nothing for this unwinder.
    NotRecorded,
    /// The unwinder's time for all its answers is over.
    OutOfTime,
}

impl Unjudged {
    /// Why `verdict`, given the frames of `truth` from index `from` on, is not a judgement.
    pub fn by_truth(verdict: Verdict, truth: &Truth, from: usize) -> Option<Unjudged> {
        let why = match truth {
            Truth::Unknown => Unjudged::NoTruth,
            truth if from >= truth.frames().len() => Unjudged::AllSkipped,
            Truth::Known(_) | Truth::Complete(_) => Unjudged::TruthToDepth,
        };
        (verdict == Verdict::Unjudged).then_some(why)
    }

    /// The stable name, for JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unjudged::NoTruth => "no-truth",
            Unjudged::TruthToDepth => "truth-to-depth",
            Unjudged::ProofEnded(_) => "proof-ended",
            Unjudged::AllSkipped => "all-skipped",
            Unjudged::ReferenceEnded(_) => "reference-ended",
            Unjudged::NoChain => "no-chain",
            Unjudged::NoKernelChain => "no-kernel-chain",
            Unjudged::ChainWithoutEnd => "chain-without-end",
            Unjudged::ChainCut => "chain-cut",
            Unjudged::GuessedByKernel => "guessed-by-kernel",
            Unjudged::NotRecorded => "not-recorded",
            Unjudged::OutOfTime => "out-of-time",
        }
    }

    /// The code with which the reference walk ended.
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
            Unjudged::ProofEnded(ending) => return write!(f, "the proof ends: {ending}"),
            Unjudged::AllSkipped => "the start skips every known frame",
            Unjudged::ReferenceEnded(code) => {
                return write!(f, "the reference ended with {code} {}", code.description());
            }
            Unjudged::NoChain => "perf recorded no user chain",
            Unjudged::NoKernelChain => "perf recorded no kernel chain",
            Unjudged::ChainWithoutEnd => "perf's chain does not say whether it ended at a root",
            Unjudged::ChainCut => "perf's chain may have been cut at its limit",
            Unjudged::GuessedByKernel => "the recorded kernel guesses, and this unwinder does not",
            Unjudged::NotRecorded => "the kernel recorded nothing for this unwinder",
            Unjudged::OutOfTime => "the unwinder's time for all its answers is over",
        })
    }
}
