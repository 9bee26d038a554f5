//! Findings with one cause: the same row of the same function, wrong in the same way.

use super::findings::{Check, Finding};
use crate::names::Location;
use std::collections::BTreeMap;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::reason::Code;

/// Findings with one cause.
#[derive(Debug)]
pub struct Group<'a> {
    /// Which unwinder of the run.
    pub unwinder: usize,
    /// By which check.
    pub check: Check,
    /// The code.
    pub code: Code,
    /// Where the first of them is.
    pub place: Location,
    /// How often, all together.
    pub count: u64,
    /// In order of their addresses.
    pub findings: Vec<&'a Finding>,
}

impl Group<'_> {
    /// The one that was met first.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.iter().copied().min_by_key(|f| f.first)
    }
}

/// Where a finding is.
pub fn location(finding: &Finding, space: &AddressSpace) -> Location {
    match finding.check {
        Check::Instruction | Check::Walk => Location::at(space, finding.address),
        Check::InsideCall | Check::AtReturn => {
            Location::of(space, CodeAddress::Return(finding.address))
        }
    }
}

/// All groups: by unwinder, the most frequent first.
pub fn groups<'a>(findings: &'a [Finding], space: &AddressSpace) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let place = location(finding, space);
        let row = finding.contradiction.row.as_ref();
        let row = row.map(|row| (row.source.unit_offset, row.source.row_offset));
        let key = (
            (finding.unwinder, finding.check, finding.code.as_str()),
            finding.reg as u8,
            (place.image, place.function),
            row,
        );
        groups.entry(key).or_default().push(finding);
    }
    let mut groups: Vec<Group<'a>> = groups
        .into_values()
        .filter_map(|findings| {
            let first = findings.iter().copied().min_by_key(|f| f.first)?;
            Some(Group {
                unwinder: first.unwinder,
                check: first.check,
                code: first.code,
                place: location(first, space),
                count: findings.iter().map(|f| f.count).sum(),
                findings,
            })
        })
        .collect();
    groups.sort_by_key(|g| (g.unwinder, g.check, std::cmp::Reverse(g.count)));
    groups
}
