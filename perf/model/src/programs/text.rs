//! The programs of a run as text: how often each ran, its output, and its maps.

use super::{Counts, Program};
use crate::bpf::Map;
use crate::bpf::maps::Storage;
use crate::oracle::{Walk, WalkVerdict};
use crate::record::Body;
use crate::world::World;
use std::fmt::Write as _;

/// The most entries of a map that are shown.
const ENTRIES_MAX: usize = 16;

/// The text; empty for a run in which no program ran.
pub(crate) fn programs_text(world: &World, walks: &[Walk]) -> String {
    // Programs, what they wrote, and what the walking ones found, each under its own title.
    let mut out = String::new();
    for program in world.programs() {
        if program.counts != Counts::default() {
            one(&mut out, program);
        }
    }
    if !out.is_empty() {
        out.insert_str(0, "programs:\n");
    }

    // Writing to a String cannot fail.
    for record in world.records() {
        let Body::Raw { data } = &record.body else {
            continue;
        };
        let name = &world.events()[usize::from(record.event)].name;
        let _ = write!(out, "  {name} at {} of {}:", record.time, record.tid);
        hex(&mut out, data);

        out.push('\n');
    }

    // Only programs that say that they walk are judged.
    if !walks.is_empty() {
        out.push_str("walks:\n");
    }
    for walk in walks {
        let (number, tid) = (walk.number, walk.tid);
        let (found, truth) = (walk.found.len(), walk.truth.len());
        let _ = write!(
            out,
            "  sample {number} of {tid}: {found} frames of {truth}: "
        );

        let _ = match walk.outcome() {
            WalkVerdict::Right => writeln!(out, "right"),
            WalkVerdict::Truncated => writeln!(out, "truncated"),
            WalkVerdict::Missing => writeln!(out, "missing frames"),
            WalkVerdict::Wrong(index) => {
                let truth = walk.truth.get(index).copied().unwrap_or(0);
                writeln!(
                    out,
                    "frame {index} is {:x}, true is {truth:x}",
                    walk.found[index]
                )
            }
        };
    }
    out
}

fn one(out: &mut String, program: &Program) {
    let counts = program.counts;
    let runs = counts.kept + counts.dropped + counts.faults;
    let _ = writeln!(
        out,
        "  {}: runs {runs}, kept {}, dropped {}, faults {}, not run as one ran already {}; \
         records {}, lost {}",
        program.name,
        counts.kept,
        counts.dropped,
        counts.faults,
        counts.recursions,
        counts.outputs,
        counts.lost
    );
    for map in program.handlers.maps.iter() {
        map_text(out, map);
    }
}

fn map_text(out: &mut String, map: &Map) {
    let name = &map.def.name;

    // Maps with nothing to show are left out.
    match &map.storage {
        Storage::Stacks(stacks) => {
            let stats = stacks.stats();
            let _ = writeln!(
                out,
                "    {name}: {} stored, {} found, {} collisions, {} replaced, {} without memory, \
                 {} without frames",
                stats.stored,
                stats.found + stats.found_by_hash,
                stats.collisions,
                stats.replaced,
                stats.no_memory,
                stats.too_short
            );
            // Bounded: a map may have thousands of stacks.
            for id in stacks.ids().take(ENTRIES_MAX) {
                let _ = write!(out, "      {id}:");
                for frame in stacks.get(id).unwrap_or_default() {
                    let _ = write!(out, " {frame:x}");
                }
                out.push('\n');
            }
        }
        Storage::Array(_) | Storage::Hash(_) => {
            let entries = map.dump();
            let _ = writeln!(out, "    {name}: {} entries", entries.len());
            for (key, values) in entries.iter().take(ENTRIES_MAX) {
                out.push_str("     ");
                hex(out, key);
                out.push_str(" =");
                // A map with values for each CPU has several.
                for value in values {
                    hex(out, value);
                }
                out.push('\n');
            }
        }
        _ => {}
    }
}

/// Writes little-endian words of 4 bytes, then the remaining bytes one by one.
fn hex(out: &mut String, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let _ = write!(out, " {:08x}", u32::from_le_bytes(*word));
    }
    for byte in rest {
        let _ = write!(out, " {byte:02x}");
    }
}
