//! Formats instructions as text.

use iced_x86::{Formatter, GasFormatter, Instruction};

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
