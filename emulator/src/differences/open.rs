//! Taking over what a kind of bits leaves open.

use super::{Bits, Case, View, number};
use iced_x86::OpKind;
use std::ops::Range;

/// C1, in the high byte of the status word.
const C1: u8 = 1 << 1;
const STATUS_HIGH: usize = 3;
/// ST(0) and ST(1) in an FXSAVE area.
const ST: [Range<usize>; 2] = [32..42, 48..58];
/// xmm0 in it.
const XMM: usize = 160;
/// The upper bound of the relative error of `rcpps` and `rsqrtps` is 1.5 × 2^-12, so that two
/// processors may be twice as far apart; a little more, since it is seen from one of them.
const APART: f64 = 3.001 / 4096.0;

/// Gives the machine the processor's value where `bits` say so. Did that change something?
pub(super) fn take(
    case: &Case<'_>,
    bits: Bits,
    processor: &View<'_>,
    machine: &mut View<'_>,
) -> bool {
    match bits {
        Bits::Flags(open) => copy(machine.rflags, *processor.rflags, open),
        Bits::Gpr(number, open) => copy(&mut machine.gpr[number], processor.gpr[number], open),
        Bits::Rip => copy(machine.rip, *processor.rip, u64::MAX),
        Bits::Destination => match number(case.insn.op0_register()) {
            Some(number) if case.insn.op0_kind() == OpKind::Register => {
                let open = if case.size() == 2 { 0xffff } else { u64::MAX };
                copy(&mut machine.gpr[number], processor.gpr[number], open)
            }
            _ => false,
        },
        Bits::Stored(_) | Bits::Ended(_) => false,
        Bits::Fx(_) | Bits::LastPlace | Bits::Approximation | Bits::Nan => {
            match (&processor.fx, &mut machine.fx) {
                (Some(processor), Some(machine)) => fx(case, bits, processor, machine),
                _ => false,
            }
        }
    }
}

fn copy(to: &mut u64, from: u64, bits: u64) -> bool {
    let differs = (*to ^ from) & bits != 0;
    *to = *to & !bits | from & bits;
    differs
}

fn fx(case: &Case<'_>, bits: Bits, processor: &[u8; 512], machine: &mut [u8; 512]) -> bool {
    let before = *machine;
    match bits {
        Bits::Fx(ranges) => {
            for range in ranges {
                machine[range.clone()].copy_from_slice(&processor[range.clone()]);
            }
        }
        Bits::LastPlace => {
            machine[STATUS_HIGH] = machine[STATUS_HIGH] & !C1 | processor[STATUS_HIGH] & C1;
            for range in ST {
                if are_neighbours(&processor[range.clone()], &machine[range.clone()]) {
                    machine[range.clone()].copy_from_slice(&processor[range]);
                }
            }
        }
        _ => {
            let at = XMM + 16 * case.insn.op0_register().number();
            let lane = lane(case);
            for start in (at..at + 16).step_by(lane) {
                let range = start..start + lane;
                let (theirs, ours) = (&processor[range.clone()], &machine[range.clone()]);
                let open = match bits {
                    Bits::Nan => is_nan(theirs) && is_nan(ours),
                    _ => are_approximations(single(theirs), single(ours)),
                };
                if open {
                    machine[range.clone()].copy_from_slice(&processor[range]);
                }
            }
        }
    }
    *machine != before
}

/// Bytes of an element of the first operand.
fn lane(case: &Case<'_>) -> usize {
    match case.insn.mnemonic() {
        iced_x86::Mnemonic::Dppd => 8,
        _ => 4,
    }
}

fn single(bytes: &[u8]) -> f32 {
    bytes.try_into().map_or(0.0, f32::from_le_bytes)
}

fn is_nan(bytes: &[u8]) -> bool {
    match bytes.try_into() {
        Ok(bytes) => f64::from_le_bytes(bytes).is_nan(),
        Err(_) => single(bytes).is_nan(),
    }
}

/// Are two 80-bit numbers one unit in the last place apart?
fn are_neighbours(a: &[u8], b: &[u8]) -> bool {
    let value = |from: &[u8]| {
        let mut bytes = [0; 16];
        bytes[..10].copy_from_slice(from);
        u128::from_le_bytes(bytes)
    };
    let (a, b) = (value(a), value(b));
    // Between one power of two and the next the integer bit is in the way.
    let carry = |low: u128, high: u128| {
        low as u64 == u64::MAX && high as u64 == 1 << 63 && high >> 64 == (low >> 64) + 1
    };
    a.abs_diff(b) == 1 || carry(a, b) || carry(b, a)
}

/// May both be approximations of the same number? A result that is too small may be 0 in one.
fn are_approximations(a: f32, b: f32) -> bool {
    if a.is_sign_negative() != b.is_sign_negative() {
        return false;
    }
    let (a, b) = (f64::from(a.abs()), f64::from(b.abs()));
    if !a.is_finite() || !b.is_finite() {
        return false;
    }
    let least = f64::from(f32::MIN_POSITIVE);
    let (small, large) = (a.min(b), a.max(b));
    large - small <= APART * large || small < least && large <= least * (1.0 + APART)
}
