//! The tables of two builds of a program: functions are matched by name and compared relative to
//! their start, if their code is the same.

use super::join::Join;
use super::{Diff, Input};
use crate::file::File;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};
use std::collections::BTreeMap;
use std::ops::Range;
use unwind_sim_unwind::image::Symbol;

/// What a comparison of two builds found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Builds {
    /// Where the tables disagree, in functions whose code is the same.
    pub diff: Diff,
    /// Functions compared.
    pub functions: u64,
    /// Functions whose code differs, and its first difference in each file (svma). Their rows are
    /// not compared.
    pub changed: Vec<ChangedFunction>,
    /// The number of functions that only the first and only the second file has.
    pub only: [u64; 2],
    /// The number of names that one of the files has more than once.
    pub ambiguous: u64,
}

/// A function with different code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedFunction {
    /// Its name, as in the file.
    pub name: String,
    /// Where the code parts, in each file (svma).
    pub at: [u64; 2],
}

/// Compares two tables of two files.
pub fn diff(first: Input<'_>, second: Input<'_>) -> Builds {
    let mut builds = Builds::default();
    let symbols = [first, second].map(|input| functions(input.file));
    let mut join = Join::new(first, second);
    let mut windows: Vec<(Range<u64>, u64)> = Vec::new();

    // By name, since addresses differ between builds.
    for (name, own) in &symbols[0] {
        let Some(other) = symbols[1].get(name) else {
            builds.only[0] += 1;
            continue;
        };
        // Several functions have that name: which of them is meant is not known.
        let (Some(a), Some(b)) = (own, other) else {
            builds.ambiguous += 1;
            continue;
        };

        match parting([first.file, second.file], [a, b]) {
            // Only functions with equal code are compared: rows follow the code.
            None => {
                let range = a.address..a.address.saturating_add(a.size);
                windows.push((range, b.address.wrapping_sub(a.address)));
            }
            Some(at) => builds.changed.push(ChangedFunction {
                name: (*name).to_owned(),
                at,
            }),
        }
    }

    let unknown = symbols[1]
        .keys()
        .filter(|name| !symbols[0].contains_key(*name));
    builds.only[1] = unknown.count() as u64;

    windows.sort_by_key(|(range, _)| (range.start, range.end));
    // Aliases have the same code.
    windows.dedup_by(|b, a| b.0.start == a.0.start && b.1 == a.1);

    builds.functions = windows.len() as u64;
    for (range, shift) in windows {
        join.window(range, shift);
    }

    builds.diff = join.finish();
    builds
}

/// The functions by name; `None` for a name that several have.
fn functions(file: &File) -> BTreeMap<&str, Option<&Symbol>> {
    let mut out = BTreeMap::new();
    for symbol in file.image().symbols().iter().filter(|s| s.size > 0) {
        let entry = out.entry(symbol.name.as_str()).or_insert(Some(symbol));
        if entry.is_some_and(|other| other.address != symbol.address) {
            *entry = None;
        }
    }
    out
}

/// The first instruction in which the code of two functions differs, in each file (svma).
fn parting(files: [&File; 2], symbols: [&Symbol; 2]) -> Option<[u64; 2]> {
    // A symbol may claim more than the file has.
    let bytes = [0, 1].map(|i| {
        let bytes = files[i].bytes(symbols[i].address);
        let len = usize::try_from(symbols[i].size).unwrap_or(usize::MAX);
        &bytes[..len.min(bytes.len())]
    });
    if bytes[0] == bytes[1] {
        return None;
    }

    // Bytes also differ where only addresses have moved.
    let mut decoders =
        [0, 1].map(|i| Decoder::with_ip(64, bytes[i], symbols[i].address, DecoderOptions::NONE));
    // Decoded side by side, instruction by instruction, until they part.
    loop {
        let at = decoders.each_ref().map(Decoder::ip);
        match decoders.each_ref().map(Decoder::can_decode) {
            [false, false] => return None,
            [true, true] => {}
            _ => return Some(at),
        }

        let [a, b] = decoders.each_mut().map(Decoder::decode);
        let starts = symbols.map(|symbol| symbol.address);
        if !is_same(&a, &b, starts, symbols[0].size) {
            return Some(at);
        }
    }
}

/// Whether two instructions are the same for a table: the same operation on the same registers and
/// slots. Addresses of other functions and of data move from build to build.
fn is_same(a: &Instruction, b: &Instruction, starts: [u64; 2], size: u64) -> bool {
    // The same code means the same form of the instruction, so that the lengths are equal, too.
    if a.code() != b.code() || a.len() != b.len() {
        return false;
    }
    let frame = |r: Register| matches!(r.full_register(), Register::RSP | Register::RBP);
    let mut touches_frame = false;

    for i in 0..a.op_count() {
        if a.op_kind(i) != b.op_kind(i) || a.op_register(i) != b.op_register(i) {
            return false;
        }
        touches_frame |= a.op_kind(i) == OpKind::Register && frame(a.op_register(i));
    }

    if matches!(a.op0_kind(), OpKind::NearBranch64) {
        let offsets = [a, b].map(|i| i.near_branch64());
        let offsets = [0, 1].map(|i| offsets[i].wrapping_sub(starts[i]));
        // A target out of the function may have moved, in whatever direction.
        return offsets[0] == offsets[1] || offsets.iter().all(|offset| *offset >= size);
    }

    // Registers in addresses count like those of operands.
    if a.memory_base() != b.memory_base() || a.memory_index() != b.memory_index() {
        return false;
    }

    if a.memory_base() != Register::None && !a.is_ip_rel_memory_operand() {
        // A slot at another distance would be another slot in the tables.
        let same = a.memory_displacement64() == b.memory_displacement64();
        if !same && frame(a.memory_base()) {
            return false;
        }
    }

    // An immediate next to rsp or rbp changes the frame; elsewhere it may be an address.
    let immediates = (0..a.op_count()).filter(|&i| a.try_immediate(i).is_ok());
    !touches_frame
        || immediates
            .into_iter()
            .all(|i| a.immediate(i) == b.immediate(i))
}
