//! Integer arithmetic and logic: add, or, adc, sbb, and, sub, xor, cmp, test, inc, dec, neg, not.
//! Not here: shifts, multiplication, division, bit operations.

use crate::core::Core;
use crate::flags::Flags;
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, by_width, form, width};
use crate::state::mask;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, _: &mut Op) -> Option<Run> {
    match insn.mnemonic() {
        Mnemonic::Add => binary::<Add>(insn),
        Mnemonic::Or => binary::<Or>(insn),
        Mnemonic::Adc => binary::<Adc>(insn),
        Mnemonic::Sbb => binary::<Sbb>(insn),
        Mnemonic::And => binary::<And>(insn),
        Mnemonic::Sub => binary::<Sub>(insn),
        Mnemonic::Xor => binary::<Xor>(insn),
        Mnemonic::Cmp => binary::<Cmp>(insn),
        Mnemonic::Test => binary::<Test>(insn),
        Mnemonic::Inc => unary::<Inc>(insn),
        Mnemonic::Dec => unary::<Dec>(insn),
        Mnemonic::Neg => unary::<Neg>(insn),
        Mnemonic::Not => unary::<Not>(insn),
        _ => None,
    }
}

/// An operation on two operands that writes the first one and the flags.
pub(super) trait Binary {
    /// Whether the result is written, or only the flags.
    const WRITES: bool = true;

    /// The result and the flags. Only the low `W` bits of the result count.
    fn apply<const W: u32>(flags: Flags, a: u64, b: u64) -> (u64, Flags);
}

macro_rules! logic {
    ($($name:ident: $operator:tt, $writes:literal;)*) => {$(
        pub(super) struct $name;
        impl Binary for $name {
            const WRITES: bool = $writes;
            #[inline(always)]
            fn apply<const W: u32>(_: Flags, a: u64, b: u64) -> (u64, Flags) {
                let result = a $operator b;
                (result, Flags::logic::<W>(result))
            }
        }
    )*};
}
logic! {
    Or: |, true;
    And: &, true;
    Xor: ^, true;
    Test: &, false;
}

pub(super) struct Add;
impl Binary for Add {
    #[inline(always)]
    fn apply<const W: u32>(_: Flags, a: u64, b: u64) -> (u64, Flags) {
        let result = a.wrapping_add(b);
        (result, Flags::add::<W>(a, b, result))
    }
}

struct Adc;
impl Binary for Adc {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, b: u64) -> (u64, Flags) {
        let result = a.wrapping_add(b).wrapping_add(flags.cf().into());
        (result, Flags::add::<W>(a, b, result))
    }
}

pub(super) struct Sub;
impl Binary for Sub {
    #[inline(always)]
    fn apply<const W: u32>(_: Flags, a: u64, b: u64) -> (u64, Flags) {
        let result = a.wrapping_sub(b);
        (result, Flags::sub::<W>(a, b, result))
    }
}

pub(super) struct Cmp;
impl Binary for Cmp {
    const WRITES: bool = false;
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, b: u64) -> (u64, Flags) {
        Sub::apply::<W>(flags, a, b)
    }
}

struct Sbb;
impl Binary for Sbb {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, b: u64) -> (u64, Flags) {
        let result = a.wrapping_sub(b).wrapping_sub(flags.cf().into());
        (result, Flags::sub::<W>(a, b, result))
    }
}

fn binary<B: Binary>(insn: &Instruction) -> Option<Run> {
    Some(match form(insn) {
        Form::RR => by_width!(width(insn, 0), rr, B),
        Form::RM => by_width!(width(insn, 0), rm, B),
        Form::MR => by_width!(width(insn, 0), mr, B),
        Form::RI => by_width!(width(insn, 0), ri, B),
        Form::MI => by_width!(width(insn, 0), mi, B),
        _ => return None,
    })
}

#[inline(always)]
pub(super) fn to_register<B: Binary, const W: u32>(core: &mut Core, op: &Op, b: u64) -> Flow {
    let (result, flags) = B::apply::<W>(core.state.flags, core.state.get::<W>(op.dst), b);
    if B::WRITES {
        core.state.set::<W>(op.dst, result);
    }
    core.state.flags = flags;
    Flow::Next
}

#[inline(always)]
pub(super) fn to_memory<B: Binary, const W: u32>(core: &mut Core, op: &Op, b: u64) -> Flow {
    let address = op.address(core);
    let loaded = if B::WRITES {
        core.load_to_store::<W>(address)
    } else {
        core.load::<W>(address)
    };
    let Some(a) = loaded else {
        return Flow::Stop;
    };
    let (result, flags) = B::apply::<W>(core.state.flags, a, b);
    if B::WRITES && core.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    core.state.flags = flags;
    Flow::Next
}

fn rr<B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.src);
    to_register::<B, W>(core, op, b)
}

fn rm<B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(b) => to_register::<B, W>(core, op, b),
        None => Flow::Stop,
    }
}

fn ri<B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    to_register::<B, W>(core, op, op.imm() & mask::<W>())
}

fn mr<B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.src);
    to_memory::<B, W>(core, op, b)
}

fn mi<B: Binary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    to_memory::<B, W>(core, op, op.imm() & mask::<W>())
}

/// An operation on one operand, which it writes.
trait Unary {
    fn apply<const W: u32>(flags: Flags, a: u64) -> (u64, Flags);
}

struct Inc;
impl Unary for Inc {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64) -> (u64, Flags) {
        let (result, mut new) = Add::apply::<W>(flags, a, 1);
        new.set_cf(flags.cf());
        (result, new)
    }
}

struct Dec;
impl Unary for Dec {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64) -> (u64, Flags) {
        let (result, mut new) = Sub::apply::<W>(flags, a, 1);
        new.set_cf(flags.cf());
        (result, new)
    }
}

struct Neg;
impl Unary for Neg {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64) -> (u64, Flags) {
        Sub::apply::<W>(flags, 0, a)
    }
}

struct Not;
impl Unary for Not {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64) -> (u64, Flags) {
        (!a, flags)
    }
}

fn unary<U: Unary>(insn: &Instruction) -> Option<Run> {
    Some(match form(insn) {
        Form::R => by_width!(width(insn, 0), r, U),
        Form::M => by_width!(width(insn, 0), m, U),
        _ => return None,
    })
}

fn r<U: Unary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let (result, flags) = U::apply::<W>(core.state.flags, core.state.get::<W>(op.dst));
    core.state.set::<W>(op.dst, result);
    core.state.flags = flags;
    Flow::Next
}

fn m<U: Unary, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let Some(a) = core.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (result, flags) = U::apply::<W>(core.state.flags, a);
    if core.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    core.state.flags = flags;
    Flow::Next
}
