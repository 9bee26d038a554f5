//! Kernel symbols from a list such as `/proc/kallsyms`, as in `dso__load_kallsyms` of
//! `tools/perf/util/symbol.c` (Linux 7.2).
//!
//! Only code and data symbols (types `tTwWdDbB`) are used. The list has no sizes: a symbol ends at
//! the start of the next one, the last one of a module a page later.

mod sorted;

use super::helper::Owner;
use super::objects::Symbol;
use sorted::Sorted;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_perf_data::KernelPart;

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
pub(super) struct Kallsyms {
    text: Owner,
    /// The symbols before those in `entries`.
    sorted: Sorted,
    /// The last symbols of the kernel itself and those of its modules; all, if the list is not
    /// sorted. By start.
    entries: Vec<Entry>,
}

impl Kallsyms {
    /// Parses the text of the list; other lines are skipped.
    pub(super) fn parse(text: Option<Owner>) -> Kallsyms {
        let text = text.unwrap_or_else(|| Arc::new(Vec::new()));
        let list = (*text).as_ref();
        let (sorted, entries) = match Sorted::of(list) {
            Some((sorted, rest)) => {
                let rest = parse(list, rest);
                // Before the rest, there may be only symbols of the kernel with earlier starts.
                let first = rest.first().map_or(u64::MAX, |entry| entry.start);
                if sorted.end() <= first {
                    (sorted, rest)
                } else {
                    (Sorted::default(), parse(list, 0))
                }
            }
            None => (Sorted::default(), parse(list, 0)),
        };
        let mut kallsyms = Kallsyms {
            text,
            sorted,
            entries,
        };
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

    fn text(&self) -> &[u8] {
        (*self.text).as_ref()
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        let start = entry.name as usize;
        &self.text()[start..start + usize::from(entry.name_len)]
    }

    /// The module's name, without brackets.
    fn module(&self, entry: &Entry) -> Option<&[u8]> {
        if entry.module_len == 0 {
            return None;
        }
        let start = entry.name as usize + usize::from(entry.name_len) + 2;
        self.text()
            .get(start..start + usize::from(entry.module_len))
    }

    /// The range from the start of the first to the end of the last symbol of the kernel itself.
    pub(super) fn core(&self) -> Option<Range<u64>> {
        let mut core = self.entries.iter().filter(|entry| entry.module_len == 0);
        let first = core.next()?;
        let start = self.sorted.start().unwrap_or(first.start);
        Some(start..core.next_back().unwrap_or(first).end)
    }

    /// The symbol of a part of the kernel at `address`.
    pub(super) fn symbol(&self, part: KernelPart<'_>, address: u64) -> Option<Symbol<'_>> {
        if address < self.sorted.end() {
            let found = self.sorted.find(self.text(), address);
            return found.filter(|_| part == KernelPart::Core);
        }
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

/// The symbols in the lines from offset `at` of the list on, by start.
fn parse(text: &[u8], mut at: usize) -> Vec<Entry> {
    let left = text.len().saturating_sub(at);
    let mut entries = Vec::with_capacity((left / 64).min(SYMBOLS_MAX));
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
    entries
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

    // An address that does not fit into 64 bits.
    if digits > DIGITS_MAX {
        return None;
    }

    // The type is one letter between two spaces.
    let [b' ', kind, b' ', name @ ..] = line.get(digits..)? else {
        return None;
    };

    // perf keeps only these types (`symbol_type__filter` in `tools/perf/util/symbol.c`).
    if !matches!(kind.to_ascii_uppercase(), b'T' | b'W' | b'D' | b'B')
        || name.is_empty()
        || name.starts_with(b"$")
    {
        return None;
    }

    // Behind the tab is the module's name in brackets.
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
    use crate::random::Random;

    impl Kallsyms {
        fn of(text: &[u8]) -> Self {
            Self::parse(Some(Arc::new(text.to_vec())))
        }
    }

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
        let kallsyms = Kallsyms::of(text);

        // Name and end.
        let at = |part, address| {
            let symbol = kallsyms.symbol(part, address)?;
            Some((
                String::from_utf8_lossy(symbol.name).into_owned(),
                symbol.range.end,
            ))
        };

        // The list has no sizes: a symbol ends where the next one starts.
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

        // A module's address is found only as one of that module.
        let foo = KernelPart::Module(b"foo");
        assert_eq!(
            at(foo, 0xffff_ffff_c000_0900),
            name("more", 0xffff_ffff_c000_2000)
        );
        assert_eq!(at(core, 0xffff_ffff_c000_0900), None);
    }

    /// All answers for these addresses, as text.
    fn answers(kallsyms: &Kallsyms, addresses: std::ops::Range<u64>) -> String {
        let parts = [KernelPart::Core, KernelPart::Module(b"m")];
        let mut out = format!("{:x?}", kallsyms.core());
        for (address, part) in addresses.flat_map(|a| parts.map(|part| (a, part))) {
            let symbol = kallsyms.symbol(part, address);
            let symbol = symbol.map(|s| (String::from_utf8_lossy(s.name).into_owned(), s.range));
            out += &format!("\n{address:x} {symbol:x?}");
        }
        out
    }

    /// The sorted part of a list is not parsed beforehand. That changes no answer, whatever the
    /// list: with equal starts, skipped types, odd lines, modules before the end of the kernel.
    #[test]
    fn what_is_found_in_the_text_is_what_is_parsed() {
        let mut random = Random::new(1);

        let mut in_text = 0;
        for round in 0..400 {
            let mut text = String::new();
            let mut at = 0x1000;
            for number in 0..random.below_u64(200) {
                at += random.below_u64(4);
                let kind = ["t", "T", "d", "r", "A", "W"][random.below(6)];
                text += &format!("{at:016x} {kind} name_{number}\n");
                // A round has odd lines of one kind, or none.
                match (round % 8, random.below_u64(60)) {
                    (1, 0) => text += "nonsense\n",
                    (2, 0) => text += &format!("{at:x} t short\n"),
                    (3, 0) => text += &format!("{:016x} t back\n", at - 3),
                    (4, 0) => text += &format!("{:016X} t UPPER\n", at | 0xabc),
                    (5, 0) => text += &format!("{at:016x} t $local\n{at:016x} t \n\n"),
                    _ => {}
                }
            }

            // Modules come at the end, above the kernel or, in some rounds, overlapping it.
            let modules = if round % 2 == 0 {
                random.below_u64(20)
            } else {
                0
            };
            at = if round % 16 < 14 { at + 5000 } else { at - 20 };
            for number in 0..modules {
                let start = at + random.below_u64(50);
                let module = ["m", "other"][random.below(2)];
                text += &format!("{start:016x} t name_{number}\t[{module}]\n");
            }

            // The last line may have no end.
            if random.below_u64(3) == 0 {
                text.pop();
            }

            let text: Owner = Arc::new(text.into_bytes());

            // Parsed as a whole, as the reference.
            let mut parsed = Kallsyms {
                sorted: Sorted::default(),
                entries: parse((*text).as_ref(), 0),
                text: text.clone(),
            };
            parsed.fix();

            // Searched in the text as far as that is in order.
            let found = Kallsyms::parse(Some(text));
            in_text += usize::from(found.sorted.end() > 0x1000);
            let addresses = 0xff0..0x1500;
            assert_eq!(
                answers(&found, addresses.clone()),
                answers(&parsed, addresses)
            );
        }

        assert!(in_text > 100, "{in_text}");
    }
}
