//! A run of a case: its points, and what was sampled at them. `native` runs programs under ptrace,
//! `emulated` runs them in the emulated machine.

use super::built::Engine;
use super::failure::CaseFailure;
use super::limits::Reached;
use super::sample::{Point, Recorded};
use crate::case::{Case, PointKey};
use crate::extract::samples::write_samples;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_emulator::Processor;
use unwind_sim_record::{At, Plan};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::names::file_name;
use unwind_sim_recordings::trace::{self, Meta, TimeUnit, Trace, TraceWriter};
use unwind_sim_unwind::image::{Image, ImageParts, Mapping};

/// How many bytes of stack are recorded, which is more than any case has. A case's `view` may limit
/// what walks see.
pub(super) const STACK_BYTES: u64 = 64 << 20;

/// A run, with every visit of every label.
pub(super) struct Run {
    /// All samples.
    pub(super) trace: Trace,
    /// For each point, the label, the own label, and the numbers of its samples by visit.
    visits: Vec<(String, Option<String>, Vec<u64>)>,
}

impl Run {
    /// The number of the sample at `key`.
    pub(super) fn number_of(&self, key: &PointKey) -> Option<u64> {
        let (_, _, numbers) = self
            .visits
            .iter()
            .find(|(label, own, _)| *label == key.label && *own == key.own)?;
        numbers
            .get(usize::try_from(key.visit).ok()?.checked_sub(1)?)
            .copied()
    }
}

pub(super) fn meta(case: &Case) -> Meta {
    Meta {
        program: vec![case.name.clone()],
        engine: trace::Engine::Case,
        time_unit: TimeUnit::Instructions,
        truth: "the whole run".to_owned(),
        ..Meta::default()
    }
}

/// The points to record: every label once.
fn points(case: &Case) -> Vec<unwind_sim_record::Point> {
    let mut points: Vec<unwind_sim_record::Point> = Vec::new();
    for sample in &case.samples {
        let point = unwind_sim_record::Point {
            name: sample.key.label.clone(),
            fetch: sample
                .key
                .own
                .as_ref()
                .map(|_| unwind_sim_record::FetchFrame::Rbp),
            own: sample.key.own.clone(),
        };
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

/// Where recording starts: after the loader and before constructors. Without a C library, at the
/// start of the program.
fn from(case: &Case) -> Option<String> {
    let with_libc = !case.header.link.iter().any(|f| f == "-nostdlib");
    with_libc.then(|| "_start".to_owned())
}

/// The plan for recording a case at its points.
pub(super) fn plan(case: &Case, at: At, limits: &CaseLimits) -> Plan {
    Plan {
        truth: true,
        from: from(case),
        max_instructions: Some(limits.instructions_max),
        max_samples: Some(limits.samples_max),
        stack_bytes: STACK_BYTES,
        ..Plan::new(at)
    }
}

/// The result of an engine's run.
pub(super) struct Taken {
    /// The trace's bytes.
    pub(super) trace: Vec<u8>,
    /// For each sample, the index of its point.
    pub(super) points: Vec<Option<usize>>,
    /// The number of instructions at which the truth was not known.
    pub(super) unknown: u64,
    /// The limit that it reached.
    pub(super) reached: Option<Reached>,
    /// How the program ended, if it did not exit with 0.
    pub(super) ended: Option<String>,
}

/// Runs `program` and samples it at every label of the case.
pub(super) fn run(
    case: &Case,
    program: &Path,
    engine: Engine,
    processor: Processor,
    limits: &CaseLimits,
) -> Result<Run, CaseFailure> {
    let points = points(case);
    let at = unwind_sim_record::At::Points(points.clone());

    let taken = match engine {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Engine::Ptrace => super::native::run(case, program, at, limits)?,
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        Engine::Ptrace => return Err(CaseFailure::run(case, "ptrace is not available here")),
        Engine::Emulator => super::emulated::run(case, program, at, processor, limits)?,
    };

    // First, because a limit explains any end of the program.
    if let Some(reached) = &taken.reached {
        return Err(CaseFailure::run(case, reached));
    }
    if let Some(ended) = &taken.ended {
        return Err(CaseFailure::run(
            case,
            format!("it should exit with 0, but it ended like this: {ended}"),
        ));
    }

    // Where the truth is not known, nothing is judged, and a wrong chain would pass.
    let (unknown, most) = (taken.unknown, case.header.truth_unknown_max);
    if unknown > most {
        let what = format!(
            "the shadow stack lost the truth at {unknown} instructions, the header allows {most}"
        );
        return Err(CaseFailure::run(case, what));
    }

    let trace = Trace::from_bytes(taken.trace).map_err(|e| CaseFailure::run(case, e))?;

    // The n-th sample of a point is that of its n-th visit.
    let numbers_of = |point: usize| {
        let taken = taken.points.iter().enumerate();
        taken
            .filter(|(_, p)| **p == Some(point))
            .map(|(n, _)| n as u64)
            .collect()
    };

    let visits = points
        .into_iter()
        .enumerate()
        .map(|(i, p)| (p.name, p.own, numbers_of(i)));

    Ok(Run {
        trace,
        visits: visits.collect(),
    })
}

/// The mapping of the program, renamed to the case's name, since the folder of the build is gone.
fn without_folder(mapping: &Mapping, name: &str) -> Mapping {
    let mut out = mapping.clone();
    if file_name(&mapping.name) == name {
        name.clone_into(&mut out.name);
        out.image = mapping.image.as_ref().map(|image| {
            Arc::new(Image::new(ImageParts {
                name: name.to_owned(),
                build_id: image.build_id().to_vec(),
                text: image.text().to_vec(),
                sections: image.sections().to_vec(),
                symbols: image.symbols().to_vec(),
            }))
        });
    }
    out
}

/// The points of a case as a trace, each with the mappings at the time of the sample.
pub(super) fn to_trace(recorded: &Recorded) -> Result<Trace, CaseFailure> {
    let failure = |what: String| CaseFailure::run(&recorded.case, what);
    let mut writer =
        TraceWriter::new(Vec::new(), &meta(&recorded.case)).map_err(|e| failure(e.to_string()))?;
    let sample = |point: &Point| {
        let mappings = point.world.space(point.sample.pid).mappings().iter();
        let named = mappings.map(|m| without_folder(m, &recorded.case.name));
        (point.sample.clone(), named.collect())
    };
    let samples: Vec<_> = recorded.points.iter().map(sample).collect();
    write_samples(&mut writer, &samples).map_err(|e| failure(e.to_string()))?;
    let bytes = writer.finish().map_err(|e| failure(e.to_string()))?;
    Trace::from_bytes(bytes).map_err(|e| failure(e.to_string()))
}
