//! The names of the registers of DWARF.
//!
//! Source: x86-64 psABI, figure "DWARF Register Number Mapping". readelf has the same names.

use crate::dump::output::Text;
use std::io::Write;

/// The registers 0 to 16.
const GENERAL: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip",
];

/// The registers 49 to 66; those without a name are reserved.
const OTHERS: [&str; 18] = [
    "rflags", "es", "cs", "ss", "ds", "fs", "gs", "", "", "fs.base", "gs.base", "", "", "tr",
    "ldtr", "mxcsr", "fcw", "fsw",
];

/// Writes the name of the register with this number: `rbx`, `xmm3`, `r90` if it has none.
pub(super) fn write<W: Write>(number: u16, out: &mut Text<W>) {
    let (prefix, index) = match number {
        0..17 => return out.text(GENERAL[usize::from(number)]),
        17..33 => ("xmm", number - 17),
        33..41 => ("st", number - 33),
        41..49 => ("mm", number - 41),
        49..67 if !OTHERS[usize::from(number - 49)].is_empty() => {
            return out.text(OTHERS[usize::from(number - 49)]);
        }
        67..83 => ("xmm", number - 67 + 16),
        118..126 => ("k", number - 118),
        126..130 => ("bnd", number - 126),
        // APX (psABI 1.0, of 2023 and later).
        130..146 => ("r", number - 130 + 16),
        _ => ("r", number),
    };
    out.text(prefix);
    out.decimal(index.into());
}

/// Writes a register in which another one is kept: `r3 (rbx)`.
pub(super) fn write_source<W: Write>(number: u16, out: &mut Text<W>) {
    out.text("r");
    out.decimal(number.into());
    if matches!(number, 0..56 | 58 | 59 | 62..83 | 118..146) {
        out.text(" (");
        write(number, out);
        out.text(")");
    }
}
