//! Instructions that are too long: a processor raises #GP at more than 15 bytes (Intel SDM volume
//! 2). For bytes that are not an instruction either, that or #UD: which comes first is
//! not architectural (volume 3, table 6-2).

use crate::processor::Processor;
use iced_x86::{Decoder, Instruction};

/// Length of the longest instruction, bytes.
pub(crate) const INSN_MAX: usize = 15;
/// Bytes that follow the last prefix at most: three of opcode, one each for operand and index, four
/// of displacement, and eight of an immediate.
const REST_MAX: usize = 17;
const ADDRESS_SIZE: u8 = 0x67;

/// Whether what starts here has too many bytes for an instruction, which are mostly prefixes.
pub(crate) fn is_too_long(bytes: &[u8], processor: &Processor) -> bool {
    if bytes.len() < INSN_MAX {
        return false;
    }

    let bytes = &bytes[..INSN_MAX];
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();

    // A prefix more than once means the same, as does REX before another prefix.
    let mut shorter = Vec::with_capacity(INSN_MAX + REST_MAX);

    let (start, rest) = bytes.split_at(prefixes);

    // Other prefixes before VEX are never right, but do not change the length.
    let is_vex = matches!(rest.first(), Some(0x62 | 0xc4 | 0xc5));
    for (at, byte) in start.iter().enumerate() {
        let is_repeated = start[at + 1..].contains(byte);
        let matters = !is_vex || *byte == ADDRESS_SIZE;
        if matters && !is_repeated && (!is_rex(*byte) || at + 1 == prefixes) {
            shorter.push(*byte);
        }
    }

    let removed = prefixes - shorter.len();
    shorter.extend_from_slice(rest);
    shorter.resize(shorter.len() + REST_MAX, 0);

    let mut insn = Instruction::default();
    Decoder::new(64, &shorter, processor.decoder_options()).decode_out(&mut insn);
    removed + insn.len() > INSN_MAX
}

fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

fn is_prefix(byte: u8) -> bool {
    let is_legacy = matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    );
    is_legacy || is_rex(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured on an AMD EPYC, family 25, model 17.
    #[test]
    fn prefixes_make_an_instruction_too_long() {
        let code = |prefixes: usize, rest: &[u8]| [&vec![0x2e; prefixes][..], rest].concat();
        let nop = [0x90; 15];
        for (bytes, expected) in [
            (code(15, &[]), true),
            (code(14, &nop), false),
            // With a displacement and an immediate: 10 bytes.
            (code(5, &[0xc7, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]), false),
            (code(6, &[0xc7, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]), true),
            (code(14, &[0x0f]), true),
            // Not an instruction, but not too long.
            (code(11, &[0x0f, 0x04, 0, 0]), false),
            // An F2 before VEX; with a displacement of one byte, and of none.
            (
                code(
                    0,
                    &[&[0xf2; 10][..], &[0xc4, 0xe2, 0x75, 0x2c, 0x47]].concat(),
                ),
                true,
            ),
            (
                code(
                    0,
                    &[&[0xf2; 10][..], &[0xc4, 0xe2, 0x75, 0x2c, 0x07]].concat(),
                ),
                false,
            ),
            // Only the last REX counts, and it is the first byte here.
            ([&[0x48; 14][..], &[0xc3]].concat(), false),
            ([&[0x48; 15][..]].concat(), true),
        ] {
            let found = is_too_long(&bytes, &Processor::default());
            assert_eq!(found, expected, "{bytes:x?}");
        }

        assert!(!is_too_long(&[0x2e; 14], &Processor::default()));
    }
}
