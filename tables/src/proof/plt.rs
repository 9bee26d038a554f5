//! Procedure linkage tables: where their stubs begin.
//!
//! Layouts of GNU ld, lld and mold: entries of 16 bytes, 8 in a `.plt.got` without IBT; the first
//! entry of a lazy table, `push GOT+8(%rip); jmp *GOT+16(%rip)`, is only jumped to.

use crate::file::File;
use std::ops::Range;

/// The opcode of `push disp32(%rip)`.
const PUSH_MEMORY: [u8; 2] = [0xff, 0x35];

/// The addresses (svma) of the stubs in `range` that calls go to.
pub fn stubs(file: &File, range: &Range<u64>) -> Vec<u64> {
    let name = file.code_at(range.start).map_or("", |c| c.name.as_str());
    let bytes = file.bytes(range.start);
    let starts_with_endbr = bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]);
    let size = match name {
        ".plt.got" if !starts_with_endbr => 8,
        _ => 16,
    };
    let length = range.end - range.start;
    let stubs = (0..length).step_by(size);
    let is_called = |offset: &u64| {
        usize::try_from(*offset)
            .ok()
            .and_then(|offset| bytes.get(offset..))
            .is_some_and(|stub| !stub.starts_with(&PUSH_MEMORY))
    };
    stubs.filter(is_called).map(|o| range.start + o).collect()
}
