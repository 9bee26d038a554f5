//! Operands that depend on each other: equal, opposite or neighbouring numbers, addends that cancel a
//! product, and small counts of shifts. Independent ones rarely are, so that comparisons, cancellation
//! and single rounding would rarely be seen.

use super::generate::in_window;
use super::subject::TestInstruction;
use super::values::{Element, Random};
use iced_x86::{CpuidFeature, Mnemonic};
use unwind_sim_emulator_native::single::{Mode, NativeCase};

/// How many of 256 cases get related operands.
const RELATED: u8 = 80;
/// Size of the largest operand, bytes.
const SIZE: usize = 32;

/// Where an operand is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperandLocation {
    Register(usize),
    /// So many bytes from an offset in the window.
    Memory(usize, usize),
}

/// Sometimes makes the vector operands of a case depend on each other. `first` is the address of the
/// first access.
pub(super) fn relate(
    subject: &TestInstruction,
    first: Option<u64>,
    random: &mut Random,
    case: &mut NativeCase,
) {
    let insn = &subject.insn;
    if subject.mode == Mode::Plain || insn.is_vsib() {
        return;
    }

    let is_shift = shifts(insn.mnemonic());

    // Independent operands hardly ever cancel, are equal, or differ by one bit.
    if !random.chance(if is_shift { 128 } else { RELATED }) {
        return;
    }

    let registers = (0..insn.op_count()).map(|number| insn.op_register(number));
    let registers = registers.filter(|register| register.is_vector_register());

    let mut places: Vec<_> = registers
        .map(|register| OperandLocation::Register(register.number()))
        .collect();
    // The first memory operand counts like a register.
    if let (Some(access), Some(first)) = (subject.accesses.first(), first) {
        let size = (access.size as usize).min(SIZE);
        places.extend(in_window(case, first, size).map(|at| OperandLocation::Memory(at, size)));
    }

    // A random count would nearly always be too large.
    if is_shift {
        if let Some(count) = places.last() {
            small(insn.mnemonic(), random, case, *count);
        }
        return;
    }

    let is_fused = insn.cpuid_features().contains(&CpuidFeature::FMA);
    // Both may be the same place: then its elements are related to themselves.
    let [source, target] = [
        random.below(places.len().max(1)),
        random.below(places.len().max(1)),
    ];

    let (Some(source), Some(target)) = (places.get(source), places.get(target)) else {
        return;
    };

    let (mut from, mut to) = (get(case, *source), get(case, *target));
    if is_fused && random.chance(160) {
        let other = get(case, places[random.below(places.len())]);
        product(subject.element, random, &mut from, &other);
    }

    alter(subject.element, random, &mut to, &from);
    set(case, *target, &to);
}

/// Whether the last operand is a count, or several.
fn shifts(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    let legacy = matches!(
        mnemonic,
        Psllw | Pslld | Psllq | Psrlw | Psrld | Psrlq | Psraw | Psrad
    );
    let wide = matches!(
        mnemonic,
        Vpsllw | Vpslld | Vpsllq | Vpsrlw | Vpsrld | Vpsrlq | Vpsraw | Vpsrad
    );
    legacy || wide || has_counts(mnemonic)
}

/// Whether each element has a count.
fn has_counts(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Vpsllvd, Vpsllvq, Vpsravd, Vpsrlvd, Vpsrlvq};
    matches!(mnemonic, Vpsllvd | Vpsllvq | Vpsravd | Vpsrlvd | Vpsrlvq)
}

/// Makes counts small.
fn small(mnemonic: Mnemonic, random: &mut Random, case: &mut NativeCase, place: OperandLocation) {
    let mut bytes = get(case, place);
    let step = match mnemonic {
        Mnemonic::Vpsllvd | Mnemonic::Vpsravd | Mnemonic::Vpsrlvd => 4,
        _ => 8,
    };
    let count = if has_counts(mnemonic) { SIZE / step } else { 1 };
    for element in bytes.chunks_mut(step).take(count) {
        element.fill(0);
        element[0] = random.below(9 * step) as u8;
    }
    set(case, place, &bytes);
}

fn get(case: &NativeCase, place: OperandLocation) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    match place {
        OperandLocation::Register(number) => {
            let halves = case.state.fx.ymm(number);
            for (to, half) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(halves) {
                *to = half.to_le_bytes();
            }
        }
        OperandLocation::Memory(at, size) => {
            bytes[..size].copy_from_slice(&case.state.window[at..at + size]);
        }
    }
    bytes
}

fn set(case: &mut NativeCase, place: OperandLocation, bytes: &[u8; SIZE]) {
    match place {
        OperandLocation::Register(number) => {
            let halves = bytes.as_chunks::<16>().0;
            let halves = [0, 1].map(|half| u128::from_le_bytes(halves[half]));
            case.state.fx.set_ymm(number, halves);
        }
        OperandLocation::Memory(at, size) => {
            case.state.window[at..at + size].copy_from_slice(&bytes[..size]);
        }
    }
}

/// Makes the elements of `to` equal to those of `from`, their opposite or a neighbour, or keeps them.
fn alter(element: Element, random: &mut Random, to: &mut [u8; SIZE], from: &[u8; SIZE]) {
    let size = match element {
        Element::Single => 4,
        Element::Double => 8,
        Element::Other => 1 << random.below(4),
    };

    let mut choice = random.bits();
    for (to, from) in to.chunks_mut(size).zip(from.chunks(size)) {
        if choice & 3 != 0 {
            let mut word = [0; 8];
            word[..size].copy_from_slice(from);

            let mut value = u64::from_le_bytes(word);

            // Equal, of opposite sign, a neighbour, or nearly the opposite: what cancels or
            // overflows.
            match choice >> 2 & 7 {
                0 | 1 => {}
                2 | 3 => value ^= 1 << (8 * size - 1),
                4 => value = value.wrapping_add(1),
                5 => value = value.wrapping_sub(1),
                6 => value = (value ^ 1 << (8 * size - 1)).wrapping_add(1 + (choice >> 9 & 3)),
                // Another exponent.
                _ => value = value.wrapping_add((choice >> 9 & 63) << (7 * size - 5)),
            }
            to.copy_from_slice(&value.to_le_bytes()[..size]);
        }
        choice = choice.rotate_right(5);
    }
}

/// Multiplies the elements of `x` with those of `y`.
fn product(element: Element, random: &mut Random, x: &mut [u8; SIZE], y: &[u8; SIZE]) {
    match element {
        Element::Single => {
            let factors = y.as_chunks::<4>().0.iter();
            for (x, y) in x.as_chunks_mut::<4>().0.iter_mut().zip(factors) {
                *x = (f32::from_le_bytes(*x) * f32::from_le_bytes(*y)).to_le_bytes();
            }
        }
        _ => {
            let factors = y.as_chunks::<8>().0.iter();
            for (x, y) in x.as_chunks_mut::<8>().0.iter_mut().zip(factors) {
                *x = (f64::from_le_bytes(*x) * f64::from_le_bytes(*y)).to_le_bytes();
            }
        }
    }
    // The sign of the addend decides whether it cancels.
    if random.chance(128) {
        let size = if element == Element::Single { 4 } else { 8 };
        x.chunks_mut(size).for_each(|x| x[size - 1] ^= 0x80);
    }
}
