//! Requests to the kernel (syscall, int, hlt, ud2) and privileged instructions. Not here: cpuid and
//! the like.

use crate::flags;
use crate::op::{Flow, Op, Run, raise, stop};
use crate::state::{State, reg};
use crate::stop::{Call, Exception, Stop};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match insn.mnemonic() {
        Syscall => syscall,
        Int => int,
        Int3 => int3,
        Int1 => int1,
        Hlt => hlt,
        Ud0 | Ud1 | Ud2 => crate::op::invalid,
        In | Out | Insb | Insw | Insd | Outsb | Outsw | Outsd | Cli | Sti | Clts | Invd
        | Wbinvd | Invlpg | Lgdt | Lidt | Lldt | Ltr | Lmsw | Rdmsr | Wrmsr | Rdpmc | Swapgs
        | Sysexit | Sysexitq | Sysret | Sysretq | Xsetbv => privileged,
        // To or from a control or debug register; `mov` has handled all others.
        Mov if is_privileged(insn) => privileged,
        // Invalid outside the kernel, or not enabled.
        Clac | Stac | Monitor | Mwait | Rsm => crate::op::invalid,
        _ => return None,
    })
}

fn is_privileged(insn: &Instruction) -> bool {
    (0..2).any(|number| {
        let register = insn.op_register(number);
        register.is_cr() || register.is_dr()
    })
}

fn privileged(state: &mut State, _: &Op) -> Flow {
    raise(state, Exception::GeneralProtection)
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
        4 => raise(state, Exception::Overflow),
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
