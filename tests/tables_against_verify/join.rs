//! What was executed and found, joined with what was proven of it.

use crate::tables_against_verify::run::engines;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use unwind_sim_judge::check::Class;
use unwind_sim_judge::verify::{Check, Finding, Run};
use unwind_sim_tables::check::{Checked, Hole, Options, Report, check};
use unwind_sim_tables::proof::verdict::{Doubt, Verdict};
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_view::tables::open::open;

/// The proofs of files; each file is checked once.
#[derive(Default)]
pub(crate) struct ProofCache {
    reports: HashMap<String, Option<Report>>,
}

impl ProofCache {
    /// The report of the image with this name; `None` if it is not a file (the vdso).
    fn of(&mut self, name: &str) -> Option<&Report> {
        let report = self.reports.entry(name.to_owned()).or_insert_with(|| {
            let file = open(Path::new(name)).ok()?;
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let options = Options {
                threads,
                ..Options::default()
            };
            Some(check(&file, &options))
        });
        report.as_ref()
    }

    /// Makes every function proven.
    pub(crate) fn forget_what_is_wrong(&mut self) {
        for report in self.reports.values_mut().flatten() {
            for function in &mut report.functions {
                function.verdict.contradictions.clear();
                function.verdict.doubts.clear();
            }
            report.gaps.clear();
        }
    }
}

/// The counts of a join.
#[derive(Default)]
pub(crate) struct JoinCounts {
    /// Instructions executed.
    pub(crate) instructions: u64,
    /// Functions executed whose rows are all proven.
    pub(crate) proven: u64,
    /// Functions executed that are contradicted or unproven.
    others: BTreeMap<&'static str, u64>,
    /// Distinct addresses executed in no function of a table, and in no file.
    outside: [u64; 2],
    /// Findings.
    pub(crate) findings: u64,
    /// Findings at a row that is contradicted.
    pub(crate) contradicted: u64,
    /// Findings in a function that is unproven, by reason.
    reasons: BTreeMap<&'static str, u64>,
    /// Findings that no proof contradicts.
    pub(crate) mismatches: Vec<String>,
}

impl JoinCounts {
    /// Findings in functions that are unproven.
    pub(crate) fn unproven(&self) -> u64 {
        self.reasons.values().sum()
    }

    /// Joins a run.
    pub(crate) fn add(&mut self, run: &Run, known: &mut ProofCache) {
        self.instructions += run.results.instructions;
        self.add_executed(run, known);
        for finding in &run.results.findings {
            if counts(finding) {
                self.findings += 1;
                self.add_finding(run, finding, known);
            }
        }
    }

    fn add_executed(&mut self, run: &Run, known: &mut ProofCache) {
        let mut functions = BTreeSet::new();
        for (place, address) in run.results.executed() {
            let mapping = run.results.places.mapping(place);
            let image = mapping.and_then(|m| Some((m.image.as_ref()?, m.bias)));

            // Code outside of any file, such as the vdso, has no report.
            let report = image.and_then(|(image, bias)| Some((known.of(image.name())?, bias)));
            let Some((report, bias)) = report else {
                self.outside[1] += 1;
                continue;
            };

            // Addresses of the run are those of the file plus its bias.
            match function_at(report, address.wrapping_sub(bias)) {
                Some(number) => {
                    functions.insert((place, number));
                }
                None => self.outside[0] += 1,
            }
        }

        // Each function once, however many of its instructions were executed.
        for (place, number) in functions {
            let mapping = run.results.places.mapping(place);
            let name = mapping.and_then(|m| m.image.as_ref()).map(|i| i.name());
            let report = name.and_then(|name| known.of(name)).expect("it was there");
            let verdict = &report.functions[number].verdict;

            match verdict.verdict() {
                Verdict::Proven => self.proven += 1,
                Verdict::Contradicted => *self.others.entry("contradicted").or_default() += 1,
                Verdict::Unproven => {
                    // The first doubt is the one that the report names.
                    let reason = verdict.doubts.first().map_or("none", |d| d.0.as_str());
                    *self.others.entry(reason).or_default() += 1;
                }
            }
        }
    }

    fn add_finding(&mut self, run: &Run, finding: &Finding, known: &mut ProofCache) {
        let wrong = &finding.contradiction;
        let place = run.results.places.location(finding.place, finding.address);
        let mapping = run.results.places.mapping(finding.place);
        let image = mapping.and_then(|m| m.image.as_ref());

        let mut mismatch = |why: &str| {
            self.mismatches.push(format!(
                "{place} of {}: {} {} {}: {why}",
                place.image.as_deref().unwrap_or("nothing"),
                finding.check.as_str(),
                finding.code,
                finding.reg.as_str(),
            ));
        };

        let Some((mapping, image)) = mapping.zip(image) else {
            return mismatch("there is no image");
        };

        // A return address belongs to the call before it.
        let svma = match finding.check {
            Check::InsideCall => finding.address.wrapping_sub(1),
            _ => wrong.pc.symbol_address(),
        };
        let svma = svma.wrapping_sub(mapping.bias);

        let Some(report) = known.of(image.name()) else {
            return mismatch("the file of the mapping is not at hand");
        };

        let Some(number) = function_at(report, svma) else {
            let mut gaps = report.gaps.iter().filter(|g| g.hole == Hole::NoRow);
            let is_gap = gaps.any(|gap| gap.range.contains(&svma));
            // `check` does not report padding, which has no row either: glibc's `__memmove_chk` runs
            // through the padding behind it, and the byte before a function that `makecontext`
            // starts is no call.
            let is_padding =
                finding.check != Check::Instruction || is_nop(image.text_bytes(svma, 16));
            match (is_gap, is_padding, wrong.row.is_none()) {
                (true, _, true) => *self.reasons.entry("no-row").or_default() += 1,
                (_, true, true) => *self.reasons.entry("padding").or_default() += 1,
                _ => mismatch("no function has this address"),
            }
            return;
        };

        let function = &report.functions[number];
        let table = wrong.row.as_ref().map(|row| row.source.table);
        if is_contradicted_at(function, table, svma) {
            self.contradicted += 1;
        } else if let Some((doubt, _)) = function.verdict.doubts.first() {
            *self.reasons.entry(Doubt::as_str(*doubt)).or_default() += 1;
        } else if function.verdict.contradictions.is_empty() {
            mismatch("proven");
        } else {
            mismatch("only other rows are contradicted");
        }
    }
}

/// The number of the function of the table that has this address. A short one may lie inside another.
fn function_at(report: &Report, svma: u64) -> Option<usize> {
    const LOOK_BACK: usize = 16;
    let after = report.functions.partition_point(|f| f.range.start <= svma);
    let near = (after.saturating_sub(LOOK_BACK)..after).rev();
    let mut near = near.filter(|&number| report.functions[number].range.contains(&svma));
    near.next()
}

/// Whether the code is a NOP of any length.
fn is_nop(code: &[u8]) -> bool {
    let prefixes = code
        .iter()
        .take_while(|&&byte| byte == 0x66 || byte == 0x2e);
    let code = &code[prefixes.count()..];
    code.starts_with(&[0x90]) || code.starts_with(&[0x0f, 0x1f])
}

fn is_contradicted_at(function: &Checked, table: Option<TableKind>, svma: u64) -> bool {
    function
        .verdict
        .contradictions
        .iter()
        .any(|c| c.row.contains(&svma) && table.is_none_or(|table| table == c.table))
}

/// Whether a finding is about a table in a file: not what a derived table loses, and not a lookup
/// that its unwinder does not use.
fn counts(finding: &Finding) -> bool {
    let wrong = &finding.contradiction;
    let table = wrong.row.as_ref().map(|row| row.source.table);
    if wrong.class() == Class::Loss || table == Some(TableKind::SframeDerived) {
        return false;
    }
    let engine = &engines()[finding.unwinder];
    // Without a row, sframe has no table here either.
    if table.is_none() && engine.name() != "dwarf" {
        return false;
    }
    let lookup = engine.finder().map(|finder| finder.lookup());
    match finding.check {
        Check::Instruction | Check::Walk => true,
        Check::InsideCall => lookup == Some(Lookup::InsideCall),
        Check::AtReturn => lookup == Some(Lookup::AtReturn),
    }
}

impl fmt::Display for JoinCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} instructions", self.instructions)?;
        writeln!(
            f,
            "functions executed: {} proven, others: {:?}",
            self.proven, self.others
        )?;
        let [no_row, no_file] = self.outside;
        writeln!(
            f,
            "addresses executed without a row: {no_row}, without a file: {no_file}"
        )?;
        writeln!(
            f,
            "findings: {}, contradicted: {}, unproven: {:?}, mismatches: {}",
            self.findings,
            self.contradicted,
            self.reasons,
            self.mismatches.len()
        )
    }
}
