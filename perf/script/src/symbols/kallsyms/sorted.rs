//! A sorted list of kernel symbols, searched in its text. Parsing a whole list takes longer than
//! everything else that a small recording needs.

use super::{SYMBOLS_MAX, Symbol};

/// One in this many symbols is a mark.
const SYMBOLS_PER_MARK: usize = 32;
/// Maximum distance between the lines of two symbols, bytes: a search reads that much. In Linux
/// 6.18 it is 1,096.
const DISTANCE_MAX: usize = 1 << 20;
/// Digits of an address in a usual line.
const DIGITS: usize = 16;
/// Offset of the name in a usual line.
const NAME: usize = DIGITS + 3;
/// Maximum length of a name, bytes.
const NAME_LEN_MAX: usize = u16::MAX as usize;

/// A symbol's start, and the offset of its line.
#[derive(Clone, Copy, Debug)]
struct Mark {
    start: u64,
    line: u32,
}

/// The part of a list before the last address of the kernel itself.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    marks: Vec<Mark>,
    /// The last address of the kernel itself; no symbol here starts or ends later.
    end: u64,
}

impl Sorted {
    /// Checks that the symbols of the kernel itself are sorted and that their lines have the usual
    /// form. Returns the part before the last address, and the offset of the first line of the
    /// rest.
    pub(super) fn of(text: &[u8]) -> Option<(Self, usize)> {
        // Marks have offsets of 32 bits.
        u32::try_from(text.len()).ok()?;

        // The first line with a tab is a module's; everything before it is the kernel's own.
        let core = match memchr::memchr(b'\t', text) {
            None => text,
            Some(tab) => &text[..memchr::memrchr(b'\n', &text[..tab])? + 1],
        };

        let (mut marks, mut count) = (Vec::new(), 0);
        // The first line with the last start.
        let (mut end, mut rest, mut at) = (0, 0, 0);
        let mut last = 0;

        for newline in memchr::memchr_iter(b'\n', core) {
            let line = &core[at..newline];
            let (start, is_symbol) = usual(line)?;
            if is_symbol {
                // Not sorted, or with gaps too wide for a search between marks.
                if start < end || count == SYMBOLS_MAX || at - last > DISTANCE_MAX {
                    return None;
                }
                last = at;

                if start > end || count == 0 {
                    (end, rest) = (start, at);
                }
                if count % SYMBOLS_PER_MARK == 0 {
                    let line = at as u32;
                    marks.push(Mark { start, line });
                }

                count += 1;
            }
            at = newline + 1;
        }

        // A last line without its end is left to the rest, which begins at or before it.
        let ended = at == core.len();
        (ended && count != 0).then_some((Sorted { marks, end }, rest))
    }

    /// The first address of the rest.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The start of the first symbol; `None` if there is none.
    pub(super) fn start(&self) -> Option<u64> {
        self.marks.first().map(|mark| mark.start)
    }

    /// The symbol at an address before the end.
    pub(super) fn find<'t>(&self, text: &'t [u8], address: u64) -> Option<Symbol<'t>> {
        let after = self.marks.partition_point(|mark| mark.start <= address);
        let mut at = self.marks[after.checked_sub(1)?].line as usize;
        let mut found: Option<(u64, &[u8])> = None;
        loop {
            let rest = text.get(at..)?;
            let length = memchr::memchr(b'\n', rest)?;
            let (start, is_symbol) = usual(&rest[..length])?;
            if is_symbol && start > address {
                let (begin, name) = found?;
                let range = begin..start;
                return Some(Symbol { name, range });
            }
            if is_symbol {
                found = Some((start, &rest[NAME..length]));
            }
            at += length + 1;
        }
    }
}

/// The address in a line of the usual form, `ffffffff81000000 T _text`, and whether the line is a
/// symbol that is used. `None` for other lines.
#[inline]
fn usual(line: &[u8]) -> Option<(u64, bool)> {
    let (digits, [b' ', kind, b' ', name @ ..]) = line.split_first_chunk::<DIGITS>()? else {
        return None;
    };
    let (high, low) = digits.split_first_chunk::<8>()?;
    let start = u64::from(hexadecimal(*high)?) << 32 | u64::from(hexadecimal(*low.first_chunk()?)?);
    let is_used = matches!(kind.to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B');
    let is_symbol = is_used && !name.is_empty() && name[0] != b'$';
    (name.len() <= NAME_LEN_MAX).then_some((start, is_symbol))
}

/// The value of eight lower-case digits, all at once.
#[inline]
fn hexadecimal(digits: [u8; 8]) -> Option<u32> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let text = u64::from_be_bytes(digits);
    let letters = text >> 6 & ONES;
    let values = (text & (0x0f * ONES)) + 9 * letters;
    // What a byte with this value would be.
    let expected = values + 0x30 * ONES + 0x27 * letters;
    let from_ten = (values + 0x76 * ONES) >> 7 & ONES;
    if text != expected || from_ten != letters || values & (0xf0 * ONES) != 0 {
        return None;
    }
    let pairs = (values | values >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is between two symbols is read at each search.
    #[test]
    fn symbols_are_not_far_from_each_other() {
        let line = |start: u64, kind: char| format!("{start:016x} {kind} name\n");
        let has = |between: usize| {
            let filler = line(0x1000, 'r').repeat(between);
            let text = line(0x1000, 'T') + &filler + &line(0x2000, 'T');
            Sorted::of(text.as_bytes()).is_some()
        };
        let most = DISTANCE_MAX / line(0, 'r').len();
        assert!(has(most - 1) && !has(most + 1));
    }

    #[test]
    fn eight_digits_are_read_at_once() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut digits = *b"0f1e9a80";
                digits[at] = byte;
                let text = std::str::from_utf8(&digits);
                let value = text.ok().and_then(|t| u32::from_str_radix(t, 16).ok());
                let is_usual = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                assert_eq!(
                    hexadecimal(digits),
                    value.filter(|_| is_usual),
                    "{digits:?}"
                );
            }
        }
    }
}
