//! Groups findings by cause: the same row of the same function that is wrong in the same way, or
//! code without a row that was linked into several images.

use super::checker::Results;
use super::findings::{Check, Finding};
use super::listing;
use super::places::Places;
use crate::check::Class;
use std::collections::BTreeMap;
use unwind_sim_recordings::names::Location;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::dwarf::unfound;
use unwind_sim_unwind::reason::{Code, Reason};

/// The findings with one cause.
#[derive(Debug)]
pub struct Group<'a> {
    /// The index of the unwinder in the run.
    pub unwinder: usize,
    /// The class of the contradictions.
    pub class: Class,
    /// The check that found them.
    pub check: Check,
    /// The reason code.
    pub code: Code,
    /// The place of the first finding.
    pub place: Location,
    /// The total count.
    pub count: u64,
    /// The findings, in the order of their addresses.
    pub findings: Vec<&'a Finding>,
    /// The images with these findings, in the order in which they were met.
    pub images: Vec<String>,
}

impl Group<'_> {
    /// How many findings it has; see [`Finding::stands_for`].
    pub fn findings_count(&self) -> u64 {
        self.findings.iter().map(|f| f.stands_for).sum()
    }

    /// The finding that was met first.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.iter().copied().min_by_key(|f| f.first)
    }
}

/// The location of a finding.
pub fn location(finding: &Finding, places: &Places) -> Location {
    match finding.contradiction.pc {
        CodeAddress::Instruction(address) => places.location(finding.place, address),
        CodeAddress::Return(address) => places.caller(finding.place, address),
    }
}

/// The offset in `.eh_frame` of the row for code that was executed without one: it is there, but a search
/// through the index of the file does not find it.
pub fn unfound_row(finding: &Finding, places: &Places) -> Option<u64> {
    if finding.code != Code::NoRowForExecuted {
        return None;
    }
    let mapping = places.mapping(finding.place)?;
    let svma = mapping.svma(finding.contradiction.pc.symbol_address());
    unfound(mapping.image.as_ref()?, svma)
}

/// All groups, by unwinder and class, with the most frequent first.
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    // By key in order, so that equal runs have equal reports.
    let mut groups: BTreeMap<_, Vec<&Finding>> = BTreeMap::new();
    for finding in &results.findings {
        let place = location(finding, &results.places);
        let contradiction = &finding.contradiction;
        let row = contradiction.row.as_ref();
        let row = row.map(|row| (row.source.unit_offset, row.source.row_offset));

        // If a format cannot represent the row, what it cannot represent is the cause.
        let (function, lost) = match contradiction.reason {
            Some(Reason::NotHeld { what }) => (None, Some(what)),
            _ => (place.function, None),
        };

        let key = (
            (finding.unwinder, finding.check, finding.code.as_str()),
            (contradiction.class(), finding.reg as u8),
            (place.image, results.places.image(finding.place)),
            (function, row, lost),
        );
        groups.entry(key).or_default().push(finding);
    }

    let mut out: Vec<Group<'_>> = Vec::new();
    let mut by_code = BTreeMap::new();
    for ((.., (function, ..)), findings) in groups {
        let Some(group) = group(findings, &results.places) else {
            continue;
        };

        // Code without a row that is linked into many files, as start files are, is one cause.
        let key = linked_code(&group, results).map(|code| {
            let group = (group.unwinder, group.check, group.code.as_str());
            (group, function, code)
        });

        let next = out.len();
        match key.map(|key| *by_code.entry(key).or_insert(next)) {
            Some(known) if known != next => merge(&mut out[known], group, &results.places),
            _ => out.push(group),
        }
    }

    let order = |g: &Group<'_>| (g.unwinder, g.class, g.check, std::cmp::Reverse(g.count));
    out.sort_by_key(order);
    out
}

fn group<'a>(findings: Vec<&'a Finding>, places: &Places) -> Option<Group<'a>> {
    let first = findings.iter().copied().min_by_key(|f| f.first)?;
    let place = location(first, places);
    Some(Group {
        unwinder: first.unwinder,
        class: first.contradiction.class(),
        check: first.check,
        code: first.code,
        count: findings.iter().map(|f| f.count).sum(),
        findings,
        images: place.image.iter().cloned().collect(),
        place,
    })
}

fn merge<'a>(known: &mut Group<'a>, group: Group<'a>, places: &Places) {
    let is_earlier = group.first().map(|f| f.first) < known.first().map(|f| f.first);
    if is_earlier {
        known.place = group.place;
    }
    known.count += group.count;
    known.findings.extend(group.findings);
    known.findings.sort_by_key(|f| (f.address, f.place));
    known.images = images(&known.findings, places);
}

/// The images of the findings, in the order in which they were met.
fn images(findings: &[&Finding], places: &Places) -> Vec<String> {
    let mut met = findings.to_vec();
    met.sort_by_key(|f| f.first);
    let mut images = Vec::new();
    for finding in met {
        let image = location(finding, places).image;
        images.extend(image.filter(|image| !images.contains(image)));
    }
    images
}

/// The shape of the instructions from the first finding on, without addresses and constants, if
/// they have no row. Start files and the like are the same code in every image that they are linked
/// into.
fn linked_code(group: &Group<'_>, results: &Results) -> Option<Vec<u64>> {
    let first = group.first()?;
    let is_missing = matches!(first.contradiction.reason, Some(Reason::NoRow { .. }));
    (is_missing && group.class == Class::Wrong).then(|| listing::shape(results, first))?
}

#[cfg(test)]
mod tests;
