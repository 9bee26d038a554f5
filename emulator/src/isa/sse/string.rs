//! String comparisons: pcmpestri, pcmpestrm, pcmpistri, pcmpistrm.
//!
//! Source: Intel SDM volume 1, chapter 12, and volume 2, chapter 4.

use super::lanes::{Bytes, Lane};
use super::registers::{set_number, xmm};
use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form};
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn)) {
        // The parameters: the width of the lengths, or none; whether a mask is the result, or an
        // index; and whether it is the VEX form, which clears upper halves.
        (Pcmpistri, Form::RR) => compare_rr::<IMPLICIT, false, false>,
        (Vpcmpistri, Form::RR) => compare_rr::<IMPLICIT, false, true>,
        (Pcmpistri, Form::RM) => compare_rm::<IMPLICIT, false, false>,
        (Vpcmpistri, Form::RM) => compare_rm::<IMPLICIT, false, true>,
        (Pcmpistrm, Form::RR) => compare_rr::<IMPLICIT, true, false>,
        (Vpcmpistrm, Form::RR) => compare_rr::<IMPLICIT, true, true>,
        (Pcmpistrm, Form::RM) => compare_rm::<IMPLICIT, true, false>,
        (Vpcmpistrm, Form::RM) => compare_rm::<IMPLICIT, true, true>,
        (Pcmpestri, Form::RR) => compare_rr::<32, false, false>,
        (Vpcmpestri, Form::RR) => compare_rr::<32, false, true>,
        (Pcmpestri, Form::RM) => compare_rm::<32, false, false>,
        (Vpcmpestri, Form::RM) => compare_rm::<32, false, true>,
        (Pcmpestrm, Form::RR) => compare_rr::<32, true, false>,
        (Vpcmpestrm, Form::RR) => compare_rr::<32, true, true>,
        (Pcmpestrm, Form::RM) => compare_rm::<32, true, false>,
        (Vpcmpestrm, Form::RM) => compare_rm::<32, true, true>,
        // With REX.W the lengths are in rax and rdx, not in eax and edx.
        (Pcmpestri64, Form::RR) => compare_rr::<64, false, false>,
        (Vpcmpestri64, Form::RR) => compare_rr::<64, false, true>,
        (Pcmpestri64, Form::RM) => compare_rm::<64, false, false>,
        (Vpcmpestri64, Form::RM) => compare_rm::<64, false, true>,
        (Pcmpestrm64, Form::RR) => compare_rr::<64, true, false>,
        (Vpcmpestrm64, Form::RR) => compare_rr::<64, true, true>,
        (Pcmpestrm64, Form::RM) => compare_rm::<64, true, false>,
        (Vpcmpestrm64, Form::RM) => compare_rm::<64, true, true>,
        _ => return None,
    })
}

/// Strings end at a zero character. Any other value: the width of the lengths in rax and rdx, bits.
const IMPLICIT: u32 = 0;

/// The characters of a register, widened, and the length of the string.
struct StringOperand {
    characters: [i32; 16],
    len: usize,
}

/// The 8 or 16 characters, signed or unsigned. With 8 characters, they are repeated.
fn characters(bytes: &Bytes, imm: u8) -> [i32; 16] {
    std::array::from_fn(|i| match imm & 3 {
        0 => u8::get(bytes, i).into(),
        1 => u16::get(bytes, i % 8).into(),
        2 => i8::get(bytes, i).into(),
        _ => i16::get(bytes, i % 8).into(),
    })
}

fn text<const LENGTH: u32>(core: &Core, value: u128, register: usize, imm: u8) -> StringOperand {
    let characters = characters(&value.to_le_bytes(), imm);
    let count = count(imm);
    let gpr = core.state.gpr[register].cast_signed();
    let len = match LENGTH {
        IMPLICIT => {
            let end = characters.iter().position(|&character| character == 0);
            end.unwrap_or(count)
        }
        32 => (gpr as i32).unsigned_abs() as usize,
        _ => gpr.unsigned_abs() as usize,
    };
    StringOperand {
        characters,
        len: len.min(count),
    }
}

/// Number of characters in a register.
fn count(imm: u8) -> usize {
    if imm & 1 == 0 { 16 } else { 8 }
}

/// A bit for each character of `b` that satisfies the comparison, before the polarity is applied.
fn matches(a: &StringOperand, b: &StringOperand, imm: u8) -> u32 {
    let count = count(imm);
    let valid = |i| i < a.len;
    let holds = |j: usize| match imm >> 2 & 3 {
        // Equal any: it is one of the characters of `a`.
        0 => j < b.len && a.characters[..a.len].contains(&b.characters[j]),
        // Ranges: it is in one of the ranges of `a`. A range without an end is ignored.
        1 => {
            let ranges = a.characters[..a.len].chunks_exact(2);
            let within = |range: &[i32]| (range[0]..=range[1]).contains(&b.characters[j]);
            j < b.len && ranges.into_iter().any(within)
        }
        // Equal each: it equals its counterpart, or both strings have ended.
        2 if valid(j) && j < b.len => a.characters[j] == b.characters[j],
        2 => !valid(j) && j >= b.len,
        // Equal ordered: `a` starts here, as far as the register shows.
        _ => (0..a.len.min(count - j))
            .all(|i| i + j < b.len && a.characters[i] == b.characters[i + j]),
    };
    (0..count).fold(0, |all, j| all | u32::from(holds(j)) << j)
}

#[inline(always)]
fn compare<const LENGTH: u32, const MASK: bool, const VEX: bool>(
    core: &mut Core,
    op: &Op,
    b: u128,
) -> Flow {
    let imm = op.imm as u8;
    let count = count(imm);
    let all = (1 << count) - 1;

    let a = text::<LENGTH>(core, xmm(core, op.dst), reg::RAX, imm);
    let b = text::<LENGTH>(core, b, reg::RDX, imm);

    // Bits 5:4: 1 negates all, 3 only the elements within the second text (SDM volume 2).
    let negated = match imm >> 4 & 3 {
        1 => all,
        3 => (1 << b.len) - 1,
        _ => 0,
    };
    let result = matches(&a, &b, imm) ^ negated;

    // Bit 6: the last index, or a mask of whole elements.
    let last = imm >> 6 & 1 != 0;

    if MASK {
        let mask = if last {
            spread(result, count)
        } else {
            result.into()
        };
        set_number::<VEX>(core, 0, mask);
    } else {
        // Without a match, the index is the number of elements.
        let index = match (result, last) {
            (0, _) => count as u32,
            (_, false) => result.trailing_zeros(),
            (_, true) => result.ilog2(),
        };
        core.state.set::<32>(reg::RCX as u8, index.into());
    }

    // AF and PF are cleared.
    let bit = |set, bit| if set { bit } else { 0 };
    core.state.flags = Flags::from_bits(
        bit(result != 0, flags::CF)
            | bit(b.len < count, flags::ZF)
            | bit(a.len < count, flags::SF)
            | bit(result & 1 != 0, flags::OF),
    );

    Flow::Next
}

/// Widens each bit to the ones or zeros of a character.
fn spread(bits: u32, count: usize) -> u128 {
    let width = 128 / count;
    let ones = u128::MAX >> (128 - width);
    let set = (0..count).filter(|i| bits >> i & 1 != 0);
    set.fold(0, |all, i| all | ones << (width * i))
}

fn compare_rr<const LENGTH: u32, const MASK: bool, const VEX: bool>(
    core: &mut Core,
    op: &Op,
) -> Flow {
    let b = xmm(core, op.src);
    compare::<LENGTH, MASK, VEX>(core, op, b)
}

/// The memory operand need not be aligned.
fn compare_rm<const LENGTH: u32, const MASK: bool, const VEX: bool>(
    core: &mut Core,
    op: &Op,
) -> Flow {
    match core.memory.load_bytes(op.address(core)) {
        Some(bytes) => compare::<LENGTH, MASK, VEX>(core, op, u128::from_le_bytes(bytes)),
        None => Flow::Stop,
    }
}
