//! Checks that a scrubbed file gives what the recording gave.

use super::error::ScrubError;
use super::scrubber::{Differs, Scrubber};
use super::walkers::neutral;
use crate::compare::GroupBy;
use crate::doctor::{self, Complaint, Report};
use crate::engine::Setting;
use crate::input::Input;
use crate::run::{Against, Run, RunError};
use crate::spec;
use unwind_sim_recordings::view::Filter;

/// The unwinders that `doctor` tries by itself.
const BY_DOCTOR: [&str; 5] = ["dwarf", "fp", "dwarf+fp", "lbr", "lbr:stitch"];

/// Compares every sample of `after` with the digests of the recording's.
pub(super) fn samples(
    before: &Input,
    after: &Input,
    digests: &[u64],
    scrubber: &mut Scrubber<'_>,
    tell: &mut dyn FnMut(u64),
) -> Result<(), ScrubError> {
    let mut number = 0;
    let mut differing = None;

    after.for_each::<RunError>(&Filter::default(), &mut |view| {
        tell(number + 1);
        let is_same = digests.get(number as usize) == Some(&scrubber.digest(view));
        // The first one is reported; the others are still counted.
        if !is_same && differing.is_none() {
            differing = Some(number);
        }

        number += 1;
        Ok(())
    })?;

    // Digests tell only that something differs; which unwinder it is takes another walk.
    if let Some(sample) = differing {
        let column = column(before, after, sample, scrubber);
        return Err(Differs { sample, column }.into());
    }

    // All samples may be the same and still some be lost.
    if number != digests.len() as u64 {
        let expected = digests.len() as u64;
        return Err(ScrubError::Samples { number, expected });
    }

    Ok(())
}

/// The first unwinder that differs in a sample.
fn column(before: &Input, after: &Input, sample: u64, scrubber: &mut Scrubber<'_>) -> String {
    let filter = Filter {
        sample: Some(sample),
        ..Filter::default()
    };
    let mut found = None;
    let compared = before.for_each::<RunError>(&filter, &mut |a| {
        after.for_each::<RunError>(&filter, &mut |b| {
            found = scrubber.difference(a, b);
            Ok(())
        })
    });
    match (compared, found) {
        (Ok(()), Some(column)) => column,
        _ => "the recording".to_owned(),
    }
}

/// Compares what `doctor` says of both.
pub(super) fn doctor(
    before: &Input,
    after: &Input,
    scrubber: &mut Scrubber<'_>,
) -> Result<(), ScrubError> {
    let mut said = |input| Ok::<_, RunError>(complaints(&examine(input, scrubber)?));
    let (before, after) = (said(before)?, said(after)?);
    let pairs = before.iter().zip(&after);
    let differs = pairs.clone().find(|(a, b)| a != b);
    match differs {
        Some((a, b)) => Err(ScrubError::Doctor {
            before: a.clone(),
            after: b.clone(),
        }),
        None if before.len() != after.len() => Err(ScrubError::Doctor {
            before: format!("{} lines", before.len()),
            after: format!("{} lines", after.len()),
        }),
        None => Ok(()),
    }
}

fn examine(input: &Input, scrubber: &mut Scrubber<'_>) -> Result<Report, RunError> {
    let against = if input.has_truth() { "truth" } else { "proof" };
    let run = Run {
        engines: spec::engines(&BY_DOCTOR.map(str::to_owned))?,
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::from_name(against)?,
        group_by: GroupBy::default(),
    };
    let proofs = scrubber.proofs();
    doctor::examine_with(input, &Filter::default(), &run, proofs, &mut |_| {})
}

/// A report as lines.
fn complaints(report: &Report) -> Vec<String> {
    let subjects = report.subjects.iter();
    let mut lines: Vec<String> = subjects
        .map(|s| format!("{}: {} whole, {} broken", s.name, s.whole, s.broken))
        .collect();

    let mut all: Vec<String> = report
        .complaints
        .iter()
        .map(|complaint| {
            let Complaint {
                subject,
                kind,
                image,
                stacks,
                lost,
                leaves,
                functions,
                example,
                notes,
                ..
            } = complaint;
            // Data that was replaced is only reported here, so it counts as equal.
            neutral(&format!(
                "{subject} {kind:?} {image}: {stacks} stacks, lost {lost:?}, {leaves} leaves, in \
                 {functions:?}, as in sample {}: {:?} in {} {:?}; {notes:?}",
                example.sample, example.code, example.function, example.values
            ))
        })
        .collect();

    // Complaints of the same size are in the order of their files.
    all.sort();

    lines.extend(all);
    lines
}
