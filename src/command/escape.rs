//! The last step before text reaches a person: what is not printable is escaped, whatever it came
//! from. Colours are added after it, so that no sequence from outside passes.
//!
//! Line ends and tabs pass, since they are also ours. Names are made [`Printable`] where they are put
//! into a line, so they have none.

use std::io::{self, Write};
use unwind_sim_unwind::printable::{Printable, is_printable, printable_lines};

/// A writer that escapes and passes the rest to `inner`. In lines of JSON it writes what JSON's
/// readers take for the same characters.
pub(crate) struct Escaper<W: Write> {
    inner: W,
    /// The start of a character whose other bytes are not here yet.
    rest: Vec<u8>,
    line: Line,
}

/// The line that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Start,
    Text,
    Json,
}

impl Line {
    /// The line after this byte of it.
    fn after(self, byte: u8) -> Line {
        match (byte, self) {
            (b'\n', _) => Line::Start,
            (b'{', Line::Start) => Line::Json,
            (_, Line::Start) => Line::Text,
            (_, line) => line,
        }
    }
}

impl<W: Write> Escaper<W> {
    pub(crate) fn new(inner: W) -> Escaper<W> {
        Escaper {
            inner,
            rest: Vec::new(),
            line: Line::Start,
        }
    }

    /// Writes bytes that need no escape.
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let from = bytes.iter().rposition(|&byte| byte == b'\n');
        // Before the last line's end, and behind the first byte of a line, nothing changes it.
        let last = &bytes[from.unwrap_or(0)..];
        self.line = last
            .iter()
            .take(2)
            .fold(self.line, |line, &b| line.after(b));
        self.inner.write_all(bytes)
    }

    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        let must = |c: char| !is_printable(c) && !matches!(c, '\n' | '\t');
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| must(c)) {
            let (before, behind) = rest.split_at(at);
            self.pass(before.as_bytes())?;
            self.escape(c)?;
            rest = &behind[c.len_utf8()..];
        }
        self.pass(rest.as_bytes())
    }

    fn escape(&mut self, c: char) -> io::Result<()> {
        if self.line == Line::Json {
            let mut utf16 = [0; 2];
            for unit in c.encode_utf16(&mut utf16) {
                write!(self.inner, "\\u{unit:04x}")?;
            }
            return Ok(());
        }
        let text = Printable::new(c.encode_utf8(&mut [0; 4])).to_string();
        self.pass(text.as_bytes())
    }

    fn write_escaped(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.write_text(chunk.valid())?;
            let invalid = chunk.invalid();
            // More bytes may come.
            if chunks.peek().is_none() && is_start(invalid) {
                self.rest = invalid.to_vec();
            } else {
                self.pass(Printable::new(invalid).to_string().as_bytes())?;
            }
        }
        Ok(())
    }

    /// Escapes the start of a character that nothing follows.
    fn write_rest(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.pass(Printable::new(&rest).to_string().as_bytes())
    }
}

/// Whether more bytes can make these a character.
fn is_start(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

impl<W: Write> Write for Escaper<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = |&byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
        if self.rest.is_empty() && bytes.iter().all(plain) {
            self.pass(bytes)?;
            return Ok(bytes.len());
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        self.write_escaped(&all)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_rest()?;
        self.inner.flush()
    }
}

impl<W: Write> Drop for Escaper<W> {
    fn drop(&mut self) {
        // Errors are ignored, as in the standard library's buffered writer.
        let _ = self.write_rest();
    }
}

/// A message of the argument parser, in which the only sequences are those of its colours: the
/// arguments in it were made [`Printable`] before.
pub(crate) fn with_colours(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\x1b[") {
        out.push_str(&printable_lines(before));
        let end = behind.find(|c: char| !c.is_ascii_digit() && c != ';');
        match end.filter(|&end| behind[end..].starts_with('m')) {
            Some(end) => {
                out.push_str("\x1b[");
                out.push_str(&behind[..=end]);
                rest = &behind[end + 1..];
            }
            None => {
                out.push_str("\\u{1b}[");
                rest = behind;
            }
        }
    }
    out.push_str(&printable_lines(rest));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written in pieces of this many bytes.
    fn through(bytes: &[u8], piece: usize) -> String {
        let mut out = Vec::new();
        let mut escaper = Escaper::new(&mut out);
        for piece in bytes.chunks(piece) {
            escaper.write_all(piece).expect("a vector takes all");
        }
        drop(escaper);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn nothing_from_outside_controls_a_terminal() {
        for (bytes, shown) in [
            (&b"a\tb\n"[..], "a\tb\n"),
            ("ü 漢 😀\n".as_bytes(), "ü 漢 😀\n"),
            (
                b"\x1b]0;x\x07\x1b[31m\r\n",
                "\\u{1b}]0;x\\u{7}\\u{1b}[31m\\r\n",
            ),
            ("\u{9b}1m\u{202e}".as_bytes(), "\\u{9b}1m\\u{202e}"),
            (b"\xff\n{\xe2\x80", "\\xff\n{\\xe2\\x80"),
            // Only a line of JSON has its notation.
            (
                "{\"\u{202e}\u{e0041}\u{7f}\"}\n\u{7f}{\n{}\n\u{85}".as_bytes(),
                "{\"\\u202e\\udb40\\udc41\\u007f\"}\n\\u{7f}{\n{}\n\\u{85}",
            ),
        ] {
            for piece in 1..=bytes.len() {
                assert_eq!(through(bytes, piece), shown, "{piece}");
            }
        }
    }

    #[test]
    fn only_colours_pass_in_messages() {
        assert_eq!(
            with_colours("\x1b[1;31merror\x1b[0m: a\n"),
            "\x1b[1;31merror\x1b[0m: a\n"
        );
        assert_eq!(
            with_colours("\x1b[2J\x1b]0;\x07\x1b["),
            "\\u{1b}[2J\\u{1b}]0;\\u{7}\\u{1b}["
        );
    }
}
