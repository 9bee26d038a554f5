//! Moves: mov, movzx, movsx, movsxd, lea, cmov, setcc, xchg, bswap, movbe, sign extensions.

use super::condition::by_condition;
use crate::core::Core;
use crate::flags::sign_extend;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, by_width, form, width};
use crate::processor::Vendor;
use crate::state::{mask, reg};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;

    let form = form(insn);
    Some(match (insn.mnemonic(), form) {
        (Mov, _) if special(insn) => return None,
        (Mov, Form::RR) => by_width!(width(insn, 0), mov_rr),
        (Mov, Form::RM) => by_width!(width(insn, 0), mov_rm),
        (Mov, Form::MR) => by_width!(width(insn, 0), mov_mr),
        // Only `mov` has an immediate of 64 bits.
        (Mov, Form::RI) if insn.op_kind(1) == OpKind::Immediate64 => mov_r_imm64,
        (Mov, Form::RI) => by_width!(width(insn, 0), mov_ri),
        (Mov, Form::MI) => by_width!(width(insn, 0), mov_mi),
        (Movzx, Form::RR | Form::RM) => extend::<false>(insn, form == Form::RM)?,
        // `movsxd` to 16 bits reads only 16 bits (SDM volume 2, MOVSXD).
        (Movsxd, Form::RM) if width(insn, 0) == 16 => movsxd_16,
        (Movsx | Movsxd, Form::RR | Form::RM) => extend::<true>(insn, form == Form::RM)?,
        // `extra` is 1 if the address has 32 bits; then the result has no more.
        (Lea, Form::RM) => match (width(insn, 0), op.extra) {
            (16, _) => lea::<16>,
            (32, _) | (64, 1) => lea::<32>,
            _ => lea::<64>,
        },
        (Xchg, Form::RR) => by_width!(width(insn, 0), xchg_rr),
        // `xchg` is symmetric, and `xchg_mr` takes the register from `src`.
        (Xchg, Form::MR | Form::RM) => {
            if form == Form::RM {
                op.src = op.dst;
            }
            by_width!(width(insn, 0), xchg_mr)
        }
        (Bswap, Form::R) => by_width!(width(insn, 0), bswap),
        (Movbe, Form::RM) => by_width!(width(insn, 0), movbe_rm),
        (Movbe, Form::MR) => by_width!(width(insn, 0), movbe_mr),
        // From al, ax and eax to the double width; the others fill rdx with the sign.
        (Cbw, _) => sign_rax::<16>,
        (Cwde, _) => sign_rax::<32>,
        (Cdqe, _) => sign_rax::<64>,
        (Cwd, _) => sign_rdx::<16>,
        (Cdq, _) => sign_rdx::<32>,
        (Cqo, _) => sign_rdx::<64>,
        (
            Nop | Endbr64 | Endbr32 | Reservednop | Pause | Prefetcht0 | Prefetcht1 | Prefetcht2
            | Prefetchit0 | Prefetchit1 | Cldemote,
            _,
        )
        | (Prefetchnta | Prefetchw | Prefetch | Prefetchwt1, _)
        // One thread runs at a time, so there is nothing to order; there are no shadow stacks
        // either.
        | (Lfence | Mfence | Sfence | Rdsspq | Rdsspd, _) => nop,
        (Clflush | Clflushopt | Clwb, _) => touch,
        // What is left is `setcc` and `cmovcc`.
        (_, Form::R) => by_condition!(insn, set_r),
        (_, Form::M) => by_condition!(insn, set_m),
        (_, Form::RR) => match width(insn, 0) {
            16 => by_condition!(insn, cmov_rr, 16),
            32 => by_condition!(insn, cmov_rr, 32),
            64 => by_condition!(insn, cmov_rr, 64),
            _ => return None,
        },
        (_, Form::RM) => match width(insn, 0) {
            16 => by_condition!(insn, cmov_rm, 16),
            32 => by_condition!(insn, cmov_rm, 32),
            64 => by_condition!(insn, cmov_rm, 64),
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether it moves a segment, control or debug register.
fn special(insn: &Instruction) -> bool {
    (0..2).any(|number| {
        let register = insn.op_register(number);
        insn.op_kind(number) == OpKind::Register
            && (register.is_segment_register()
                || register.is_cr()
                || register.is_dr()
                || register.is_tr()
                || register == Register::None)
    })
}

fn nop(_: &mut Core, _: &Op) -> Flow {
    Flow::Next
}

/// Only checks that memory can be read.
fn touch(core: &mut Core, op: &Op) -> Flow {
    flow(core.load::<8>(op.address(core)).map(|_| ()))
}

fn mov_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<W>(op.src);
    core.state.set::<W>(op.dst, value);
    Flow::Next
}

fn mov_rm<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    core.state.set::<W>(op.dst, value);
    Flow::Next
}

fn mov_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    flow(core.store::<W>(op.address(core), core.state.get::<W>(op.src)))
}

fn mov_ri<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    core.state.set::<W>(op.dst, op.imm());
    Flow::Next
}

fn mov_r_imm64(core: &mut Core, op: &Op) -> Flow {
    core.state.set::<64>(op.dst, op.disp);
    Flow::Next
}

fn mov_mi<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    flow(core.store::<W>(op.address(core), op.imm()))
}

/// The function that extends operand 1 into operand 0.
fn extend<const SIGNED: bool>(insn: &Instruction, memory: bool) -> Option<Run> {
    Some(match (width(insn, 1), width(insn, 0), memory) {
        (8, 16, false) => extend_rr::<SIGNED, 8, 16>,
        (8, 32, false) => extend_rr::<SIGNED, 8, 32>,
        (8, 64, false) => extend_rr::<SIGNED, 8, 64>,
        (16, 16, false) => extend_rr::<SIGNED, 16, 16>,
        (16, 32, false) => extend_rr::<SIGNED, 16, 32>,
        (16, 64, false) => extend_rr::<SIGNED, 16, 64>,
        (32, 32, false) => extend_rr::<SIGNED, 32, 32>,
        (32, 64, false) => extend_rr::<SIGNED, 32, 64>,
        (8, 16, true) => extend_rm::<SIGNED, 8, 16>,
        (8, 32, true) => extend_rm::<SIGNED, 8, 32>,
        (8, 64, true) => extend_rm::<SIGNED, 8, 64>,
        (16, 16, true) => extend_rm::<SIGNED, 16, 16>,
        (16, 32, true) => extend_rm::<SIGNED, 16, 32>,
        (16, 64, true) => extend_rm::<SIGNED, 16, 64>,
        (32, 32, true) => extend_rm::<SIGNED, 32, 32>,
        (32, 64, true) => extend_rm::<SIGNED, 32, 64>,
        _ => return None,
    })
}

fn extend_rr<const SIGNED: bool, const FROM: u32, const TO: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.get::<FROM>(op.src);
    let value = if SIGNED {
        sign_extend::<FROM>(value)
    } else {
        value
    };
    core.state.set::<TO>(op.dst, value);
    Flow::Next
}

fn extend_rm<const SIGNED: bool, const FROM: u32, const TO: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<FROM>(op.address(core)) else {
        return Flow::Stop;
    };
    let value = if SIGNED {
        sign_extend::<FROM>(value)
    } else {
        value
    };
    core.state.set::<TO>(op.dst, value);
    Flow::Next
}

/// `movsxd` to 16 bits from memory: AMD's processors read 32 bits (seen on an EPYC, family 25,
/// model 1).
fn movsxd_16(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let value = match core.processor.vendor() {
        Vendor::Intel => core.load::<16>(address),
        Vendor::Amd => core.load::<32>(address),
    };
    let Some(value) = value else {
        return Flow::Stop;
    };
    core.state.set::<16>(op.dst, value);
    Flow::Next
}

fn lea<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    core.state.set::<W>(op.dst, address);
    Flow::Next
}

fn xchg_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (core.state.get::<W>(op.dst), core.state.get::<W>(op.src));
    core.state.set::<W>(op.dst, b);
    core.state.set::<W>(op.src, a);
    Flow::Next
}

fn xchg_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let Some(value) = core.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    if core
        .store::<W>(address, core.state.get::<W>(op.src))
        .is_none()
    {
        return Flow::Stop;
    }
    core.state.set::<W>(op.src, value);
    Flow::Next
}

/// Reverses the bytes of the lowest `W` bits.
fn swapped<const W: u32>(value: u64) -> u64 {
    value.swap_bytes() >> (64 - W)
}

fn bswap<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    // Undefined by the SDM for 16 bits; processors return 0.
    let value = if W == 16 {
        0
    } else {
        swapped::<W>(core.state.get::<W>(op.dst))
    };
    core.state.set::<W>(op.dst, value);
    Flow::Next
}

fn movbe_rm<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    core.state.set::<W>(op.dst, swapped::<W>(value));
    Flow::Next
}

fn movbe_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = swapped::<W>(core.state.get::<W>(op.src));
    flow(core.store::<W>(op.address(core), value))
}

fn sign_rax<const W: u32>(core: &mut Core, _: &Op) -> Flow {
    let rax = core.state.gpr[reg::RAX];
    let value = match W {
        16 => sign_extend::<8>(rax),
        32 => sign_extend::<16>(rax),
        _ => sign_extend::<32>(rax),
    };
    core.state.set::<W>(reg::RAX as u8, value);
    Flow::Next
}

fn sign_rdx<const W: u32>(core: &mut Core, _: &Op) -> Flow {
    let negative = sign_extend::<W>(core.state.gpr[reg::RAX]).cast_signed() < 0;
    let value = if negative { mask::<W>() } else { 0 };
    core.state.set::<W>(reg::RDX as u8, value);
    Flow::Next
}

fn set_r<const CC: u8>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.flags.condition::<CC>();
    core.state.set::<8>(op.dst, value.into());
    Flow::Next
}

fn set_m<const CC: u8>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.flags.condition::<CC>();
    flow(core.store::<8>(op.address(core), value.into()))
}

fn cmov_rr<const CC: u8, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let from = if core.state.flags.condition::<CC>() {
        op.src
    } else {
        op.dst
    };
    let value = core.state.get::<W>(from);
    // The upper half is cleared even if the condition is false.
    core.state.set::<W>(op.dst, value);
    Flow::Next
}

fn cmov_rm<const CC: u8, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(mut value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    if !core.state.flags.condition::<CC>() {
        value = core.state.get::<W>(op.dst);
    }
    core.state.set::<W>(op.dst, value);
    Flow::Next
}
