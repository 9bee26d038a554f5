//! Atomic exchanges: xadd, cmpxchg, cmpxchg8b, cmpxchg16b. There is only one thread, so a `lock`
//! prefix changes nothing.

use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, by_width, form, width};
use crate::state::{State, reg};
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

fn xadd_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let (a, b) = (state.get::<W>(op.dst), state.get::<W>(op.src));
    let (result, flags) = sum::<W>(a, b);
    // If both are the same register, it receives the sum.
    state.set::<W>(op.src, a);
    state.set::<W>(op.dst, result);
    state.flags = flags;
    Flow::Next
}

fn xadd_mr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    let Some(a) = state.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (result, flags) = sum::<W>(a, state.get::<W>(op.src));
    if state.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    state.set::<W>(op.src, a);
    state.flags = flags;
    Flow::Next
}

/// The flags of comparing rax with `a`, and whether they are equal.
#[inline(always)]
fn compare<const W: u32>(state: &State, a: u64) -> (bool, Flags) {
    let rax = state.get::<W>(reg::RAX as u8);
    let flags = Flags::sub::<W>(rax, a, rax.wrapping_sub(a));
    (rax == a, flags)
}

fn cmpxchg_rr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let a = state.get::<W>(op.dst);
    let (equal, flags) = compare::<W>(state, a);
    // The upper half of the register that is not written does not change.
    if equal {
        let b = state.get::<W>(op.src);
        state.set::<W>(op.dst, b);
    } else {
        state.set::<W>(reg::RAX as u8, a);
    }
    state.flags = flags;
    Flow::Next
}

fn cmpxchg_mr<const W: u32>(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    let Some(a) = state.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (equal, flags) = compare::<W>(state, a);
    // Always written: memory that cannot be written faults.
    let b = if equal { state.get::<W>(op.src) } else { a };
    if state.store::<W>(address, b).is_none() {
        return Flow::Stop;
    }
    if !equal {
        state.set::<W>(reg::RAX as u8, a);
    }
    state.flags = flags;
    Flow::Next
}

/// Sets ZF alone.
fn set_zf(state: &mut State, zf: bool) {
    let others = state.flags.bits() & !flags::ZF;
    state.flags = Flags::from_bits(if zf { others | flags::ZF } else { others });
}

/// Two registers as one value of twice `W` bits.
fn pair<const W: u32>(state: &State, high: usize, low: usize) -> u128 {
    u128::from(state.get::<W>(high as u8)) << W | u128::from(state.get::<W>(low as u8))
}

fn cmpxchg8b(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    let Some(a) = state.load_to_store::<64>(address) else {
        return Flow::Stop;
    };
    let equal = pair::<32>(state, reg::RDX, reg::RAX) == u128::from(a);
    let b = if equal {
        pair::<32>(state, reg::RCX, reg::RBX) as u64
    } else {
        a
    };
    if state.store::<64>(address, b).is_none() {
        return Flow::Stop;
    }
    if !equal {
        state.set::<32>(reg::RAX as u8, a);
        state.set::<32>(reg::RDX as u8, a >> 32);
    }
    set_zf(state, equal);
    Flow::Next
}

fn cmpxchg16b(state: &mut State, op: &Op) -> Flow {
    let address = op.address(state);
    if !address.is_multiple_of(16) {
        return raise(state, Exception::GeneralProtection);
    }
    let Some(bytes) = state.memory.load_bytes(address) else {
        // The fault is that of a store.
        state.memory.check_store(address, 16);
        return Flow::Stop;
    };
    let a = u128::from_le_bytes(bytes);
    let equal = pair::<64>(state, reg::RDX, reg::RAX) == a;
    let b = if equal {
        pair::<64>(state, reg::RCX, reg::RBX)
    } else {
        a
    };
    if state.memory.store_bytes(address, b.to_le_bytes()).is_none() {
        return Flow::Stop;
    }
    if !equal {
        state.set::<64>(reg::RAX as u8, a as u64);
        state.set::<64>(reg::RDX as u8, (a >> 64) as u64);
    }
    set_zf(state, equal);
    Flow::Next
}
