//! Code that no row covers.

use crate::file::File;
use crate::proof::body::{Body, is_nop, is_padding};
use crate::proof::program::Program;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use std::ops::Range;

/// The maximum number of gaps that are reported.
const GAPS_MAX: usize = 1 << 16;
/// The maximum length of an instruction, bytes.
const INSN_LEN_MAX: u64 = 15;
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

    // The number of gaps is bounded in all three parts, since a damaged table may have any number.
    gaps.extend(program.overlapping.iter().take(GAPS_MAX).map(overlap));

    for code in program.file.code() {
        // Functions are sorted, so what lies between two of them is one range.
        let mut at = code.range.start;
        let first = program
            .functions
            .partition_point(|f| f.range.end <= code.range.start);
        let inside = program.functions[first..].iter();
        let inside = inside.take_while(|f| f.range.start < code.range.end);

        let mut before = None;
        for function in inside {
            uncovered(program.file, before, at..function.range.start, &mut gaps);
            before = Some(&function.range);

            // Functions may overlap: the next gap begins behind the one that reaches furthest.
            at = at.max(function.range.end);
        }
        uncovered(program.file, before, at..code.range.end, &mut gaps);
    }

    // FDEs without code are gaps as well: they point to where nothing is.
    let without = &program.without_code;
    for range in without.dead.iter().chain(&without.misplaced) {
        if gaps.len() < GAPS_MAX {
            gaps.push(Gap {
                hole: Hole::NoCode,
                range: range.clone(),
            });
        }
    }

    gaps.sort_by_key(|g| (g.range.start, g.hole));
    gaps
}

/// Whether the code in `function` (svma) goes on behind its end: its last instruction is neither one that
/// ends a way, nor a call, whose callee may never return, nor padding behind one.
fn runs_on(file: &File, function: &Range<u64>) -> bool {
    let goes_on = |at: u64| {
        let insn = Decoder::with_ip(64, file.bytes(at), at, DecoderOptions::NONE).decode();
        let leads_on = matches!(
            insn.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        );
        (insn.next_ip() == function.end).then_some(leads_on && !is_padding(&insn))
    };
    let start = function
        .start
        .max(function.end.saturating_sub(INSN_LEN_MAX));
    // Few functions run on: most end with bytes that can only be read so.
    let mut starts = (start..function.end).rev();
    if starts.any(|at| goes_on(at) == Some(false)) {
        return false;
    }
    let Some(body) = Body::new(file, function.clone()) else {
        return false;
    };
    let last = (start..function.end).rev().find(|at| body.starts_at(*at));
    last.and_then(goes_on) == Some(true)
}

/// Adds the part of `range` that is not padding. Where the function `before` it runs on into it, its
/// no-operations are executed, too.
fn uncovered(file: &File, before: Option<&Range<u64>>, range: Range<u64>, gaps: &mut Vec<Gap>) {
    // No more gaps are decoded than are kept.
    if range.is_empty() || gaps.len() >= GAPS_MAX {
        return;
    }

    // A gap of a damaged file may be gigabytes long: only its start is decoded.
    let end = range.end.min(range.start.saturating_add(GAP_BYTES_MAX));
    let Some(mut body) = Body::new(file, range.start..end) else {
        return;
    };

    let mut offset = 0;
    let length = usize::try_from(end - range.start).unwrap_or(usize::MAX);
    let bytes = file.bytes(range.start);
    let bytes = &bytes[..bytes.len().min(length)];

    // No-operations behind a function that runs on are executed, so they need a row.
    let starts_with_nop = body.insn(file, 0).is_some_and(|insn| is_nop(&insn));
    let runs_on =
        starts_with_nop && before.is_some_and(|b| b.end == range.start && runs_on(file, b));
    while offset < length {
        // Zeros decode, as `add %al,(%rax)`, but up to the end of a gap they are a linker's
        // padding.
        if bytes
            .get(offset..)
            .is_none_or(|rest| rest.iter().all(|&b| b == 0))
        {
            offset = length;
            break;
        }
        match body.insn(file, offset) {
            // Right behind a function, a trap may be its last instruction.
            Some(insn) if is_padding(&insn) && (offset > 0 || insn.mnemonic() != Mnemonic::Ud2) => {
                offset += insn.len();
            }
            _ => break,
        }
    }

    // What counts depends on whether the code runs into the gap, and whether there is more than
    // padding in it.
    let code = range.start + offset as u64;
    let uncovered = match (runs_on, offset < length) {
        (true, true) => range.start..range.end,
        (true, false) => range.start..body.skip_nops(file, range.start).unwrap_or(end),
        (false, true) => code..range.end,
        (false, false) => return,
    };

    gaps.push(Gap {
        hole: Hole::NoRow,
        range: uncovered,
    });
}
