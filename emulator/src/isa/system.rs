//! What asks somebody else: syscall, int, hlt, ud2. Not here: cpuid and the like.

use crate::flags;
use crate::op::{Flow, Op, Run, raise, stop};
use crate::state::{State, reg};
use crate::stop::{Call, Exception, Stop};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match insn.mnemonic() {
        Mnemonic::Syscall => syscall,
        Mnemonic::Int => int,
        Mnemonic::Int3 => int3,
        Mnemonic::Int1 => int1,
        Mnemonic::Hlt => hlt,
        Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 => crate::op::invalid,
        _ => return None,
    })
}

fn syscall(state: &mut State, op: &Op) -> Flow {
    let next = state
        .rip
        .wrapping_add(u64::from(op.offset) + u64::from(op.len));
    state.gpr[reg::RCX] = next;
    state.gpr[reg::R11] = state.rflags() & !flags::RF;
    stop(state, Stop::Kernel(Call::Syscall))
}

fn int(state: &mut State, op: &Op) -> Flow {
    match op.imm as u8 {
        0x80 => stop(state, Stop::Kernel(Call::Int80)),
        3 => raise(state, Exception::Breakpoint),
        vector => raise(state, Exception::Interrupt(vector)),
    }
}

fn int3(state: &mut State, _: &Op) -> Flow {
    raise(state, Exception::Breakpoint)
}

fn int1(state: &mut State, _: &Op) -> Flow {
    raise(state, Exception::Debug)
}

fn hlt(state: &mut State, _: &Op) -> Flow {
    stop(state, Stop::Halt)
}
