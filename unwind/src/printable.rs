//! Text from outside as a person reads it: names, paths and words of files, recordings and other
//! programs cannot control a terminal, forge a line or hide a part of themselves.
//!
//! The notation is that of Rust's `Debug`: `\n`, `\t`, `\r`, `\u{1b}`, and `\xff` for a byte that
//! is not UTF-8. A backslash stays as it is, so the notation is for reading; JSON has the exact
//! text.

use alloc::borrow::Cow;
use alloc::string::{String, ToString as _};
use core::fmt;

/// Whether a character shows itself and changes nothing around it. Not printable are controls (C0,
/// DEL, C1), the separators of lines and paragraphs, and the characters of Unicode's category Cf:
/// those that change the direction of text (Unicode Standard Annex 9) and invisible ones.
pub const fn is_printable(c: char) -> bool {
    !matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
            // Noncharacters and Hangul fillers, which are letters without a glyph.
            | '\u{115f}'..='\u{1160}'
            | '\u{3164}'
            | '\u{ffa0}'
            | '\u{fdd0}'..='\u{fdef}'
    )
}

/// Text from outside. Its `Display` escapes what is not printable, and bytes that are not UTF-8.
///
/// ```
/// use unwind_sim_unwind::printable::Printable;
/// assert_eq!(Printable::new("über\x1b[31m\n").to_string(), r"über\u{1b}[31m\n");
/// assert_eq!(Printable::new(b"a\xff").to_string(), r"a\xff");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Printable<'a>(&'a [u8]);

impl<'a> Printable<'a> {
    /// The text of these bytes, which should be UTF-8.
    pub fn new<T: AsRef<[u8]> + ?Sized>(text: &'a T) -> Printable<'a> {
        Printable(text.as_ref())
    }

    /// Whether the text is shown unchanged.
    pub fn is_unchanged(self) -> bool {
        let is_ascii = self.0.iter().all(|byte| (0x20..0x7f).contains(byte));
        is_ascii || core::str::from_utf8(self.0).is_ok_and(|text| text.chars().all(is_printable))
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unchanged() {
            // Cannot fail: it is UTF-8.
            return f.pad(core::str::from_utf8(self.0).unwrap_or_default());
        }
        // A width counts what is shown.
        let mut out = String::with_capacity(self.0.len() + 16);
        escape(self.0, &mut out)?;
        f.pad(&out)
    }
}

impl fmt::Debug for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// [`Printable`] as text: unchanged text is not copied.
pub fn printable(text: &str) -> Cow<'_, str> {
    let shown = Printable::new(text);
    if shown.is_unchanged() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(shown.to_string())
    }
}

/// [`printable`] of text that has lines of ours: line ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let stays = |c: char| matches!(c, '\n' | '\t') || is_printable(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for part in text.split_inclusive(['\n', '\t']) {
        let name = part.trim_end_matches(['\n', '\t']);
        out.push_str(&printable(name));
        out.push_str(&part[name.len()..]);
    }
    Cow::Owned(out)
}

/// Appends the text with all that is not printable escaped.
fn escape(bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.write_str("\\n")?,
                '\t' => out.write_str("\\t")?,
                '\r' => out.write_str("\\r")?,
                c if is_printable(c) => out.write_char(c)?,
                c => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// What the characters are called, one or more of each kind.
    #[test]
    fn what_is_not_printable_is_escaped() {
        for (text, shown) in [
            ("\x1b]0;x\x07", r"\u{1b}]0;x\u{7}"),
            ("\0\x08\x1f\x7f", r"\u{0}\u{8}\u{1f}\u{7f}"),
            ("a\nb\tc\rd", r"a\nb\tc\rd"),
            ("\u{80}\u{9b}31m\u{9f}", r"\u{80}\u{9b}31m\u{9f}"),
            ("\u{61c}\u{200e}\u{200f}", r"\u{61c}\u{200e}\u{200f}"),
            ("\u{202a}\u{202e}", r"\u{202a}\u{202e}"),
            ("\u{2066}\u{2069}", r"\u{2066}\u{2069}"),
            ("\u{200b}\u{200d}\u{2060}", r"\u{200b}\u{200d}\u{2060}"),
            ("\u{feff}\u{ad}\u{180e}", r"\u{feff}\u{ad}\u{180e}"),
            ("\u{2028}\u{2029}", r"\u{2028}\u{2029}"),
            ("\u{e0001}\u{e0041}", r"\u{e0001}\u{e0041}"),
            ("\u{fff9}\u{3164}", r"\u{fff9}\u{3164}"),
        ] {
            assert_eq!(printable(text), shown);
            assert!(!Printable::new(text).is_unchanged(), "{shown}");
            assert!(shown.chars().all(is_printable), "{shown}");
        }
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        // A variation selector belongs to the emoji before it.
        for text in [
            "",
            "main",
            "über",
            "漢字",
            "e\u{301}",
            "❤\u{fe0f}",
            "😀",
            r"C:\a\n",
            "\u{a0}",
        ] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        for (bytes, shown) in [
            (&b"a\xffb"[..], r"a\xffb"),
            // C1 in Latin-1, a surrogate, and the start of a character.
            (b"\x9b31m", r"\x9b31m"),
            (b"\xed\xa0\x80", r"\xed\xa0\x80"),
            (
                "ü漢".as_bytes().split_last().expect("bytes").1,
                r"ü\xe6\xbc",
            ),
        ] {
            assert_eq!(Printable::new(bytes).to_string(), shown);
        }
    }

    #[test]
    fn lines_of_ours_stay() {
        assert_eq!(
            printable_lines("a\tb\n\u{202e}\r\n\n"),
            "a\tb\n\\u{202e}\\r\n\n"
        );
        assert!(matches!(printable_lines("a\n\tü\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_width_counts_what_is_shown() {
        assert_eq!(format!("[{:>5}]", Printable::new("\n")), r"[   \n]");
        assert_eq!(format!("[{:<4}]", Printable::new("ü")), "[ü   ]");
        assert_eq!(format!("{:?}", Printable::new("a\x1b")), r#""a\u{1b}""#);
    }

    /// Rust's own tables know the same characters, and others that are not assigned.
    #[test]
    fn what_rust_shows_is_shown() {
        // Letters without a glyph.
        const FILLERS: [char; 4] = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];
        for c in char::MIN..=char::MAX {
            assert!(!c.is_control() || !is_printable(c), "{c:?}");
            let is_shown = c.escape_debug().count() == 1;
            assert!(
                !is_shown || is_printable(c) || FILLERS.contains(&c),
                "{c:?}"
            );
        }
    }
}
