//! The part of a case's run that needs this machine: ptrace.

use super::CaseFailure;
use super::sample::{Point, Recorded};
use crate::extract::write_samples;
use crate::names::file_name;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_corpus::case::{Case, PointKey};
use unwind_sim_corpus::trace::{Engine, Meta, TimeUnit, Trace, TraceWriter};
use unwind_sim_unwind::image::{Image, ImageParts, Mapping};

/// A run: every visit of every label.
pub(super) struct Run {
    /// All samples.
    pub(super) trace: Trace,
    /// For each point, which samples it has, visit by visit.
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

fn meta(case: &Case) -> Meta {
    Meta {
        program: vec![case.name.clone()],
        engine: Engine::Case,
        time_unit: TimeUnit::Instructions,
        truth: "the whole run".to_owned(),
        ..Meta::default()
    }
}

/// Runs `program` and samples it at every label of the case.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) fn run(case: &Case, program: &Path) -> Result<Run, CaseFailure> {
    use crate::record::TraceRecorder;
    use unwind_sim_host::{self as host, AfterLimit, At, FetchFrame, Options, ProgramEnd, Target};
    /// A case that executes more is none: it hangs.
    const INSTRUCTIONS_MAX: u64 = 20_000_000;
    /// More than any case's stack: what a case wants cut short, its `view` cuts.
    const STACK_BYTES: u64 = 64 << 20;
    let failure = |what: String| CaseFailure::Run {
        name: case.name.clone(),
        what,
    };
    let mut points: Vec<host::Point> = Vec::new();
    for sample in &case.samples {
        let fetch = sample.key.own.as_ref().map(|_| FetchFrame::Rbp);
        let name = sample.key.label.clone();
        let point = host::Point {
            name,
            fetch,
            own: sample.key.own.clone(),
        };
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let target = Target::Run(host::Program {
        path: program.into(),
        quiet: true,
        // The end of the stack is the same on every machine.
        env: Some(Vec::new()),
        ..host::Program::default()
    });
    let with_libc = !case.header.link.iter().any(|f| f == "-nostdlib");
    let options = Options {
        truth: true,
        // Behind the loader, and before constructors.
        from: with_libc.then(|| "_start".to_owned()),
        max_instructions: Some(INSTRUCTIONS_MAX),
        after_limit: AfterLimit::Kill,
        stack_bytes: STACK_BYTES,
        ..Options::new(target, At::Points(points.clone()))
    };
    let meta = meta(case);
    let mut writer = TraceWriter::new(Vec::new(), &meta).map_err(|e| failure(e.to_string()))?;
    let mut recorder = TraceRecorder::new(&mut writer);
    let summary = host::record(&options, &mut recorder).map_err(|e| failure(e.to_string()))?;
    recorder.write_text().map_err(|e| failure(e.to_string()))?;
    let taken = std::mem::take(&mut recorder.points);
    if summary.program != ProgramEnd::Exited(0) {
        return Err(failure(format!(
            "it is to exit with 0, and ended so: {:?}",
            summary.program
        )));
    }
    let (unknown, most) = (summary.tracker.unknown, case.header.truth_unknown_max);
    if unknown > most {
        return Err(failure(format!(
            "the shadow stack lost the truth at {unknown} instructions, the header allows {most}"
        )));
    }
    let bytes = writer.finish().map_err(|e| failure(e.to_string()))?;
    let trace = Trace::from_bytes(bytes).map_err(|e| failure(e.to_string()))?;
    let numbers_of = |point: usize| {
        let taken = taken.iter().enumerate();
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

/// There is no ptrace here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(super) fn run(case: &Case, _: &Path) -> Result<Run, CaseFailure> {
    let what = "cases run on Linux on x86-64 only".to_owned();
    Err(CaseFailure::Run {
        name: case.name.clone(),
        what,
    })
}

/// The program under the case's name: the folder that it was built in is gone.
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

/// The points of a case as a trace, each in the world that it was taken in.
pub(super) fn to_trace(recorded: &Recorded) -> Result<Trace, CaseFailure> {
    let failure = |what: String| CaseFailure::Run {
        name: recorded.case.name.clone(),
        what,
    };
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
