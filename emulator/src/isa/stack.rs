//! The stack: push, pop, pushf, popf, enter, leave.

use crate::core::Core;
use crate::flags;
use crate::op::{Flow, Op, Run, stop};
use crate::operands::{Form, form, width};
use crate::state::{mask, reg};
use crate::stop::Stop;
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::{Enter, Leave, Pop, Popf, Popfq, Push, Pushf, Pushfq};

    let segment = insn.op_count() > 0
        && insn.op_kind(0) == OpKind::Register
        && insn.op_register(0).is_segment_register();

    Some(match (insn.mnemonic(), form(insn)) {
        // See `segment.rs`.
        (Push | Pop, _) if segment => return None,
        (Push, Form::R) if width(insn, 0) == 16 => push_r::<16>,
        (Push, Form::R) => push_r::<64>,
        (Push, Form::M) if width(insn, 0) == 16 => push_m::<16>,
        (Push, Form::M) => push_m::<64>,
        (Push, Form::I) => match insn.code() {
            Code::Push_imm16 | Code::Pushw_imm8 => push_i::<16>,
            _ => push_i::<64>,
        },
        (Pop, Form::R) if width(insn, 0) == 16 => pop_r::<16>,
        (Pop, Form::R) => pop_r::<64>,
        (Pop, Form::M) => {
            // An address relative to rsp uses rsp after the pop.
            let size = insn.memory_size().size() as u64;
            if matches!(insn.memory_base(), Register::RSP | Register::ESP) {
                op.disp = op.disp.wrapping_add(size);
            }
            if size == 2 { pop_m::<16> } else { pop_m::<64> }
        }
        (Pushfq, _) => pushf::<64>,
        (Pushf, _) => pushf::<16>,
        (Popfq, _) => popf::<64>,
        (Popf, _) => popf::<16>,
        (Leave, _) if insn.code() == Code::Leavew => leave::<16>,
        (Leave, _) => leave::<64>,
        (Enter, _) => {
            // The immediate is unsigned.
            op.imm &= 0xffff;
            match insn.code() {
                Code::Enterw_imm16_imm8 => enter::<16>,
                _ => enter::<64>,
            }
        }
        _ => return None,
    })
}

#[inline(always)]
fn push<const W: u32>(core: &mut Core, value: u64) -> Flow {
    let slot = core.state.gpr[reg::RSP].wrapping_sub(u64::from(W / 8));
    if core.store::<W>(slot, value).is_none() {
        return Flow::Stop;
    }
    core.state.gpr[reg::RSP] = slot;
    Flow::Next
}

fn push_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<W>(op.dst);
    push::<W>(core, value)
}

fn push_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(value) => push::<W>(core, value),
        None => Flow::Stop,
    }
}

fn push_i<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    push::<W>(core, op.imm())
}

fn pushf<const W: u32>(core: &mut Core, _: &Op) -> Flow {
    // RF reads as 0.
    let value = core.state.rflags() & !flags::RF;
    push::<W>(core, value)
}

fn pop_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let Some(value) = core.load::<W>(rsp) else {
        return Flow::Stop;
    };
    // `pop %rsp` leaves the popped value in rsp.
    core.state.gpr[reg::RSP] = rsp.wrapping_add(u64::from(W / 8));
    core.state.set::<W>(op.dst, value);
    Flow::Next
}

fn pop_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let Some(value) = core.load::<W>(rsp) else {
        return Flow::Stop;
    };
    if core.store::<W>(op.address(core), value).is_none() {
        return Flow::Stop;
    }
    core.state.gpr[reg::RSP] = rsp.wrapping_add(u64::from(W / 8));
    Flow::Next
}

fn popf<const W: u32>(core: &mut Core, _: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let rsp = core.state.gpr[reg::RSP];
    let Some(value) = core.load::<W>(rsp) else {
        return Flow::Stop;
    };
    let before = core.state.rflags();
    core.state.set_rflags(value | before & !mask::<W>());
    core.state.gpr[reg::RSP] = rsp.wrapping_add(u64::from(W / 8));
    match value & !before & flags::TF {
        0 => Flow::Next,
        _ => stop(core, Stop::Trap),
    }
}

fn leave<const W: u32>(core: &mut Core, _: &Op) -> Flow {
    let rbp = core.state.gpr[reg::RBP];
    let Some(value) = core.load::<W>(rbp) else {
        return Flow::Stop;
    };
    core.state.gpr[reg::RSP] = rbp.wrapping_add(u64::from(W / 8));
    core.state.set::<W>(reg::RBP as u8, value);
    Flow::Next
}

/// `enter imm, level`; `extra` is the level.
fn enter<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match enter_at::<W>(core, op) {
        Some((top, frame)) => {
            core.state.gpr[reg::RSP] = top;
            core.state.set::<W>(reg::RBP as u8, frame);
            Flow::Next
        }
        None => Flow::Stop,
    }
}

/// Does the stores of `enter`, and returns the new rsp and rbp. What was stored before a fault
/// stays: it is below the top of the stack.
fn enter_at<const W: u32>(core: &mut Core, op: &Op) -> Option<(u64, u64)> {
    let size = u64::from(W / 8);
    let (rsp, rbp) = (core.state.gpr[reg::RSP], core.state.gpr[reg::RBP]);
    let level = u64::from(op.extra % 32);
    let frame = rsp.wrapping_sub(size);
    core.store::<W>(frame, rbp)?;
    let mut top = frame;
    for outer in 1..=level {
        let word = if outer < level {
            core.load::<W>(rbp.wrapping_sub(size * outer))?
        } else {
            frame
        };
        top = top.wrapping_sub(size);
        core.store::<W>(top, word)?;
    }
    top = top.wrapping_sub(op.imm());
    // The new top of the stack must be writable.
    core.memory.check_store(top, size as usize)?;
    Some((top, frame))
}
