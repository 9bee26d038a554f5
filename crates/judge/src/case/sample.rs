//! Sample points: where a case is sampled, and the true chain that its author states.
//!
//! This module reads `#@` lines and the names of points in other lines (`LABEL`, `LABEL#2`,
//! `LABEL/OWN`, `LABEL+0xN`).

use std::fmt;

use super::error::CaseErrorKind;
use super::operand::{is_symbol, parse_number};

/// The maximum number of frames in a stated chain, including repetitions.
pub const CHAIN_FRAMES_MAX: usize = 131_072;

/// The highest visit of a label that can be named.
pub const VISIT_MAX: u32 = 1_000_000;

/// The name of a sample point: the label, the visit, and the place of the own registers for a fake
/// start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PointKey {
    /// The label at whose address the program is stopped, before the instruction there.
    pub label: String,
    /// The offset of the instruction from the label, in bytes, if each instruction is sampled
    /// ([`SamplePoint::each`]).
    pub offset: Option<u64>,
    /// The visit of the label, counted from 1.
    pub visit: u32,
    /// For a fake start: the label at which the unwinder's own registers are taken.
    pub own: Option<String>,
}

impl PointKey {
    /// Whether `other` is this point or one of its instructions.
    pub fn covers(&self, other: &PointKey) -> bool {
        let of_label = PointKey {
            offset: self.offset,
            ..other.clone()
        };
        *self == *other || self.offset.is_none() && *self == of_label
    }

    /// Reads `LABEL`, `LABEL#N`, `LABEL/OWN`, `LABEL#N/OWN`, or `LABEL+0xN`.
    ///
    /// # Errors
    /// [`CaseErrorKind::UnknownPoint`] if the text has none of these forms.
    pub fn parse(text: &str) -> Result<Self, CaseErrorKind> {
        let bad = || CaseErrorKind::UnknownPoint {
            key: text.to_owned(),
        };

        // The parts are taken from the right: `/OWN`, `#N`, `+0xN`.
        let (rest, own) = match text.split_once('/') {
            Some((rest, own)) => (rest, Some(own.to_owned())),
            None => (text, None),
        };

        let (label, visit) = match rest.split_once('#') {
            Some((label, visit)) => (label, parse_visit(visit)?),
            None => (rest, 1),
        };

        let (label, offset) = match label.split_once('+') {
            Some((label, offset)) => (label, Some(parse_number(offset).ok_or_else(bad)?)),
            None => (label, None),
        };

        // Labels are looked up in the program's symbol table, so both must have the form of a
        // symbol.
        if !is_symbol(label) || own.as_deref().is_some_and(|own| !is_symbol(own)) {
            return Err(bad());
        }

        Ok(Self {
            label: label.to_owned(),
            offset,
            visit,
            own,
        })
    }
}

impl fmt::Display for PointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)?;
        if let Some(offset) = self.offset {
            write!(f, "+{offset:#x}")?;
        }
        if self.visit != 1 {
            write!(f, "#{}", self.visit)?;
        }
        match &self.own {
            Some(own) => write!(f, "/{own}"),
            None => Ok(()),
        }
    }
}

fn parse_visit(text: &str) -> Result<u32, CaseErrorKind> {
    parse_number(text)
        .and_then(|visit| u32::try_from(visit).ok())
        .filter(|visit| (1..=VISIT_MAX).contains(visit))
        .ok_or_else(|| CaseErrorKind::BadNumber {
            text: text.to_owned(),
            expected: "a visit from 1 to 1000000",
        })
}

/// One frame of a stated chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The function symbol that covers the frame's instruction.
    Function(String),
    /// Any function of an image: the start of its file name, as in `[libc.so]`.
    Image(String),
    /// One or more frames of an image, written `[libc]+`. The number of functions that a system
    /// library uses is not part of a case.
    Images(String),
    /// The frame of the signal trampoline, written `<signal>`.
    Signal,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => f.write_str(name),
            Self::Image(name) => write!(f, "[{name}]"),
            Self::Images(name) => write!(f, "[{name}]+"),
            Self::Signal => f.write_str("<signal>"),
        }
    }
}

/// A true chain, stated by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The frames, innermost first, with repetitions expanded.
    pub frames: Vec<Frame>,
    /// Whether the chain ends with the last frame. False if it was written with `< ...`: the true
    /// chain is longer, but only these frames are stated.
    pub complete: bool,
}

impl Chain {
    /// Reads `innermost < .. < root`, each frame a [`Frame`] or `SYMBOL*COUNT`; the last
    /// one may be `...`.
    ///
    /// # Errors
    /// The byte offset in `text` of the offending frame, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, CaseErrorKind)> {
        let mut chain = Self {
            frames: Vec::new(),
            complete: true,
        };

        let mut from = 0;
        loop {
            let until = next_separator(text, from);
            let word = text[from..until].trim();

            // An error points to the first character of the frame, not to the blanks before it.
            let lead = text[from..until].len() - text[from..until].trim_start().len();
            let place = from + lead;
            let last = until == text.len();

            // A chain of nothing but `...` would state nothing.
            if last && word == "..." && !chain.frames.is_empty() {
                chain.complete = false;
                return Ok(chain);
            }

            let (frame, count) = parse_frame(word).map_err(|kind| (place, kind))?;

            // `SYMBOL*COUNT` is short, and would otherwise ask for any amount of memory.
            if count > CHAIN_FRAMES_MAX - chain.frames.len() {
                let expected = "a chain of at most 131072 frames";
                let kind = CaseErrorKind::BadNumber {
                    text: word.to_owned(),
                    expected,
                };
                return Err((place, kind));
            }

            chain.frames.extend(std::iter::repeat_n(frame, count));
            if last {
                return Ok(chain);
            }
            from = until + 1;
        }
    }
}

/// The next `<` that separates frames, skipping that of `<signal>`.
fn next_separator(text: &str, from: usize) -> usize {
    let skip = text[from..].len() - text[from..].trim_start().len();
    let start = if text[from + skip..].starts_with("<signal>") {
        from + skip + "<signal>".len()
    } else {
        from
    };
    text[start..].find('<').map_or(text.len(), |at| start + at)
}

fn parse_frame(word: &str) -> Result<(Frame, usize), CaseErrorKind> {
    let bad = || CaseErrorKind::BadFrame {
        frame: word.to_owned(),
    };

    if word == "<signal>" {
        return Ok((Frame::Signal, 1));
    }

    // docs/case-format.md: `[IMAGE]+` stands for one or more frames of the image.
    let one = word.strip_suffix('+').unwrap_or(word);
    if let Some(image) = one
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
        let valid = !image.is_empty() && image.bytes().all(plain);
        return match valid {
            true if one.len() < word.len() => Ok((Frame::Images(image.to_owned()), 1)),
            true => Ok((Frame::Image(image.to_owned()), 1)),
            false => Err(bad()),
        };
    }

    // `SYMBOL*COUNT` stands for so many frames.
    let (name, count) = match word.split_once('*') {
        Some((name, count)) => {
            let count = parse_number(count.trim()).and_then(|count| usize::try_from(count).ok());
            (
                name.trim(),
                count.filter(|&count| count > 0).ok_or_else(bad)?,
            )
        }
        None => (word, 1),
    };

    // `...` has the form of a symbol, but only ends a chain (`Chain::parse`).
    if is_symbol(name) && name != "..." {
        Ok((Frame::Function(name.to_owned()), count))
    } else {
        Err(bad())
    }
}

/// A place where the program is sampled, and the truth there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePoint {
    /// Its name, unique in the case.
    pub key: PointKey,
    /// The true chain.
    pub chain: Chain,
    /// Whether the point stands for every instruction from the label up to the next label with such
    /// a line, or to the end of the function. Each is sampled when it is first executed.
    pub each: bool,
    /// The line in the file, from 1.
    pub line: usize,
}

impl SamplePoint {
    /// The key as written in a row of the expectation.
    pub fn key(&self) -> String {
        self.key.to_string()
    }

    /// Whether this is the key of the point or of one of its instructions.
    pub fn is_of(&self, key: &PointKey) -> bool {
        self.key == *key || self.each && key.offset.is_some() && self.key.covers(key)
    }

    /// Whether the sample is a fake start: two register sets, see `docs/case-format.md`.
    pub fn is_fake(&self) -> bool {
        self.key.own.is_some()
    }

    /// Reads what follows `#@`. Errors carry a byte offset into `text`.
    pub(crate) fn parse(text: &str, line: usize) -> Result<Self, (usize, CaseErrorKind)> {
        let bad = |what| (0, CaseErrorKind::BadSample { what });
        let (head, chain) = text
            .split_once(':')
            .ok_or_else(|| bad("a sample line without a colon"))?;

        let mut words = head.split_whitespace();
        let label = words
            .next()
            .ok_or_else(|| bad("a sample line without a label"))?;
        let mut key = PointKey {
            label: label.to_owned(),
            offset: None,
            visit: 1,
            own: None,
        };

        let (mut fake, mut each) = (false, false);
        for word in words {
            // Each word is a part of `text`: the difference of their addresses is its offset.
            let at = word.as_ptr() as usize - text.as_ptr() as usize;
            let wrong = |what| (at, CaseErrorKind::BadSample { what });
            if let Some(visit) = word.strip_prefix('#') {
                key.visit = parse_visit(visit).map_err(|kind| (at, kind))?;
            } else if word == "fake" {
                fake = true;
            } else if word == "each" {
                each = true;
            } else if let Some(own) = word.strip_prefix("own=") {
                key.own = Some(own.to_owned());
            } else {
                return Err(wrong("an unknown word before the colon"));
            }
        }

        // A fake start is walked from the unwinder's own frame, so the case has to say where that
        // is.
        if fake != key.own.is_some() {
            return Err(bad("`fake` and `own=LABEL` must be given together"));
        }
        if each && (fake || key.visit != 1) {
            return Err(bad(
                "`each` takes only first visits, with the registers there",
            ));
        }

        if !is_symbol(label) {
            return Err(bad("the label is not a symbol"));
        }

        // An offset within the chain becomes one within the whole text.
        let base = head.len() + 1;
        let chain = Chain::parse(chain).map_err(|(at, kind)| (base + at, kind))?;
        Ok(Self {
            key,
            chain,
            each,
            line,
        })
    }
}
