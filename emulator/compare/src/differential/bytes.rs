//! Bytes without regard to what they mean: every opcode and prefix, in forms that are not
//! instructions as well as in those that are. `encodings` makes only what iced decodes to a code.

use super::values::Random;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
use std::collections::HashSet;
use unwind_sim_emulator::Processor;

/// Maximum length of an instruction in bytes.
const LENGTH_MAX: usize = 15;
/// Prefixes before REX.
const PREFIXES: [u8; 11] = [
    0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65,
];
/// Number of prefixes, REX among them, with which nothing that is not an instruction is too long.
const PREFIXES_MAX: usize = 4;
/// The start of an instruction with an EVEX prefix in 64-bit mode.
const EVEX: u8 = 0x62;

/// Writes random bytes for an instruction located at `ip`, and decodes them as `processor` does.
/// `None` if they start an instruction of AVX-512 or of virtualization, or if nothing
/// but a rule about prefixes or fields makes them invalid, for an instruction not in `wanted`:
/// processors do not follow these rules for all.
pub(super) fn random(
    processor: &Processor,
    wanted: &HashSet<Code>,
    ip: u64,
    random: &mut Random,
    bytes: &mut [u8; LENGTH_MAX],
) -> Option<Instruction> {
    let (first, second) = (random.bits().to_le_bytes(), random.bits().to_le_bytes());
    bytes[..8].copy_from_slice(&first);
    bytes[8..].copy_from_slice(&second[..7]);

    let choice = random.bits();
    let prefixes = match choice & 31 {
        // Too many for anything to follow.
        0 => LENGTH_MAX as u64,
        // Never so many that the rest is too long: which fault is raised then is not architectural.
        1..16 => choice >> 8 & 3,
        _ => 0,
    };

    let mut at = 0;
    for _ in 0..prefixes {
        put(bytes, &mut at, *random.pick(&PREFIXES));
    }

    let rex = 0x40 | (choice >> 16 & 15) as u8;
    match choice >> 24 & 15 {
        0..6 => {
            // Usually one of the maps in use.
            let map = if choice >> 32 & 7 != 0 {
                1 + (choice >> 40) as u8 % 3
            } else {
                (choice >> 40) as u8 & 31
            };
            put(bytes, &mut at, 0xc4);
            put(bytes, &mut at, (choice >> 48) as u8 & 0xe0 | map);
        }
        6 | 7 => put(bytes, &mut at, 0xc5),
        8 => {
            // XOP. Prefixes could make it too long.
            at = 0;
            put(bytes, &mut at, 0x8f);
        }
        kind => {
            if choice >> 32 & 1 != 0 {
                put(bytes, &mut at, rex);
            }
            let map: &[u8] = match kind {
                9 => &[],
                10..13 => &[0x0f],
                13 => &[0x0f, 0x38],
                14 => &[0x0f, 0x3a],
                _ => &[0x0f, 0x01],
            };
            for byte in map {
                put(bytes, &mut at, *byte);
            }
        }
    }

    let options = processor.decoder_options();
    let insn = Decoder::with_ip(64, bytes, ip, options).decode();
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();

    let is_left_out = match bytes[prefixes..] {
        [EVEX, ..] => true,
        // Among them are calls of a hypervisor, which raises what it likes.
        [0x0f, 0x01, 0xc0..=0xff, ..] => insn.is_invalid(),
        [_, ..] if insn.is_invalid() && prefixes > PREFIXES_MAX => true,
        // Where it ends is not known here.
        _ => insn.is_invalid() && processor.has_instruction(&insn, bytes),
    };

    // With its checks off, iced names the instruction whose rule was broken.
    let code = if insn.is_invalid() {
        let options = options | DecoderOptions::NO_INVALID_CHECK;
        Decoder::with_ip(64, bytes, ip, options).decode().code()
    } else {
        insn.code()
    };

    let is_wanted = code == Code::INVALID || wanted.contains(&code);
    (!is_left_out && is_wanted).then_some(insn)
}

fn put(bytes: &mut [u8; LENGTH_MAX], at: &mut usize, byte: u8) {
    if let Some(place) = bytes.get_mut(*at) {
        *place = byte;
        *at += 1;
    }
}

fn is_prefix(byte: u8) -> bool {
    PREFIXES.contains(&byte) || byte & 0xf0 == 0x40
}
