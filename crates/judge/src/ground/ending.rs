//! Why a proven chain ends.

use std::fmt;
use unwind_sim_tables::ground::NoProof;
use unwind_sim_unwind::reason::{Code, Reason};

/// Why a proven chain ends before the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// No rule is proven at the last frame.
    Code(NoProof),
    /// Nothing is mapped there, or it is not code: a return address in data, a JIT's memory that
    /// was not recorded, or the page with which the kernel replaces return addresses (uretprobes).
    NotCode,
    /// There is code, but no file with it was found.
    NoFile,
    /// The frame lies in memory that a program wrote code into: it has no table.
    Jit,
    /// The proven rule needs a word or a register that the recording does not have.
    NotRecorded(Code),
    /// The registers of the sample are incomplete, or they are not those of user code.
    NoStart,
    /// The registers are not those of the sampled instruction, but of after it.
    AfterInstruction,
    /// The chain has as many frames as are followed, or the stack does not advance.
    Limit,
}

impl Ending {
    /// The ending for a rule that could not be applied.
    pub(super) fn of_rule(reason: &Reason) -> Ending {
        match reason {
            Reason::NotAtRoot => Ending::NotCode,
            reason => Ending::NotRecorded(reason.code()),
        }
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Ending::Code(why) => why.as_str(),
            Ending::NotCode => "not-code",
            Ending::NoFile => "no-file",
            Ending::Jit => "jit",
            Ending::NotRecorded(_) => "not-recorded",
            Ending::NoStart => "no-start",
            Ending::AfterInstruction => "after-instruction",
            Ending::Limit => "frame-limit",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Code(why) => why.description(),
            Ending::NotCode => "the return address is not in code that is known",
            Ending::NoFile => "the file with the code was not found",
            Ending::Jit => "generated code, which has no file",
            Ending::NotRecorded(code) => {
                return write!(f, "a word or register is not recorded ({code})");
            }
            Ending::NoStart => "the sample has no registers of user code",
            Ending::AfterInstruction => "the registers are those of after the sampled instruction",
            Ending::Limit => "as many frames as are followed",
        })
    }
}
