//! `lockstep`: runs a program in the emulated machine and on this computer's processor, and
//! compares registers, flags and memory after every instruction.
//!
//! The machine leads. The processor works in a process whose memory and registers are copied from
//! the machine (`follow`). Where the two may rightly differ, the process gets the machine's result:
//! system calls and signals, which the machine's kernel handles, `cpuid`, clocks. Nothing else of
//! the host enters the process, so that each instruction has the same operands on both sides. Where
//! the manual leaves a result undefined, the machine takes the processor's, so that the difference
//! does not spread (`insn`, `step`).
//!
//! Compared are: general registers, rip, flags and the fs and gs bases after each instruction; the
//! memory it stored to, by its operands and by what the machine did; x87, SSE and AVX registers
//! after each instruction that may change them, and all of them at intervals; all memory at intervals and
//! at the end; that both sides raise a fault at the same instruction for the same address.

mod difference;
mod follow;
mod insn;
mod run;
mod step;
#[cfg(test)]
mod tests;

pub use difference::{Difference, Memory, Side};
pub use run::{LockstepError, Request, Run, run};
pub use unwind_sim_emulator_native::stepper::Cpu;
