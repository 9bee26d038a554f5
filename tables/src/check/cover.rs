//! Code that no row covers.

use crate::file::File;
use crate::proof::body::{Body, is_padding};
use crate::proof::program::Program;
use iced_x86::Mnemonic;
use std::ops::Range;

/// The maximum number of gaps that are reported.
const GAPS_MAX: usize = 1 << 16;
/// The maximum length of a gap that is looked into, bytes.
const GAP_BYTES_MAX: u64 = 1 << 20;

/// What is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hole {
    /// Code in an executable section that no FDE covers.
    NoRow,
    /// An FDE for addresses that are not in an executable section.
    NoCode,
    /// An FDE for code that the one before it covers, too.
    Overlap,
}

impl Hole {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Hole::NoRow => "no-row",
            Hole::NoCode => "no-code",
            Hole::Overlap => "overlap",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Hole::NoRow => "code without a row",
            Hole::NoCode => "rows without code",
            Hole::Overlap => "functions that share code with the one before",
        }
    }
}

/// Addresses at which code and table do not meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// What is missing.
    pub hole: Hole,
    /// The addresses (svma).
    pub range: Range<u64>,
}

/// The gaps of a program, by address.
pub fn gaps(program: &Program<'_>) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let overlap = |range: &Range<u64>| Gap {
        hole: Hole::Overlap,
        range: range.clone(),
    };
    gaps.extend(program.overlapping.iter().take(GAPS_MAX).map(overlap));
    for code in program.file.code() {
        let mut at = code.range.start;
        let first = program
            .functions
            .partition_point(|f| f.range.end <= code.range.start);
        let inside = program.functions[first..].iter();
        for function in inside.take_while(|f| f.range.start < code.range.end) {
            uncovered(program.file, at..function.range.start, &mut gaps);
            at = at.max(function.range.end);
        }
        uncovered(program.file, at..code.range.end, &mut gaps);
    }
    for function in &program.functions {
        if program.file.code_at(function.range.start).is_none() && gaps.len() < GAPS_MAX {
            gaps.push(Gap {
                hole: Hole::NoCode,
                range: function.range.clone(),
            });
        }
    }
    gaps.sort_by_key(|g| (g.range.start, g.hole));
    gaps
}

/// Adds the part of `range` that is not padding.
fn uncovered(file: &File, range: Range<u64>, gaps: &mut Vec<Gap>) {
    if range.is_empty() || gaps.len() >= GAPS_MAX {
        return;
    }
    let end = range.end.min(range.start.saturating_add(GAP_BYTES_MAX));
    let Some(mut body) = Body::new(file, range.start..end) else {
        return;
    };
    let mut offset = 0;
    let length = usize::try_from(end - range.start).unwrap_or(usize::MAX);
    let bytes = file.bytes(range.start);
    let bytes = &bytes[..bytes.len().min(length)];
    while offset < length {
        if bytes
            .get(offset..)
            .is_none_or(|rest| rest.iter().all(|&b| b == 0))
        {
            return;
        }
        match body.insn(file, offset) {
            // Right behind a function, a trap may be its last instruction.
            Some(insn) if is_padding(&insn) && (offset > 0 || insn.mnemonic() != Mnemonic::Ud2) => {
                offset += insn.len();
            }
            _ => break,
        }
    }
    if offset < length {
        gaps.push(Gap {
            hole: Hole::NoRow,
            range: range.start + offset as u64..range.end,
        });
    }
}
