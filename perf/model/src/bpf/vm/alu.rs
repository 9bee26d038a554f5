//! Arithmetic and comparisons: pure functions of two numbers.

use crate::bpf::insn::{Insn, alu, class, jmp};

/// The result of an arithmetic instruction on its destination and its operand (RFC 9669,
/// section 4.1): division by zero gives 0, its remainder the dividend, and the smallest number
/// divided by -1 itself.
pub(super) fn arithmetic(insn: Insn, dst: u64, src: u64) -> Option<u64> {
    let is_64 = insn.class() == class::ALU64;

    // A swap has its width in the immediate and needs no second operand.
    if insn.op() == alu::END {
        return Some(end(insn, dst));
    }

    // The offset is the number of bits that a sign-extending move takes.
    if insn.op() == alu::MOV {
        let moved = match insn.off {
            8 => src as i8 as i64 as u64,
            16 => src as i16 as i64 as u64,
            32 => src as i32 as i64 as u64,
            _ => src,
        };
        return Some(if is_64 {
            moved
        } else {
            u64::from(moved as u32)
        });
    }

    // Of DIV and MOD only (RFC 9669, section 4.1): the check refuses other offsets.
    let is_signed = insn.off == 1;
    if is_64 {
        wide(insn.op(), is_signed, dst, src)
    } else {
        narrow(insn.op(), is_signed, dst as u32, src as u32).map(u64::from)
    }
}

macro_rules! operations {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        fn $name(op: u8, is_signed: bool, dst: $unsigned, src: $unsigned) -> Option<$unsigned> {
            let (sdst, ssrc) = (dst as $signed, src as $signed);
            Some(match op {
                alu::ADD => dst.wrapping_add(src),
                alu::SUB => dst.wrapping_sub(src),
                alu::MUL => dst.wrapping_mul(src),
                alu::DIV if src == 0 => 0,
                alu::DIV if is_signed => sdst.wrapping_div(ssrc) as $unsigned,
                alu::DIV => dst / src,
                alu::MOD if src == 0 => dst,
                alu::MOD if is_signed => sdst.wrapping_rem(ssrc) as $unsigned,
                alu::MOD => dst % src,
                alu::OR => dst | src,
                alu::AND => dst & src,
                alu::XOR => dst ^ src,
                alu::LSH => dst.wrapping_shl(src as u32),
                alu::RSH => dst.wrapping_shr(src as u32),
                alu::ARSH => sdst.wrapping_shr(src as u32) as $unsigned,
                alu::NEG => dst.wrapping_neg(),
                _ => return None,
            })
        }
    };
}

operations!(wide, u64, i64);
operations!(narrow, u32, i32);

/// Byte order: to little-endian cuts, to big-endian and `bswap` cut and swap.
fn end(insn: Insn, dst: u64) -> u64 {
    let swaps = insn.class() == class::ALU64 || insn.is_x();
    match (insn.imm, swaps) {
        (16, false) => u64::from(dst as u16),
        (16, true) => u64::from((dst as u16).swap_bytes()),
        (32, false) => u64::from(dst as u32),
        (32, true) => u64::from((dst as u32).swap_bytes()),
        (_, false) => dst,
        (_, true) => dst.swap_bytes(),
    }
}

/// Whether a conditional jump is taken.
pub(super) fn is_taken(insn: Insn, dst: u64, src: u64) -> Option<bool> {
    let (dst, src) = match insn.class() {
        class::JMP => (dst, src),
        // The order of the numbers is the same if both are extended with their sign.
        _ => (dst as i32 as i64 as u64, src as i32 as i64 as u64),
    };
    let (sdst, ssrc) = (dst as i64, src as i64);
    Some(match insn.op() {
        jmp::JEQ => dst == src,
        jmp::JNE => dst != src,
        jmp::JGT => dst > src,
        jmp::JGE => dst >= src,
        jmp::JLT => dst < src,
        jmp::JLE => dst <= src,
        jmp::JSET => dst & src != 0,
        jmp::JSGT => sdst > ssrc,
        jmp::JSGE => sdst >= ssrc,
        jmp::JSLT => sdst < ssrc,
        jmp::JSLE => sdst <= ssrc,
        _ => return None,
    })
}
