//! Shifts and rotations: shl, shr, sar, rol, ror, rcl, rcr, shld, shrd.
//!
//! A count of 0 changes neither flags nor memory, but a 32-bit instruction still clears the upper
//! half of a register, and memory must be writable. Flags that the SDM leaves undefined are those
//! of Intel's processors: OF is that of a count of 1, whatever the count is, and AF is clear.

use crate::core::Core;
use crate::flags::{Flags, sign_extend};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, by_width, form, width};
use crate::state::{mask, reg};
use iced_x86::{Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    match insn.mnemonic() {
        Mnemonic::Shl | Mnemonic::Sal => single::<Shl>(insn),
        Mnemonic::Shr => single::<Shr>(insn),
        Mnemonic::Sar => single::<Sar>(insn),
        Mnemonic::Rol => single::<Rol>(insn),
        Mnemonic::Ror => single::<Ror>(insn),
        Mnemonic::Rcl => single::<Rcl>(insn),
        Mnemonic::Rcr => single::<Rcr>(insn),
        Mnemonic::Shld => double::<Shld>(insn),
        Mnemonic::Shrd => double::<Shrd>(insn),
        _ => None,
    }
}

/// A shift or rotation of `W` bits.
trait Shift {
    /// The result and the flags. Only the low `W` bits of the result count. `count` is at least 1,
    /// and less than 64 if `W` is 64, otherwise less than 32.
    fn apply<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, Flags);
}

fn single<S: Shift>(insn: &Instruction) -> Option<Run> {
    Some(match form(insn) {
        Form::RI => by_width!(width(insn, 0), ri, S),
        Form::MI => by_width!(width(insn, 0), mi, S),
        Form::RR => by_width!(width(insn, 0), rc, S),
        Form::MR => by_width!(width(insn, 0), mc, S),
        _ => return None,
    })
}

#[inline(always)]
fn shift<S: Shift, const MEMORY: bool, const W: u32>(core: &mut Core, op: &Op, count: u64) -> Flow {
    let count = masked::<W>(count);
    modify::<MEMORY, W>(core, op, |a, flags| match count {
        0 => (a, flags),
        count => S::apply::<W>(flags, a, count),
    })
}

/// Changes the first operand, in memory or a register, and the flags.
#[inline(always)]
fn modify<const MEMORY: bool, const W: u32>(
    core: &mut Core,
    op: &Op,
    new: impl FnOnce(u64, Flags) -> (u64, Flags),
) -> Flow {
    if !MEMORY {
        let (result, flags) = new(core.state.get::<W>(op.dst), core.state.flags);
        core.state.set::<W>(op.dst, result);
        core.state.flags = flags;
        return Flow::Next;
    }
    let address = op.address(core);
    let Some(a) = core.load_to_store::<W>(address) else {
        return Flow::Stop;
    };
    let (result, flags) = new(a, core.state.flags);
    if core.store::<W>(address, result).is_none() {
        return Flow::Stop;
    }
    core.state.flags = flags;
    Flow::Next
}

/// The bits of a count that are used.
#[inline(always)]
fn masked<const W: u32>(count: u64) -> u32 {
    count as u32 & if W == 64 { 63 } else { 31 }
}

fn ri<S: Shift, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    shift::<S, false, W>(core, op, op.imm())
}

fn mi<S: Shift, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    shift::<S, true, W>(core, op, op.imm())
}

fn rc<S: Shift, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    shift::<S, false, W>(core, op, core.state.gpr[reg::RCX])
}

fn mc<S: Shift, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    shift::<S, true, W>(core, op, core.state.gpr[reg::RCX])
}

/// Bit `number` of a value.
#[inline(always)]
fn bit(value: u64, number: u32) -> bool {
    value >> number & 1 != 0
}

/// Whether shifting left by 1 changes the sign.
#[inline(always)]
fn top_differs<const W: u32>(a: u64) -> bool {
    bit(a, W - 1) != bit(a, W - 2)
}

struct Shl;
impl Shift for Shl {
    #[inline(always)]
    fn apply<const W: u32>(_: Flags, a: u64, count: u32) -> (u64, Flags) {
        let result = a << count;
        let cf = if W == 64 {
            bit(a, 64 - count)
        } else {
            bit(result, W)
        };
        (
            result,
            Flags::result_with::<W>(result, cf, top_differs::<W>(a)),
        )
    }
}

struct Shr;
impl Shift for Shr {
    #[inline(always)]
    fn apply<const W: u32>(_: Flags, a: u64, count: u32) -> (u64, Flags) {
        let last = a >> (count - 1);
        let result = last >> 1;
        let of = bit(a, W - 1);
        (result, Flags::result_with::<W>(result, bit(last, 0), of))
    }
}

struct Sar;
impl Shift for Sar {
    #[inline(always)]
    fn apply<const W: u32>(_: Flags, a: u64, count: u32) -> (u64, Flags) {
        let last = sign_extend::<W>(a).cast_signed() >> (count - 1);
        let result = (last >> 1).cast_unsigned();
        (
            result,
            Flags::result_with::<W>(result, last & 1 != 0, false),
        )
    }
}

/// Rotates left by less than `W`.
#[inline(always)]
fn rotated<const W: u32>(a: u64, count: u32) -> u64 {
    if W == 64 {
        a.rotate_left(count)
    } else {
        a << count | a >> (W - count)
    }
}

/// Changes only CF and OF.
#[inline(always)]
fn carries(mut flags: Flags, result: u64, cf: bool, of: bool) -> (u64, Flags) {
    flags.set_carries(cf, of);
    (result, flags)
}

struct Rol;
impl Shift for Rol {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, Flags) {
        let result = rotated::<W>(a, count % W);
        carries(flags, result, bit(result, 0), top_differs::<W>(a))
    }
}

struct Ror;
impl Shift for Ror {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, Flags) {
        let result = rotated::<W>(a, (W - count % W) % W);
        let of = bit(a, 0) != bit(a, W - 1);
        carries(flags, result, bit(result, W - 1), of)
    }
}

/// Rotates `W` bits with the carry above them left by 1 to `W`.
#[inline(always)]
fn rotated_with_carry<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, bool) {
    let all = u128::from(flags.cf()) << W | u128::from(a);
    let all = all << count | all >> (W + 1 - count);
    (all as u64 & mask::<W>(), all >> W & 1 != 0)
}

struct Rcl;
impl Shift for Rcl {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, Flags) {
        let count = count % (W + 1);
        if count == 0 {
            return (a, flags);
        }
        let (result, cf) = rotated_with_carry::<W>(flags, a, count);
        carries(flags, result, cf, top_differs::<W>(a))
    }
}

struct Rcr;
impl Shift for Rcr {
    #[inline(always)]
    fn apply<const W: u32>(flags: Flags, a: u64, count: u32) -> (u64, Flags) {
        let count = count % (W + 1);
        if count == 0 {
            return (a, flags);
        }
        let (result, cf) = rotated_with_carry::<W>(flags, a, W + 1 - count);
        carries(flags, result, cf, bit(a, W - 1) != flags.cf())
    }
}

/// A shift of one operand that takes bits from another one.
trait Double {
    /// Like [`Shift::apply`].
    fn apply<const W: u32>(a: u64, fill: u64, count: u32) -> (u64, Flags);
}

fn double<D: Double>(insn: &Instruction) -> Option<Run> {
    let by_cl = insn.op_kind(2) == OpKind::Register;
    Some(match (form(insn), by_cl) {
        (Form::RR, false) => by_width!(width(insn, 0), double_ri, D),
        (Form::RR, true) => by_width!(width(insn, 0), double_rc, D),
        (Form::MR, false) => by_width!(width(insn, 0), double_mi, D),
        (Form::MR, true) => by_width!(width(insn, 0), double_mc, D),
        _ => return None,
    })
}

#[inline(always)]
fn double_shift<D: Double, const MEMORY: bool, const W: u32>(
    core: &mut Core,
    op: &Op,
    count: u64,
) -> Flow {
    let count = masked::<W>(count);
    let fill = core.state.get::<W>(op.src);
    modify::<MEMORY, W>(core, op, |a, flags| match count {
        0 => (a, flags),
        count => D::apply::<W>(a, fill, count),
    })
}

fn double_ri<D: Double, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    double_shift::<D, false, W>(core, op, op.imm())
}

fn double_mi<D: Double, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    double_shift::<D, true, W>(core, op, op.imm())
}

fn double_rc<D: Double, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    double_shift::<D, false, W>(core, op, core.state.gpr[reg::RCX])
}

fn double_mc<D: Double, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    double_shift::<D, true, W>(core, op, core.state.gpr[reg::RCX])
}

// For 16 bits shifted by more than 16, which the SDM leaves undefined, bits of the first operand
// follow those of the second one.

struct Shld;
impl Double for Shld {
    #[inline(always)]
    fn apply<const W: u32>(a: u64, fill: u64, count: u32) -> (u64, Flags) {
        let (result, cf) = if W == 64 {
            (a << count | fill >> (64 - count), bit(a, 64 - count))
        } else {
            let all = u128::from(a) << (2 * W) | u128::from(fill) << W | u128::from(a);
            let shifted = (all >> (2 * W - count)) as u64;
            (shifted & mask::<W>(), bit(shifted, W))
        };
        (
            result,
            Flags::result_with::<W>(result, cf, top_differs::<W>(a)),
        )
    }
}

struct Shrd;
impl Double for Shrd {
    #[inline(always)]
    fn apply<const W: u32>(a: u64, fill: u64, count: u32) -> (u64, Flags) {
        let last = if W == 64 {
            (u128::from(fill) << 64 | u128::from(a)) >> (count - 1)
        } else {
            (u128::from(a) << (2 * W) | u128::from(fill) << W | u128::from(a)) >> (count - 1)
        };
        let result = (last >> 1) as u64 & mask::<W>();
        let of = bit(fill, 0) != bit(a, W - 1);
        (result, Flags::result_with::<W>(result, last & 1 != 0, of))
    }
}
