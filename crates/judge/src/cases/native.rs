//! Runs a case on this machine, under ptrace.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use super::failure::CaseFailure;
use super::limits::Reached;
use super::run::{Taken, meta, plan};
use crate::case::Case;
use std::path::Path;
use unwind_sim_host::{self as host, AfterLimit, ProgramEnd, RecorderOptions, Target};
use unwind_sim_record::{At, TraceRecorder, ptrace};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::trace::TraceWriter;

/// Runs `program` on this machine's processor.
pub(super) fn run(
    case: &Case,
    program: &Path,
    at: At,
    limits: &CaseLimits,
) -> Result<Taken, CaseFailure> {
    let target = Target::Run(host::Launch {
        path: program.into(),
        quiet: true,
        // An empty environment makes the end of the stack the same on every machine.
        env: Some(Vec::new()),
        ..host::Launch::default()
    });

    // A program that does not end by itself must not go on after its case.
    let options = RecorderOptions {
        after_limit: AfterLimit::Kill,
        timeout: Some(limits.timeout),
        tasks_max: limits.tasks_max,
        ..RecorderOptions::new(target, plan(case, at, limits))
    };

    let mut writer =
        TraceWriter::new(Vec::new(), &meta(case)).map_err(|e| CaseFailure::run(case, e))?;
    let mut recorder = TraceRecorder::new(&mut writer, ptrace::finder_options());
    let summary = host::record(&options, &mut recorder).map_err(|e| CaseFailure::run(case, e))?;

    // As in the emulated machine: no sample may lack an image.
    if let Some(problem) = recorder.unread() {
        return Err(CaseFailure::run(case, problem));
    }

    recorder
        .write_text()
        .map_err(|e| CaseFailure::run(case, e))?;

    let points = std::mem::take(&mut recorder.points);

    // A limit explains any end of the program, so it is told apart from the others.
    let reached = match summary.end {
        host::End::Timeout => Some(Reached::Time(limits.timeout)),
        host::End::Limit => Some(Reached::of_plan(limits, summary.samples)),
        host::End::Tasks => Some(Reached::Tasks(limits.tasks_max)),
        _ => None,
    };

    let ended = summary.program;
    Ok(Taken {
        trace: writer.finish().map_err(|e| CaseFailure::run(case, e))?,
        points,
        unknown: summary.tracker.unknown,
        reached,
        ended: (ended != ProgramEnd::Exited(0)).then(|| format!("{ended:?}")),
    })
}
