//! Pushes the frame of a signal handler, and returns from it.
//!
//! Source: Linux 6.12 `arch/x86/kernel/signal_64.c` (`x64_setup_rt_frame`, `restore_sigcontext`),
//! `arch/x86/kernel/signal.c` (`get_sigframe`), `arch/x86/kernel/fpu/signal.c`,
//! `arch/x86/include/uapi/asm/sigcontext.h`. The layout of `struct rt_sigframe`: return address,
//! `ucontext`, `siginfo`; the FPU state is above it, aligned to 64 bytes.

use crate::core::Core;
use crate::flags;
use crate::linux::errno::{Answer, Errno};
use crate::linux::kernel::Kernel;
use crate::linux::outcome::SignalOrigin;
use crate::linux::signals::{
    Action, AlternateStack, Info, SA_ONSTACK, SA_RESTORER, SA_SIGINFO, SIGSEGV, SS_AUTODISARM,
    SS_DISABLE, SS_ONSTACK, Signals,
};
use crate::processor::Processor;
use crate::state::reg;

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

/// Size of the FXSAVE area and the XSAVE header.
const HEADER_END: usize = FXSAVE + 64;
/// Size of `FP_XSTATE_MAGIC2`, which follows the XSAVE area.
const MAGIC2: u64 = 4;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// The components x87 and SSE (`XFEATURE_MASK_FPSSE`).
const X87_SSE: u64 = 3;
/// Offset of the software-reserved bytes in the FXSAVE area: magic, sizes, features.
const SOFTWARE: usize = 464;
/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 7;
const CS: u64 = 0x33;
const SS: u64 = 0x2b;
/// Flags that `rt_sigreturn` restores: AC, OF, DF, TF, SF, ZF, AF, PF, CF, RF.
const RESTORED: u64 = flags::ARITHMETIC | flags::AC | flags::DF | flags::TF | flags::RF;

/// Size of the XSAVE area and what follows it.
fn fpu_size(processor: &Processor) -> u64 {
    Core::xsave_size(processor) as u64 + MAGIC2
}

/// `AT_MINSIGSTKSZ`: size of a frame with all padding (`get_sigframe_size`).
pub(in crate::linux) fn size_max(processor: &Processor) -> u64 {
    (FRAME + 15 + fpu_size(processor) + 63).next_multiple_of(16)
}

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
        if self.own.alternate.holds(rsp) {
            return Err(Errno::EPERM);
        }
        let mode = new.flags & !SS_AUTODISARM;
        self.own.alternate = match mode {
            SS_DISABLE => AlternateStack::none(SS_DISABLE),
            0 | SS_ONSTACK if new.size < ALTERNATE_MIN => {
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

impl Kernel {
    /// Pushes a frame and enters the handler. `None` if the frame cannot be written or there is no
    /// restorer; then only memory may have changed.
    pub(super) fn push_signal_frame(
        &mut self,
        info: &Info,
        action: &Action,
        old_mask: u64,
    ) -> Option<()> {
        let alternate = self.process.signals.own.alternate;
        let core = &mut self.machine.core;
        let rsp = core.state.gpr(reg::RSP);
        let was_on = alternate.holds(rsp);

        let mut sp = rsp.wrapping_sub(RED_ZONE);
        let mut enters = false;
        // A handler that interrupts one on the alternate stack stays there (sigaltstack(2)).
        if action.flags & SA_ONSTACK != 0 && alternate.size != 0 && !was_on {
            sp = alternate.start.wrapping_add(alternate.size);
            enters = true;
        }

        // XSAVE needs an area at a multiple of 64 (Intel SDM volume 1).
        let fpu = sp.wrapping_sub(fpu_size(&core.processor())) & !63;
        // psABI 3.2.2: at a function's entry `rsp + 8` is a multiple of 16.
        let frame = (fpu.wrapping_sub(FRAME) & !15).wrapping_sub(8);

        // `get_sigframe`: a frame must not leave the alternate stack.
        if (was_on || enters) && !alternate.contains(frame) {
            return None;
        }

        if action.flags & SA_RESTORER == 0 {
            return None;
        }

        // `struct rt_sigframe`: the return address, then `uc_flags`, `uc_link`, `uc_stack`, the
        // registers.
        let mut words = vec![action.restorer, UC_FLAGS, 0];
        words.extend([alternate.start, alternate.flags.into(), alternate.size]);
        words.extend(REGISTERS.map(|register| core.state.gpr(register)));
        words.extend([core.state.rip, core.state.rflags(), CS | SS << 48]);
        // `err`, `trapno`, `oldmask`, `cr2`, `fpstate`, eight reserved words.
        let [trap, error, address] = self.process.signals.own.trap;
        words.extend([error, trap, old_mask, address, fpu]);
        words.extend([0; 8]);
        words.push(old_mask);
        debug_assert_eq!(words.len() as u64 * 8, 8 + UCONTEXT);

        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // Only SA_SIGINFO fills the `siginfo` (`x64_setup_rt_frame`).
        if action.flags & SA_SIGINFO != 0 {
            bytes.extend_from_slice(&info.bytes);
        }

        core.memory.write(fpu, &fpu_state(core)).ok()?;
        core.memory.write(frame, &bytes).ok()?;

        // The handler's arguments (psABI 3.2.3); rax is 0 in case it has no prototype.
        core.state.set_gpr(reg::RDI, info.signal.into());
        core.state.set_gpr(reg::RAX, 0);
        core.state.set_gpr(reg::RSI, frame + 8 + UCONTEXT);
        core.state.set_gpr(reg::RDX, frame + 8);
        core.state.set_gpr(reg::RSP, frame);
        core.state.rip = action.handler;

        // psABI 3.2.1: DF is clear at a function's entry. `handle_signal` clears RF and TF, too.
        let cleared = flags::DF | flags::RF | flags::TF;
        core.state.set_rflags(core.state.rflags() & !cleared);
        core.reset_fx();

        // SS_AUTODISARM: the handler may leave the stack without a return (sigaltstack(2)).
        if alternate.flags & SS_AUTODISARM != 0 {
            self.process.signals.own.alternate = AlternateStack::none(SS_DISABLE);
        }
        Some(())
    }

    /// `rt_sigreturn`: returns the interrupted rax.
    pub(in crate::linux) fn sigreturn(&mut self) -> u64 {
        match self.restore_context() {
            Ok(()) => {}
            Err(_) => self
                .process
                .signals
                .force(Info::forced(SIGSEGV, SignalOrigin::Return)),
        }
        self.process.signals.own.restart = None;
        self.process.thread.last_call = u64::MAX;
        self.machine.core.state.gpr(reg::RAX)
    }

    fn restore_context(&mut self) -> Result<(), Errno> {
        // The handler's `ret` has popped the return address.
        let ucontext = self.machine.core.state.gpr(reg::RSP);
        let context = ucontext.wrapping_add(SIGCONTEXT);
        let mask = self.u64_at(ucontext.wrapping_add(UCONTEXT - 8))?;

        let mut words = [0; 24];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.u64_at(context.wrapping_add(8 * index as u64))?;
        }

        // `uc_stack`.
        let stack = [16, 24, 32].map(|at| self.u64_at(ucontext.wrapping_add(at)));
        // `struct sigcontext`: rip is word 16, the flags 17, `fpstate` 23.
        let fpu = match words[23] {
            0 => None,
            at => Some(self.fpu_area(at)?),
        };

        // `rt_sigreturn` restores the mask first.
        self.process.signals.set_blocked(mask);

        let core = &mut self.machine.core;
        for (register, word) in REGISTERS.into_iter().zip(words) {
            core.state.set_gpr(register, word);
        }
        core.state.rip = words[16];
        core.state
            .set_rflags(core.state.rflags() & !RESTORED | words[17] & RESTORED);

        // Without a saved state, the FPU is reset (`fpu__restore_sig`).
        match fpu {
            Some(area) => restore_fpu(core, &area).ok_or(Errno::EINVAL)?,
            None => core.reset_fx(),
        }

        let [start, flags, size] = stack;
        let stack = AlternateStack {
            start: start?,
            size: size?,
            flags: flags? as u32,
        };
        // Like Linux' `restore_altstack`, which ignores errors.
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let _ = self.process.signals.set_alternate(stack, rsp);
        Ok(())
    }
}

/// The XSAVE area, with the kernel's marks (`save_sw_bytes`, `save_xstate_epilog`).
fn fpu_state(core: &Core) -> Vec<u8> {
    let mut bytes = core.xsave_image();
    let size = bytes.len() as u32;
    let software = &mut bytes[SOFTWARE..];
    software[..4].copy_from_slice(&FP_XSTATE_MAGIC1.to_le_bytes());
    software[4..8].copy_from_slice(&(size + MAGIC2 as u32).to_le_bytes());
    software[8..16].copy_from_slice(&core.processor().xcr0().to_le_bytes());
    software[16..20].copy_from_slice(&size.to_le_bytes());
    bytes.extend(FP_XSTATE_MAGIC2.to_le_bytes());
    bytes
}

/// The state of a frame: an FXSAVE area, and an XSAVE area if it has the kernel's marks.
struct Area {
    bytes: Vec<u8>,
    /// The components that the frame says it has; `None` for an FXSAVE area.
    components: Option<u64>,
}

impl Kernel {
    /// Reads the state of a frame (`check_xstate_in_sigframe`).
    fn fpu_area(&mut self, at: u64) -> Result<Area, Errno> {
        let fx = self.bytes::<FXSAVE>(at)?;
        let word = |offset: usize| {
            let bytes = fx[offset..offset + 4].try_into();
            bytes.map_or(0, u32::from_le_bytes)
        };

        // `struct _fpx_sw_bytes`: magic1, extended_size, xfeatures, xstate_size.
        let size = word(SOFTWARE + 16);
        let components = u64::from(word(SOFTWARE + 8)) | u64::from(word(SOFTWARE + 12)) << 32;
        let whole = Core::xsave_size(&self.machine.core.processor());
        let is_marked = word(SOFTWARE) == FP_XSTATE_MAGIC1
            && (HEADER_END..=whole).contains(&(size as usize))
            && size <= word(SOFTWARE + 4)
            && self.bytes(at.wrapping_add(size.into()))? == FP_XSTATE_MAGIC2.to_le_bytes();

        // Without both marks only the FXSAVE part counts.
        if !is_marked {
            return Ok(Area {
                bytes: fx.to_vec(),
                components: None,
            });
        }

        let mut bytes = vec![0; whole];
        let area = &mut bytes[..size as usize];
        let memory = &self.machine.core.memory;
        memory.read(at, area).map_err(|_| Errno::EFAULT)?;
        Ok(Area {
            bytes,
            components: Some(components),
        })
    }
}

/// Restores the state of a frame; components that it does not have are reset
/// (`__restore_fpregs_from_user`). `None` if the processor refuses it.
fn restore_fpu(core: &mut Core, area: &Area) -> Option<()> {
    let Some(components) = area.components else {
        let fx = area.bytes.first_chunk()?;
        core.set_fx_image(fx)?;
        core.reset_components(!X87_SSE);
        return Some(());
    };
    core.set_xsave_image(&area.bytes, components)?;
    core.reset_components(!components);
    Some(())
}
