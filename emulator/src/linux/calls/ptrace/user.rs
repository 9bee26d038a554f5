//! `ptrace`: general registers, as `struct user_regs_struct`, and the other words of `struct user`.
//!
//! A call that was interrupted is made again when its thread goes on and no handler runs. Linux keeps this in the
//! registers: rax is the negative number of an error that programs never see, `orig_rax` that of the call. The machine
//! keeps it beside them; a tracer sees and sets it as on Linux.
//!
//! Source: Linux 6.12 `arch/x86/kernel/ptrace.c`, `arch/x86/include/asm/user_64.h`.

use crate::address_space::TASK_SIZE;
use crate::flags;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::task::Task;
use crate::linux::tracing::Phase;
use crate::state::{State, reg};

/// The number of words in `struct user_regs_struct`.
pub(super) const REGISTERS: usize = 27;
/// Places in it.
pub(super) const RAX: usize = 10;
pub(super) const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const EFLAGS: usize = 18;
const RSP: usize = 19;
const SS: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;
const DS: usize = 23;
/// The general registers that come first.
const GENERAL: [usize; 15] = [
    15,
    14,
    13,
    12,
    reg::RBP,
    reg::RBX,
    11,
    10,
    9,
    8,
    reg::RAX,
    reg::RCX,
    reg::RDX,
    reg::RSI,
    reg::RDI,
];
/// The numbers of the segments cs, ss, ds, es, fs and gs in [`State`], and their places.
const SEGMENTS: [(usize, usize); 6] = [(CS, 1), (SS, 2), (DS, 3), (24, 0), (25, 4), (26, 5)];
/// The selectors of a 64-bit process.
const CODE: u64 = 0x33;
const DATA: u64 = 0x2b;
/// Size of the kernel's `struct user`, bytes.
const USER: u64 = 928;
/// Where it has the debug registers.
const DEBUG: u64 = 848;
/// The bits of debug register 6 that are set when nothing has happened (`DR6_RESERVED`).
const DR6_RESERVED: u64 = 0xffff_0ff0;
/// The bits of debug register 7 that enable one of the others.
const DR7_ENABLED: u64 = 0xff;
/// Flags that a tracer may set (`FLAG_MASK`).
const SETTABLE: u64 = flags::ARITHMETIC | flags::TF | flags::DF | flags::RF | flags::NT | flags::AC;
/// A call with the negative number of one of these in rax was interrupted.
const RESTARTS: [Errno; 3] = [
    Errno::ERESTARTSYS,
    Errno::ERESTARTNOHAND,
    Errno::ERESTART_RESTARTBLOCK,
];

impl Kernel {
    /// The registers of a thread, as its tracer sees them.
    pub(super) fn registers_of(&mut self, task: Task) -> Answer<[u64; REGISTERS]> {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let (state, thread) = (tracee.state, tracee.thread);

        let mut words = [0; REGISTERS];
        for (word, register) in words.iter_mut().zip(GENERAL) {
            *word = state.gpr(register);
        }
        words[ORIG_RAX] = thread.last_call;

        // Until it is decided, a call that may be restarted shows its restart code.
        if let Some((number, errno)) = tracee.signals.restart {
            (words[RAX], words[ORIG_RAX]) = (errno.to_rax(), number);
        }

        let is_forced = thread
            .traced
            .as_ref()
            .is_some_and(|traced| traced.forced_tf);
        // TF that is set for PTRACE_SINGLESTEP is hidden (`get_flags`).
        let hidden = if is_forced { flags::TF } else { 0 };

        words[RIP] = state.rip;
        words[EFLAGS] = state.rflags() & !hidden;
        words[RSP] = state.gpr(reg::RSP);
        words[FS_BASE] = state.gpr(reg::FS);
        words[GS_BASE] = state.gpr(reg::GS);

        for (at, number) in SEGMENTS {
            words[at] = state.segments[number].into();
        }
        Ok(words)
    }

    /// Sets the registers of a thread, the first ones first.
    ///
    /// # Errors
    /// `EIO` at the first one that cannot be; those before it are set.
    pub(super) fn put_registers(&mut self, task: Task, first: usize, new: &[u64]) -> Answer<()> {
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let before = tracee.state.preserved_at(tracee.state.rip);
        let mut result = Ok(());
        let mut is_odd = false;

        for (at, &word) in (first..).zip(new) {
            match at {
                // Below, together with rax.
                ORIG_RAX => {}
                RIP => tracee.state.rip = word,
                EFLAGS => {
                    // `set_flags`: a tracer sets only these.
                    let kept = tracee.state.rflags() & !SETTABLE;
                    tracee.state.set_rflags(kept | word & SETTABLE);
                }
                RSP => tracee.state.set_gpr(reg::RSP, word),
                // Addresses of the kernel are refused (`putreg`).
                FS_BASE | GS_BASE if word >= TASK_SIZE => result = Err(Errno::EIO),
                FS_BASE => tracee.state.set_gpr(reg::FS, word),
                GS_BASE => tracee.state.set_gpr(reg::GS, word),
                at if at < ORIG_RAX => tracee.state.set_gpr(GENERAL[at], word),
                at => match set_segment(tracee.state, at, word as u16) {
                    Segment::Set => {}
                    Segment::Wrong => result = Err(Errno::EIO),
                    Segment::Odd => (result, is_odd) = (Err(Errno::EIO), true),
                },
            }
            if result.is_err() {
                break;
            }
        }

        let given = |at: usize| at.checked_sub(first).and_then(|at| new.get(at)).copied();
        self.set_call(task, given(RAX), given(ORIG_RAX));
        // The observer learns that the stack may be another one now.
        self.disturbed_registers(task, &before);

        if is_odd {
            self.not_modelled("ptrace: segments of other programs", Errno::EIO)
        } else {
            result
        }
    }

    /// Follows what a tracer sets of the call that a thread has made, and of whether it is made again.
    fn set_call(&mut self, task: Task, rax: Option<u64>, orig_rax: Option<u64>) {
        let Some(tracee) = self.tracee(task) else {
            return;
        };

        let restart = tracee.signals.restart;
        let was = restart.map_or(tracee.thread.last_call, |(number, _)| number);
        let number = orig_rax.unwrap_or(was);
        tracee.thread.last_call = number;

        // The call has no result yet that could be changed.
        if matches!(tracee.thread.phase, Phase::Entering | Phase::Filtered) {
            return;
        }

        let shown = rax.or(restart.map(|(_, errno)| errno.to_rax()));
        let errno = RESTARTS
            .into_iter()
            .find(|errno| Some(errno.to_rax()) == shown);
        // A number of -1 means that the thread is not in a call, so nothing restarts
        // (`syscall_get_nr`).
        let errno = errno.filter(|_| number as i32 != -1);
        tracee.signals.restart = errno.map(|errno| (number, errno));
        if errno.is_none() {
            tracee.thread.sleep_end = None;
        }

        match (errno, restart) {
            // As the call returns if a handler runs.
            (Some(_), _) => tracee.state.set_gpr(reg::RAX, Errno::EINTR.to_rax()),
            (None, Some((_, errno))) if rax.is_none() => {
                tracee.state.set_gpr(reg::RAX, errno.to_rax());
            }
            _ => {}
        }
    }

    pub(super) fn get_registers(&mut self, task: Task, to: u64) -> Answer {
        let words = self.registers_of(task)?;
        self.put_words(to, &words)?;
        Ok(0)
    }

    pub(super) fn set_registers(&mut self, task: Task, from: u64) -> Answer {
        let bytes = self.bytes::<{ REGISTERS * 8 }>(from)?;
        self.put_registers(task, 0, &words(&bytes))?;
        Ok(0)
    }

    /// `PTRACE_PEEKUSER`.
    pub(super) fn peek_user(&mut self, task: Task, at: u64, to: u64) -> Answer {
        if !at.is_multiple_of(8) || at >= USER {
            return Err(Errno::EIO);
        }
        let registers = self.registers_of(task)?;
        let debug = self.traced(task)?.debug;
        let word = match (at / 8) as usize {
            word if word < REGISTERS => registers[word],
            _ if at == DEBUG + 6 * 8 => debug[0] ^ DR6_RESERVED,
            _ if at == DEBUG + 7 * 8 => debug[1],
            _ => 0,
        };
        self.put_u64(to, word)?;
        Ok(0)
    }

    /// `PTRACE_POKEUSER`.
    pub(super) fn poke_user(&mut self, task: Task, at: u64, word: u64) -> Answer {
        // A word of `struct user` (`arch_ptrace`).
        if !at.is_multiple_of(8) || at >= USER {
            return Err(Errno::EIO);
        }

        let index = (at / 8) as usize;
        if index < REGISTERS {
            return self.put_registers(task, index, &[word]).map(|()| 0);
        }

        let number = at.checked_sub(DEBUG).map(|at| at / 8);
        match number {
            // As if others had taken all of them: a tracer uses a breakpoint in the code instead.
            Some(0..=3) => self.not_modelled("ptrace: hardware breakpoints", Errno::ENOSPC),
            Some(7) if word & DR7_ENABLED != 0 => {
                self.not_modelled("ptrace: hardware breakpoints", Errno::ENOSPC)
            }
            Some(6) => {
                // Linux keeps DR6 with positive polarity (`ptrace_set_debugreg`).
                self.traced(task)?.debug[0] = word ^ DR6_RESERVED;
                Ok(0)
            }
            Some(7) => {
                self.traced(task)?.debug[1] = word;
                Ok(0)
            }
            _ => Err(Errno::EIO),
        }
    }
}

/// The 64-bit words of an array of bytes.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    let chunks = bytes.chunks_exact(8);
    let word = |chunk: &[u8]| u64::from_le_bytes(std::array::from_fn(|index| chunk[index]));
    chunks.map(word).collect()
}

/// What came of setting a segment register.
enum Segment {
    Set,
    /// There is no such selector.
    Wrong,
    /// It is not one of a 64-bit program.
    Odd,
}

fn set_segment(state: &mut State, at: usize, selector: u16) -> Segment {
    let Some((_, number)) = SEGMENTS.into_iter().find(|(place, _)| *place == at) else {
        return Segment::Wrong;
    };
    let is_null = selector == 0;
    if !is_null && selector & 3 != 3 || is_null && matches!(at, CS | SS) {
        return Segment::Wrong;
    }
    let is_known = match at {
        CS => u64::from(selector) == CODE,
        SS => u64::from(selector) == DATA,
        _ => is_null || u64::from(selector) == DATA,
    };
    if !is_known {
        return Segment::Odd;
    }
    state.segments[number] = selector;
    Segment::Set
}
