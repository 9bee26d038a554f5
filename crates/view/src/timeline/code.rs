//! The code of a function, with the boundaries of the tables' rows.

use super::Hex;
use iced_x86::{Decoder, DecoderOptions};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::disassembly::instruction;
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::step::find_row;

/// The number of bytes from the start of a function to an address, at most; further behind it the
/// code begins at the address.
const BEFORE_MAX: u64 = 1 << 14;
/// The number of bytes of a function that is shown whole, at most. Of others, and where the end is
/// not known, pieces of this length are shown.
const WHOLE_MAX: u64 = 1 << 12;

/// An instruction.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CodeLine {
    /// Its address.
    pub address: Hex,
    /// Its bytes, two digits each.
    pub bytes: String,
    /// In AT&T syntax.
    pub text: String,
    /// The unwinders with a row that starts here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
}

/// A piece of code: consecutive instructions of a function.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Code {
    /// The function, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The image, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The instructions. The first one is the function's, unless that is unknown or far away.
    pub lines: Vec<CodeLine>,
}

impl Code {
    /// The index of the instruction at `address`.
    pub fn line(&self, address: u64) -> Option<usize> {
        let found = self.lines.binary_search_by_key(&address, |l| l.address.0);
        found.ok()
    }

    /// The index of the instruction that is at `pc`: the next one, or the call before a return address.
    pub fn line_of(&self, pc: CodeAddress) -> Option<usize> {
        let CodeAddress::Return(address) = pc else {
            return self.line(pc.value());
        };
        let before = self.lines.partition_point(|l| l.address.0 < address);
        let line = self.lines.get(before.checked_sub(1)?)?;
        // Two digits for each byte.
        let end = line.address.0.saturating_add(line.bytes.len() as u64 / 2);
        (address <= end).then(|| before - 1)
    }
}

/// The addresses of the code that is shown around `address`: those of its function. `finders` are
/// asked for the start of a row if the function has no name.
pub(super) fn extent(
    view: &View<'_>,
    address: u64,
    finders: &mut [(&dyn Finder, &mut Cache)],
) -> Option<(u64, u64)> {
    let mapping = view.space.find(address)?;
    let image = mapping.image.as_ref()?;
    let svma = mapping.svma(address);

    let mut row = || {
        let starts = finders.iter_mut().filter_map(|(finder, cache)| {
            let row = find_row(*finder, mapping, address, cache).ok()?;
            Some(row.source.start)
        });
        starts.min()
    };

    // Without a symbol, the start of a row that an unwinder finds there is the start of the code
    // that is shown.
    let symbol = image.symbol(svma);
    let start = symbol.map(|s| s.address).or_else(&mut row);

    // A start that is far away is not shown: the listing would be too long.
    let near = |start: &u64| *start <= svma && svma - start <= BEFORE_MAX;
    let start = start.filter(near).unwrap_or(svma);

    // Functions in assembly often have symbols without a size.
    let end = match symbol {
        Some(s) if s.size > 0 => s.address.saturating_add(s.size),
        _ => u64::MAX,
    };
    // The same for neighbouring addresses.
    // Long code is cut into pieces of one length, and the end is the same for all addresses of a
    // piece, so that the listing does not move with every step.
    let pieces = svma.saturating_sub(start) / WHOLE_MAX + 1;
    let far = start.saturating_add(pieces * WHOLE_MAX);

    // Near the end of a piece, the next one is shown, too.
    let far = if far - svma.min(far) < WHOLE_MAX / 4 {
        far.saturating_add(WHOLE_MAX)
    } else {
        far
    };
    let end = end.min(far).max(svma.saturating_add(1));

    // The listing has addresses of the process, not of the file.
    let moved = |svma: u64| svma.wrapping_add(mapping.bias);
    Some((moved(start), moved(end)))
}

/// The code of the function at `pc`.
pub(crate) fn around(
    view: &View<'_>,
    pc: CodeAddress,
    finders: &mut [(&dyn Finder, &mut Cache)],
) -> Option<Code> {
    let extent = extent(view, pc.symbol_address(), finders)?;
    code_from(view, pc, extent, finders)
}

/// The code from `start` to `end`, or from `pc` on if the instructions from `start` on do not lead there.
pub(super) fn code_from(
    view: &View<'_>,
    pc: CodeAddress,
    (start, end): (u64, u64),
    finders: &mut [(&dyn Finder, &mut Cache)],
) -> Option<Code> {
    let lines = code(view, (start, end), finders)?;
    match lines.line_of(pc) {
        Some(_) => Some(lines),
        None => code(view, (pc.value(), end), finders),
    }
}

/// The code from `start` to `end`.
fn code(
    view: &View<'_>,
    (start, end): (u64, u64),
    finders: &mut [(&dyn Finder, &mut Cache)],
) -> Option<Code> {
    let mapping = view.space.find(start)?;
    let mut lines = decode(mapping, start, end);
    for line in &mut lines {
        let svma = mapping.svma(line.address.0);
        for (finder, cache) in finders.iter_mut() {
            let row = find_row(*finder, mapping, line.address.0, cache);
            if row.is_ok_and(|row| row.source.start == svma) {
                line.rows.push(finder.name().to_owned());
            }
        }
    }
    let place = Location::at(view.space, start);
    Some(Code {
        function: place.function,
        image: place.image,
        lines,
    })
}

/// The instruction at `address`.
pub(super) fn instruction_at(view: &View<'_>, address: u64) -> Option<CodeLine> {
    let mapping = view.space.find(address)?;
    decode(mapping, address, address + 1).into_iter().next()
}

/// The instructions that start between two addresses, up to the first one that is invalid.
fn decode(mapping: &Mapping, start: u64, end: u64) -> Vec<CodeLine> {
    let len = end.saturating_sub(start) + unwind_sim_unwind::insn::INSN_BYTES_MAX as u64;
    let image = mapping.image.as_ref();
    let bytes = image.map_or(&[][..], |image| {
        image.text_bytes(mapping.svma(start), len as usize)
    });
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut lines = Vec::new();
    while decoder.can_decode() && decoder.ip() < end {
        let insn = decoder.decode();
        if insn.is_invalid() {
            break;
        }
        let at = (insn.ip() - start) as usize;
        lines.push(CodeLine {
            address: Hex(insn.ip()),
            bytes: hex_bytes(&bytes[at..at + insn.len()]),
            text: instruction(&insn),
            rows: Vec::new(),
        });
    }
    lines
}
