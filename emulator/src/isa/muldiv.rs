//! Integer multiplication and division: mul, imul, div, idiv.

use crate::core::Core;
use crate::flags::{Flags, sign_extend};
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, by_width, form, width};
use crate::state::{mask, reg};
use crate::stop::Exception;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    let width = width(insn, 0);
    Some(match (insn.mnemonic(), form(insn), insn.op_count()) {
        (Mnemonic::Mul, Form::R, _) => by_width!(width, mul_r),
        (Mnemonic::Mul, Form::M, _) => by_width!(width, mul_m),
        (Mnemonic::Imul, Form::R, _) => by_width!(width, imul_r),
        (Mnemonic::Imul, Form::M, _) => by_width!(width, imul_m),
        (Mnemonic::Imul, Form::RR, 2) => by_width!(width, imul_rr),
        (Mnemonic::Imul, Form::RM, 2) => by_width!(width, imul_rm),
        (Mnemonic::Imul, Form::RR, 3) => by_width!(width, imul_rri),
        (Mnemonic::Imul, Form::RM, 3) => by_width!(width, imul_rmi),
        (Mnemonic::Div, Form::R, _) => by_width!(width, div_r),
        (Mnemonic::Div, Form::M, _) => by_width!(width, div_m),
        (Mnemonic::Idiv, Form::R, _) => by_width!(width, idiv_r),
        (Mnemonic::Idiv, Form::M, _) => by_width!(width, idiv_m),
        _ => return None,
    })
}

/// The low `W` bits as a signed value.
#[inline(always)]
fn signed<const W: u32>(value: u64) -> i64 {
    sign_extend::<W>(value).cast_signed()
}

/// The lower and the upper half of the product, `W` bits each, and whether it does not fit the
/// lower half.
#[inline(always)]
fn product<const SIGNED: bool, const W: u32>(a: u64, b: u64) -> (u64, u64, bool) {
    if SIGNED {
        let wide = i128::from(signed::<W>(a)) * i128::from(signed::<W>(b));
        let low = wide as u64;
        (
            low,
            (wide >> W) as u64,
            i128::from(signed::<W>(low)) != wide,
        )
    } else {
        let wide = u128::from(a) * u128::from(b);
        let high = (wide >> W) as u64;
        (wide as u64, high, high != 0)
    }
}

/// CF and OF are defined. On Intel's processors the others are those of the lower half, except for
/// ZF and AF, which are clear.
#[inline(always)]
fn product_flags<const W: u32>(low: u64, large: bool) -> Flags {
    if low & mask::<W>() == 0 {
        // PF is that of 0.
        return Flags::result_with::<64>(1 << 8, large, large);
    }
    Flags::result_with::<W>(low, large, large)
}

/// Multiplies rax by `b` into rdx and rax; for bytes, al by `b` into ax.
#[inline(always)]
fn multiply<const SIGNED: bool, const W: u32>(core: &mut Core, b: u64) -> Flow {
    let a = core.state.get::<W>(reg::RAX as u8);
    let (low, high, large) = product::<SIGNED, W>(a, b);
    set_pair::<W>(core, low, high);
    core.state.flags = product_flags::<W>(low, large);
    Flow::Next
}

/// Sets rax and rdx, or al and ah.
#[inline(always)]
fn set_pair<const W: u32>(core: &mut Core, low: u64, high: u64) {
    let upper = if W == 8 { reg::HIGH } else { reg::RDX as u8 };
    core.state.set::<W>(reg::RAX as u8, low);
    core.state.set::<W>(upper, high);
}

fn mul_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.dst);
    multiply::<false, W>(core, b)
}

fn mul_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(b) => multiply::<false, W>(core, b),
        None => Flow::Stop,
    }
}

fn imul_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let b = core.state.get::<W>(op.dst);
    multiply::<true, W>(core, b)
}

fn imul_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(b) => multiply::<true, W>(core, b),
        None => Flow::Stop,
    }
}

/// Multiplies `a` by `b` into a register, truncated.
#[inline(always)]
fn multiply_to<const W: u32>(core: &mut Core, op: &Op, a: u64, b: u64) -> Flow {
    let (low, _, large) = product::<true, W>(a, b);
    core.state.set::<W>(op.dst, low);
    core.state.flags = product_flags::<W>(low, large);
    Flow::Next
}

fn imul_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (core.state.get::<W>(op.dst), core.state.get::<W>(op.src));
    multiply_to::<W>(core, op, a, b)
}

fn imul_rm<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(b) => multiply_to::<W>(core, op, core.state.get::<W>(op.dst), b),
        None => Flow::Stop,
    }
}

fn imul_rri<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let a = core.state.get::<W>(op.src);
    multiply_to::<W>(core, op, a, op.imm())
}

fn imul_rmi<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(a) => multiply_to::<W>(core, op, a, op.imm()),
        None => Flow::Stop,
    }
}

/// The quotient and the remainder of a dividend given as two halves of `W` bits. `None` if the
/// quotient does not fit.
#[inline(always)]
fn quotient<const W: u32>(high: u64, low: u64, divisor: u64) -> Option<(u64, u64)> {
    // Otherwise the quotient fits, and the divisor is not 0.
    if high >= divisor {
        return None;
    }
    if W < 64 || high == 0 {
        let dividend = if W < 64 { high << W | low } else { low };
        return Some((dividend / divisor, dividend % divisor));
    }
    let (dividend, divisor) = (
        u128::from(high) << 64 | u128::from(low),
        u128::from(divisor),
    );
    Some(((dividend / divisor) as u64, (dividend % divisor) as u64))
}

/// The same, signed: rounded toward 0; the remainder has the sign of the dividend.
#[inline(always)]
fn quotient_signed<const W: u32>(high: u64, low: u64, divisor: u64) -> Option<(u64, u64)> {
    let divisor = signed::<W>(divisor);
    if W < 64 {
        let dividend = signed::<W>(high) << W | low.cast_signed();
        let quotient = dividend.checked_div(divisor)?;
        let fits = signed::<W>(quotient.cast_unsigned()) == quotient;
        // If the quotient fits, the division does not overflow.
        let remainder = dividend.wrapping_rem(divisor);
        return fits.then_some((quotient.cast_unsigned(), remainder.cast_unsigned()));
    }
    if high == (low.cast_signed() >> 63).cast_unsigned() {
        let low = low.cast_signed();
        let quotient = low.checked_div(divisor)?;
        let remainder = low.wrapping_rem(divisor);
        return Some((quotient.cast_unsigned(), remainder.cast_unsigned()));
    }
    let dividend = (u128::from(high) << 64 | u128::from(low)).cast_signed();
    let divisor = i128::from(divisor);
    let quotient = i64::try_from(dividend.checked_div(divisor)?).ok()?;
    Some((quotient.cast_unsigned(), (dividend % divisor) as u64))
}

/// Divides rdx and rax, or ax. The flags are undefined; they do not change.
#[inline(always)]
fn divide<const SIGNED: bool, const W: u32>(core: &mut Core, divisor: u64) -> Flow {
    let upper = if W == 8 { reg::HIGH } else { reg::RDX as u8 };
    let (high, low) = (
        core.state.get::<W>(upper),
        core.state.get::<W>(reg::RAX as u8),
    );
    let result = if SIGNED {
        quotient_signed::<W>(high, low, divisor)
    } else {
        quotient::<W>(high, low, divisor)
    };
    let Some((quotient, remainder)) = result else {
        return raise(core, Exception::Divide);
    };
    set_pair::<W>(core, quotient, remainder);
    Flow::Next
}

fn div_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let divisor = core.state.get::<W>(op.dst);
    divide::<false, W>(core, divisor)
}

fn div_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(divisor) => divide::<false, W>(core, divisor),
        None => Flow::Stop,
    }
}

fn idiv_r<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let divisor = core.state.get::<W>(op.dst);
    divide::<true, W>(core, divisor)
}

fn idiv_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    match core.load::<W>(op.address(core)) {
        Some(divisor) => divide::<true, W>(core, divisor),
        None => Flow::Stop,
    }
}
