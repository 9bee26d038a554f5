//! Kernel symbols from a list such as `/proc/kallsyms`, as in `dso__load_kallsyms` of
//! `tools/perf/util/symbol.c` (Linux 7.2).
//!
//! Only code and data symbols (types `tTwWdDbB`) are used. The list has no sizes: a symbol ends at
//! the start of the next one, the last one of a module a page later.

use super::{KernelPart, Symbol};
use std::ops::Range;

/// The last symbol of a module is rounded up to this, bytes.
const PAGE: u64 = 4096;
/// Maximum digits of an address.
const DIGITS_MAX: usize = 16;
/// Maximum number of symbols.
const SYMBOLS_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    /// Offset in the text of the name, which is followed by a tab and the module.
    name: u32,
    name_len: u16,
    module_len: u16,
}

/// The symbols of a kernel and its modules.
#[derive(Debug, Default)]
pub(super) struct Kallsyms {
    text: Vec<u8>,
    entries: Vec<Entry>,
}

impl Kallsyms {
    /// Parses the text of the list; other lines are skipped.
    pub(super) fn parse(text: Vec<u8>) -> Kallsyms {
        let mut entries = Vec::with_capacity((text.len() / 64).min(SYMBOLS_MAX));
        let mut at = 0;
        while at < text.len() && entries.len() < SYMBOLS_MAX {
            let rest = &text[at..];
            let tab = memchr::memchr2(b'\n', b'\t', rest).filter(|&place| rest[place] == b'\t');
            let from = tab.unwrap_or(0);
            let length = match memchr::memchr(b'\n', &rest[from..]) {
                Some(place) => from + place,
                None => rest.len(),
            };
            entries.extend(entry(&rest[..length], at));
            at += length + 1;
        }
        if !entries.is_sorted_by_key(|entry| entry.start) {
            entries.sort_by_key(|entry| entry.start);
        }
        let mut kallsyms = Kallsyms { text, entries };
        kallsyms.fix();
        kallsyms
    }

    /// Fills in the ends. Of several symbols at one address only the last has a size and is kept.
    fn fix(&mut self) {
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            let page_on = (entry.start.saturating_add(PAGE))
                .checked_next_multiple_of(PAGE)
                .unwrap_or(u64::MAX);
            self.entries[at].end = match self.entries.get(at + 1) {
                None => page_on,
                Some(next) if self.module(&entry) != self.module(next) => page_on,
                Some(next) => next.start,
            };
        }
        self.entries.dedup_by(|later, kept| {
            let same = later.start == kept.start;
            if same && later.end != later.start {
                *kept = *later;
            }
            same
        });
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name as usize;
        &self.text[start..start + usize::from(entry.name_len)]
    }

    /// The module's name, without brackets.
    fn module(&self, entry: &Entry) -> Option<&[u8]> {
        if entry.module_len == 0 {
            return None;
        }
        let start = entry.name as usize + usize::from(entry.name_len) + 2;
        self.text.get(start..start + usize::from(entry.module_len))
    }

    /// The range from the start of the first to the end of the last symbol of the kernel itself.
    pub(super) fn core(&self) -> Option<Range<u64>> {
        let mut core = self.entries.iter().filter(|entry| entry.module_len == 0);
        let first = core.next()?;
        Some(first.start..core.next_back().unwrap_or(first).end)
    }

    /// The symbol of a part of the kernel at `address`.
    pub(super) fn symbol(&self, part: KernelPart<'_>, address: u64) -> Option<Symbol<'_>> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let entry = &self.entries[after.checked_sub(1)?];
        let range: Range<u64> = entry.start..entry.end;
        let is_its = match part {
            KernelPart::Core => entry.module_len == 0,
            KernelPart::Module(name) => self.module(entry) == Some(name),
        };
        (is_its && range.contains(&address)).then(|| Symbol {
            name: self.name(entry),
            range,
        })
    }
}

/// Parses a line, `ffffffff81000000 T _text` or `ffffffffc0000000 t init\t[module]`.
fn entry(line: &[u8], at: usize) -> Option<Entry> {
    let (mut start, mut digits): (u64, usize) = (0, 0);
    for &byte in line.iter().take(DIGITS_MAX + 1) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => break,
        };
        start = start << 4 | u64::from(digit);
        digits += 1;
    }
    if digits > DIGITS_MAX {
        return None;
    }
    let [b' ', kind, b' ', name @ ..] = line.get(digits..)? else {
        return None;
    };
    if !matches!(kind.to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B')
        || name.is_empty()
        || name.starts_with(b"$")
    {
        return None;
    }
    let tab = memchr::memchr(b'\t', name);
    let (name_len, module_len) = match tab {
        None => (name.len(), 0),
        Some(tab) => {
            let module = name.get(tab + 2..name.len().checked_sub(1)?)?;
            (tab, module.len())
        }
    };
    Some(Entry {
        start,
        end: start,
        name: u32::try_from(at + digits + 3).ok()?,
        name_len: u16::try_from(name_len).ok()?,
        module_len: u16::try_from(module_len).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_end_where_the_next_starts_and_modules_have_their_own() {
        let text = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000040 t secondary
ffffffff81000100 r table
ffffffffc0000000 t init_module\t[foo]
ffffffffc0000800 t more\t[foo]
ffffffffc0002000 t other\t[bar]
nonsense
";
        let kallsyms = Kallsyms::parse(text.to_vec());
        let at = |part, address| {
            let symbol = kallsyms.symbol(part, address)?;
            Some((
                String::from_utf8_lossy(symbol.name).into_owned(),
                symbol.range.end,
            ))
        };
        let core = KernelPart::Core;
        let name = |name: &str, end| Some((name.to_owned(), end));
        assert_eq!(
            at(core, 0xffff_ffff_8100_003f),
            name("startup_64", 0xffff_ffff_8100_0040)
        );
        assert_eq!(
            at(core, 0xffff_ffff_8100_0100),
            name("secondary", 0xffff_ffff_8100_2000)
        );
        assert_eq!(at(core, 0xffff_ffff_8100_2000), None);
        let foo = KernelPart::Module(b"foo");
        assert_eq!(
            at(foo, 0xffff_ffff_c000_0900),
            name("more", 0xffff_ffff_c000_2000)
        );
        assert_eq!(at(core, 0xffff_ffff_c000_0900), None);
    }
}
