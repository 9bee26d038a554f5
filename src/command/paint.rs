//! Adds colour to verdicts and codes in finished lines of text. Colour carries no information of
//! its own: every coloured word is a word, letter or code of the plain text.

use clap::builder::styling::{AnsiColor, Style};
use std::io::{self, Write};
use unwind_sim_unwind::verdict::Verdict;

// As in the stepper, red is the only colour: green, yellow and cyan are hard to read on white.
const RIGHT: Style = Style::new();
const WRONG: Style = AnsiColor::Red.on_default().bold();
const OPEN: Style = Style::new().bold();
const CODE: Style = Style::new().bold();

/// A writer that colours whole lines and passes them to `inner`. JSON is left alone.
pub(crate) struct Painter<W: Write> {
    inner: W,
    line: Vec<u8>,
}

impl<W: Write> Painter<W> {
    pub(crate) fn new(inner: W) -> Painter<W> {
        Painter {
            inner,
            line: Vec::new(),
        }
    }

    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        match std::str::from_utf8(&line) {
            Ok(text) if !text.starts_with('{') => self.inner.write_all(painted(text).as_bytes()),
            _ => self.inner.write_all(&line),
        }
    }
}

impl<W: Write> Write for Painter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line()?;
        }
        self.inner.flush()
    }
}

impl<W: Write> Drop for Painter<W> {
    fn drop(&mut self) {
        // Errors are ignored, as in the standard library's buffered writer.
        let _ = self.flush();
    }
}

fn style(letter: char) -> Style {
    match letter {
        '.' => RIGHT,
        '~' | '?' | 'u' => OPEN,
        _ => WRONG,
    }
}

fn letter(word: &str) -> Option<char> {
    let found = Verdict::WORDS.iter().find(|(_, name)| *name == word);
    found.map(|(letter, _)| *letter)
}

/// Whether the word is a short verdict (`w@2`, `m1@3`) or just its letter.
fn is_short(word: &str, letter: char) -> bool {
    let rest = word.strip_prefix(letter);
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'@'))
}

fn is_code(word: &str) -> bool {
    let digits = word.strip_prefix("US");
    digits.is_some_and(|d| d.len() == 3 && d.bytes().all(|b| b.is_ascii_digit()))
}

fn in_style(out: &mut String, style: Style, text: &str) {
    out.push_str(&format!("{style}{text}{style:#}"));
}

/// The line with colour added.
fn painted(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 32);
    let words: Vec<&str> = line.split_inclusive(' ').collect();
    // Words keep their spaces, so that the line without colour is the same, column by column.
    let bare = |i: usize| words.get(i).map_or("", |w| w.trim_end());
    // The next nonempty word: columns are padded with spaces.
    let next = |i: usize| (i + 1..words.len()).map(bare).find(|w| !w.is_empty());

    let mut i = 0;
    let mut first = None;
    while i < words.len() {
        let word = bare(i);
        let space = &words[i][word.len()..];

        if !word.is_empty() {
            first.get_or_insert(i);
        }
        let is_first = first == Some(i);

        // Punctuation behind a code stays uncoloured.
        let plain = word.trim_end_matches([':', ',', ')']);
        let counted = next(i).is_some_and(is_code) && i > 0;

        match letter(word) {
            // A verdict and its letter are one piece, such as `wrong w@2`.
            Some(l) if is_short(bare(i + 1), l) => {
                in_style(&mut out, style(l), &format!("{word} {}", bare(i + 1)));
                out.push_str(&words[i + 1][bare(i + 1).len()..]);
                i += 2;
                continue;
            }
            // In a table of causes the verdict stands between a count and a code. The word alone
            // may be prose.
            Some(l) if counted => in_style(&mut out, style(l), word),
            _ if is_code(plain) => {
                in_style(&mut out, CODE, plain);
                out.push_str(&word[plain.len()..]);
            }
            _ if is_first && is_mark(word, next(i)) => in_style(&mut out, WRONG, word),
            _ if is_first && i == 0 && ["FAIL", "REFUSED", "ERROR"].contains(&word) => {
                in_style(&mut out, WRONG, word);
            }
            _ if is_first && i == 0 && word == "ok" => in_style(&mut out, RIGHT, word),
            _ if plain == "WRONG" => {
                in_style(&mut out, WRONG, plain);
                out.push_str(&word[plain.len()..]);
            }
            _ => out.push_str(word),
        }

        out.push_str(space);
        i += 1;
    }

    out
}

/// Whether the word is the mark before a frame's number in a listing.
fn is_mark(word: &str, next: Option<&str>) -> bool {
    ["+", "-", "w"].contains(&word)
        && next.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(text: &str) -> String {
        let mut out = Vec::new();
        let mut painter = Painter::new(&mut out);
        // In pieces, as `write!` writes.
        for piece in text.as_bytes().chunks(3) {
            painter.write_all(piece).expect("a vector takes all");
        }
        drop(painter);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn verdicts_and_codes_are_coloured() {
        for (line, coloured) in [
            ("dwarf@hw: truncated t@2  2 frames, US103 no row: no\n", 2),
            ("dwarf: ok .  9 frames, US001 root reached\n", 1),
            (
                "                  ok .     missing m       extra x    right\n",
                2,
            ),
            (
                "        42 truncated  US504 executed code without a row\n",
                2,
            ),
            ("         2 wrong      US502 wrong return address\n", 2),
            ("  w   2     7ffff7fcb12a  _dl_call_fini+0x4a (ld)\n", 1),
            ("  -   2     7ffff7fcb12a  _dl_call_fini+0x4a (ld)\n", 1),
            ("ok   corpus/cases/copy/a.s\n", 0),
            ("FAIL corpus/cases/copy/a.s\n", 1),
            ("    a wrong address, ok or not, w\n", 0),
            ("{\"code\": \"US203 \", \"verdict\": \"wrong w\"}\n", 0),
            ("no end of line US203", 1),
        ] {
            // Each coloured piece ends with one reset; without the colours, the line is the same.
            let text = through(line);
            assert_eq!(text.matches("\x1b[0m").count(), coloured, "{text:?}");
            assert_eq!(anstream::adapter::strip_str(&text).to_string(), line);
        }
        assert_eq!(through("dwarf: ok .\n"), "dwarf: ok .\n");
        assert!(through("dwarf: wrong w@2\n").contains("\x1b[1m\x1b[31mwrong w@2\x1b[0m"));
    }
}
