//! Random programs that prove the verification itself.
//!
//! A seed gives a program without a libc: a call graph, ways to keep a frame, signals, and an
//! unwind table that is right at every instruction, because the generator knows the layout that
//! every instruction leaves behind. `verify` has to find nothing in it. Then one defect is put
//! into the table, and `verify` has to find it at just those executed instructions at which the
//! generator's own evaluation of the rows says that it is wrong.

mod asm;
mod build;
mod case;
mod cfi;
mod code;
pub mod defect;
mod elf;
pub mod program;
mod rng;
pub mod row;
mod shrink;
mod trial;
mod watch;

pub use defect::DefectKind;
pub use program::RandomProgram;
pub use shrink::shrink;
pub use trial::{Bench, Fate, Problem, Tried};
