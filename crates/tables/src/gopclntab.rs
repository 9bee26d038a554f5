//! Go's table of functions, `.gopclntab`, in a file. Its runtime needs the table, so that it is in stripped
//! programs, too. `unwind` reads the format; this finds the table, and what it says.

use crate::file::File;
use hashbrown::HashMap;
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::convention::Convention;
use unwind_sim_unwind::convention::gopclntab::{ALIGN, GoFunctions, SECTIONS};

/// The starts (svma) of the functions; none if no section has that name.
pub(crate) fn starts(file: &File) -> Vec<u64> {
    let text = || file.section_range(".text").map(|text| text.start);
    let ranges = SECTIONS.iter().filter_map(|name| file.section_range(name));
    let mut tables = ranges.map(|range| relocated(file, &range));
    let found = tables.find_map(|table| {
        let functions = GoFunctions::read(&table, text)?;
        let starts = functions.starts();
        Some(starts.filter(|&at| file.code_at(at).is_some()).collect())
    });
    found.unwrap_or_default()
}

/// The functions (svma) that go on after a recovered panic, and where.
pub(crate) fn deferreturns(file: &File) -> HashMap<u64, u64> {
    // Where the header does not have the first function, the conventions do.
    let spans = file.image().conventions().spans().iter();
    let mut spans = spans.filter(|span| span.convention == Convention::Go);
    let Some(first) = spans.next().map(|span| span.range.start) else {
        return HashMap::new();
    };
    let read = |table: &[u8]| -> Option<HashMap<u64, u64>> {
        let functions = GoFunctions::read(table, || Some(first))?;
        let is_it = functions.range()?.start == first;
        is_it.then(|| functions.deferreturns().collect())
    };
    let ranges = SECTIONS.iter().filter_map(|name| file.section_range(name));
    let mut tables = ranges.map(|range| relocated(file, &range));
    let named = tables.find_map(|table| read(&table));
    // Linkers that do not know the section join it with others.
    let joined = || file.places(ALIGN).find_map(read);
    named.or_else(joined).unwrap_or_default()
}

/// The bytes of a table with its relocations applied: a position-independent program of before Go 1.18
/// has the functions' addresses there.
fn relocated<'f>(file: &'f File, range: &Range<u64>) -> Cow<'f, [u8]> {
    let bytes = file.bytes(range.start);
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let bytes = &bytes[..bytes.len().min(len)];
    let pointers = file.pointers();
    let first = pointers.partition_point(|pointer| pointer.0 < range.start);
    let inside = pointers[first..].iter().take_while(|p| p.0 < range.end);
    let mut out = Cow::Borrowed(bytes);
    for &(at, value) in inside {
        let at = (at - range.start) as usize;
        if let Some(word) = out.to_mut().get_mut(at..).and_then(|w| w.first_chunk_mut()) {
            *word = value.to_le_bytes();
        }
    }
    out
}
