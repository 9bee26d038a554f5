//! For tests: an unwind table with one row.

use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Section, SectionKind};

/// DWARF's numbers of registers (System V ABI for x86-64, figure 3.36).
pub(crate) const RBX: u8 = 3;
pub(crate) const RSP: u8 = 7;

/// An `.eh_frame` section with one row for `code`: the CFA is the register + 8, and the return address is
/// below it.
pub(crate) fn rows(code: Range<u64>, register: u8) -> Section {
    const ADDRESS: u64 = 0x9000;
    // The CIE: version 1, "zR", factors 1 and -8, return address 16, addresses are relative and have
    // 4 bytes.
    let mut bytes = vec![
        0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b,
    ];
    // DW_CFA_def_cfa, DW_CFA_offset of the return address, DW_CFA_nop.
    bytes.extend([0x0c, register, 8, 0x90, 1, 0, 0]);
    // The FDE.
    bytes.extend([0x10, 0, 0, 0, 0x1c, 0, 0, 0]);
    let place = ADDRESS + bytes.len() as u64;
    bytes.extend((code.start.wrapping_sub(place) as u32).to_le_bytes());
    bytes.extend(((code.end - code.start) as u32).to_le_bytes());
    bytes.extend([0; 8]);
    Section {
        kind: SectionKind::EhFrame,
        address: ADDRESS,
        data: Bytes::from_vec(bytes),
    }
}
