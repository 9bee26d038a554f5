//! Encodes and decodes the primitives inside blocks: variable-length integers and strings.
//!
//! Integers are LEB128 as in DWARF (version 5, section 7.6), at most 64 bits in at most 10 bytes.
//! Differences are zigzag-encoded, so that small negative ones stay short.

use super::error::Bad;

/// Appends `value` to `out`.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value - base`, modulo 2^64, zigzag-encoded.
pub(crate) fn put_difference(out: &mut Vec<u8>, value: u64, base: u64) {
    let difference = value.wrapping_sub(base) as i64;
    put(out, (difference << 1 ^ difference >> 63) as u64);
}

/// Appends the length of `bytes`, then `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A read position in a payload.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at byte `at` of `bytes`, or at the end if `at` is past it.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        let at = at.min(bytes.len());
        Cursor { bytes, at }
    }

    /// The position, bytes from the start of the payload.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error `what` at the current position.
    pub(crate) fn bad(&self, what: &'static str) -> Bad {
        Bad { what, at: self.at }
    }

    /// Reads a byte.
    pub(crate) fn u8(&mut self) -> Result<u8, Bad> {
        let byte = self.bytes.get(self.at).copied();
        let byte = byte.ok_or_else(|| self.bad("the block ends inside a record"))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads an integer.
    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Bad> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(self.bad("an integer has more than 64 bits"));
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.bad("an integer has more than 64 bits"))
    }

    /// Reads an integer of at most 32 bits.
    pub(crate) fn u32(&mut self) -> Result<u32, Bad> {
        u32::try_from(self.u64()?).map_err(|_| self.bad("an integer has more than 32 bits"))
    }

    /// Reads a count of at most `max`.
    pub(crate) fn count(&mut self, max: usize, what: &'static str) -> Result<usize, Bad> {
        let count = usize::try_from(self.u64()?).ok().filter(|&c| c <= max);
        count.ok_or_else(|| self.bad(what))
    }

    /// Reads a difference and adds it to `base`.
    pub(crate) fn difference(&mut self, base: u64) -> Result<u64, Bad> {
        let folded = self.u64()?;
        Ok(base.wrapping_add(folded >> 1 ^ (folded & 1).wrapping_neg()))
    }

    /// Reads `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Bad> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.bad("a length extends past the end of the block"))?;
        self.at += length;
        Ok(bytes)
    }

    /// Reads a length of at most `max` and that many bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Bad> {
        let length = self.count(max, "a name or field is longer than the format allows")?;
        self.take(length)
    }

    /// Reads a length of at most `max` and that many bytes of UTF-8.
    pub(crate) fn string(&mut self, max: usize) -> Result<&'a str, Bad> {
        let at = self.at;
        let what = "a name is not UTF-8";
        std::str::from_utf8(self.bytes(max)?).map_err(|_| Bad { what, at })
    }

    /// Fails if any bytes are left.
    pub(crate) fn end(&self) -> Result<(), Bad> {
        if self.left() == 0 {
            return Ok(());
        }
        Err(self.bad("bytes are left after the last record"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: u64, base: u64) -> usize {
        let mut out = Vec::new();
        put(&mut out, value);
        let length = out.len();
        put_difference(&mut out, value, base);
        let mut cursor = Cursor::new(&out, 0);
        assert_eq!(cursor.u64(), Ok(value));
        assert_eq!(cursor.difference(base), Ok(value));
        assert_eq!(cursor.end(), Ok(()));
        length
    }

    #[test]
    fn integers_come_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, !(1u64 << shift)] {
                one(value, value.rotate_left(13));
                one(value, u64::MAX);
            }
        }
        assert_eq!(one(127, 0), 1);
        assert_eq!(one(128, 0), 2);
        assert_eq!(one(u64::MAX, 0), 10);
    }

    #[test]
    fn too_many_bits_and_too_few_bytes_are_refused() {
        let bad = |bytes: &[u8]| Cursor::new(bytes, 0).u64().map_err(|b| b.what);
        let long = "an integer has more than 64 bits";
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(bad(&bytes), Err(long));
        bytes[9] = 0x81;
        assert_eq!(bad(&bytes), Err(long));
        assert_eq!(bad(&[0xff; 3]), Err("the block ends inside a record"));
    }
}
