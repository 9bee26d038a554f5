//! BMI1 and BMI2 with VEX prefixes, and ADX. Not here: tzcnt and lzcnt (`bits`).
//!
//! Source: Intel SDM volume 2. Where it leaves AF and PF undefined, AF is clear and PF that of the
//! result, as on an AMD EPYC, family 26, model 2: see [`crate::differences`].

use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::operands::width;
use iced_x86::{Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    Some(match insn.mnemonic() {
        Andn => last::<AndNot>(insn, op)?,
        Pdep => last::<Deposit>(insn, op)?,
        Pext => last::<Extract>(insn, op)?,
        Bextr => middle::<BitField>(insn, op)?,
        Bzhi => middle::<ZeroHigh>(insn, op)?,
        Sarx => middle::<ShiftSigned>(insn, op)?,
        Shlx => middle::<ShiftLeft>(insn, op)?,
        Shrx => middle::<ShiftRight>(insn, op)?,
        Blsi => middle::<Isolate>(insn, op)?,
        Blsmsk => middle::<Mask>(insn, op)?,
        Blsr => middle::<Reset>(insn, op)?,
        Rorx => middle::<RotateRight>(insn, op)?,
        Mulx => {
            swap(insn, op);
            sized!(insn, mulx_r, mulx_m)
        }
        Adcx => sized!(insn, add_r::<false>, add_m::<false>),
        Adox => sized!(insn, add_r::<true>, add_m::<true>),
        _ => return None,
    })
}

/// The function for a last operand in a register or in memory, of 32 or 64 bits.
macro_rules! sized {
    ($insn:expr, $register:ident $(::<$a:tt>)?, $memory:ident $(::<$b:tt>)?) => {
        match (has_memory($insn), width($insn, 0)) {
            (false, 32) => $register::<$($a,)? 32>,
            (false, 64) => $register::<$($a,)? 64>,
            (true, 32) => $memory::<$($b,)? 32>,
            (true, 64) => $memory::<$($b,)? 64>,
            _ => return None,
        }
    };
}
use sized;

fn has_memory(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|number| insn.op_kind(number) == OpKind::Memory)
}

/// A function of a register or memory operand, and of a register or immediate.
trait Function {
    /// Whether the second argument is the immediate.
    const IMMEDIATE: bool = false;

    /// The result, and the flags if they change. `a` and `b` have `W` bits.
    fn apply<const W: u32>(a: u64, b: u64) -> (u64, Option<Flags>);
}

/// Moves the number of the second operand, a register, to where that of the third one is, and the
/// other way round.
fn swap(insn: &Instruction, op: &mut Op) {
    (op.src, op.extra) = if has_memory(insn) {
        (0, op.src)
    } else {
        (op.extra, op.src)
    };
}

/// The last of the three operands is a register or memory.
fn last<F: Function>(insn: &Instruction, op: &mut Op) -> Option<Run> {
    swap(insn, op);
    middle::<F>(insn, op)
}

/// The second operand is a register or memory. There may be a third one, a register or immediate.
fn middle<F: Function>(insn: &Instruction, _: &mut Op) -> Option<Run> {
    Some(match (has_memory(insn), width(insn, 0)) {
        (false, 32) => function_r::<F, 32>,
        (false, 64) => function_r::<F, 64>,
        (true, 32) => function_m::<F, 32>,
        (true, 64) => function_m::<F, 64>,
        _ => return None,
    })
}

#[inline(always)]
fn function<F: Function, const W: u32>(core: &mut Core, op: &Op, a: u64) -> Flow {
    let b = if F::IMMEDIATE {
        op.imm()
    } else {
        core.state.get::<W>(op.extra)
    };
    let (result, flags) = F::apply::<W>(a, b);
    core.state.set::<W>(op.dst, result);
    if let Some(flags) = flags {
        core.state.flags = flags;
    }
    Flow::Next
}

fn function_r<F: Function, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.src);
    function::<F, W>(core, op, a)
}

fn function_m<F: Function, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(a) => function::<F, W>(core, op, a),
        None => Flow::Stop,
    }
}

/// The lowest `count` bits, or all.
#[inline(always)]
fn low(count: u64) -> u64 {
    match count {
        0..=63 => !(u64::MAX << count),
        _ => u64::MAX,
    }
}

/// Implements functions by type.
macro_rules! functions {
    ($($name:ident $(immediate = $immediate:literal)?: |$a:ident, $b:ident, $w:ident| $result:expr;)*) => {
        $(
            struct $name;
            impl Function for $name {
                $(const IMMEDIATE: bool = $immediate;)?
                #[inline(always)]
                fn apply<const W: u32>($a: u64, $b: u64) -> (u64, Option<Flags>) {
                    let $w = W;
                    $result
                }
            }
        )*
    };
}

functions! {
    // The second operand is inverted.
    AndNot: |a, b, _w| flagged::<W>(!b & a, false);
    // CF: the source has a bit.
    Isolate: |a, _b, _w| flagged::<W>(a & a.wrapping_neg(), a != 0);
    // CF: the source has none, in the next two.
    Mask: |a, _b, _w| flagged::<W>(a ^ a.wrapping_sub(1), a == 0);
    Reset: |a, _b, _w| flagged::<W>(a & a.wrapping_sub(1), a == 0);
    BitField: |a, b, _w| {
        let (start, length) = (b & 0xff, b >> 8 & 0xff);
        let field = if start < 64 { a >> start } else { 0 };
        let field = field & low(length);
        // SF and AF are undefined: clear and set on an AMD EPYC, family 26, model 2.
        let flags = Flags::logic::<64>(field).bits() & !flags::SF | flags::AF;
        (field, Some(Flags::from_bits(flags)))
    };
    ZeroHigh: |a, b, w| {
        let count = b & 0xff;
        flagged::<W>(a & low(count), count >= w.into())
    };
    ShiftSigned: |a, b, w| {
        let a = flags::sign_extend::<W>(a).cast_signed();
        ((a >> (b & u64::from(w - 1))).cast_unsigned(), None)
    };
    ShiftLeft: |a, b, w| (a << (b & u64::from(w - 1)), None);
    ShiftRight: |a, b, w| (a >> (b & u64::from(w - 1)), None);
    RotateRight immediate = true: |a, b, w| {
        let count = b as u32 & (w - 1);
        (a >> count | a.wrapping_shl(w - count), None)
    };
    Deposit: |mask, from, _w| (deposit(from, mask), None);
    Extract: |mask, from, _w| (extract(from, mask), None);
}

#[inline(always)]
fn flagged<const W: u32>(result: u64, cf: bool) -> (u64, Option<Flags>) {
    (result, Some(Flags::result_with::<W>(result, cf, false)))
}

/// The lowest bits of `from`, in the places of the bits of the mask.
fn deposit(mut from: u64, mut mask: u64) -> u64 {
    let mut result = 0;
    while mask != 0 {
        let bit = mask & mask.wrapping_neg();
        if from & 1 != 0 {
            result |= bit;
        }
        from >>= 1;
        mask ^= bit;
    }
    result
}

/// The bits of `from` in the places of the mask, gathered in the lowest bits.
fn extract(from: u64, mut mask: u64) -> u64 {
    let mut result = 0;
    let mut to = 1_u64;
    while mask != 0 {
        let bit = mask & mask.wrapping_neg();
        if from & bit != 0 {
            result |= to;
        }
        to = to.wrapping_shl(1);
        mask ^= bit;
    }
    result
}

/// The upper half of the product with rdx goes to the first operand, the lower one to the second.
/// If they are the same register, it gets the upper half.
#[inline(always)]
fn multiply<const W: u32>(core: &mut Core, op: &Op, a: u64) -> Flow {
    let product = u128::from(a) * u128::from(core.state.get::<W>(crate::state::reg::RDX as u8));
    core.state.set::<W>(op.extra, product as u64);
    core.state.set::<W>(op.dst, (product >> W) as u64);
    Flow::Next
}

fn mulx_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.src);
    multiply::<W>(core, op, a)
}

fn mulx_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(a) => multiply::<W>(core, op, a),
        None => Flow::Stop,
    }
}

/// Adds with a carry from CF, or from OF, and to the same flag. The others do not change.
#[inline(always)]
fn add<const OVERFLOW: bool, const W: u32>(core: &mut Core, op: &Op, b: u64) -> Flow {
    let flags = core.state.flags;
    let carry = if OVERFLOW { flags.of() } else { flags.cf() };
    let sum = u128::from(core.state.get::<W>(op.dst)) + u128::from(b) + u128::from(carry);
    core.state.set::<W>(op.dst, sum as u64);
    let carry = sum >> W != 0;
    if OVERFLOW {
        core.state.flags.set_carries(flags.cf(), carry)
    } else {
        core.state.flags.set_carries(carry, flags.of())
    }
    Flow::Next
}

fn add_r<const OVERFLOW: bool, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.src);
    add::<OVERFLOW, W>(core, op, b)
}

fn add_m<const OVERFLOW: bool, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(b) => add::<OVERFLOW, W>(core, op, b),
        None => Flow::Stop,
    }
}
