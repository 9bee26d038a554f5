//! The branch records of a run as text: those of each sample, a histogram of their number, and
//! their memory.

use crate::oracle::Joined;
use crate::world::TaskBranches;
use crate::world::World;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unwind_sim_perf_data::BranchEntry;

/// The most branches of a sample that are shown.
const BRANCHES_MAX: usize = 12;

/// The text; empty for a run without branch records.
pub(super) fn branches_text(world: &World, joined: &[Joined]) -> String {
    let mut out = String::new();
    let Some(memory) = world.branch_memory() else {
        return out;
    };

    // Writing to a String cannot fail.
    let storage = world.setup().lbr_storage.as_str();
    let _ = writeln!(out, "branch stacks, storage {storage}:");

    // Counted by what was recorded and what was there.
    let (mut lengths, mut samples) = (BTreeMap::new(), 0);
    for joined in joined {
        let Some((branches, calls)) = &joined.branches else {
            continue;
        };

        // Newest first, as in the record.
        let entries = &branches.entries;
        let (number, tid) = (joined.number, joined.stitched.tid);
        let _ = write!(
            out,
            "  sample {number} of {tid}: {} of {calls} calls:",
            entries.len()
        );
        froms(&mut out, entries);
        *lengths.entry((entries.len(), *calls)).or_insert(0u64) += 1;
        samples += 1;
    }

    // What was in the rings when a task crashed, of every task that had records.
    for crash in world.crashes() {
        let _ = writeln!(out, "  crash of {} at {}:", crash.tid, crash.time);
        for TaskBranches { tid, cpu, entries } in &crash.tasks {
            let place = cpu.map_or("waiting".to_owned(), |cpu| format!("on cpu{cpu}"));
            let _ = write!(out, "    {tid}, {place}: {}:", entries.len());
            froms(&mut out, entries);
        }
    }

    for ((length, calls), count) in lengths {
        let s = if count == 1 { "" } else { "s" };
        let part = 100.0 * count as f64 / f64::from(samples);
        let _ = writeln!(
            out,
            "  {part:6.2} %  {count} sample{s} with {length} of {calls} calls"
        );
    }

    let _ = writeln!(
        out,
        "  memory: {} handed out, {} given back, {} bytes at most, {} bytes left",
        memory.allocated, memory.freed, memory.bytes_max, memory.bytes
    );
    out
}

/// Writes the source addresses of the branches that are shown, and ends the line.
fn froms(out: &mut String, entries: &[BranchEntry]) {
    for entry in entries.iter().take(BRANCHES_MAX) {
        let _ = write!(out, " {:x}", entry.from);
    }
    let _ = match entries.len().saturating_sub(BRANCHES_MAX) {
        0 => writeln!(out),
        more => writeln!(out, " .. {more} more"),
    };
}
