//! Requests to the kernel (syscall, int, hlt, ud2), privileged instructions, and those that show a
//! part of the kernel's state. Not here: cpuid and the like.

use crate::core::Core;
use crate::flags;
use crate::op::{Flow, Op, Run, flow, raise, stop, system_or};
use crate::operands::{Form, form, segment, width};
use crate::processor::Processor;
use crate::state::reg;
use crate::stop::{Call, Exception, Stop};
use iced_x86::{Code, Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
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
        Sgdt => table::<true>,
        Sidt => table::<false>,
        Smsw => word(insn, op, CR0)?,
        Sldt => word(insn, op, LDT)?,
        Str => word(insn, op, TASK)?,
        Clzero => {
            // The address is rax, with the size and segment of a memory operand.
            op.base = reg::RAX as u8;
            op.imm = segment(insn) as i32;
            op.extra = u8::from(insn.code() != Code::Clzeroq);
            clzero
        }
        // Invalid outside the kernel, or not enabled: shadow stacks (CR4.CET) are not.
        Clac | Stac => crate::op::system_or_invalid,
        Verr | Verw | Lar | Lsl | Lfs | Lgs | Lss | Sysenter => crate::op::system_only,
        Monitor | Mwait | Rsm | Incsspd | Incsspq | Saveprevssp | Rstorssp | Wrssd | Wrssq
        | Wrussd | Wrussq | Setssbsy | Clrssbsy => crate::op::invalid,
        _ => return None,
    })
}

fn is_privileged(insn: &Instruction) -> bool {
    (0..2).any(|number| {
        let register = insn.op_register(number);
        register.is_cr() || register.is_dr()
    })
}

fn privileged(core: &mut Core, _: &Op) -> Flow {
    system_or(core, |core| raise(core, Exception::GeneralProtection))
}

fn syscall(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::Kernel(Call::Syscall));
    }
    let next = core
        .state
        .rip
        .wrapping_add(u64::from(op.offset) + u64::from(op.len));
    core.state.gpr[reg::RCX] = next;
    core.state.gpr[reg::R11] = core.state.rflags() & !flags::RF;
    stop(core, Stop::Kernel(Call::Syscall))
}

fn int(core: &mut Core, op: &Op) -> Flow {
    match op.imm as u8 {
        _ if core.is_system => stop(core, Stop::System),
        0x80 => stop(core, Stop::Kernel(Call::Int80)),
        3 => raise(core, Exception::Breakpoint),
        4 => raise(core, Exception::Overflow),
        vector => raise(core, Exception::Interrupt(vector)),
    }
}

fn int3(core: &mut Core, _: &Op) -> Flow {
    system_or(core, |core| raise(core, Exception::Breakpoint))
}

fn int1(core: &mut Core, _: &Op) -> Flow {
    system_or(core, |core| raise(core, Exception::Debug))
}

fn hlt(core: &mut Core, _: &Op) -> Flow {
    system_or(core, |core| stop(core, Stop::Halt))
}

// What user mode sees of the kernel's tables. Where the processor has UMIP, Linux emulates the
// instructions (`arch/x86/kernel/umip.c`, since 5.4; sldt and str since 5.10). Elsewhere they show
// the kernel's own: its tables in `cpu_entry_area` and its limits (`arch/x86/include/asm/desc.h`).

/// CR0 as Linux sets it: PE, MP, ET, NE, WP, AM and PG.
const CR0: i32 = 0x8005_0033_u32.cast_signed();
/// There is no local descriptor table.
const LDT: i32 = 0;
/// `GDT_ENTRY_TSS * 8`.
const TASK: i32 = 0x40;

/// Limit and base of the global descriptor table, or of the interrupt table.
fn shown(processor: &Processor, is_global: bool) -> (u16, u64) {
    match (processor.has_umip(), is_global) {
        (true, true) => (0, 0xffff_ffff_fffe_0000),
        (true, false) => (0, 0xffff_ffff_ffff_0000),
        (false, true) => (0x7f, 0xffff_fe00_0000_1000),
        (false, false) => (0xfff, 0xffff_fe00_0000_0000),
    }
}

fn table<const IS_GLOBAL: bool>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let (limit, base) = shown(&core.processor, IS_GLOBAL);
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&limit.to_le_bytes());
    bytes[2..].copy_from_slice(&base.to_le_bytes());
    flow(core.memory.store_bytes(op.address(core), bytes))
}

/// Stores a value of the kernel: 16 bits in memory, as many as it has in a register.
fn word(insn: &Instruction, op: &mut Op, value: i32) -> Option<Run> {
    op.imm = value;
    Some(match (form(insn), width(insn, 0)) {
        (Form::M, _) => word_m,
        (Form::R, 16) => word_r::<16>,
        (Form::R, 32) => word_r::<32>,
        (Form::R, 64) => word_r::<64>,
        _ => return None,
    })
}

fn word_m(core: &mut Core, op: &Op) -> Flow {
    system_or(core, |core| {
        flow(core.store::<16>(op.address(core), op.imm()))
    })
}

/// Where Linux emulates it, it copies 32 bits and keeps the others, unlike a processor.
fn word_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if core.is_system {
        return stop(core, Stop::System);
    }
    let value = u64::from(op.imm.cast_unsigned());
    let to = core.state.gpr[(op.dst & 31) as usize];
    match W {
        32 if core.processor.has_umip() => {
            core.state.set::<64>(op.dst, to & !0xffff_ffff | value);
        }
        _ => core.state.set::<W>(op.dst, value),
    }
    Flow::Next
}

/// Clears a cache line.
fn clzero(core: &mut Core, op: &Op) -> Flow {
    let address = op.address_moved(core, 0) & !63;
    flow(core.memory.store_bytes(address, [0; 64]))
}
