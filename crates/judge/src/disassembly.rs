//! Formats instructions as text.

use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::insn::INSN_BYTES_MAX;

/// An instruction in AT&T syntax. Branch targets are absolute, for the address that the instruction
/// was decoded at.
pub fn instruction(insn: &Instruction) -> String {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(true);
    let mut text = String::new();
    formatter.format(insn, &mut text);
    text
}

/// The instruction at `address`, if its bytes are known.
pub fn at(mapping: &Mapping, address: u64) -> Option<String> {
    let image = mapping.image.as_ref()?;
    decoded(
        image.text_bytes(mapping.svma(address), INSN_BYTES_MAX),
        address,
    )
}

/// The first instruction of `bytes`, which are at `address`.
pub fn decoded(bytes: &[u8], address: u64) -> Option<String> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return None;
    }
    let insn = decoder.decode();
    (!insn.is_invalid()).then(|| instruction(&insn))
}

/// The instructions in `bytes`, which are at `address`: the length of each and its text. A byte that
/// does not start an instruction is one of its own, without a text.
pub fn listed(bytes: &[u8], address: u64) -> Vec<(usize, Option<String>)> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let ip = address.wrapping_add(at as u64);
        let insn = Decoder::with_ip(64, rest, ip, DecoderOptions::NONE).decode();
        let line = if insn.is_invalid() {
            (1, None)
        } else {
            (insn.len(), Some(instruction(&insn)))
        };
        at += line.0;
        lines.push(line);
    }
    lines
}
