//! Far calls, jumps and returns, and `iret`, in user mode: they can reach the 64-bit code segment
//! that the process is in. The 32-bit one of Linux exists, but its code is not modelled; any other
//! selector raises #GP.
//!
//! Source: Intel SDM volume 2, CALL, JMP, RET, IRET; descriptors of Linux,
//! `arch/x86/include/asm/segment.h`. Not here: `iretq` of ring 0 ([`crate::ring0`]).

use crate::core::Core;
use crate::flags;
use crate::op::{Flow, Op, Run, raise, stop, unsupported};
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::{Exception, Stop};
use iced_x86::{Code, Instruction};

/// The privilege level, and the requested one of a user's selectors.
const USER: u64 = 3;
/// `__USER32_CS`.
const CODE32: u64 = 0x23;
/// `__USER_CS`.
const CODE64: u64 = 0x33;
/// `__USER_DS`.
const DATA: u64 = 0x2b;
/// Numbers of segments in the state.
const CS: usize = 1;
const SS: usize = 2;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    // The immediate of returns is unsigned.
    op.imm &= 0xffff;
    Some(match insn.code() {
        Code::Jmp_m1616 => jump::<16>,
        Code::Jmp_m1632 => jump::<32>,
        Code::Jmp_m1664 => jump::<64>,
        Code::Call_m1616 => call::<16>,
        Code::Call_m1632 => call::<32>,
        Code::Call_m1664 => call::<64>,
        Code::Retfw | Code::Retfw_imm16 => ret::<16>,
        Code::Retfd | Code::Retfd_imm16 => ret::<32>,
        Code::Retfq | Code::Retfq_imm16 => ret::<64>,
        Code::Iretw => iret::<16>,
        Code::Iretd => iret::<32>,
        Code::Iretq => iret::<64>,
        _ => return None,
    })
}

/// Why a selector cannot be used.
enum SelectorFault {
    General,
    Code32,
}

impl SelectorFault {
    fn stop(self, core: &mut Core, op: &Op) -> Flow {
        match self {
            SelectorFault::General => raise(core, Exception::GeneralProtection),
            SelectorFault::Code32 => unsupported(core, op),
        }
    }
}

/// Checks the target of a transfer: its selector, then its address. Calls and jumps replace the
/// privilege level that the selector requests; returns require the user's.
fn check(selector: u64, target: u64, is_return: bool) -> Result<(), SelectorFault> {
    let requested = selector & USER;
    match selector | USER {
        _ if is_return && requested != USER => Err(SelectorFault::General),
        CODE32 => Err(SelectorFault::Code32),
        CODE64 if matches!(target.cast_signed() >> 47, 0 | -1) => Ok(()),
        _ => Err(SelectorFault::General),
    }
}

/// The offset and the selector after it, from a far pointer in memory.
#[inline(always)]
fn pointer<const W: u32>(core: &mut Core, op: &Op) -> Option<(u64, u64)> {
    let address = op.address(core);
    let target = core.load::<W>(address)?;
    let selector = core.load::<16>(address.wrapping_add(u64::from(W / 8)))?;
    Some((target, selector))
}

fn go(core: &mut Core, target: u64) -> Flow {
    core.state.rip = target;
    core.state.segments[CS] = CODE64 as u16;
    Flow::Jump
}

fn jump<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let Some((target, selector)) = pointer::<W>(core, op) else {
        return Flow::Stop;
    };
    match check(selector, target, false) {
        Ok(()) => go(core, target),
        Err(refused) => refused.stop(core, op),
    }
}

/// `W` is the width of what is pushed, and of the offset, except with AMD's 64 bits.
fn call<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let pointer = match (W, core.processor.vendor()) {
        (64, Vendor::Amd) => pointer::<32>(core, op),
        _ => pointer::<W>(core, op),
    };

    // AMD's pointer has at most 32 bits of offset, whatever is pushed (`processor/amd.rs`).
    let Some((target, selector)) = pointer else {
        return Flow::Stop;
    };

    if let Err(refused) = check(selector, target, false) {
        return refused.stop(core, op);
    }

    let size = u64::from(W / 8);
    let rsp = core.state.gpr[reg::RSP];
    let next = core
        .state
        .rip
        .wrapping_add(u64::from(op.offset) + u64::from(op.len));

    let old: u64 = core.state.segments[CS].into();
    if core.store::<W>(rsp.wrapping_sub(size), old).is_none()
        || core.store::<W>(rsp.wrapping_sub(2 * size), next).is_none()
    {
        return Flow::Stop;
    }

    // Last, so that a fault leaves rsp as it was.
    core.state.gpr[reg::RSP] = rsp.wrapping_sub(2 * size);
    go(core, target)
}

/// The word `number` of the stack.
#[inline(always)]
fn word<const W: u32>(core: &mut Core, number: u64) -> Option<u64> {
    let rsp = core.state.gpr[reg::RSP];
    core.load::<W>(rsp.wrapping_add(number * u64::from(W / 8)))
}

fn ret<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let (Some(target), Some(selector)) = (word::<W>(core, 0), word::<W>(core, 1)) else {
        return Flow::Stop;
    };
    if let Err(refused) = check(selector & 0xffff, target, true) {
        return refused.stop(core, op);
    }
    let rsp = core.state.gpr[reg::RSP];
    core.state.gpr[reg::RSP] = rsp
        .wrapping_add(u64::from(2 * W / 8))
        .wrapping_add(op.imm());
    go(core, target)
}

/// Pops rip, cs, rflags, rsp and ss.
fn iret<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    // 64-bit mode has no tasks to return to: #GP (SDM volume 2, IRET).
    if core.state.rflags() & flags::NT != 0 {
        return raise(core, Exception::GeneralProtection);
    }

    let mut frame = [0; 5];
    for (number, value) in frame.iter_mut().enumerate() {
        match word::<W>(core, number as u64) {
            Some(loaded) => *value = loaded,
            None => return Flow::Stop,
        }
    }

    // All is checked before the first register changes.
    let [target, selector, rflags, rsp, stack] = frame;
    if let Err(refused) = check(selector & 0xffff, target, true) {
        return refused.stop(core, op);
    }

    if stack & 0xffff != DATA {
        return raise(core, Exception::GeneralProtection);
    }

    let kept = if W == 16 { !0xffff } else { 0 };
    let rflags = core.state.rflags() & kept | rflags & !kept;
    core.state.set_rflags(rflags);

    core.state.gpr[reg::RSP] = rsp;
    core.state.segments[SS] = DATA as u16;
    go(core, target)
}
