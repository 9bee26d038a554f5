//! Bytes that AMD's processors decode differently than Intel's. The APM documents none of them
//! except `sysenter`; they were seen on an AMD EPYC, family 25, model 1.

use super::Generation;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

const REPNE: u8 = 0xf2;
const REPE: u8 = 0xf3;
/// A segment prefix that long mode ignores.
const IGNORED: u8 = 0x3e;

/// Turns the instruction into the one that the processor decodes from `bytes`; invalid if that is
/// #UD.
pub(super) fn adapt(generation: Generation, insn: &mut Instruction, bytes: &[u8]) {
    match insn.mnemonic() {
        // Invalid in long mode (APM volume 3, SYSENTER). SYSEXIT is refused for its privilege level
        // first, as on Intel's processors.
        Mnemonic::Sysenter => insn.set_code(Code::INVALID),
        // The last repeat prefix decides between the two.
        Mnemonic::Loope | Mnemonic::Loopne => {
            if let Some(prefix) = repeat_prefix(bytes) {
                insn.set_code(looped(insn.code(), prefix));
            }
        }
        // F3 with REX.B: an exchange with r8; the F3 is ignored.
        Mnemonic::Pause => *insn = without_repeat(insn, bytes),
        // With F2 or F3 (seen on an EPYC, family 26, model 2; one of family 25, model 17, ignores
        // them).
        Mnemonic::Clzero if generation == Generation::Zen5 && repeat_prefix(bytes).is_some() => {
            insn.set_code(Code::INVALID);
        }
        // A far pointer has 32 bits of offset, but what is pushed has 64.
        Mnemonic::Call if insn.code() == Code::Call_m1632 && has_rex_w(bytes) => {
            insn.set_code(Code::Call_m1664);
        }
        // AMD ignores VEX.W of some permutations, iced does not.
        Mnemonic::INVALID => {
            if let Some(other) = permutation_without_w(insn.ip(), bytes) {
                *insn = other;
            }
        }
        // A prefetch with a register operand.
        _ if is_0f0d(insn) && insn.op0_kind() == OpKind::Register => insn.set_code(Code::INVALID),
        _ => {}
    }
}

/// The last of the prefixes F2 and F3.
fn repeat_prefix(bytes: &[u8]) -> Option<u8> {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte));
    prefixes
        .copied()
        .filter(|byte| matches!(*byte, REPNE | REPE))
        .last()
}

fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | REPNE | REPE
    )
}

/// Whether a REX prefix, the last before the opcode, has the bit W.
fn has_rex_w(bytes: &[u8]) -> bool {
    let last = bytes.iter().take_while(|byte| is_prefix(**byte)).last();
    last.is_some_and(|byte| byte & 0xf8 == 0x48)
}

/// `loope` or `loopne`, depending on a prefix.
fn looped(code: Code, prefix: u8) -> Code {
    use Code::*;
    const PAIRS: [[Code; 2]; 4] = [
        [Loope_rel8_64_RCX, Loopne_rel8_64_RCX],
        [Loope_rel8_16_RCX, Loopne_rel8_16_RCX],
        [Loope_rel8_64_ECX, Loopne_rel8_64_ECX],
        [Loope_rel8_16_ECX, Loopne_rel8_16_ECX],
    ];
    let pair = PAIRS.into_iter().find(|pair| pair.contains(&code));
    pair.map_or(code, |pair| pair[usize::from(prefix == REPNE)])
}

/// The same bytes decoded without F3.
fn without_repeat(insn: &Instruction, bytes: &[u8]) -> Instruction {
    let mut without = bytes.to_vec();
    without.truncate(insn.len());
    for byte in &mut without {
        if *byte == REPE {
            *byte = IGNORED;
        }
    }
    let other = Decoder::with_ip(64, &without, insn.ip(), DecoderOptions::AMD).decode();
    match other.mnemonic() {
        Mnemonic::Xchg => other,
        _ => *insn,
    }
}

/// `vpermq` and `vpermpd` with VEX.W0, which both manuals leave out (seen on an EPYC, family 25, model
/// 17).
fn permutation_without_w(ip: u64, bytes: &[u8]) -> Option<Instruction> {
    const W: u8 = 0x80;
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let mut with_w = bytes.to_vec();
    *with_w.get_mut(prefixes + 2)? |= W;
    let other = Decoder::with_ip(64, &with_w, ip, DecoderOptions::AMD).decode();
    let is_one = matches!(
        other.code(),
        Code::VEX_Vpermq_ymm_ymmm256_imm8 | Code::VEX_Vpermpd_ymm_ymmm256_imm8
    );
    is_one.then_some(other)
}

/// Whether the opcode is 0F 0D, under any of its names.
fn is_0f0d(insn: &Instruction) -> bool {
    matches!(
        insn.code(),
        Code::Reservednop_rm16_r16_0F0D
            | Code::Reservednop_rm32_r32_0F0D
            | Code::Reservednop_rm64_r64_0F0D
            | Code::Prefetch_m8
            | Code::Prefetchw_m8
            | Code::Prefetchwt1_m8
    )
}
