//! Atomic exchanges: xadd, cmpxchg, cmpxchg8b, cmpxchg16b. One thread runs at a time, so a `lock`
//! prefix changes nothing.

use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, by_width, form, width};
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match (insn.mnemonic(), form(insn)) {
        (Mnemonic::Xadd, Form::RR) => by_width!(width(insn, 0), xadd_rr),
        (Mnemonic::Xadd, Form::MR) => by_width!(width(insn, 0), xadd_mr),
        (Mnemonic::Cmpxchg, Form::RR) => by_width!(width(insn, 0), cmpxchg_rr),
        (Mnemonic::Cmpxchg, Form::MR) => by_width!(width(insn, 0), cmpxchg_mr),
        (Mnemonic::Cmpxchg8b, Form::M) => cmpxchg8b,
        (Mnemonic::Cmpxchg16b, Form::M) => cmpxchg16b,
        _ => return None,
    })
}

#[inline(always)]
fn sum<const W: u32>(a: u64, b: u64) -> (u64, Flags) {
    let result = a.wrapping_add(b);
    (result, Flags::add::<W>(a, b, result))
}

fn xadd_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (core.state.get::<W>(op.dst), core.state.get::<W>(op.src));
    let (result, flags) = sum::<W>(a, b);
    // If both are the same register, it receives the sum.
    core.state.set::<W>(op.src, a);
    core.state.set::<W>(op.dst, result);
    core.state.flags = flags;
    Flow::Next
}

fn xadd_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let Some(a) = core.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (result, flags) = sum::<W>(a, core.state.get::<W>(op.src));
    if core.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    core.state.set::<W>(op.src, a);
    core.state.flags = flags;
    Flow::Next
}

/// The flags of comparing rax with `a`, and whether they are equal.
#[inline(always)]
fn compare<const W: u32>(core: &Core, a: u64) -> (bool, Flags) {
    let rax = core.state.get::<W>(reg::RAX as u8);
    let flags = Flags::sub::<W>(rax, a, rax.wrapping_sub(a));
    (rax == a, flags)
}

fn cmpxchg_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.dst);
    let (equal, flags) = compare::<W>(core, a);
    // The upper half of the register that is not written does not change.
    if equal {
        let b = core.state.get::<W>(op.src);
        core.state.set::<W>(op.dst, b);
    } else {
        core.state.set::<W>(reg::RAX as u8, a);
    }
    core.state.flags = flags;
    Flow::Next
}

fn cmpxchg_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let Some(a) = core.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (equal, flags) = compare::<W>(core, a);
    // Always written: memory that cannot be written faults.
    let b = if equal {
        core.state.get::<W>(op.src)
    } else {
        a
    };
    if core.store::<W>(address, b).is_none() {
        return Flow::Stop;
    }
    if !equal {
        core.state.set::<W>(reg::RAX as u8, a);
    }
    core.state.flags = flags;
    Flow::Next
}

/// Sets ZF alone.
fn set_zf(core: &mut Core, zf: bool) {
    let others = core.state.flags.bits() & !flags::ZF;
    core.state.flags = Flags::from_bits(if zf { others | flags::ZF } else { others });
}

/// Two registers as one value of twice `W` bits.
fn pair<const W: u32>(core: &Core, high: usize, low: usize) -> u128 {
    u128::from(core.state.get::<W>(high as u8)) << W | u128::from(core.state.get::<W>(low as u8))
}

fn cmpxchg8b(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let Some(a) = core.load_to_store::<64>(address) else {
        return Flow::Stop;
    };
    let equal = pair::<32>(core, reg::RDX, reg::RAX) == u128::from(a);
    let b = if equal {
        pair::<32>(core, reg::RCX, reg::RBX) as u64
    } else {
        a
    };
    if core.store::<64>(address, b).is_none() {
        return Flow::Stop;
    }
    if !equal {
        core.state.set::<32>(reg::RAX as u8, a);
        core.state.set::<32>(reg::RDX as u8, a >> 32);
    }
    set_zf(core, equal);
    Flow::Next
}

fn cmpxchg16b(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);

    // Unlike other locked instructions, this one wants its operand aligned (SDM volume 2,
    // CMPXCHG16B).
    if !address.is_multiple_of(16) {
        return raise(core, Exception::GeneralProtection);
    }

    let Some(bytes) = core.memory.load_bytes(address) else {
        // The fault is that of a store.
        core.memory.check_store(address, 16);
        return Flow::Stop;
    };

    let a = u128::from_le_bytes(bytes);
    let equal = pair::<64>(core, reg::RDX, reg::RAX) == a;
    let b = if equal {
        pair::<64>(core, reg::RCX, reg::RBX)
    } else {
        a
    };

    // A comparison that fails writes the old value, so it also needs memory that can be written.
    if core.memory.store_bytes(address, b.to_le_bytes()).is_none() {
        return Flow::Stop;
    }

    if !equal {
        core.state.set::<64>(reg::RAX as u8, a as u64);
        core.state.set::<64>(reg::RDX as u8, (a >> 64) as u64);
    }

    set_zf(core, equal);
    Flow::Next
}
