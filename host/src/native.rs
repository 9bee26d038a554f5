//! Single instructions on the processor of this machine: what goes in, and what comes out.
//!
//! The processor is the authority that an emulator is held against. [`Native::run`] executes a
//! batch of cases, each one instruction with the registers, flags, x87 and SSE state and memory
//! that it is to find, in a process that can do nothing but that (see `setup.rs`).
//!
//! # Memory
//!
//! The child's memory lies at the same addresses everywhere, so that an emulator can have the
//! same: instructions at [`Native::place`], inside [`CODE_RANGE`] (readable and executable, the
//! rest of it `int3`), and one page for data, [`WINDOW_PAGE`] (readable and writable). The last
//! [`WINDOW_SIZE`] bytes of that page are the window, which a case fills and gets back; the rest
//! of it is zero. Nothing is mapped beside either. The child needs more memory of its own between
//! 0x1000_0000 and 0x1300_0000, in which a case must not meddle: then results are wrong, but no
//! harm is done. FS and GS have base 0.
//!
//! # What cannot be had
//!
//! - System calls end in SIGSYS. `cpuid`, `rdtsc` and the like say what this machine says.
//! - `wrfsbase`, `wrgsbase` and `wrpkru` work but are not undone for the next case. Neither are
//!   the upper halves of AVX-512's registers 16 to 31 and its masks; those of YMM0 to YMM15 are
//!   zero before each case that loads the SSE state.
//! - TF cannot be set in a case. It is set anyway in [`Mode::Step`], so `pushf` pushes it there.

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
pub use layout::{CODE_RANGE, WINDOW, WINDOW_PAGE, WINDOW_SIZE};
pub use process::Native;

/// The longest instruction, bytes (Intel SDM volume 2, section 2.3.11).
pub const CODE_MAX: usize = 15;

/// The registers and memory that an instruction finds, or leaves.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeState {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: the order of their encoding.
    pub gpr: [u64; 16],
    /// Before: not read, it is [`Native::place`] of the case's index. After: exact in
    /// [`Mode::Step`] and after signals; else the address behind the instruction.
    pub rip: u64,
    /// Before: the status flags, DF, NT, AC and ID; the others are not read. After: with IF,
    /// which is always set, and without RF and, in [`Mode::Step`], TF.
    pub rflags: u64,
    /// The x87 and SSE state as FXSAVE64 stores it (Intel SDM volume 1, section 10.5.1). The
    /// bytes behind XMM15 are neither loaded nor stored.
    pub fx: [u8; 512],
    /// The memory at [`WINDOW`].
    pub window: [u8; WINDOW_SIZE],
}

impl Default for NativeState {
    /// All registers and memory are zero; x87 and SSE are as after a reset: no exception is
    /// enabled, 64-bit precision.
    fn default() -> NativeState {
        let mut fx = [0; 512];
        fx[..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        fx[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        NativeState {
            gpr: [0; 16],
            rip: 0,
            rflags: 2,
            fx,
            window: [0; WINDOW_SIZE],
        }
    }
}

/// How an instruction is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Between two jumps. The x87 and SSE state is whatever it is, and is not compared. For
    /// instructions that do not transfer control and do not write TF.
    Plain,
    /// As `Plain`, with the x87 and SSE state.
    Fx,
    /// One single step, ended by a signal: slow, but right for control transfers. With the x87
    /// and SSE state. Of a repeated string instruction it is one iteration.
    Step,
}

/// One instruction, and what it finds.
#[derive(Clone, Copy, Debug)]
pub struct NativeCase {
    /// The bytes of the instruction.
    pub code: [u8; CODE_MAX],
    /// How many of them: 1 to [`CODE_MAX`].
    pub code_len: u8,
    /// How it is executed.
    pub mode: Mode,
    /// Does it use memory? Without, `state.window` is neither loaded nor stored, which is
    /// faster, and what the instruction finds in the window is left from an earlier case.
    pub memory: bool,
    /// What it finds.
    pub state: NativeState,
}

impl NativeCase {
    /// A case that uses memory, in the default state. Code that is too long makes
    /// [`Native::run`] fail.
    pub fn new(mode: Mode, code: &[u8]) -> NativeCase {
        let mut case = NativeCase {
            code: [0; CODE_MAX],
            code_len: code.len().min(usize::from(u8::MAX)) as u8,
            mode,
            memory: true,
            state: NativeState::default(),
        };
        for (to, from) in case.code.iter_mut().zip(code) {
            *to = *from;
        }
        case
    }
}

/// How an instruction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was executed.
    Done,
    /// It raised a signal. The state is that of the signal's context.
    Signal {
        /// SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP or SIGSYS.
        signal: i32,
        /// `si_code`.
        code: i32,
        /// The number of the exception: 14 is a page fault.
        trapno: u64,
        /// The error code that the processor pushed, or 0.
        error_code: u64,
        /// `si_addr`: the address that could not be accessed, if there is one.
        address: u64,
    },
    /// It was not over after 10 to 20 ms of the processor. The state is that of some moment.
    Hung,
    /// It ended the child, twice. The state is that before.
    Killed {
        /// The signal that ended the child.
        signal: i32,
    },
}
