//! Copies the bits that may differ from the processor to the machine.

use super::{Bits, Case, View, number};
use iced_x86::{Instruction, OpKind};
use std::ops::Range;

/// C1, in the high byte of the status word.
const C1: u8 = 1 << 1;
const STATUS_HIGH: usize = 3;
/// The underflow exception, in the low byte.
const UE: u8 = 1 << 4;
const STATUS_LOW: usize = 2;
/// Status word, tags and pointers.
const EXCEPTION: Range<usize> = 2..24;
/// The smallest normal number, without the upper byte, which has the sign and part of the exponent;
/// and the number just below it, with 24576 added to its exponent (SDM volume 1).
const LEAST: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0x80, 1];
const SCALED: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];
/// ST(0) and ST(1) in an FXSAVE area.
const ST: [Range<usize>; 2] = [32..42, 48..58];
/// xmm0 in an FXSAVE area.
const XMM: usize = 160;
/// The relative error of `rcpps` and `rsqrtps` is at most 1.5 × 2^-12, so two processors may differ
/// by twice as much; a little more, since the difference is relative to one of them.
const APART: f64 = 3.001 / 4096.0;

/// Copies the processor's value to the machine where `bits` say so. Returns whether that changed
/// something.
pub(super) fn take(
    case: &Case<'_>,
    bits: Bits,
    processor: &View<'_>,
    machine: &mut View<'_>,
) -> bool {
    match bits {
        Bits::Flags(open) => copy(machine.rflags, *processor.rflags, open),
        Bits::Rip => copy(machine.rip, *processor.rip, u64::MAX),
        Bits::Destination => match number(case.insn.op0_register()) {
            Some(number) if case.insn.op0_kind() == OpKind::Register => {
                let open = if case.size() == 2 { 0xffff } else { u64::MAX };
                copy(&mut machine.gpr[number], processor.gpr[number], open)
            }
            _ => false,
        },
        Bits::Stored(_) | Bits::Ended(_) => false,
        Bits::Fx(_) | Bits::LastPlace => match (&processor.fx, &mut machine.fx) {
            (Some(processor), Some(machine)) => fx(bits, processor, machine),
            _ => false,
        },
        Bits::Approximation | Bits::Nan => vector(case, bits, processor, machine),
        Bits::AboveElements => above_elements(case, processor, machine),
        Bits::Components => components(processor, machine),
    }
}

/// Copies the x87, SSE and AVX state.
fn components(processor: &View<'_>, machine: &mut View<'_>) -> bool {
    let mut differs = false;
    if let (Some(theirs), Some(ours)) = (&processor.fx, &mut machine.fx) {
        differs |= theirs != ours;
        ours.copy_from_slice(&theirs[..]);
    }
    if let (Some(theirs), Some(ours)) = (&processor.upper, &mut machine.upper) {
        differs |= theirs != ours;
        ours.copy_from_slice(&theirs[..]);
    }
    differs
}

/// Copies what lies above the elements of a gather, in its result and its mask.
fn above_elements(case: &Case<'_>, processor: &View<'_>, machine: &mut View<'_>) -> bool {
    let elements = elements(case.insn);
    let (lower, upper) = (elements.min(16), elements.saturating_sub(16));
    let mut differs = false;
    for operand in [0, 2] {
        let number = case.insn.op_register(operand).number() % 16;
        if let (Some(theirs), Some(ours)) = (&processor.fx, &mut machine.fx) {
            let at = XMM + 16 * number;
            let range = at + lower..at + 16;
            differs |= theirs[range.clone()] != ours[range.clone()];
            ours[range.clone()].copy_from_slice(&theirs[range]);
        }
        if let (Some(theirs), Some(ours)) = (&processor.upper, &mut machine.upper) {
            let (theirs, mut half) = (theirs[number].to_le_bytes(), ours[number].to_le_bytes());
            differs |= theirs[upper..] != half[upper..];
            half[upper..].copy_from_slice(&theirs[upper..]);
            ours[number] = u128::from_le_bytes(half);
        }
    }
    differs
}

/// Bytes of the elements of a gather.
fn elements(insn: &Instruction) -> usize {
    use iced_x86::Mnemonic::{Vgatherdpd, Vgatherdps, Vgatherqpd, Vgatherqps};
    use iced_x86::Mnemonic::{Vpgatherdd, Vpgatherdq, Vpgatherqd, Vpgatherqq};
    let (index, size) = match insn.mnemonic() {
        Vpgatherdd | Vgatherdps => (4, 4),
        Vpgatherdq | Vgatherdpd => (4, 8),
        Vpgatherqd | Vgatherqps => (8, 4),
        Vpgatherqq | Vgatherqpd => (8, 8),
        _ => return 32,
    };
    let is_wide = insn.op_register(0).is_ymm() || insn.memory_index().is_ymm();
    // As many as there are of the larger ones in the register.
    let count = if is_wide { 32 } else { 16 } / usize::max(index, size);
    count * size
}

fn copy(to: &mut u64, from: u64, bits: u64) -> bool {
    let differs = (*to ^ from) & bits != 0;
    *to = *to & !bits | from & bits;
    differs
}

fn fx(bits: Bits, processor: &[u8; 512], machine: &mut [u8; 512]) -> bool {
    let before = *machine;
    match bits {
        Bits::Fx(ranges) => {
            for range in ranges {
                machine[range.clone()].copy_from_slice(&processor[range.clone()]);
            }
        }
        _ => {
            machine[STATUS_HIGH] = machine[STATUS_HIGH] & !C1 | processor[STATUS_HIGH] & C1;
            for range in ST {
                last_place(range, processor, machine);
            }
        }
    }
    *machine != before
}

/// Copies lanes of the first operand, of both its halves.
fn vector(case: &Case<'_>, bits: Bits, processor: &View<'_>, machine: &mut View<'_>) -> bool {
    let register = case.insn.op0_register();
    if !register.is_xmm() && !register.is_ymm() {
        return false;
    }
    let number = register.number() % 16;
    let at = XMM + 16 * number;
    let mut differs = false;
    if let (Some(theirs), Some(ours)) = (&processor.fx, &mut machine.fx) {
        let range = at..at + 16;
        differs |= lanes(case, bits, &theirs[range.clone()], &mut ours[range]);
    }
    if let (Some(theirs), Some(ours)) = (&processor.upper, &mut machine.upper) {
        let mut half = ours[number].to_le_bytes();
        differs |= lanes(case, bits, &theirs[number].to_le_bytes(), &mut half);
        ours[number] = u128::from_le_bytes(half);
    }
    differs
}

fn lanes(case: &Case<'_>, bits: Bits, theirs: &[u8], ours: &mut [u8]) -> bool {
    let size = lane(case);
    let mut differs = false;
    for (theirs, ours) in theirs.chunks_exact(size).zip(ours.chunks_exact_mut(size)) {
        let open = match bits {
            Bits::Nan => is_nan(theirs) && is_nan(ours),
            _ => are_approximations(single(theirs), single(ours)),
        };
        if open && theirs != ours {
            ours.copy_from_slice(theirs);
            differs = true;
        }
    }
    differs
}

/// Copies a register that is one unit in the last place off, and whether it underflowed.
fn last_place(range: Range<usize>, processor: &[u8; 512], machine: &mut [u8; 512]) {
    let (theirs, ours) = (&processor[range.clone()], &machine[range.clone()]);
    if are_neighbours(theirs, ours) {
        // One of the two may be denormal and report underflow.
        if is_tiny(theirs) != is_tiny(ours) {
            machine[STATUS_LOW] = machine[STATUS_LOW] & !UE | processor[STATUS_LOW] & UE;
        }
    } else if processor[STATUS_LOW] & UE != 0 && theirs[..9] == SCALED && ours[..9] == LEAST {
        // The same with underflow unmasked: the processor reports it with a scaled result.
        machine[EXCEPTION].copy_from_slice(&processor[EXCEPTION]);
    } else {
        return;
    }
    machine[range.clone()].copy_from_slice(&processor[range]);
}

/// Bytes of an element of the first operand.
fn lane(case: &Case<'_>) -> usize {
    match case.insn.mnemonic() {
        iced_x86::Mnemonic::Dppd | iced_x86::Mnemonic::Vdppd => 8,
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

/// Whether an 80-bit number is denormal.
fn is_tiny(bytes: &[u8]) -> bool {
    bytes[7] >> 7 == 0
}

/// Whether two 80-bit numbers differ by one unit in the last place.
fn are_neighbours(a: &[u8], b: &[u8]) -> bool {
    // The sign, and the number of representable magnitudes below: an exponent has 63 bits of
    // significand besides the integer bit, and denormal numbers share the lowest exponent.
    let place = |bytes: &[u8]| {
        let (significand, exponent) = bytes.split_at(8);
        let significand = significand.try_into().map_or(0, u64::from_le_bytes);
        let exponent = exponent.try_into().map_or(0, u16::from_le_bytes);
        let above = u128::from((exponent & 0x7fff).saturating_sub(1));
        (exponent >> 15, (above << 63) + u128::from(significand))
    };
    let (a, b) = (place(a), place(b));
    a.0 == b.0 && a.1.abs_diff(b.1) == 1
}

/// Whether both can be approximations of the same number. A result that is too small may be 0 on
/// one side.
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
