//! `lockstep`: a program runs in the emulated machine and on the processor of this computer, and
//! after every instruction both must have the same registers, flags and memory.
//!
//! The machine leads. The processor works in a process that has nothing but what the machine has:
//! memory and registers are put into it (`follow`). Where the two may differ by right, it is told
//! what the machine did: system calls and signals, which the machine's kernel answers, `cpuid`,
//! clocks. Nothing else of the host gets in, so that each instruction has the same operands on
//! both sides. What the manual leaves open becomes what the processor made of it, so that it does
//! not spread (`insn`,
//! `step`).
//!
//! Compared are: general registers, rip, flags and the bases of fs and gs after each instruction;
//! what it stored, by its operands and by what the machine did; x87 and SSE registers after each
//! instruction that may change them, and all now and then; all of memory now and then and at the
//! end; that a fault is raised on both sides by the same instruction for the same address.

mod difference;
mod follow;
mod insn;
mod lines;
mod run;
mod step;
#[cfg(test)]
mod tests;

pub use difference::{Difference, Memory, Side};
pub use lines::lines;
pub use run::{LockstepError, Request, Run, run};
