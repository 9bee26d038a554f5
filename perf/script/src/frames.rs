//! Lines of callchains, cached: most frames of a recording occur thousands of times.

use super::digits;
use super::fields::Fields;
use super::tasks::{Map, Tasks};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use unwind_sim_recordings::symbols::{KernelPart, Object, SourceLine, Symbols};

/// Maximum size of the cached lines in bytes; the cache is cleared when it grows beyond.
const KEPT_MAX: usize = 64 << 20;
/// Slots of the direct-mapped table in front of the hash map.
const RECENT: usize = 1 << 14;

/// An address of a process and its object: the key of a cached line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Place {
    address: u64,
    bias: u64,
    /// The object's number plus one; 0 for none.
    object: u32,
}

/// Mixes the words of a [`Place`].
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31);
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }
}

/// The cached lines for one set of fields.
#[derive(Debug)]
pub(super) struct Lines {
    fields: Fields,
    text: Vec<u8>,
    known: HashMap<Place, Range<u32>, BuildHasherDefault<PlaceHasher>>,
    recent: Vec<(Place, Range<u32>)>,
}

impl Lines {
    pub(super) fn new(fields: Fields) -> Self {
        Self {
            fields,
            text: Vec::new(),
            known: HashMap::default(),
            recent: vec![(Place::default(), 0..0); RECENT],
        }
    }

    /// The fields that the lines show.
    pub(super) fn fields(&self) -> Fields {
        self.fields
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
        &line[1..line.len() - 1]
    }

    /// The line of an address in a chain: a tab, [`Lines::place`], and a newline.
    #[inline]
    pub(super) fn line(
        &mut self,
        tasks: &Tasks,
        symbols: &mut dyn Symbols,
        map: Option<&Map>,
        address: u64,
    ) -> &[u8] {
        let place = Place {
            address,
            bias: map.map_or(0, |map| map.bias),
            object: map.map_or(0, |map| map.object + 1),
        };
        let mut hasher = PlaceHasher::default();
        hasher.write_u64(address);
        hasher.write_u32(place.object);
        let at = (hasher.finish() >> 50) as usize & (RECENT - 1);
        let found = match &self.recent[at] {
            (known, range) if *known == place && !range.is_empty() => range.clone(),
            _ => {
                let range = self.find(tasks, symbols, place);
                self.recent[at] = (place, range.clone());
                range
            }
        };
        &self.text[found.start as usize..found.end as usize]
    }

    #[inline(never)]
    fn find(&mut self, tasks: &Tasks, symbols: &mut dyn Symbols, place: Place) -> Range<u32> {
        if let Some(range) = self.known.get(&place) {
            return range.clone();
        }
        if self.text.len() > KEPT_MAX {
            self.text.clear();
            self.known.clear();
            self.recent.fill((Place::default(), 0..0));
        }
        let start = self.text.len() as u32;
        self.text.push(b'\t');
        write(&mut self.text, self.fields, tasks, symbols, place);
        self.text.push(b'\n');
        let range = start..self.text.len() as u32;
        self.known.insert(place, range.clone());
        range
    }
}

fn write(
    out: &mut Vec<u8>,
    fields: Fields,
    tasks: &Tasks,
    symbols: &mut dyn Symbols,
    place: Place,
) {
    digits::hexadecimal(out, place.address, 16);
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
fn source_line(out: &mut Vec<u8>, symbols: &mut dyn Symbols, object: &Object<'_>, place: Place) {
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
