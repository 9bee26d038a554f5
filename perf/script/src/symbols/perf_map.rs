//! The symbols of `/tmp/perf-PID.map`, read as perf reads them.
//!
//! Source: `dso__load_perf_map` and `hex2u64` in `tools/perf/util/symbol.c` (Linux 7.2). A line is
//! two numbers as `strtoull` takes them, each with one character behind it, and a name of at least
//! three characters. The last character of the file is dropped, whether it is a newline or not.
//! Neither duplicates nor symbols without a size are mended.

use super::helper::{Helper, Owner};
use super::places::Places;
use super::tree::{Name, NameRef, NewSymbol, Tree};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Maximum bytes read from a file.
const SIZE_MAX: u64 = 256 << 20;
/// A name is ignored if it is not longer than this, bytes.
const NAME_MIN: usize = 2;

/// The symbols in the file at `path`.
pub(super) fn load(places: &Places, helper: &'static dyn Helper, path: &[u8]) -> Tree {
    let path = places.inside(Path::new(OsStr::from_bytes(path)));
    let text = helper.read(&path, SIZE_MAX).unwrap_or_default();
    tree(&(Arc::new(text) as Owner), helper)
}

fn tree(text: &Owner, helper: &'static dyn Helper) -> Tree {
    let mut tree = Tree::new(helper);
    let Some(source) = tree.add_source(text, b'\n') else {
        return tree;
    };

    let text = (**text).as_ref();
    let mut offset = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let start = offset;
        // Counted for every line, also for those that say nothing.
        offset += line.len();
        if let Some((range, name)) = parse(&line[..line.len() - 1]) {
            let place = u32::try_from(start + name).ok();
            let bytes = &line[name..line.len() - 1];

            // In the file, a name ends with a newline.
            let is_whole = line.ends_with(b"\n") && !bytes.contains(&0);
            let name = match place.filter(|_| is_whole) {
                Some(offset) => Name::Plain(NameRef { source, offset }),
                None => Name::Made(bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)),
            };

            tree.insert(NewSymbol {
                start: range.0,
                end: range.0.wrapping_add(range.1),
                // STB_GLOBAL and STT_FUNC, as `dso__load_perf_map` makes them.
                binding: 1,
                kind: 2,
                name,
            });
        }
    }

    tree.settle();
    tree
}

/// The start and the size in a line, and where its name starts.
fn parse(line: &[u8]) -> Option<((u64, u64), usize)> {
    let (start, digits) = number(line);
    let mut at = digits + 1;
    if at + NAME_MIN >= line.len() {
        return None;
    }
    let (size, digits) = number(&line[at..]);
    at += digits + 1;
    (at + NAME_MIN < line.len()).then_some(((start, size), at))
}

/// `strtoull(text, &end, 16)`: the number, and how many bytes belong to it.
fn number(text: &[u8]) -> (u64, usize) {
    // `isspace` in the C locale.
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    let mut at = spaces;

    // One sign, as in C; a hexadecimal number may have one, too.
    let is_negative = text.get(at) == Some(&b'-');
    if is_negative || text.get(at) == Some(&b'+') {
        at += 1;
    }

    let digit = |at: usize| {
        let byte = *text.get(at)?;
        char::from(byte).to_digit(16).map(u64::from)
    };

    // Without a digit behind it, `0x` is the number 0 followed by an `x`.
    let has_prefix = text.get(at) == Some(&b'0')
        && matches!(text.get(at + 1), Some(b'x' | b'X'))
        && digit(at + 2).is_some();
    if has_prefix {
        at += 2;
    }

    // The value may be too large, but its digits are still read to the end.
    let first = at;
    let mut value: Option<u64> = Some(0);
    while let Some(digit) = digit(at) {
        value = value
            .and_then(|value| value.checked_mul(16))
            .map(|value| value | digit);
        at += 1;
    }

    // Too large gives `ULLONG_MAX`, whatever the sign; a negative number wraps around.
    match (at > first, value) {
        (false, _) => (0, 0),
        (true, None) => (u64::MAX, at),
        (true, Some(value)) if is_negative => (value.wrapping_neg(), at),
        (true, Some(value)) => (value, at),
    }
}

#[cfg(test)]
mod tests {
    use super::super::helper::tests::PLAIN;
    use super::*;

    /// The name that is found at 0x109.
    fn name(text: &str) -> Option<String> {
        let mut tree = tree(&(Arc::new(text.as_bytes().to_vec()) as Owner), PLAIN);
        let at = tree.find(0x109)?;
        Some(String::from_utf8_lossy(tree.name(at)).into_owned())
    }

    /// Each line was given to perf 6.1 as `/tmp/perf-PID.map`; this is what `perf script` printed.
    #[test]
    fn names_are_those_of_perf() {
        for (text, expected) in [
            ("100 c jitted_f\n", Some("jitted_f")),
            ("0x100 0xc jitted_f\n", Some("jitted_f")),
            ("100 0XC upper\n", Some("upper")),
            ("100 jitted_f\n", None),
            ("100 0 jitted_f\n", None),
            ("100 c ab\n", None),
            ("100 c abc\n", Some("abc")),
            ("  100  c  name with spaces\n", Some(" name with spaces")),
            ("100\tc\ttabbed\n", Some("tabbed")),
            ("100 c crlf\r\n", Some("crlf\r")),
            ("100 c _ZN3foo3barEv\n", Some("_ZN3foo3barEv")),
            ("100 c nonewline", Some("nonewlin")),
            ("0f0 40 old\n100 c new_one\n", Some("old")),
            ("100 c old_old\n0f0 40 new_one\n", Some("old_old")),
            ("100 c first\n100 c second\n", Some("first")),
            ("000 0 zero_before\n200 10 zzz\n", None),
        ] {
            assert_eq!(name(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_those_of_strtoull() {
        for (text, expected) in [
            ("1f g", (0x1f, 2)),
            ("0xg", (0, 1)),
            ("0x", (0, 1)),
            (" +0x1f", (0x1f, 6)),
            ("-1", (u64::MAX, 2)),
            ("12345678123456781", (u64::MAX, 17)),
            ("g", (0, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn any_bytes_are_read() {
        for text in [
            "\0",
            "\n\n",
            "1 1 \0\0\0\n",
            "ffffffffffffffff ffffffffffffffff abc\n",
        ] {
            let mut tree = tree(&(Arc::new(text.as_bytes().to_vec()) as Owner), PLAIN);
            let _ = tree.find(0);
        }
    }
}
