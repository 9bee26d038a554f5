//! Pushes the frame of a signal handler, and returns from it.
//!
//! Source: Linux 6.12 `arch/x86/kernel/signal_64.c` (`x64_setup_rt_frame`, `restore_sigcontext`),
//! `arch/x86/kernel/signal.c` (`get_sigframe`), `arch/x86/kernel/fpu/signal.c`,
//! `arch/x86/include/uapi/asm/sigcontext.h`. The layout of `struct rt_sigframe`: return address,
//! `ucontext`, `siginfo`; the FPU state is above it, aligned to 64 bytes.

use crate::flags;
use crate::linux::errno::{Answer, Errno};
use crate::linux::outcome::Why;
use crate::linux::process::Process;
use crate::linux::signals::{
    Action, AlternateStack, Info, SA_ONSTACK, SA_RESTORER, SA_SIGINFO, SIGSEGV, SS_AUTODISARM,
    SS_DISABLE, SS_ONSTACK, Signals,
};
use crate::state::{State, reg};

/// The red zone below rsp (psABI, 3.2.2), bytes.
const RED_ZONE: u64 = 128;
/// `sizeof(struct rt_sigframe)`.
const FRAME: u64 = 8 + UCONTEXT + 128;
/// The kernel's `sizeof(struct ucontext)`.
const UCONTEXT: u64 = 304;
/// Offset of the registers in `struct ucontext`.
const SIGCONTEXT: u64 = 40;
/// Size of the FXSAVE area, bytes.
const FXSAVE: usize = 512;
/// Size with the XSAVE header.
const XSAVE: u64 = FXSAVE as u64 + 64;
/// Size with `FP_XSTATE_MAGIC2` at the end.
const FPU: u64 = XSAVE + 4;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// The components x87 and SSE.
const XFEATURES: u64 = 3;
/// Offset of the software-reserved bytes in the FXSAVE area: magic, sizes, features.
const SOFTWARE: usize = 464;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 7;
const CS: u64 = 0x33;
const SS: u64 = 0x2b;
/// Flags that `rt_sigreturn` restores: AC, OF, DF, TF, SF, ZF, AF, PF, CF, RF.
const RESTORED: u64 = flags::ARITHMETIC | flags::AC | flags::DF | flags::TF | flags::RF;

/// `AT_MINSIGSTKSZ`: size of a frame with all padding (`get_sigframe_size`).
pub(in crate::linux) const SIZE_MAX: u64 = (FRAME + 15 + FPU + 63).next_multiple_of(16);

/// Size of the smallest alternate stack (`MINSIGSTKSZ`).
const ALTERNATE_MIN: u64 = 2048;

/// The general registers in the order of `struct sigcontext`; rip and flags follow.
const REGISTERS: [usize; 16] = [
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    reg::RDI,
    reg::RSI,
    reg::RBP,
    reg::RBX,
    reg::RDX,
    reg::RAX,
    reg::RCX,
    reg::RSP,
];

impl Signals {
    /// `sigaltstack`, with the current rsp.
    pub(in crate::linux) fn set_alternate(&mut self, new: AlternateStack, rsp: u64) -> Answer {
        if self.alternate.holds(rsp) {
            return Err(Errno::EPERM);
        }
        let mode = new.flags & !SS_AUTODISARM;
        self.alternate = match mode {
            SS_DISABLE => AlternateStack::none(SS_DISABLE),
            0 | SS_ONSTACK if new.size < ALTERNATE_MIN.min(SIZE_MAX) => {
                return Err(Errno::ENOMEM);
            }
            0 | SS_ONSTACK => AlternateStack {
                flags: new.flags & SS_AUTODISARM,
                ..new
            },
            _ => return Err(Errno::EINVAL),
        };
        Ok(0)
    }
}

impl Process {
    /// Pushes a frame and enters the handler. `None` if the frame cannot be written or there is no
    /// restorer; then only memory may have changed.
    pub(super) fn push_signal_frame(
        &mut self,
        info: &Info,
        action: &Action,
        old_mask: u64,
    ) -> Option<()> {
        let alternate = self.signals.alternate;
        let state = &mut self.machine.state;
        let rsp = state.gpr(reg::RSP);
        let was_on = alternate.holds(rsp);
        let mut sp = rsp.wrapping_sub(RED_ZONE);
        let mut enters = false;
        if action.flags & SA_ONSTACK != 0 && alternate.size != 0 && !was_on {
            sp = alternate.start.wrapping_add(alternate.size);
            enters = true;
        }
        let fpu = sp.wrapping_sub(FPU) & !63;
        let frame = (fpu.wrapping_sub(FRAME) & !15).wrapping_sub(8);
        if (was_on || enters) && !alternate.contains(frame) {
            return None;
        }
        if action.flags & SA_RESTORER == 0 {
            return None;
        }
        let mut words = vec![action.restorer, UC_FLAGS, 0];
        words.extend([alternate.start, alternate.flags.into(), alternate.size]);
        words.extend(REGISTERS.map(|register| state.gpr(register)));
        words.extend([state.rip, state.rflags(), CS | SS << 48]);
        let [trap, error, address] = self.signals.trap;
        words.extend([error, trap, old_mask, address, fpu]);
        words.extend([0; 8]);
        words.push(old_mask);
        debug_assert_eq!(words.len() as u64 * 8, 8 + UCONTEXT);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if action.flags & SA_SIGINFO != 0 {
            bytes.extend_from_slice(&info.bytes);
        }
        state.memory.write(fpu, &fpu_state(state)).ok()?;
        state.memory.write(frame, &bytes).ok()?;
        state.set_gpr(reg::RDI, info.signal.into());
        state.set_gpr(reg::RAX, 0);
        state.set_gpr(reg::RSI, frame + 8 + UCONTEXT);
        state.set_gpr(reg::RDX, frame + 8);
        state.set_gpr(reg::RSP, frame);
        state.rip = action.handler;
        let cleared = flags::DF | flags::RF | flags::TF;
        state.set_rflags(state.rflags() & !cleared);
        state.reset_fx();
        if alternate.flags & SS_AUTODISARM != 0 {
            self.signals.alternate = AlternateStack::none(SS_DISABLE);
        }
        Some(())
    }

    /// `rt_sigreturn`: returns the interrupted rax.
    pub(in crate::linux) fn sigreturn(&mut self) -> u64 {
        match self.restore_context() {
            Ok(()) => {}
            Err(_) => self.signals.force(Info::forced(SIGSEGV, Why::Return)),
        }
        self.signals.restart = None;
        self.machine.state.gpr(reg::RAX)
    }

    fn restore_context(&mut self) -> Result<(), Errno> {
        // The handler's `ret` has popped the return address.
        let ucontext = self.machine.state.gpr(reg::RSP);
        let context = ucontext.wrapping_add(SIGCONTEXT);
        let mask = self.u64_at(ucontext.wrapping_add(UCONTEXT - 8))?;
        let mut words = [0; 24];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.u64_at(context.wrapping_add(8 * index as u64))?;
        }
        let stack = [16, 24, 32].map(|at| self.u64_at(ucontext.wrapping_add(at)));
        let fpu = match words[23] {
            0 => None,
            at => Some(self.bytes::<FXSAVE>(at)?),
        };
        self.signals.set_blocked(mask);
        let state = &mut self.machine.state;
        for (register, word) in REGISTERS.into_iter().zip(words) {
            state.set_gpr(register, word);
        }
        state.rip = words[16];
        state.set_rflags(state.rflags() & !RESTORED | words[17] & RESTORED);
        match fpu {
            Some(bytes) => state.set_fx_image(&bytes).ok_or(Errno::EINVAL)?,
            None => state.reset_fx(),
        }
        let [start, flags, size] = stack;
        let stack = AlternateStack {
            start: start?,
            size: size?,
            flags: flags? as u32,
        };
        // Like Linux' `restore_altstack`, which ignores errors.
        let rsp = self.machine.state.gpr(reg::RSP);
        let _ = self.signals.set_alternate(stack, rsp);
        Ok(())
    }
}

/// The FXSAVE area, with the kernel's mark that it was written by XSAVE.
fn fpu_state(state: &State) -> Vec<u8> {
    let mut bytes = vec![0; FPU as usize];
    bytes[..FXSAVE].copy_from_slice(&state.fx_image());
    let software = &mut bytes[SOFTWARE..];
    software[..4].copy_from_slice(&FP_XSTATE_MAGIC1.to_le_bytes());
    software[4..8].copy_from_slice(&(FPU as u32).to_le_bytes());
    software[8..16].copy_from_slice(&XFEATURES.to_le_bytes());
    software[16..20].copy_from_slice(&(XSAVE as u32).to_le_bytes());
    bytes[FXSAVE..FXSAVE + 8].copy_from_slice(&XFEATURES.to_le_bytes());
    bytes[XSAVE as usize..].copy_from_slice(&FP_XSTATE_MAGIC2.to_le_bytes());
    bytes
}
