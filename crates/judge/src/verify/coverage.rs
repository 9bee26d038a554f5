//! How much of a kernel was executed: its functions and the rows of its ORC table, by section.

use super::checker::Results;
use std::collections::HashSet;
use std::ops::Range;
use unwind_sim_recordings::kernel::{CodeSection, KernelImage};
use unwind_sim_unwind::orc::Index;

/// How much of a section was executed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// The section's name; empty for all of them.
    pub section: String,
    /// The functions of which an instruction was executed, and all.
    pub functions: Executed,
    /// The rows at whose addresses an instruction was executed, and all.
    pub rows: Executed,
    /// The distinct addresses of executed instructions.
    pub addresses: u64,
}

/// A number of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// Those that were executed.
    pub executed: u64,
    /// All that there are.
    pub all: u64,
}

impl Executed {
    /// In hundredths of a per cent, rounded down; `None` of nothing.
    pub fn share(self) -> Option<u64> {
        (self.executed * 10_000).checked_div(self.all)
    }

    fn add(&mut self, other: Executed) {
        self.executed += other.executed;
        self.all += other.all;
    }
}

impl Coverage {
    /// The sum of all sections.
    pub fn total(sections: &[Coverage]) -> Coverage {
        let mut total = Coverage::default();
        for section in sections {
            total.functions.add(section.functions);
            total.rows.add(section.rows);
            total.addresses += section.addresses;
        }
        total
    }
}

/// How much of each section of `kernel`, moved up by `slide`, was executed, in the order of addresses. A
/// function or row counts in the innermost section that its start is in.
pub(super) fn coverage(kernel: &KernelImage, slide: u64, results: &Results) -> Vec<Coverage> {
    let addresses = results.executed().map(|(_, address)| address);
    let moved = addresses.filter_map(|address| address.checked_sub(slide));
    let mut executed: Vec<u64> = moved.collect();
    executed.sort_unstable();
    // The same address may be executed as different code.
    executed.dedup();
    of_addresses(kernel, &executed)
}

/// `executed` are sorted SVMAs.
fn of_addresses(kernel: &KernelImage, executed: &[u64]) -> Vec<Coverage> {
    let mut sections: Vec<&CodeSection> = kernel.sections.iter().collect();
    sections.sort_by_key(|s| (s.range.start, std::cmp::Reverse(s.range.end)));
    let mut all: Vec<Coverage> = sections
        .iter()
        .map(|section| Coverage {
            section: section.name.clone(),
            ..Coverage::default()
        })
        .collect();
    let ranges: Vec<Range<u64>> = sections.iter().map(|s| s.range.clone()).collect();
    // The last of those that begin before: what lies within another one begins later.
    let place = |address: u64| ranges.iter().rposition(|range| range.contains(&address));

    for &address in executed {
        if let Some(section) = place(address) {
            all[section].addresses += 1;
        }
    }

    let functions = kernel.functions();
    let met = starts_met(&functions, executed, &place);
    for &start in &functions {
        if let Some(section) = place(start) {
            all[section].functions.all += 1;
            all[section].functions.executed += u64::from(met.contains(&start));
        }
    }

    for (start, is_met) in rows(kernel, executed, &place) {
        if let Some(section) = place(start) {
            all[section].rows.all += 1;
            all[section].rows.executed += u64::from(is_met);
        }
    }

    all.retain(|section| section.functions.all + section.rows.all + section.addresses > 0);
    all
}

/// The starts, of these, behind which something was executed, up to the next one.
fn starts_met(
    starts: &[u64],
    executed: &[u64],
    place: &dyn Fn(u64) -> Option<usize>,
) -> HashSet<u64> {
    let is_code = executed.iter().filter(|&&address| place(address).is_some());
    let start = |&address: &u64| {
        let after = starts.partition_point(|&start| start <= address);
        starts.get(after.checked_sub(1)?).copied()
    };
    is_code.filter_map(start).collect()
}

/// The start of each row, and whether something was executed where it is in force.
fn rows(
    kernel: &KernelImage,
    executed: &[u64],
    place: &dyn Fn(u64) -> Option<usize>,
) -> Vec<(u64, bool)> {
    let Ok(Some(index)) = Index::new(&kernel.image, kernel.encoding) else {
        return Vec::new();
    };
    let Ok(table) = index.table() else {
        return Vec::new();
    };
    let starts = (0..table.len()).filter_map(|position| table.ip(position));
    let mut rows: Vec<(u64, bool)> = starts.map(|start| (start, false)).collect();
    for &address in executed {
        if place(address).is_some()
            && let Some(row) = table.find(address).and_then(|at| rows.get_mut(at))
        {
            row.1 = true;
        }
    }
    rows
}

#[cfg(test)]
mod tests;
