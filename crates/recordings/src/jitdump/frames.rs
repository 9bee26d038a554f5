//! The `.eh_frame` entries of several functions as one section.
//!
//! Each function has entries of its own, whose pointers count from where they are meant: right
//! behind the code, aligned to 8 bytes (Linux `tools/perf/util/genelf.c`, `jit_write_elf`). An image
//! has one `.eh_frame`, so they are copied behind each other, and the pointers to code are corrected
//! by the distance.

use super::Function;

/// Pointer encodings (LSB 5.0 Core, "DWARF Exception Header Encoding").
const ABSPTR: u8 = 0;
const PCREL: u8 = 0x10;
/// Formats of 8 bytes: `absptr`, `udata8`, `sdata8`.
const FORMATS_OF_8: [u8; 3] = [0x00, 0x04, 0x0c];
/// Formats of 4 bytes: `udata4`, `sdata4`.
const FORMATS_OF_4: [u8; 2] = [0x03, 0x0b];

/// Appends the entries of `function` to `out`, whose first byte will be at `address`. `None`, with
/// `out` unchanged, if they cannot be read or are not about the function.
pub(super) fn append(function: &Function, address: u64, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    let done = copy(function, address, out);
    if done.is_none() {
        out.truncate(start);
    }
    done
}

fn copy(function: &Function, address: u64, out: &mut Vec<u8>) -> Option<()> {
    let (base, entries) = entries(function)?;
    let code = function.written_at..function.written_at.checked_add(function.size)?;
    let start = out.len();

    // How much further than meant the entries will be.
    let distance = address.checked_add(start as u64)?.wrapping_sub(base);
    let mut has_row = false;
    let mut at = 0;

    while let Some(length) = u32_at(entries, at) {
        // A length of 0 ends the section. Nothing writes the 64-bit form here.
        if length == 0 {
            break;
        }

        let body = at.checked_add(4)?;
        let end = body.checked_add(length as usize)?;
        let entry = entries.get(at..end)?;
        out.extend_from_slice(entry);

        let pointer = u32_at(entries, body)?;
        if pointer != 0 {
            // The CIE pointer counts back from itself.
            let cie = body.checked_sub(pointer as usize)?;
            let encoding = pointer_encoding(entries, cie)?;
            let place = body + 4;
            let written = read(entries, place, encoding)?;
            let begin = match encoding & 0x70 {
                PCREL => base.wrapping_add(place as u64).wrapping_add(written),
                _ => written,
            };
            // Entries without a row of this function would be of no use.
            has_row |= code.contains(&begin);
            // Only relative pointers change when the entries move.
            if encoding & 0x70 == PCREL {
                let corrected = written.wrapping_sub(distance);
                write(&mut out[start..], place, encoding, corrected)?;
            }
        }

        at = end;
    }

    has_row.then_some(())
}

/// The entries, without the `.eh_frame_hdr`, and the address at which they are meant. What compilers
/// write, and perf expects, has the header behind the entries; in the specification it precedes
/// them, and then the first byte is its version. No entry starts with that byte, because lengths are
/// multiples of 4.
fn entries(function: &Function) -> Option<(u64, &[u8])> {
    const HDR_VERSION: u8 = 1;
    let unwinding = function.unwinding.as_ref()?;
    let all = &unwinding.data[..];
    let end = function.written_at.checked_add(function.size)?;
    let base = end.checked_next_multiple_of(8)?;
    let header = unwinding.header_size;
    if header > 0 && all.first() == Some(&HDR_VERSION) {
        Some((base.checked_add(header as u64)?, all.get(header..)?))
    } else {
        Some((base, all.get(..all.len().checked_sub(header)?)?))
    }
}

/// The encoding of pointers to code in the FDEs of the CIE at `at`.
fn pointer_encoding(entries: &[u8], at: usize) -> Option<u8> {
    let body = at.checked_add(4)?;
    if u32_at(entries, body)? != 0 {
        return None;
    }

    // Version, augmentation string, code and data alignment, return address register.
    let version = *entries.get(body + 4)?;
    let string = entries.get(body + 5..)?;
    let end = string.iter().position(|&b| b == 0)?;
    let mut rest = &string[end + 1..];
    uleb(&mut rest)?;
    uleb(&mut rest)?;
    // The return address register is a byte in version 1, and a ULEB128 number in later ones (DWARF
    // 5, 6.4.1).
    match version {
        1 => rest = rest.get(1..)?,
        _ => uleb(&mut rest).map(drop)?,
    }

    let [b'z', augmentation @ ..] = &string[..end] else {
        return (end == 0).then_some(ABSPTR);
    };

    // The augmentation data, in the order of the letters (LSB 5.0 Core, "Exception Frames").
    uleb(&mut rest)?;
    for letter in augmentation {
        match letter {
            b'R' => return rest.first().copied(),
            b'L' => rest = rest.get(1..)?,
            b'P' => {
                let (encoding, tail) = rest.split_first()?;
                rest = tail.get(size(*encoding)?..)?;
            }
            b'S' | b'B' | b'G' => {}
            _ => return None,
        }
    }

    Some(ABSPTR)
}

/// The size of an encoded pointer, bytes.
fn size(encoding: u8) -> Option<usize> {
    match encoding & 0xf {
        format if FORMATS_OF_8.contains(&format) => Some(8),
        format if FORMATS_OF_4.contains(&format) => Some(4),
        _ => None,
    }
}

fn read(bytes: &[u8], at: usize, encoding: u8) -> Option<u64> {
    let bytes = bytes.get(at..)?;
    match size(encoding)? {
        8 => Some(u64::from_le_bytes(*bytes.first_chunk()?)),
        _ if encoding & 8 != 0 => Some(i64::from(i32::from_le_bytes(*bytes.first_chunk()?)) as u64),
        _ => Some(u32::from_le_bytes(*bytes.first_chunk()?).into()),
    }
}

/// Writes an encoded pointer; `None` if it does not fit.
fn write(bytes: &mut [u8], at: usize, encoding: u8, value: u64) -> Option<()> {
    let size = size(encoding)?;
    if size == 4 {
        let is_signed = encoding & 8 != 0;
        if is_signed {
            i32::try_from(value.cast_signed()).ok()?;
        } else {
            u32::try_from(value).ok()?;
        }
    }
    let place = bytes.get_mut(at..at.checked_add(size)?)?;
    place.copy_from_slice(&value.to_le_bytes()[..size]);
    Some(())
}

/// Skips a LEB128 number and returns its bytes.
fn uleb<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = bytes.iter().position(|b| b & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    Some(number)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    super::u32_at(bytes, at)
}
