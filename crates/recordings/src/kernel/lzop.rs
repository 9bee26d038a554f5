//! The lzop(1) container, which `CONFIG_KERNEL_LZO` uses to pack a kernel: a header, then LZO1X
//! blocks, each preceded by its two lengths and its checksums.
//!
//! Sources: Linux 6.12 `lib/decompress_unlzo.c` for the parts that a kernel reads; the file format
//! of lzop 1.04 (`conf.h`, `lzop.c`) for the flags, which the kernel ignores. Integers are
//! big-endian.

use std::io::ErrorKind;

const MAGIC: [u8; 9] = [0x89, b'L', b'Z', b'O', 0, 0x0d, 0x0a, 0x1a, 0x0a];
/// Since this version the header has a compression level, and the upper half of the time.
const VERSION_LEVEL: u16 = 0x0940;
/// LZO1X-1, LZO1X-1(15) and LZO1X-999: three compressors with the same decompressor.
const METHODS: std::ops::RangeInclusive<u8> = 1..=3;
/// Maximum unpacked size of a block, bytes: lzop's `MAX_BLOCK_SIZE`.
const BLOCK_MAX: usize = 64 << 20;

/// Flags: Adler-32 and CRC-32 of the unpacked block, then of the packed block.
const ADLER32_D: u32 = 0x1;
const CRC32_D: u32 = 0x100;
const ADLER32_C: u32 = 0x2;
const CRC32_C: u32 = 0x200;
/// Flag: an extra field follows the header.
const EXTRA_FIELD: u32 = 0x40;
/// Flag: the data was filtered. Not used for kernels.
const FILTER: u32 = 0x800;

/// Offset of the invalid data, bytes, and the kind of error.
pub(super) type Bad = (usize, ErrorKind);

/// The data and the read position.
struct Rest<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.data.get(self.at..end));
        let bytes = bytes.ok_or((self.at, ErrorKind::UnexpectedEof))?;
        self.at += len;
        Ok(bytes)
    }

    fn number(&mut self, len: usize) -> Result<u32, Bad> {
        let bytes = self.bytes(len)?.iter();
        Ok(bytes.fold(0, |value, byte| value << 8 | u32::from(*byte)))
    }

    fn number_if(&mut self, flag: bool) -> Result<Option<u32>, Bad> {
        flag.then(|| self.number(4)).transpose()
    }
}

/// Unpacks `data` and appends it to `out`, until `out` has more than `limit` bytes. Data after the
/// last block is ignored.
pub(super) fn unpack(data: &[u8], out: &mut Vec<u8>, limit: u64) -> Result<(), Bad> {
    let mut rest = Rest { data, at: 0 };
    let flags = header(&mut rest)?;
    // More than the limit, so that the caller sees that it is exceeded.
    while out.len() as u64 <= limit {
        let begin = rest.at;
        let bad = (begin, ErrorKind::InvalidData);
        let unpacked_len = rest.number(4)? as usize;
        // A length of 0 ends the file.
        if unpacked_len == 0 {
            return Ok(());
        }
        let packed_len = rest.number(4)? as usize;
        // Lengths are from the file, and the unpacked one is allocated.
        if unpacked_len > BLOCK_MAX || packed_len == 0 || packed_len > unpacked_len {
            return Err(bad);
        }

        let adler32 = rest.number_if(flags & ADLER32_D != 0)?;
        let crc32 = rest.number_if(flags & CRC32_D != 0)?;

        // An incompressible block is stored unpacked, without checksums of the packed block.
        let is_packed = packed_len < unpacked_len;
        rest.number_if(is_packed && flags & ADLER32_C != 0)?;
        rest.number_if(is_packed && flags & CRC32_C != 0)?;
        let packed = rest.bytes(packed_len)?;

        let from = out.len();
        if is_packed {
            out.resize(from + unpacked_len, 0);
            let unpacked = lzokay::decompress::decompress(packed, &mut out[from..]);
            if unpacked != Ok(unpacked_len) {
                return Err(bad);
            }
        } else {
            out.extend_from_slice(packed);
        }

        let unpacked = &out[from..];
        if adler32.is_some_and(|sum| sum != adler32_of(unpacked))
            || crc32.is_some_and(|sum| sum != crc32_of(unpacked))
        {
            return Err(bad);
        }
    }
    Ok(())
}

/// Reads the header and returns the flags.
fn header(rest: &mut Rest<'_>) -> Result<u32, Bad> {
    if rest.bytes(MAGIC.len())? != MAGIC {
        return Err((0, ErrorKind::InvalidData));
    }

    let version = rest.number(2)? as u16;
    let has_level = version >= VERSION_LEVEL;
    // The library's version, and the version needed for extracting.
    rest.bytes(2)?;
    rest.bytes(if has_level { 2 } else { 0 })?;

    let at = rest.at;
    let method = rest.number(1)? as u8;
    rest.bytes(usize::from(has_level))?;
    let flags_at = rest.at;
    let flags = rest.number(4)?;

    if !METHODS.contains(&method) {
        return Err((at, ErrorKind::Unsupported));
    }
    if flags & FILTER != 0 {
        return Err((flags_at, ErrorKind::Unsupported));
    }

    // Mode and time.
    rest.bytes(if has_level { 12 } else { 8 })?;
    let name_len = rest.number(1)? as usize;
    rest.bytes(name_len)?;
    // The checksums of the header and of the extra field.
    rest.bytes(4)?;

    if flags & EXTRA_FIELD != 0 {
        let extra_len = rest.number(4)? as usize;
        rest.bytes(extra_len)?;
        rest.bytes(4)?;
    }

    Ok(flags)
}

/// RFC 1950, section 8.2.
fn adler32_of(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65521;
    /// The second sum does not overflow within this many bytes.
    const RUN: usize = 5552;
    let (mut a, mut b) = (1, 0);
    for run in bytes.chunks(RUN) {
        for byte in run {
            a += u32::from(*byte);
            b += a;
        }
        a %= MODULUS;
        b %= MODULUS;
    }
    b << 16 | a
}

fn crc32_of(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
