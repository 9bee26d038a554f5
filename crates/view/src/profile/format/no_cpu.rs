//! Leaves the CPU time out of the Firefox Profiler's JSON where it is not known.
//!
//! The column `threadCPUDelta` of a thread may be absent, but the crate that writes it always
//! writes it. A sample of a clock stands for some time, so a column of zeros is one of a thread
//! whose CPU time is not known.

use std::io::{self, Write};

/// What comes before the numbers. In a string its quotation marks would be escaped.
const COLUMN: &[u8] = b",\"threadCPUDelta\":[";

/// Writes JSON without the columns that are all zeros.
pub(super) struct NoCpu<W> {
    out: W,
    state: State,
    /// What was held back: a part of [`COLUMN`], or the column so far.
    held: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside of a column. So many bytes of its start were seen.
    Outside(usize),
    /// In a column that has only zeros so far.
    Zeros,
}

impl<W: Write> NoCpu<W> {
    pub(super) fn new(out: W) -> NoCpu<W> {
        NoCpu {
            out,
            state: State::Outside(0),
            held: Vec::new(),
        }
    }

    /// The writer below, which has everything.
    pub(super) fn into_inner(mut self) -> io::Result<W> {
        self.out.write_all(&self.held)?;
        Ok(self.out)
    }

    /// Takes some bytes, and returns how many.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A machine over bytes, since the JSON comes in pieces of any size.
        match self.state {
            State::Outside(0) => {
                let at = bytes.iter().position(|byte| *byte == COLUMN[0]);
                let plain = at.unwrap_or(bytes.len());
                self.out.write_all(&bytes[..plain])?;
                if at.is_none() {
                    return Ok(plain);
                }
                self.state = State::Outside(1);
                Ok(plain + 1)
            }
            State::Outside(seen) if bytes[0] == COLUMN[seen] => {
                self.state = State::Outside(seen + 1);
                if seen + 1 == COLUMN.len() {
                    self.held.extend_from_slice(COLUMN);
                    self.state = State::Zeros;
                }
                Ok(1)
            }
            State::Outside(seen) => {
                // The start has one comma, so what was seen cannot begin another.
                self.out.write_all(&COLUMN[..seen])?;
                self.state = State::Outside(0);
                Ok(0)
            }
            State::Zeros => {
                // Zeros and commas are held back until it is known whether there is anything else
                // in the column.
                let zeros = bytes.iter().take_while(|byte| b"0,".contains(byte)).count();
                self.held.extend_from_slice(&bytes[..zeros]);
                match bytes.get(zeros) {
                    None => return Ok(zeros),
                    // Nothing but zeros: the column is not written at all.
                    Some(b']') => {
                        self.held.clear();
                        self.state = State::Outside(0);
                        return Ok(zeros + 1);
                    }
                    Some(_) => {}
                }

                // A column with a number in it is written as it was.
                self.out.write_all(&self.held)?;
                self.held.clear();
                self.state = State::Outside(0);
                Ok(zeros)
            }
        }
    }
}

impl<W: Write> Write for NoCpu<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.take(rest)?;
            rest = &rest[taken..];
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of `text`, in pieces of `size` bytes.
    fn written(text: &str, size: usize) -> String {
        let mut out = NoCpu::new(Vec::new());
        for piece in text.as_bytes().chunks(size) {
            out.write_all(piece).unwrap();
        }
        String::from_utf8(out.into_inner().unwrap()).unwrap()
    }

    #[test]
    fn only_columns_of_zeros_are_left_out() {
        let text = concat!(
            r#"{"a":{"weight":[1,1],"threadCPUDelta":[0,0]},"b":{"weight":[],"threadCPUDelta":[]},"#,
            r#""c":{"w":[1],"threadCPUDelta":[0,1001,0]},"d":{"w":[1],"threadCPUDelta":[10]},"#,
            r#""units":{"time":"ms","threadCPUDelta":"us"},"name":"x,\"threadCPUDelta\":[0]"}"#,
        );
        let expected = concat!(
            r#"{"a":{"weight":[1,1]},"b":{"weight":[]},"#,
            r#""c":{"w":[1],"threadCPUDelta":[0,1001,0]},"d":{"w":[1],"threadCPUDelta":[10]},"#,
            r#""units":{"time":"ms","threadCPUDelta":"us"},"name":"x,\"threadCPUDelta\":[0]"}"#,
        );
        for size in 1..text.len() {
            assert_eq!(written(text, size), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_ends_in_the_middle_of_a_column_is_kept() {
        assert_eq!(
            written(r#"[1,"threadCPUDelta":[0,0"#, 5),
            r#"[1,"threadCPUDelta":[0,0"#
        );
    }
}
