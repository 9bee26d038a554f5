//! Lines of callchains, cached: most frames of a recording occur thousands of times.

use super::digits;
use super::fields::Fields;
use super::tasks::{Map, Tasks};
use crate::symbols::{SourceLine, Symbols};
use hashbrown::HashMap;
use std::ops::Range;
use unwind_sim_perf_data::{KernelPart, Object};

/// Maximum size of the cached lines in bytes; the cache is cleared when it grows beyond.
const KEPT_MAX: usize = if cfg!(test) { 8 << 10 } else { 64 << 20 };
/// Lines are copied in blocks of this size, bytes: most lines are one.
const BLOCK: usize = 64;
/// Bytes before a line: the words of its [`LineKey`], and its length.
const HEAD: usize = 24;
/// Slots of the direct-mapped table in front of the hash map.
const RECENT: usize = 1 << 15;

/// An address of a process and its object: the key of a cached line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct LineKey {
    address: u64,
    bias: u64,
    /// The object's number plus one; 0 for none.
    object: u32,
}

impl LineKey {
    /// The head of its line, which has this length.
    fn head(&self, length: u32) -> [u8; HEAD] {
        let last = u64::from(length) << 32 | u64::from(self.object);
        let mut head = [0; HEAD];
        let words = head.as_chunks_mut::<8>().0;
        for (bytes, word) in words.iter_mut().zip([self.address, self.bias, last]) {
            *bytes = word.to_le_bytes();
        }
        head
    }

    /// Its slot in the table.
    #[inline]
    fn slot(&self) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let address = self.address.wrapping_mul(FACTOR).rotate_left(31);
        let mixed = (address ^ u64::from(self.object)).wrapping_mul(FACTOR);
        (mixed >> 18) as usize & (RECENT - 1)
    }
}

/// The cached lines for one set of fields.
#[derive(Debug)]
pub(super) struct Lines {
    fields: Fields,
    /// Whether to show inlined functions.
    inline: bool,
    /// The lines, each behind its head, so that one access to memory tells whether it is the right
    /// one and fetches it. The first one is empty, and a block of zeros is behind the last one.
    text: Vec<u8>,
    /// Offsets of heads.
    known: HashMap<LineKey, u32>,
    /// Offsets of heads; 0 for none.
    recent: Vec<u32>,
}

impl Lines {
    pub(super) fn new(fields: Fields, inline: bool) -> Self {
        Self {
            fields,
            inline,
            text: vec![0; HEAD + BLOCK],
            known: HashMap::default(),
            recent: vec![0; RECENT],
        }
    }

    /// The fields that the lines show, and whether they show inlined functions.
    pub(super) fn shows(&self) -> (Fields, bool) {
        (self.fields, self.inline)
    }

    /// The text for an address, `address symbol+offset (object)`.
    #[inline]
    pub(super) fn place(
        &mut self,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        map: Option<&Map>,
        address: u64,
    ) -> &[u8] {
        let line = self.line(tasks, symbols, map, address);
        &self.text[line.start + 1..line.end - 1]
    }

    /// Appends the line of an address in a chain: a tab, [`Lines::place`], and a newline.
    #[inline]
    pub(super) fn append(
        &mut self,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        map: Option<&Map>,
        address: u64,
        out: &mut Vec<u8>,
    ) {
        let Range { start, end } = self.line(tasks, symbols, map, address);
        let mut at = start;
        while at < end
            && let Some(block) = self.text[at..].first_chunk::<BLOCK>()
        {
            digits::beginning(out, block, end - at);
            at += BLOCK;
        }
    }

    /// Where the line of an address is in the text.
    #[inline]
    fn line(
        &mut self,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        map: Option<&Map>,
        address: u64,
    ) -> Range<usize> {
        let place = LineKey {
            address,
            bias: map.map_or(0, |map| map.bias),
            object: map.map_or(0, |map| map.object + 1),
        };
        let slot = place.slot();
        let recent = self.at(self.recent[slot], &place);
        recent.unwrap_or_else(|| {
            let (head, line) = self.find(tasks, symbols, place);
            self.recent[slot] = head;
            line
        })
    }

    /// The line behind the head at an offset, if it is that of `place`.
    #[inline]
    fn at(&self, head: u32, place: &LineKey) -> Option<Range<usize>> {
        let start = head as usize + HEAD;
        let bytes = self.text.get(head as usize..)?.first_chunk::<HEAD>()?;
        let words = bytes.as_chunks::<8>().0.first_chunk()?;
        let [address, bias, last] = words.map(u64::from_le_bytes);
        let (object, length) = (last as u32, (last >> 32) as usize);
        let found = LineKey {
            address,
            bias,
            object,
        };
        (length != 0 && found == *place).then_some(start..start + length)
    }

    /// The line of a place, which is made if it is new, and the offset of its head.
    #[inline(never)]
    fn find(
        &mut self,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        place: LineKey,
    ) -> (u32, Range<usize>) {
        if let Some(&head) = self.known.get(&place)
            && let Some(line) = self.at(head, &place)
        {
            return (head, line);
        }

        // Forgets all at once, so that no offset of a dropped line stays in use.
        if self.text.len() > KEPT_MAX {
            *self = Self::new(self.fields, self.inline);
        }

        // Lines are copied in whole blocks, so the text always ends with a spare one.
        let head = self.text.len() - BLOCK;
        self.text.truncate(head);
        self.text.extend_from_slice(&[0; HEAD]);

        let start = self.text.len();
        if !self.inline || !inlined(&mut self.text, self.fields, tasks, symbols, place) {
            self.text.push(b'\t');
            write(&mut self.text, self.fields, tasks, symbols, place);
            self.text.push(b'\n');
        }

        // The head has the line's length, which is known only now.
        let line = start..self.text.len();
        self.text[head..start].copy_from_slice(&place.head(line.len() as u32));
        self.text.extend_from_slice(&[0; BLOCK]);

        self.known.insert(place, head as u32);
        (head as u32, line)
    }
}

/// Appends a line for each function at a place, as perf does (`append_inlines` in
/// `tools/perf/util/machine.c`, `new_inline_sym` in `srcline.c`): one whose name is not that of the
/// symbol at the place is an inlined one, without an object. `false` if there is no symbol, or
/// nothing is known of inlined functions.
fn inlined(
    out: &mut Vec<u8>,
    fields: Fields,
    tasks: &Tasks,
    symbols: &mut dyn Symbols,
    place: LineKey,
) -> bool {
    let number = place.object.checked_sub(1);
    let Some(object) = number.and_then(|number| tasks.object(number)) else {
        return false;
    };

    // Symbols have addresses of their file, lines show those of the process.
    let address = place.address.wrapping_add(place.bias);
    let Some(symbol) = symbols.symbol(&object, address) else {
        return false;
    };

    // Copies, because `write` below asks the same symbols again.
    let (own, start) = (symbol.name.to_vec(), symbol.range.start);

    let functions = symbols.inlined(&object, address).to_vec();
    for function in &functions {
        out.push(b'\t');
        // The function itself has its object, like any other frame.
        if *function == own {
            write(out, fields, tasks, symbols, place);
        } else {
            digits::hexadecimal(out, place.address, 16);
            if fields.has(Fields::SYM) {
                out.push(b' ');
                out.extend_from_slice(function);
                if fields.has(Fields::SYM_OFFSET) {
                    out.extend_from_slice(b"+0x");
                    digits::hexadecimal(out, address.wrapping_sub(start), 0);
                }
            }
            if fields.has(Fields::SOURCE_LINE) {
                source_line(out, symbols, &object, place);
            }
            out.extend_from_slice(b" (inlined)");
        }

        out.push(b'\n');
    }

    // Nothing printed: the caller prints the frame alone.
    !functions.is_empty()
}

fn write(
    out: &mut Vec<u8>,
    fields: Fields,
    tasks: &Tasks,
    symbols: &mut dyn Symbols,
    place: LineKey,
) {
    digits::hexadecimal(out, place.address, 16);
    // 0 is an address outside of every mapping.
    let number = place.object.checked_sub(1);

    if fields.has(Fields::SYM) {
        out.push(b' ');
        let address = place.address.wrapping_add(place.bias);
        let object = number.and_then(|number| tasks.object(number));
        match object.and_then(|object| symbols.symbol(&object, address)) {
            None => out.extend_from_slice(b"[unknown]"),
            Some(symbol) => {
                out.extend_from_slice(symbol.name);
                if fields.has(Fields::SYM_OFFSET) {
                    out.extend_from_slice(b"+0x");
                    digits::hexadecimal(out, address.wrapping_sub(symbol.range.start), 0);
                }
            }
        }
    }

    // The object is named even if its symbol is unknown.
    if fields.has(Fields::DSO) {
        out.extend_from_slice(b" (");
        match number {
            None => out.extend_from_slice(b"[unknown]"),
            Some(number) => out.extend_from_slice(&tasks.object_name(number)),
        }
        out.push(b')');
    }

    if fields.has(Fields::SOURCE_LINE)
        && let Some(object) = number.and_then(|number| tasks.object(number))
    {
        source_line(out, symbols, &object, place);
    }
}

/// Appends the source line on a separate line (`map__fprintf_srcline`), or the object and the
/// address in it if the object has no source lines.
fn source_line(out: &mut Vec<u8>, symbols: &mut dyn Symbols, object: &Object<'_>, place: LineKey) {
    let address = place.address.wrapping_add(place.bias);
    match symbols.source_line(object, address) {
        SourceLine::Unknown => {}
        SourceLine::Line { file, line } => {
            out.extend_from_slice(b"\n  ");
            out.extend_from_slice(file);
            out.push(b':');
            digits::decimal(out, line.into(), 0, b' ');
        }
        SourceLine::NoLines { address } => {
            let Some(name) = short_name(object) else {
                return;
            };
            out.extend_from_slice(b"\n  ");
            out.extend_from_slice(&name);
            out.push(b'[');
            digits::hexadecimal(out, address, 0);
            out.push(b']');
        }
    }
}

/// perf's short name of an object (`dso__set_basename`); `None` for modules, for which no address
/// is printed.
fn short_name(object: &Object<'_>) -> Option<Vec<u8>> {
    let path = match *object {
        Object::Kernel(KernelPart::Core) => b"[kernel.kallsyms]",
        Object::Kernel(KernelPart::Module(_)) => return None,
        Object::File { path, .. } | Object::Anonymous { path } => path,
        Object::Generated { name, .. } => name,
    };
    if let Some(process) = jit_process(path) {
        return Some(format!("[JIT] tid {process}").into_bytes());
    }
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    Some(name.to_vec())
}

/// The process id in `/tmp/perf-PID.map`.
fn jit_process(path: &[u8]) -> Option<u32> {
    let path = path.strip_prefix(b"/tmp/perf-")?.strip_suffix(b".map")?;
    std::str::from_utf8(path).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
