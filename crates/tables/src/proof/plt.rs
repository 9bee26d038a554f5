//! Procedure linkage tables: where their stubs begin.
//!
//! Layouts of GNU ld, lld and mold: entries of 16 bytes, 8 in a `.plt.got` without IBT; the first
//! entry of a lazy table, `push GOT+8(%rip); jmp *GOT+16(%rip)`, is only jumped to.

use super::body::is_padding;
use crate::file::File;
use iced_x86::{Decoder, DecoderOptions};
use std::ops::Range;

/// The opcode of `push disp32(%rip)`.
const PUSH_MEMORY: [u8; 2] = [0xff, 0x35];

/// The bytes of `endbr64`.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The prefix `bnd`.
const BND: u8 = 0xf2;
/// The opcode of `jmp *disp32(%rip)`.
const JUMP_MEMORY: [u8; 2] = [0xff, 0x25];
/// The sizes of a stub, bytes.
const SIZES: [usize; 2] = [16, 8];

/// The addresses (svma) of the stubs in `range` that calls go to.
pub fn stubs(file: &File, range: &Range<u64>) -> Vec<u64> {
    let name = file.code_at(range.start).map_or("", |c| c.name.as_str());
    let bytes = file.bytes(range.start);
    let starts_with_endbr = bytes.starts_with(&ENDBR64);
    let size = match name {
        ".plt.got" if !starts_with_endbr => 8,
        "" => stub_size(file, range).unwrap_or(16),
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

/// Whether the code in `range` (svma) is a procedure linkage table, by its bytes: for a file without section
/// headers, where no name says so.
pub fn is_table(file: &File, range: &Range<u64>) -> bool {
    stub_size(file, range).is_some()
}

/// The size of the stubs in `range` (svma), bytes, if all of it is stubs: each jumps through a word that
/// the loader writes, or is the first entry of a lazy table, or pushes a number and jumps there.
fn stub_size(file: &File, range: &Range<u64>) -> Option<usize> {
    let length = usize::try_from(range.end - range.start).ok()?;
    let code = file.bytes(range.start).get(..length)?;
    let is_lazy = is_lazy_head(file, range.start, code);
    SIZES.into_iter().find(|&size| {
        let mut stubs = (range.start..).step_by(size).zip(code.chunks(size));
        if is_lazy {
            // The entries behind the first may have any of the forms that linkers write.
            return size == SIZES[0] && length % size == 0;
        }
        length > 0 && length % size == 0 && stubs.all(|(at, stub)| is_stub(file, at, stub))
    })
}

/// Whether code is `push GOT+8(%rip); jmp *GOT+16(%rip)`.
fn is_lazy_head(file: &File, at: u64, code: &[u8]) -> bool {
    let skip = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    let target = |skip: usize, opcode: [u8; 2]| {
        let rest = code.get(skip..)?.strip_prefix(&opcode)?;
        let distance = i32::from_le_bytes(*rest.first_chunk()?);
        let next = at.wrapping_add(skip as u64 + 6);
        Some(next.wrapping_add_signed(distance.into()))
    };
    let pushed = target(skip, PUSH_MEMORY);
    let has_bnd = code.get(skip + 6) == Some(&BND);
    let jumped = target(skip + 6 + usize::from(has_bnd), JUMP_MEMORY);
    pushed.zip(jumped).is_some_and(|(pushed, jumped)| {
        pushed.wrapping_add(8) == jumped && file.is_writable(pushed)
    })
}

/// Whether the stub at `at` is `jmp *slot(%rip)` and padding.
fn is_stub(file: &File, at: u64, stub: &[u8]) -> bool {
    let skip = if stub.starts_with(&ENDBR64) { 4 } else { 0 };
    let skip = skip + usize::from(stub.get(skip) == Some(&BND));
    let slot = || {
        let rest = stub.get(skip..)?.strip_prefix(&JUMP_MEMORY)?;
        let (distance, padding) = rest.split_first_chunk()?;
        let next = at.wrapping_add(skip as u64 + 6);
        let slot = next.wrapping_add_signed(i32::from_le_bytes(*distance).into());
        Some((slot, padding))
    };
    slot().is_some_and(|(slot, padding)| file.is_writable(slot) && is_filler(padding))
}

/// Whether all bytes are traps, or no-operations of the forms that linkers write.
fn is_filler(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    decoder.iter().all(|insn| is_padding(&insn))
}
