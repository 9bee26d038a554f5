//! Random programs that test the verification itself.
//!
//! A seed gives a program without libc: a call graph, kinds of frames, signals, and an unwind table
//! that is right at every instruction, because the generator knows the layout that every
//! instruction leaves. `verify` must find nothing in it. Then one defect is injected into the
//! table, and `verify` must find it at exactly those executed instructions where the generator's
//! own evaluation of the rows gives a wrong result.

mod asm;
mod build;
mod case;
mod cfi;
mod code;
pub mod defect;
mod elf;
mod numbers;
pub mod program;
pub mod row;
mod shrink;
mod trial;
mod watch;

pub use defect::DefectKind;
pub use program::RandomProgram;
pub use shrink::shrink;
pub use trial::{DefectOutcome, TrialCounts, TrialError, Verifier};
