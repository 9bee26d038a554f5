//! Instructions that use MXCSR: arithmetic, comparisons, minimum and maximum, rounding to integral
//! values.
//!
//! Exceptions follow the Intel SDM, volume 1: the flags of all lanes are combined. If
//! one is unmasked, the instruction writes only flags.

use super::registers::{first, load, load_wide, second, set_result, set_ymm, xmm, ymm};
use super::wide::{YmmForm, is_wide};
use crate::core::Core;
use crate::flags::{self, Flags};
use crate::float::sse::{
    Element, Env, Predicate, add, compare_ordered, compare_unordered, divide, maximum, minimum,
    multiply, reciprocal, reciprocal_square_root, round_to_integral, satisfies, square_root,
    subtract,
};
use crate::float::{Exceptions, Relation, Rounding};
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, form};
use crate::stop::Exception;
use iced_x86::{EncodingKind, Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn)) {
        (Comiss | Vcomiss, Form::RR) => relation_rr::<u32, true>,
        (Comiss | Vcomiss, Form::RM) => relation_rm::<u32, true>,
        (Comisd | Vcomisd, Form::RR) => relation_rr::<u64, true>,
        (Comisd | Vcomisd, Form::RM) => relation_rm::<u64, true>,
        (Ucomiss | Vucomiss, Form::RR) => relation_rr::<u32, false>,
        (Ucomiss | Vucomiss, Form::RM) => relation_rm::<u32, false>,
        (Ucomisd | Vucomisd, Form::RR) => relation_rr::<u64, false>,
        (Ucomisd | Vucomisd, Form::RM) => relation_rm::<u64, false>,
        (Cmpps | Cmppd | Cmpss | Cmpsd, _) => {
            // Only VEX forms have more than eight predicates.
            op.imm &= 7;
            return float_function(insn);
        }
        (Vdpps, _) if is_wide(insn) && Form::has_memory(insn) => dot_product_rm,
        (Vdpps, _) if is_wide(insn) => dot_product_rr,
        _ => return float_function(insn),
    })
}

/// MXCSR during an instruction.
pub(in crate::isa) struct Control {
    pub(in crate::isa) env: Env,
    /// Exceptions of the finished steps, all of them masked.
    done: Exceptions,
    /// Exceptions of this step; most instructions have only one.
    raised: Exceptions,
    /// Unmasked exceptions, as bits of the flags.
    unmasked: u8,
}

impl Control {
    #[inline(always)]
    pub(in crate::isa) fn new(core: &Core) -> Control {
        let mxcsr = core.state.mxcsr;
        let set = |bit: u32| mxcsr >> bit & 1 != 0;
        Control {
            env: Env {
                rounding: Rounding::from_bits((mxcsr >> 13) as u8),
                flush_to_zero: set(15),
                denormals_are_zero: set(6),
                overflow_masked: set(10),
                underflow_masked: set(11),
                precision_ignored: set(5) && set(12),
            },
            done: Exceptions::NONE,
            raised: Exceptions::NONE,
            unmasked: !(mxcsr >> 7) as u8 & 0x3f,
        }
    }

    /// Adds the flags of a result, and returns the result.
    #[inline(always)]
    pub(in crate::isa) fn take<T>(&mut self, (result, exceptions): (T, Exceptions)) -> T {
        self.raised |= exceptions;
        result
    }

    #[inline(always)]
    fn is_stopped(&self) -> bool {
        self.raised.bits() & self.unmasked != 0
    }

    /// Starts another step, unless the last one raised an unmasked exception.
    fn next_step(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        self.done |= std::mem::take(&mut self.raised);
        true
    }

    /// Sets the flags; `None` if an exception is raised.
    #[inline(always)]
    pub(in crate::isa) fn finish(self, core: &mut Core) -> Option<()> {
        if self.is_stopped() {
            let early = self.raised.before_result();
            let all = early.bits() & self.unmasked == 0;
            let flags = if all { self.raised } else { early };
            core.state.mxcsr |= u32::from((self.done | flags).bits());
            raise(core, Exception::Simd);
            return None;
        }
        core.state.mxcsr |= u32::from((self.done | self.raised).bits());
        Some(())
    }
}

/// Like [`super::packed::Packed`], with MXCSR.
pub(super) trait Float {
    /// Size of a second operand in memory, bytes.
    const SOURCE: usize = 16;
    /// What the instruction with ymm registers does.
    const WIDE: YmmForm = YmmForm::Lanes(0);

    fn apply(control: &mut Control, a: u128, b: u128, imm: u8) -> u128;
}

/// The function of an instruction whose operands are one or two registers and a register or
/// memory.
pub(super) fn float<F: Float>(insn: &Instruction) -> Option<Run> {
    Some(match (insn.encoding(), form(insn)) {
        (EncodingKind::VEX, _) => match (is_wide(insn), Form::has_memory(insn)) {
            (false, false) => float_rr::<F, true>,
            (false, true) => float_rm::<F, true>,
            (true, false) => wide_rr::<F>,
            (true, true) => wide_rm::<F>,
        },
        (EncodingKind::Legacy, Form::RR) => float_rr::<F, false>,
        (EncodingKind::Legacy, Form::RM) => float_rm::<F, false>,
        _ => return None,
    })
}

fn float_rr<F: Float, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let b = xmm(core, second::<VEX>(op));
    apply::<F, VEX>(core, op, b)
}

fn float_rm<F: Float, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    match load::<VEX>(core, op, F::SOURCE) {
        Some(b) => apply::<F, VEX>(core, op, b),
        None => Flow::Stop,
    }
}

#[inline(always)]
fn apply<F: Float, const VEX: bool>(core: &mut Core, op: &Op, b: u128) -> Flow {
    let mut control = Control::new(core);
    let result = F::apply(&mut control, first::<VEX>(core, op), b, op.imm as u8);
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    set_result::<VEX>(core, op, result);
    Flow::Next
}

fn wide_rr<F: Float>(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.extra);
    apply_wide::<F>(core, op, b)
}

fn wide_rm<F: Float>(core: &mut Core, op: &Op) -> Flow {
    match load_wide(core, op, F::WIDE.size(F::SOURCE)) {
        Some(b) => apply_wide::<F>(core, op, b),
        None => Flow::Stop,
    }
}

#[inline(always)]
fn apply_wide<F: Float>(core: &mut Core, op: &Op, b: [u128; 2]) -> Flow {
    let mut control = Control::new(core);
    let (a, imm) = (ymm(core, op.src), op.imm as u8);
    let lanes = F::WIDE.operands(a, b, imm, F::SOURCE);
    let [low, high] = lanes.map(|lane| F::apply(&mut control, lane.a, lane.b, lane.imm));
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    set_ymm(core, op.dst, F::WIDE.join(low, high));
    Flow::Next
}

/// Like [`super::packed::packed_table`], for functions whose first argument is [`Control`].
macro_rules! float_table {
    ($(
        $name:ident $(| $other:ident)* $(($size:literal))? $([$wide:expr])? => $function:expr;
    )*) => {
        $(
            struct $name;
            impl $crate::isa::sse::float::Float for $name {
                $(const SOURCE: usize = $size;)?
                $(const WIDE: $crate::isa::sse::wide::YmmForm = $wide;)?
                #[inline(always)]
                fn apply(
                    control: &mut $crate::isa::sse::float::Control,
                    a: u128,
                    b: u128,
                    imm: u8,
                ) -> u128 {
                    $crate::isa::sse::float::call($function, control, a, b, imm)
                }
            }
        )*

        fn float_function(insn: &iced_x86::Instruction) -> Option<$crate::op::Run> {
            use iced_x86::Mnemonic;
            match insn.mnemonic() {
                $(Mnemonic::$name $(| Mnemonic::$other)* => {
                    $crate::isa::sse::float::float::<$name>(insn)
                })*
                _ => None,
            }
        }
    };
}
pub(in crate::isa) use float_table;

#[inline(always)]
pub(super) fn call(
    function: impl Fn(&mut Control, u128, u128, u8) -> u128,
    control: &mut Control,
    a: u128,
    b: u128,
    imm: u8,
) -> u128 {
    function(control, a, b, imm)
}

float_table! {
    Addps | Vaddps => packed(add::<u32>);
    Addpd | Vaddpd => packed(add::<u64>);
    Addss | Vaddss(4) => scalar(add::<u32>);
    Addsd | Vaddsd(8) => scalar(add::<u64>);
    Subps | Vsubps => packed(subtract::<u32>);
    Subpd | Vsubpd => packed(subtract::<u64>);
    Subss | Vsubss(4) => scalar(subtract::<u32>);
    Subsd | Vsubsd(8) => scalar(subtract::<u64>);
    Mulps | Vmulps => packed(multiply::<u32>);
    Mulpd | Vmulpd => packed(multiply::<u64>);
    Mulss | Vmulss(4) => scalar(multiply::<u32>);
    Mulsd | Vmulsd(8) => scalar(multiply::<u64>);
    Divps | Vdivps => packed(divide::<u32>);
    Divpd | Vdivpd => packed(divide::<u64>);
    Divss | Vdivss(4) => scalar(divide::<u32>);
    Divsd | Vdivsd(8) => scalar(divide::<u64>);
    Minps | Vminps => packed(minimum::<u32>);
    Minpd | Vminpd => packed(minimum::<u64>);
    Minss | Vminss(4) => scalar(minimum::<u32>);
    Minsd | Vminsd(8) => scalar(minimum::<u64>);
    Maxps | Vmaxps => packed(maximum::<u32>);
    Maxpd | Vmaxpd => packed(maximum::<u64>);
    Maxss | Vmaxss(4) => scalar(maximum::<u32>);
    Maxsd | Vmaxsd(8) => scalar(maximum::<u64>);
    Sqrtps | Vsqrtps => packed(|_, b: u32, env| square_root(b, env));
    Sqrtpd | Vsqrtpd => packed(|_, b: u64, env| square_root(b, env));
    Sqrtss | Vsqrtss(4) => scalar(|_, b: u32, env| square_root(b, env));
    Sqrtsd | Vsqrtsd(8) => scalar(|_, b: u64, env| square_root(b, env));
    Rcpps | Vrcpps => packed(|_, b: u32, _| (reciprocal(b), Exceptions::NONE));
    Rcpss | Vrcpss(4) => scalar(|_, b: u32, _| (reciprocal(b), Exceptions::NONE));
    Rsqrtps | Vrsqrtps => packed(|_, b: u32, _| (reciprocal_square_root(b), Exceptions::NONE));
    Rsqrtss | Vrsqrtss(4) => scalar(|_, b: u32, _| (reciprocal_square_root(b), Exceptions::NONE));

    Cmpps | Vcmpps => |c, a, b, imm| packed(compare::<u32>(imm))(c, a, b, imm);
    Cmppd | Vcmppd => |c, a, b, imm| packed(compare::<u64>(imm))(c, a, b, imm);
    Cmpss | Vcmpss(4) => |c, a, b, imm| scalar(compare::<u32>(imm))(c, a, b, imm);
    Cmpsd | Vcmpsd(8) => |c, a, b, imm| scalar(compare::<u64>(imm))(c, a, b, imm);
    Roundps | Vroundps => |c, a, b, imm| packed(round::<u32>(imm))(c, a, b, imm);
    Roundpd | Vroundpd => |c, a, b, imm| packed(round::<u64>(imm))(c, a, b, imm);
    Roundss | Vroundss(4) => |c, a, b, imm| scalar(round::<u32>(imm))(c, a, b, imm);
    Roundsd | Vroundsd(8) => |c, a, b, imm| scalar(round::<u64>(imm))(c, a, b, imm);

    Haddps | Vhaddps => horizontal(add::<u32>);
    Haddpd | Vhaddpd => horizontal(add::<u64>);
    Hsubps | Vhsubps => horizontal(subtract::<u32>);
    Hsubpd | Vhsubpd => horizontal(subtract::<u64>);
    Addsubps | Vaddsubps => alternating::<u32>;
    Addsubpd | Vaddsubpd => alternating::<u64>;
    Dpps | Vdpps => dot_product::<u32>;
    Dppd | Vdppd => dot_product::<u64>;
}

pub(in crate::isa) const fn width<T: Element>() -> u32 {
    8 * size_of::<T>() as u32
}

pub(in crate::isa) fn lane<T: Element>(value: u128, number: u32) -> T {
    T::narrow((value >> (width::<T>() * number)) as u64)
}

/// A register whose lanes are a function of the lane number.
#[inline(always)]
pub(in crate::isa) fn lanes<T: Element>(mut function: impl FnMut(u32) -> T) -> u128 {
    (0..128 / width::<T>()).fold(0, |all, number| {
        all | u128::from(function(number).widen()) << (width::<T>() * number)
    })
}

/// Applies a function to each pair of lanes.
#[inline(always)]
fn packed<T: Element>(
    function: impl Fn(T, T, Env) -> (T, Exceptions),
) -> impl Fn(&mut Control, u128, u128, u8) -> u128 {
    move |control, a, b, _| lanes(|i| control.take(function(lane(a, i), lane(b, i), control.env)))
}

/// Applies a function to the lowest lanes; the others do not change.
#[inline(always)]
fn scalar<T: Element>(
    function: impl Fn(T, T, Env) -> (T, Exceptions),
) -> impl Fn(&mut Control, u128, u128, u8) -> u128 {
    move |control, a, b, _| {
        let result = control.take(function(lane(a, 0), lane(b, 0), control.env));
        a >> width::<T>() << width::<T>() | u128::from(result.widen())
    }
}

/// Applies a function to neighbouring lanes: those of the first operand give the lower half.
#[inline(always)]
fn horizontal<T: Element>(
    function: impl Fn(T, T, Env) -> (T, Exceptions),
) -> impl Fn(&mut Control, u128, u128, u8) -> u128 {
    move |control, a, b, _| {
        let half = 64 / width::<T>();
        lanes(|i| {
            let (from, pair) = if i < half { (a, i) } else { (b, i - half) };
            let (first, second) = (lane(from, 2 * pair), lane(from, 2 * pair + 1));
            control.take(function(first, second, control.env))
        })
    }
}

/// Subtracts the even lanes, adds the odd ones.
fn alternating<T: Element>(control: &mut Control, a: u128, b: u128, _: u8) -> u128 {
    lanes(|i| {
        let function = if i % 2 == 0 { subtract::<T> } else { add::<T> };
        control.take(function(lane(a, i), lane(b, i), control.env))
    })
}

/// The sum of the products of the lanes selected by the immediate's upper half, written to the
/// lanes selected by its lower half. Steps after an unmasked exception are not executed.
///
/// The order of the additions decides which of several NaNs is the result. The SDM leaves this
/// open; it is the order of Intel's processors (seen on a Xeon of the fourth generation).
fn dot_products<T: Element, const N: usize>(
    control: &mut Control,
    a: [u128; N],
    b: [u128; N],
    imm: u8,
) -> [u128; N] {
    // A product that the immediate leaves out is +0, and raises nothing.
    let mut sums = std::array::from_fn(|n| {
        lanes(|i| {
            if imm >> (4 + i) & 1 == 0 {
                return T::narrow(0);
            }
            control.take(multiply::<T>(lane(a[n], i), lane(b[n], i), control.env))
        })
    });

    // The sum of all is made in steps; an unmasked exception in one prevents the next.
    let mut step = |flip: u32, own_first: bool| {
        if !control.next_step() {
            return;
        }
        sums = sums.map(|sums| {
            lanes(|i| {
                let (own, other) = (lane(sums, i), lane(sums, i ^ flip));

                // The order decides which of two NaNs the sum keeps.
                let (first, second) = if own_first {
                    (own, other)
                } else {
                    (other, own)
                };
                control.take(add::<T>(first, second, control.env))
            })
        });
    };

    if width::<T>() == 32 {
        step(1, false);
        step(2, true);
    } else {
        step(1, true);
    }

    sums.map(|sums| {
        lanes(|i| {
            if imm >> i & 1 == 0 {
                T::narrow(0)
            } else {
                lane(sums, i)
            }
        })
    })
}

fn dot_product<T: Element>(control: &mut Control, a: u128, b: u128, imm: u8) -> u128 {
    let [sum] = dot_products::<T, 1>(control, [a], [b], imm);
    sum
}

/// `vdpps` with ymm registers: each step is one of both lanes.
fn wide_dot_product(core: &mut Core, op: &Op, b: [u128; 2]) -> Flow {
    let mut control = Control::new(core);
    let result = dot_products::<u32, 2>(&mut control, ymm(core, op.src), b, op.imm as u8);
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    set_ymm(core, op.dst, result);
    Flow::Next
}

fn dot_product_rr(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.extra);
    wide_dot_product(core, op, b)
}

fn dot_product_rm(core: &mut Core, op: &Op) -> Flow {
    match load_wide(core, op, 32) {
        Some(b) => wide_dot_product(core, op, b),
        None => Flow::Stop,
    }
}

/// All ones if the predicate in the immediate holds, otherwise zero.
fn compare<T: Element>(imm: u8) -> impl Fn(T, T, Env) -> (T, Exceptions) {
    let predicate = Predicate::from_bits(imm);
    move |a, b, env| {
        let (holds, exceptions) = satisfies(a, b, predicate, env);
        (T::narrow(if holds { u64::MAX } else { 0 }), exceptions)
    }
}

/// The second operand's lane, rounded as the immediate says: bits 0 and 1 are the direction, unless
/// bit 2 is set; bit 3 suppresses PE.
fn round<T: Element>(imm: u8) -> impl Fn(T, T, Env) -> (T, Exceptions) {
    move |_, b, env| {
        let rounding = if imm >> 2 & 1 == 0 {
            Rounding::from_bits(imm)
        } else {
            env.rounding
        };
        round_to_integral(b, rounding, imm >> 3 & 1 != 0, env)
    }
}

#[inline(always)]
fn relation<T: Element, const ORDERED: bool>(core: &mut Core, op: &Op, b: u128) -> Flow {
    let (a, b) = (lane::<T>(xmm(core, op.dst), 0), lane::<T>(b, 0));
    let mut control = Control::new(core);
    let relation = control.take(if ORDERED {
        compare_ordered(a, b, control.env)
    } else {
        compare_unordered(a, b, control.env)
    });
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    core.state.flags = Flags::from_bits(match relation {
        Relation::Greater => 0,
        Relation::Less => flags::CF,
        Relation::Equal => flags::ZF,
        Relation::Unordered => flags::ZF | flags::PF | flags::CF,
    });
    Flow::Next
}

fn relation_rr<T: Element, const ORDERED: bool>(core: &mut Core, op: &Op) -> Flow {
    let b = xmm(core, op.src);
    relation::<T, ORDERED>(core, op, b)
}

fn relation_rm<T: Element, const ORDERED: bool>(core: &mut Core, op: &Op) -> Flow {
    match load::<true>(core, op, size_of::<T>()) {
        Some(b) => relation::<T, ORDERED>(core, op, b),
        None => Flow::Stop,
    }
}
