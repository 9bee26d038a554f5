//! Branches: jmp, jcc, call, ret, loop, jrcxz. Only AMD's processors have the 16-bit ones, with a
//! 66 prefix: see [`crate::processor::Processor::decoder_options`].

use super::condition::by_condition;
use crate::core::Core;
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, form, width};
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::{Code, Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let near = insn.op_count() == 1
        && matches!(insn.op_kind(0), OpKind::NearBranch64 | OpKind::NearBranch16);
    let form = form(insn);

    Some(match insn.mnemonic() {
        Mnemonic::Jmp if near => jmp,
        Mnemonic::Jmp if form == Form::R && width(insn, 0) == 64 => jmp_r::<64>,
        Mnemonic::Jmp if form == Form::R && width(insn, 0) == 16 => jmp_r::<16>,
        Mnemonic::Jmp if insn.code() == Code::Jmp_rm64 => jmp_m::<64>,
        Mnemonic::Jmp if insn.code() == Code::Jmp_rm16 => jmp_m::<16>,
        Mnemonic::Call if near && insn.op_kind(0) == OpKind::NearBranch16 => call::<16>,
        Mnemonic::Call if near => call::<64>,
        Mnemonic::Call if form == Form::R && width(insn, 0) == 64 => call_r::<64>,
        Mnemonic::Call if form == Form::R && width(insn, 0) == 16 => call_r::<16>,
        Mnemonic::Call if insn.code() == Code::Call_rm64 => call_m::<64>,
        Mnemonic::Call if insn.code() == Code::Call_rm16 => call_m::<16>,
        Mnemonic::Ret if insn.code() == Code::Retnq => ret::<64>,
        Mnemonic::Ret if insn.code() == Code::Retnw => ret::<16>,
        Mnemonic::Ret if insn.code() == Code::Retnq_imm16 => {
            // The immediate is unsigned.
            op.imm &= 0xffff;
            ret::<64>
        }
        Mnemonic::Ret if insn.code() == Code::Retnw_imm16 => {
            op.imm &= 0xffff;
            ret::<16>
        }
        // The size of the counter is the address size; 0x66 changes only the target.
        Mnemonic::Jrcxz => jrcxz::<64>,
        Mnemonic::Jecxz => jrcxz::<32>,
        Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne => {
            // What ZF has to be: anything, set, clear.
            op.extra = match insn.mnemonic() {
                Mnemonic::Loope => 1,
                Mnemonic::Loopne => 2,
                _ => 0,
            };
            match insn.code() {
                Code::Loop_rel8_64_RCX | Code::Loope_rel8_64_RCX | Code::Loopne_rel8_64_RCX => {
                    loop_::<64>
                }
                Code::Loop_rel8_16_RCX | Code::Loope_rel8_16_RCX | Code::Loopne_rel8_16_RCX => {
                    loop_::<64>
                }
                Code::Loop_rel8_64_ECX | Code::Loope_rel8_64_ECX | Code::Loopne_rel8_64_ECX => {
                    loop_::<32>
                }
                Code::Loop_rel8_16_ECX | Code::Loope_rel8_16_ECX | Code::Loopne_rel8_16_ECX => {
                    loop_::<32>
                }
                _ => return None,
            }
        }
        _ if near && insn.is_jcc_short_or_near() => by_condition!(insn, jcc),
        _ => return None,
    })
}

/// Jumps to an address from a register or memory.
#[inline(always)]
fn jump(core: &mut Core, target: u64) -> Flow {
    if !is_canonical(target) {
        return raise(core, Exception::GeneralProtection);
    }
    core.state.rip = target;
    Flow::Jump
}

#[inline(always)]
fn is_canonical(address: u64) -> bool {
    matches!(address.cast_signed() >> 47, 0 | -1)
}

fn jmp(core: &mut Core, op: &Op) -> Flow {
    core.state.rip = op.disp;
    Flow::Jump
}

fn jmp_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let target = core.state.get::<W>(op.dst);
    jump(core, target)
}

fn jmp_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(target) => jump(core, target),
        None => Flow::Stop,
    }
}

fn jcc<const CC: u8>(core: &mut Core, op: &Op) -> Flow {
    if core.state.flags.condition::<CC>() {
        core.state.rip = op.disp;
        Flow::Jump
    } else {
        Flow::Next
    }
}

#[inline(always)]
fn call_to<const W: u32>(core: &mut Core, op: &Op, target: u64) -> Flow {
    let slot = core.state.gpr[reg::RSP].wrapping_sub(u64::from(W / 8));
    let next = core
        .state
        .rip
        .wrapping_add(u64::from(op.offset) + u64::from(op.len));
    // Intel's processors store the return address before they check the target; AMD's only check
    // that it could be stored (seen on a Xeon, family 6, model 85, and an EPYC, family 25, model
    // 1).
    if !is_canonical(target) && core.processor.vendor() == Vendor::Amd {
        return match core.memory.check_store(slot, (W / 8) as usize) {
            Some(()) => raise(core, Exception::GeneralProtection),
            None => Flow::Stop,
        };
    }
    if core.store::<W>(slot, next).is_none() {
        return Flow::Stop;
    }
    let flow = jump(core, target);
    if flow == Flow::Jump {
        core.state.gpr[reg::RSP] = slot;
    }
    flow
}

fn call<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    call_to::<W>(core, op, op.disp)
}

fn call_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let target = core.state.get::<W>(op.dst);
    call_to::<W>(core, op, target)
}

fn call_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(target) => call_to::<W>(core, op, target),
        None => Flow::Stop,
    }
}

fn ret<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let rsp = core.state.gpr[reg::RSP];
    let Some(target) = core.load::<W>(rsp) else {
        return Flow::Stop;
    };
    let flow = jump(core, target);
    if flow == Flow::Jump {
        core.state.gpr[reg::RSP] = rsp.wrapping_add(u64::from(W / 8)).wrapping_add(op.imm());
    }
    flow
}

fn jrcxz<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.state.get::<W>(reg::RCX as u8) == 0 {
        jmp(core, op)
    } else {
        Flow::Next
    }
}

fn loop_<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let count = core.state.get::<W>(reg::RCX as u8).wrapping_sub(1);
    core.state.set::<W>(reg::RCX as u8, count);
    let condition = match op.extra {
        0 => true,
        1 => core.state.flags.zf(),
        _ => !core.state.flags.zf(),
    };
    if core.state.get::<W>(reg::RCX as u8) != 0 && condition {
        jmp(core, op)
    } else {
        Flow::Next
    }
}
