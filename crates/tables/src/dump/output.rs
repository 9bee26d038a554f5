//! A buffer for text with many numbers. `write!` with a width takes several times as long.

use std::io::{self, Write};

/// The buffer is written when it holds this many bytes.
const FULL: usize = 1 << 16;

/// Text on its way to a writer.
pub(super) struct Text<W> {
    bytes: Vec<u8>,
    to: W,
}

impl<W: Write> Text<W> {
    pub(super) fn new(to: W) -> Self {
        let bytes = Vec::with_capacity(2 * FULL);
        Text { bytes, to }
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// `value` with `DIGITS` hexadecimal digits. Higher digits are dropped.
    #[inline]
    pub(super) fn hex<const DIGITS: usize>(&mut self, value: u64) {
        let mut digits = [0; DIGITS];
        let mut left = value;
        for digit in digits.iter_mut().rev() {
            *digit = b"0123456789abcdef"[(left & 0xf) as usize];
            left >>= 4;
        }
        self.bytes.extend_from_slice(&digits);
    }

    /// `value` in decimal.
    #[inline]
    pub(super) fn decimal(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut left = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    /// `value` in decimal, always with a sign.
    #[inline]
    pub(super) fn signed(&mut self, value: i64) {
        self.bytes.push(if value < 0 { b'-' } else { b'+' });
        self.decimal(value.unsigned_abs());
    }

    /// The position of a column's first character.
    #[inline]
    pub(super) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Fills the column that starts at `mark` with spaces up to `width`.
    #[inline]
    pub(super) fn fill(&mut self, mark: usize, width: usize) {
        let end = mark + width;
        if self.bytes.len() < end {
            self.bytes.resize(end, b' ');
        }
    }

    /// Fills the column that starts at `mark` with spaces up to `width`, then adds one.
    #[inline]
    pub(super) fn pad(&mut self, mark: usize, width: usize) {
        self.fill(mark, width);
        self.bytes.push(b' ');
    }

    /// Ends a line, and writes the buffer if it is full.
    #[inline]
    pub(super) fn line(&mut self) -> io::Result<()> {
        self.bytes.push(b'\n');
        if self.bytes.len() >= FULL {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffer.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
