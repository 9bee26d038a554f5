//! Code in no function, which therefore gets no row.

use super::function::Function;
use super::functions::{NOT_EXECUTED, Unit};
use crate::file::File;
use crate::proof::body::is_padding;
use iced_x86::{Decoder, DecoderOptions};
use std::ops::Range;

/// The code of a section that belongs to no function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UncoveredCode {
    /// The section's name; empty for a segment of a file without section headers.
    pub section: String,
    /// The number of the section's bytes.
    pub section_bytes: u64,
    /// The number of its bytes that are in no function.
    pub bytes: u64,
    /// How many of them are neither padding nor zeros.
    pub code_bytes: u64,
    /// The address (svma) of the first of these.
    pub first: u64,
}

/// The sections that have code in none of `units`, and in none of `functions`. A unit whose end is
/// not known has what was found of it.
pub(super) fn find(file: &File, units: &[Unit], functions: &[Function]) -> Vec<UncoveredCode> {
    let units = units.iter().filter(|unit| !unit.is_open);
    let units = units.map(|unit| unit.range.clone());

    // What is taken is what functions have: those with a known end, and what was followed of
    // others.
    let mut taken: Vec<Range<u64>> = units.collect();
    taken.extend(functions.iter().map(|function| function.range.clone()));
    taken.sort_by_key(|range| (range.start, range.end));

    let mut found = Vec::new();

    // Sections that are never executed in this form are left out.
    let executed = file.code().iter();
    for code in executed.filter(|code| !NOT_EXECUTED.contains(&code.name.as_str())) {
        let mut outside = UncoveredCode {
            section: code.name.clone(),
            section_bytes: code.range.end - code.range.start,
            bytes: 0,
            code_bytes: 0,
            first: 0,
        };

        let mut at = code.range.start;
        let first = taken.partition_point(|range| range.start < at);
        // One that starts before the section may reach into it.
        let first = first.saturating_sub(1);

        let inside = taken.iter().skip(first);
        let inside = inside.take_while(|range| range.start < code.range.end);
        // An empty range at the end, for what lies behind the last function.
        for range in inside.chain([&(code.range.end..code.range.end)]) {
            if at < range.start {
                outside.add(file, at..range.start);
            }

            // Ranges may overlap: the next gap begins behind the one that reaches furthest.
            at = at.max(range.end);
        }

        // Padding and zeros are no code that lacks a row.
        if outside.code_bytes > 0 {
            found.push(outside);
        }
    }
    found
}

impl UncoveredCode {
    fn add(&mut self, file: &File, range: Range<u64>) {
        self.bytes += range.end - range.start;
        let bytes = file.bytes(range.start);
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let bytes = bytes.get(..len.min(bytes.len())).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let start = decoder.position();
            let insn = decoder.decode();
            let own = bytes.get(start..decoder.position()).unwrap_or_default();
            if is_padding(&insn) || own.iter().all(|&byte| byte == 0) {
                continue;
            }
            if self.code_bytes == 0 {
                self.first = insn.ip();
            }
            self.code_bytes += own.len() as u64;
        }
    }
}
