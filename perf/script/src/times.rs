//! The value of `--time`, parsed like `tools/perf/util/time-utils.c` (Linux 7.2).
//!
//! Stricter than perf: a number consists of digits and a point. Signs, exponents, text after a `%`
//! and parts that end before they start are rejected.

use std::fmt;

const NS_PER_SECOND: u64 = 1_000_000_000;
/// Maximum number of digits of a second's fraction.
const FRACTION_DIGITS: usize = 9;

/// What `--time` accepts, in one line.
const FORMS: &str = "START,STOP in seconds (12.5,13 or 12.5, or ,13), several with a space \
                     between; or parts of the recording: 10%-20%, 10%, 10%/2, several with commas";

/// A range of times in nanoseconds, both ends included. As in perf, an end of 0 means no end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    start: u64,
    end: u64,
}

/// A part of the time from the first sample to the last, as fractions of it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fraction {
    start: f64,
    end: f64,
}

/// The value of `--time`.
#[derive(Clone, PartialEq, Debug)]
pub struct TimeSpan(Kind);

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Ranges(Vec<Range>),
    Parts(Vec<Fraction>),
}

/// An invalid value of `--time`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimeError {
    /// The text has none of the forms.
    Form,
    /// A word that is not a number of seconds.
    Seconds {
        /// The word.
        word: String,
    },
    /// A word that is not a percentage from 0 to 100.
    Percent {
        /// The word.
        word: String,
    },
    /// A range ends before it starts.
    Backwards {
        /// The range.
        word: String,
    },
    /// A range starts before the previous one ends.
    Overlap,
    /// Percentages of a recording that lacks the times of its first and last sample.
    NoSampleTimes,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => write!(f, "accepted: {FORMS}"),
            Self::Seconds { word } => {
                write!(f, "{word:?} is not a number of seconds; accepted: {FORMS}")
            }
            Self::Percent { word } => write!(
                f,
                "{word:?} is not a part from 0% to 100%; accepted: {FORMS}"
            ),
            Self::Backwards { word } => write!(f, "{word:?} ends before it starts"),
            Self::Overlap => f.write_str("ranges must be in order and must not overlap"),
            Self::NoSampleTimes => f.write_str(
                "--time in percent needs the times of the first and the last sample, which this \
                 recording lacks; give seconds (12.5,13), or record with --timestamp-boundary",
            ),
        }
    }
}

impl std::error::Error for TimeError {}

impl TimeSpan {
    /// Reads the value of `--time`.
    ///
    /// # Errors
    /// If it has none of perf's forms.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        if text.contains('%') {
            return parts(text).map(|parts| Self(Kind::Parts(parts)));
        }
        let words = words(text)?;
        let ranges: Vec<Range> = words.into_iter().map(range).collect::<Result<_, _>>()?;
        let follows = |pair: &[Range]| pair[0].end != 0 && pair[0].end < pair[1].start;
        if !ranges.windows(2).all(follows) {
            return Err(TimeError::Overlap);
        }
        Ok(Self(Kind::Ranges(ranges)))
    }

    /// The ranges, given the times of the first and the last sample.
    pub(super) fn ranges(&self, samples: Option<(u64, u64)>) -> Result<Vec<Range>, TimeError> {
        match &self.0 {
            Kind::Ranges(ranges) => Ok(ranges.clone()),
            Kind::Parts(parts) => {
                // A recording from a pipe has zeros, which perf treats as missing.
                let samples = samples.filter(|&times| times != (0, 0));
                let (first, last) = samples.ok_or(TimeError::NoSampleTimes)?;
                Ok(parts.iter().map(|part| part.of(first, last)).collect())
            }
        }
    }
}

impl Range {
    /// Whether one of `ranges` contains the time. A time of 0 means no time and always passes
    /// (`perf_time__ranges_skip_sample`).
    pub(super) fn any_has(ranges: &[Self], time: u64) -> bool {
        let has = |range: &Self| time >= range.start && (range.end == 0 || time <= range.end);
        time == 0 || ranges.iter().any(has)
    }
}

impl Fraction {
    fn new(start: f64, end: f64, word: &str) -> Result<Self, TimeError> {
        let inside = 0.0..=1.0;
        if inside.contains(&start) && inside.contains(&end) {
            return Ok(Self { start, end });
        }
        Err(TimeError::Percent { word: word.into() })
    }

    /// The range of times, rounded like `set_percent_time`.
    fn of(self, first: u64, last: u64) -> Range {
        let total = last.saturating_sub(first) as f64;
        let at = |part: f64| (first as f64 + (part * total).round()) as u64;
        let (start, mut end) = (at(self.start), at(self.end));
        if end > start && end != last {
            end -= 1;
        }
        Range { start, end }
    }
}

/// Splits a list into ranges: each has one comma, which blanks may follow, and ends at a blank.
fn words(text: &str) -> Result<Vec<&str>, TimeError> {
    let mut words = Vec::new();
    let mut rest = text;
    for _ in 1..text.matches(',').count().max(1) {
        let comma = rest.find(',').ok_or(TimeError::Form)?;
        let behind = rest[comma + 1..].trim_start();
        let begin = rest.len() - behind.len();
        let length = behind.find(char::is_whitespace).unwrap_or(behind.len());
        words.push(&rest[..begin + length]);
        rest = behind[length..].trim_start();
    }
    words.push(rest);
    Ok(words)
}

/// `START,STOP`; either may be missing.
fn range(word: &str) -> Result<Range, TimeError> {
    let (start, end) = word.split_once(',').ok_or(TimeError::Form)?;
    let range = Range {
        start: seconds(start.trim_start())?,
        end: seconds(end.trim_start())?,
    };
    if range.end != 0 && range.end < range.start {
        return Err(TimeError::Backwards { word: word.into() });
    }
    Ok(range)
}

/// Parses seconds into nanoseconds (`parse_nsec_time`); an empty word is 0.
fn seconds(word: &str) -> Result<u64, TimeError> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let number = |digits: &str| match digits {
        "" => Some(0),
        _ if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<u64>().ok(),
        _ => None,
    };
    let nanoseconds = || {
        if fraction.len() > FRACTION_DIGITS {
            return None;
        }
        let rest = number(&format!("{fraction:0<FRACTION_DIGITS$}"))?;
        number(whole)?.checked_mul(NS_PER_SECOND)?.checked_add(rest)
    };
    nanoseconds().ok_or_else(|| TimeError::Seconds { word: word.into() })
}

/// `10%/2,10%/3`, `0%-10%,30%-40%` or `50%`.
fn parts(text: &str) -> Result<Vec<Fraction>, TimeError> {
    if text.contains('/') {
        return list(text, slice);
    }
    if text.contains('-') {
        return list(text, between);
    }
    Ok(vec![Fraction::new(0.0, percent(text, text)?, text)?])
}

/// A list; as in perf, it may end in a comma.
fn list(
    text: &str,
    read: impl Fn(&str) -> Result<Fraction, TimeError>,
) -> Result<Vec<Fraction>, TimeError> {
    text.strip_suffix(',')
        .unwrap_or(text)
        .split(',')
        .map(read)
        .collect()
}

/// `10%/2` is the second tenth.
fn slice(word: &str) -> Result<Fraction, TimeError> {
    let wrong = || TimeError::Percent { word: word.into() };
    let (share, number) = word.split_once('/').ok_or_else(wrong)?;
    let share = percent(share, word)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    if share == 0.0 || number == 0 {
        return Err(wrong());
    }
    Fraction::new(
        share * f64::from(number - 1),
        share * f64::from(number),
        word,
    )
}

/// `10%-20%`.
fn between(word: &str) -> Result<Fraction, TimeError> {
    let wrong = || TimeError::Percent { word: word.into() };
    let (start, end) = word.split_once('-').ok_or_else(wrong)?;
    let part = Fraction::new(percent(start, word)?, percent(end, word)?, word)?;
    if part.end < part.start {
        return Err(TimeError::Backwards { word: word.into() });
    }
    Ok(part)
}

/// `12.5%` as 0.125; `within` is what the error shows.
fn percent(word: &str, within: &str) -> Result<f64, TimeError> {
    let digits = word.strip_suffix('%').unwrap_or_default();
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number = digits.parse::<f64>().ok().filter(|_| is_plain);
    let wrong = || TimeError::Percent {
        word: within.into(),
    };
    Ok(number.ok_or_else(wrong)? / 100.0)
}

#[cfg(test)]
mod tests;
