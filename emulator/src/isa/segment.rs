//! Segments: their selectors and the bases of fs and gs.
//!
//! A 64-bit process on Linux has the descriptors of `arch/x86/include/asm/segment.h`: 32-bit and
//! 64-bit code, data, and the number of the processor; those that a process may set itself are
//! empty. Their bases are 0.

use crate::core::Core;
use crate::op::{Flow, Op, Run, flow, raise, stop};
use crate::operands::{Form, form, width};
use crate::state::reg;
use crate::stop::{Exception, Stop};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

const SS: u8 = 2;
const FS: u8 = 4;
const GS: u8 = 5;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let is_segment = |number| {
        number < insn.op_count()
            && insn.op_kind(number) == OpKind::Register
            && insn.op_register(number).is_segment_register()
    };

    let form = form(insn);
    Some(match insn.mnemonic() {
        Mnemonic::Mov if is_segment(0) => match form {
            // `mov` to cs is #UD (SDM volume 2, MOV).
            _ if insn.op_register(0) == Register::CS => crate::op::invalid,
            Form::RR => set_r,
            Form::RM => set_m,
            _ => return None,
        },
        // To a register of 32 or 64 bits the selector is extended with zeros; memory gets 16 bits.
        Mnemonic::Mov if is_segment(1) => match (form, width(insn, 0)) {
            (Form::RR, 16) => get_r::<16>,
            (Form::RR, 32) => get_r::<32>,
            (Form::RR, 64) => get_r::<64>,
            (Form::MR, _) => get_m,
            _ => return None,
        },
        // A segment register has 16 bits whatever is pushed: the size is that of the change of rsp.
        Mnemonic::Push if is_segment(0) => match insn.stack_pointer_increment() {
            -2 => push::<16>,
            -8 => push::<64>,
            _ => return None,
        },
        Mnemonic::Pop if is_segment(0) => match insn.stack_pointer_increment() {
            2 => pop::<16>,
            8 => pop::<64>,
            _ => return None,
        },
        // Which base is known when decoding, so one function serves for both.
        Mnemonic::Rdfsbase | Mnemonic::Rdgsbase => {
            op.src = base(insn.mnemonic() == Mnemonic::Rdfsbase);
            match width(insn, 0) {
                32 => read_base::<32>,
                _ => read_base::<64>,
            }
        }
        Mnemonic::Wrfsbase | Mnemonic::Wrgsbase => {
            op.src = base(insn.mnemonic() == Mnemonic::Wrfsbase);
            match width(insn, 0) {
                32 => write_base::<32>,
                _ => write_base::<64>,
            }
        }
        _ => return None,
    })
}

fn base(fs: bool) -> u8 {
    (if fs { reg::FS } else { reg::GS }) as u8
}

/// Loads a segment register, or stops.
fn set(core: &mut Core, number: u8, selector: u16) -> bool {
    if core.is_system {
        stop(core, Stop::System);
        return false;
    }
    // Selectors 0 to 3 are null selectors, which ss cannot have.
    let null = selector < 4 && number != SS;

    let descriptor = selector & !3;
    let privilege = selector & 3;

    // Entries of Linux's GDT: __USER_DS; 32-bit and 64-bit user code, and the number of the
    // processor (arch/x86/include/asm/segment.h).
    let data = descriptor == 0x28;
    let read_only = matches!(descriptor, 0x20 | 0x30 | 0x78);
    let allowed = match number {
        SS => data && privilege == 3,
        _ => null || data || read_only,
    };

    if !allowed {
        raise(core, Exception::GeneralProtection);
        return false;
    }

    if let Some(to) = core.state.segments.get_mut(usize::from(number)) {
        *to = selector;
    }

    // The base comes from the descriptor, where it is 0.
    match number {
        FS => core.state.gpr[reg::FS] = 0,
        GS => core.state.gpr[reg::GS] = 0,
        _ => {}
    }

    true
}

fn get(core: &Core, number: u8) -> u64 {
    let selector = core.state.segments.get(usize::from(number));
    selector.copied().unwrap_or_default().into()
}

fn set_r(core: &mut Core, op: &Op) -> Flow {
    let selector = core.state.get::<16>(op.src) as u16;
    if set(core, op.dst, selector) {
        Flow::Next
    } else {
        Flow::Stop
    }
}

fn set_m(core: &mut Core, op: &Op) -> Flow {
    let Some(selector) = core.load::<16>(op.address(core)) else {
        return Flow::Stop;
    };
    if set(core, op.dst, selector as u16) {
        Flow::Next
    } else {
        Flow::Stop
    }
}

fn get_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let selector = get(core, op.src);
    core.state.set::<W>(op.dst, selector);
    Flow::Next
}

fn get_m(core: &mut Core, op: &Op) -> Flow {
    flow(core.store::<16>(op.address(core), get(core, op.src)))
}

fn push<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let slot = core.state.gpr[reg::RSP].wrapping_sub(u64::from(W / 8));
    if core.store::<W>(slot, get(core, op.dst)).is_none() {
        return Flow::Stop;
    }
    core.state.gpr[reg::RSP] = slot;
    Flow::Next
}

fn pop<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let Some(selector) = core.load::<W>(rsp) else {
        return Flow::Stop;
    };
    if !set(core, op.dst, selector as u16) {
        return Flow::Stop;
    }
    core.state.gpr[reg::RSP] = rsp.wrapping_add(u64::from(W / 8));
    Flow::Next
}

fn read_base<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let base = core.state.gpr[(op.src & 31) as usize];
    core.state.set::<W>(op.dst, base);
    Flow::Next
}

fn write_base<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let base = core.state.get::<W>(op.dst);
    if !matches!(base.cast_signed() >> 47, 0 | -1) {
        return raise(core, Exception::GeneralProtection);
    }
    core.state.gpr[(op.src & 31) as usize] = base;
    Flow::Next
}
