//! Executes single instructions on this machine's processor.
//!
//! The processor is the reference for an emulator. [`Native::run`] executes a batch of cases in a
//! process that can do nothing else (see `setup.rs`). A case is one instruction with the registers,
//! flags, x87, SSE and AVX state and memory that it starts from.
//!
//! # Memory
//!
//! The child's memory always lies at the same addresses, so that an emulator can use the same ones:
//! instructions at [`Native::place`], inside [`CODE_RANGE`] (readable and executable, otherwise
//! filled with `int3`), and one page for data, [`WINDOW_PAGE`] (readable and writable). The last
//! [`WINDOW_SIZE`] bytes of that page are the window, which a case fills and gets back; the rest of
//! the page is zero. The pages next to both are not mapped. The child keeps its own memory between
//! 0x1000_0000 and 0x1300_0000. A case that writes there gets wrong results, but does no harm. FS
//! and GS have base 0.
//!
//! # Limitations
//!
//! - System calls end in SIGSYS. `cpuid`, `rdtsc` and the like return this machine's values.
//! - `wrfsbase`, `wrgsbase` and `wrpkru` work but are not undone for the next case. Neither is what
//!   AVX-512 adds to YMM0 to YMM15.
//! - [`Mode::Fx`] clears the upper halves of YMM0 to YMM15 and does not return them. [`Mode::Avx`]
//!   sets and returns them, and needs a processor with AVX ([`Native::has_avx`]).
//! - A case cannot set TF. [`Mode::Step`] sets it, so `pushf` pushes it there.

mod driver;
mod error;
mod image;
mod layout;
mod process;
mod setup;
mod shared;
#[cfg(test)]
mod tests;

pub use error::NativeError;
pub use layout::{CODE_RANGE, MIDDLE_PAGES, MIDDLE_WINDOW, WINDOW, WINDOW_PAGE, WINDOW_SIZE};
pub use process::Native;

use crate::extended::Extended;

/// Maximum length of an instruction in bytes (Intel SDM volume 2).
pub const CODE_MAX: usize = 15;

/// The registers and memory before or after an instruction.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeState {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: the order of their encoding.
    pub gpr: [u64; 16],
    /// Before: ignored; it is [`Native::place`] of the case's index. After: exact in [`Mode::Step`]
    /// and after signals; otherwise the address after the instruction.
    pub rip: u64,
    /// Before: the status flags, DF, NT, AC and ID; other bits are ignored. After: with IF, which
    /// is always set, and without RF and, in [`Mode::Step`], TF.
    pub rflags: u64,
    /// The x87, SSE and AVX registers. The bytes of `legacy` after XMM15 are neither loaded nor
    /// stored, nor is `upper` in [`Mode::Fx`].
    pub fx: Extended,
    /// The memory at [`NativeCase::window`].
    pub window: [u8; WINDOW_SIZE],
}

impl Default for NativeState {
    /// All registers and memory are zero; x87, SSE and AVX are as after a reset.
    fn default() -> NativeState {
        NativeState {
            gpr: [0; 16],
            rip: 0,
            rflags: 2,
            fx: Extended::default(),
            window: [0; WINDOW_SIZE],
        }
    }
}

/// How an instruction is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Between two jumps. The x87, SSE and AVX state is arbitrary, and not returned. For
    /// instructions that do not transfer control and do not write TF.
    Plain,
    /// Like `Plain`, with the x87 and SSE state.
    Fx,
    /// Like `Fx`, with the AVX state. Slower.
    Avx,
    /// One single step, ended by a signal: slow, but right for control transfers. With the x87 and
    /// SSE state and, where there is AVX, its state. A repeated string instruction executes one
    /// iteration.
    Step,
}

/// One instruction and the state it starts from.
#[derive(Clone, Copy, Debug)]
pub struct NativeCase {
    /// The bytes of the instruction.
    pub code: [u8; CODE_MAX],
    /// Length of the instruction: 1 to [`CODE_MAX`].
    pub code_len: u8,
    /// How it is executed.
    pub mode: Mode,
    /// Whether the instruction uses memory. If not, `state.window` is neither loaded nor stored,
    /// which is faster, and the window holds what an earlier case left.
    pub memory: bool,
    /// Whether the window lies over the boundary between two pages, at [`MIDDLE_WINDOW`], instead of
    /// at the end of a page.
    pub middle: bool,
    /// The state before the instruction.
    pub state: NativeState,
}

impl NativeCase {
    /// A case that uses memory, in the default state. [`Native::run`] rejects code that is too
    /// long.
    pub fn new(mode: Mode, code: &[u8]) -> NativeCase {
        let mut case = NativeCase {
            code: [0; CODE_MAX],
            code_len: code.len().min(usize::from(u8::MAX)) as u8,
            mode,
            memory: true,
            middle: false,
            state: NativeState::default(),
        };
        for (to, from) in case.code.iter_mut().zip(code) {
            *to = *from;
        }
        case
    }

    /// Address of the window.
    pub const fn window(&self) -> u64 {
        if self.middle { MIDDLE_WINDOW } else { WINDOW }
    }
}

/// How an instruction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It completed.
    Done,
    /// It raised a signal. The state is that of the signal's context.
    Signal {
        /// SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP or SIGSYS.
        signal: i32,
        /// `si_code`.
        code: i32,
        /// The exception's number; 14 is a page fault.
        trapno: u64,
        /// The error code that the processor pushed, or 0.
        error_code: u64,
        /// `si_addr`: the address that could not be accessed, if any.
        address: u64,
    },
    /// It did not finish within 10 to 20 ms of processor time. The state is from an arbitrary
    /// moment.
    Hung,
    /// It ended the child, twice. The state is the one before the instruction.
    Killed {
        /// The signal that ended the child.
        signal: i32,
    },
}
