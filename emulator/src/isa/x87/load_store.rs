//! Loads and stores, constants, `fxch`.

use super::arithmetic::both;
use super::execute::{commit, execute, wait};
use crate::core::Core;
use crate::float::x87::{
    Env, F80, IntegerWidth, Outcome, from_binary32, from_binary64, from_decimal, from_integer,
    to_binary32, to_binary64, to_decimal, to_integer,
};
use crate::float::{Exceptions, Rounding};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use crate::processor::Vendor;
use crate::state::fpu::C1;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn), width(insn, 0)) {
        (Fld, Form::M, 32) => load::<Single>,
        (Fld, Form::M, 64) => load::<Double>,
        // 80 bits; the other two are told by the operand's width.
        (Fld, Form::M, _) => load::<Extended>,
        (Fld, ..) => load_register,
        (Fild, _, 16) => load::<Integer16>,
        (Fild, _, 32) => load::<Integer32>,
        (Fild, ..) => load::<Integer64>,
        (Fbld, ..) => load::<Decimal>,
        (Fst, Form::M, 32) => store::<Single, 4, false>,
        (Fst, Form::M, _) => store::<Double, 8, false>,
        (Fst, ..) => store_register::<false>,
        (Fstp, Form::M, 32) => store::<Single, 4, true>,
        (Fstp, Form::M, 64) => store::<Double, 8, true>,
        (Fstp, Form::M, _) => store::<Extended, 10, true>,
        (Fstp, ..) => store_register::<true>,
        // Not in the manual: it only pops if ST(0) is empty.
        (Fstpnce, ..) => move_register,
        (Fist, _, 16) => store::<Integer16, 2, false>,
        (Fist, ..) => store::<Integer32, 4, false>,
        (Fistp, _, 16) => store::<Integer16, 2, true>,
        (Fistp, _, 32) => store::<Integer32, 4, true>,
        (Fistp, ..) => store::<Integer64, 8, true>,
        // `fisttp` truncates whatever the control word says.
        (Fisttp, _, 16) => store::<Truncated16, 2, true>,
        (Fisttp, _, 32) => store::<Truncated32, 4, true>,
        (Fisttp, ..) => store::<Truncated64, 8, true>,
        (Fbstp, ..) => store::<Decimal, 10, true>,
        (Fxch, ..) => exchange,
        (Fld1, ..) => |core, op| constant(core, op, F80::ONE, false),
        (Fldz, ..) => |core, op| constant(core, op, F80::default(), false),
        // The flag says whether the nearest value lies above the exact one, which decides the other
        // roundings.
        (Fldl2t, ..) => |core, op| constant(core, op, LOG2_10, false),
        (Fldl2e, ..) => |core, op| constant(core, op, LOG2_E, true),
        (Fldpi, ..) => |core, op| constant(core, op, PI, true),
        (Fldlg2, ..) => |core, op| constant(core, op, LOG10_2, true),
        (Fldln2, ..) => |core, op| constant(core, op, LOG_2, true),
        _ => return None,
    })
}

/// A format that can be loaded.
trait Load {
    fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)>;
}

/// A format of `N` bytes that can be stored.
trait Store<const N: usize> {
    fn convert(a: F80, env: Env) -> Outcome<[u8; N]>;
}

struct Single;
struct Double;
struct Extended;
struct Decimal;
struct Integer16;
struct Integer32;
struct Integer64;
/// The integer formats of `fisttp`.
struct Truncated16;
struct Truncated32;
struct Truncated64;

impl Load for Single {
    fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)> {
        Some(from_binary32(core.load::<32>(address)? as u32))
    }
}

impl Load for Double {
    fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)> {
        Some(from_binary64(core.load::<64>(address)?))
    }
}

impl Load for Extended {
    fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)> {
        let bytes = core.memory.load_bytes(address)?;
        Some((F80::from_bytes(bytes), Exceptions::NONE))
    }
}

impl Load for Decimal {
    fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)> {
        let bytes = core.memory.load_bytes(address)?;
        Some((from_decimal(bytes), Exceptions::NONE))
    }
}

macro_rules! integers {
    ($($name:ident, $truncated:ident, $width:ident, $integer:ty, $bytes:literal;)*) => {$(
        impl Load for $name {
            fn load(core: &mut Core, address: u64) -> Option<(F80, Exceptions)> {
                let integer = <$integer>::from_le_bytes(core.memory.load_bytes(address)?);
                Some((from_integer(integer.into()), Exceptions::NONE))
            }
        }

        impl Store<$bytes> for $name {
            fn convert(a: F80, env: Env) -> Outcome<[u8; $bytes]> {
                let outcome = to_integer(a, IntegerWidth::$width, env.rounding);
                with(outcome, |integer| (integer as $integer).to_le_bytes())
            }
        }

        impl Store<$bytes> for $truncated {
            fn convert(a: F80, _: Env) -> Outcome<[u8; $bytes]> {
                let outcome = to_integer(a, IntegerWidth::$width, Rounding::Zero);
                with(outcome, |integer| (integer as $integer).to_le_bytes())
            }
        }
    )*};
}

integers! {
    Integer16, Truncated16, Bits16, i16, 2;
    Integer32, Truncated32, Bits32, i32, 4;
    Integer64, Truncated64, Bits64, i64, 8;
}

impl Store<4> for Single {
    fn convert(a: F80, env: Env) -> Outcome<[u8; 4]> {
        with(to_binary32(a, env), u32::to_le_bytes)
    }
}

impl Store<8> for Double {
    fn convert(a: F80, env: Env) -> Outcome<[u8; 8]> {
        with(to_binary64(a, env), u64::to_le_bytes)
    }
}

impl Store<10> for Extended {
    fn convert(a: F80, _: Env) -> Outcome<[u8; 10]> {
        exact(a.to_bytes())
    }
}

impl Store<10> for Decimal {
    fn convert(a: F80, env: Env) -> Outcome<[u8; 10]> {
        to_decimal(a, env)
    }
}

fn exact<T>(value: T) -> Outcome<T> {
    Outcome {
        value,
        exceptions: Exceptions::NONE,
        rounded_up: false,
    }
}

/// Converts the value of an outcome.
fn with<T, U>(outcome: Outcome<T>, form: impl FnOnce(T) -> U) -> Outcome<U> {
    Outcome {
        value: form(outcome.value),
        exceptions: outcome.exceptions,
        rounded_up: outcome.rounded_up,
    }
}

fn load<L: Load>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    match L::load(core, op.address(core)) {
        Some((value, exceptions)) => commit(core, op, |fpu| fpu.load(value, exceptions)),
        None => Flow::Stop,
    }
}

/// `fld st(i)`.
fn load_register(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| match fpu.st(op.dst) {
        Some(value) => fpu.load(value, Exceptions::NONE),
        None => {
            if fpu.stack_fault(false) {
                fpu.push(F80::INDEFINITE);
            }
        }
    })
}

fn store<S: Store<N>, const N: usize, const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }

    let env = core.state.fpu.env();
    let value = core.state.fpu.st(0);

    // An empty register gives the result of an invalid operation.
    let outcome = S::convert(value.unwrap_or(F80::INDEFINITE), env);
    let exceptions = match value {
        Some(_) => outcome.exceptions,
        None => Exceptions::INVALID,
    };

    // An unmasked exception other than PE keeps memory and the stack as they were.
    let stopped = core
        .state
        .fpu
        .unmasks(exceptions.without(Exceptions::PRECISION));

    // The operand is checked only now: exceptions of the value come before faults of memory.
    let address = op.address(core);
    // If nothing is to be stored, AMD's processors still check memory (seen on an EPYC, family 25,
    // model 1).
    let may = match (stopped, core.processor.vendor()) {
        (false, _) => core.memory.store_bytes(address, outcome.value),
        (true, Vendor::Amd) => core.memory.check_store(address, N),
        (true, Vendor::Intel) => Some(()),
    };

    if may.is_none() {
        return Flow::Stop;
    }

    commit(core, op, |fpu| {
        if value.is_some() {
            fpu.report(outcome.exceptions, outcome.rounded_up);
        } else {
            fpu.stack_fault(false);
        }
        if POP && !stopped {
            fpu.pop();
        }
    })
}

/// `fst st(i)`.
fn store_register<const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let outcome = fpu.st(0).map(exact);
        if fpu.put(op.dst, outcome) && POP {
            fpu.pop();
        }
    })
}

/// `fstpnce`, which the manual does not name: `fstp st(i)`, which only pops if ST(0) is empty.
fn move_register(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        fpu.set_conditions(C1, 0);
        if let Some(value) = fpu.st(0) {
            fpu.set_st(op.dst, value);
        }
        fpu.pop();
    })
}

/// `fxch`. An empty register first gets the default NaN.
fn exchange(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let goes_on = match both(fpu, 0, op.src) {
            Some(_) => fpu.report(Exceptions::NONE, false),
            None => fpu.stack_fault(false),
        };
        if goes_on {
            let [a, b] = [0, op.src].map(|i| fpu.st(i).unwrap_or(F80::INDEFINITE));
            fpu.set_st(0, b);
            fpu.set_st(op.src, a);
        }
    })
}

// Constants, rounded to nearest (Intel SDM volume 2, FLD1).

/// log2 10.
const LOG2_10: F80 = number(0x4000, 0xd49a_784b_cd1b_8afe);
/// log2 e.
const LOG2_E: F80 = number(0x3fff, 0xb8aa_3b29_5c17_f0bc);
/// π.
const PI: F80 = number(0x4000, 0xc90f_daa2_2168_c235);
/// log10 2.
const LOG10_2: F80 = number(0x3ffd, 0x9a20_9a84_fbcf_f799);
/// ln 2.
const LOG_2: F80 = number(0x3ffe, 0xb172_17f7_d1cf_79ac);

const fn number(sign_exponent: u16, significand: u64) -> F80 {
    F80 {
        sign_exponent,
        significand,
    }
}

/// Loads a constant in the current rounding direction. `nearest` is the constant rounded to
/// nearest, and `rounded_up` says whether that is above it.
fn constant(core: &mut Core, op: &Op, nearest: F80, rounded_up: bool) -> Flow {
    execute(core, op, |fpu| {
        let mut value = nearest;
        match fpu.env().rounding {
            Rounding::Down | Rounding::Zero if rounded_up => value.significand -= 1,
            Rounding::Up if nearest == LOG2_10 => value.significand += 1,
            _ => {}
        }
        fpu.load(value, Exceptions::NONE);
    })
}
