//! Runs a case in the emulated machine.

use super::failure::CaseFailure;
use super::limits::Reached;
use super::run::{Taken, meta, plan};
use crate::case::Case;
use std::path::Path;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::Outcome;
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_record::emulator::{self, EmulatorOptions, Lbr};
use unwind_sim_record::{At, TraceRecorder};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::trace::TraceWriter;

/// Runs `program` in the emulated machine.
pub(super) fn run(
    case: &Case,
    program: &Path,
    at: At,
    processor: Processor,
    limits: &CaseLimits,
) -> Result<Taken, CaseFailure> {
    let mut program = RunningProgram::alone(program);
    program.options.args = vec![case.name.clone().into()];
    program.start_in_its_folder();
    program.options.processor = processor;

    // A case that creates processes without end must not fill the memory.
    program.options.limits.tasks = limits.tasks_max;

    // `record` takes the program with its options, but the finder of images needs the root.
    let root = program.options.root.clone();
    let options = EmulatorOptions {
        plan: plan(case, at, limits),
        lbr: Lbr::default(),
        timeout: Some(limits.timeout),
    };

    let mut writer =
        TraceWriter::new(Vec::new(), &meta(case)).map_err(|e| CaseFailure::run(case, e))?;
    let mut recorder = TraceRecorder::new(&mut writer, emulator::finder_options(&root));
    let summary = emulator::record(program, &options, &mut recorder);
    let summary = summary.map_err(|e| CaseFailure::run(case, e))?;

    // An image that cannot be read would be missing from the samples.
    if let Some(problem) = recorder.unread() {
        return Err(CaseFailure::run(case, problem));
    }

    recorder
        .write_text()
        .map_err(|e| CaseFailure::run(case, e))?;

    let points = std::mem::take(&mut recorder.points);

    // A limit that was reached explains any other end.
    let reached = match &summary.end {
        End::Timeout | End::Outcome(Outcome::StreamTimeout { .. }) => {
            Some(Reached::Time(limits.timeout))
        }
        End::Outcome(Outcome::Limit) => Some(Reached::of_plan(limits, summary.samples)),
        End::Outcome(Outcome::OutOfTasks { .. }) => Some(Reached::Tasks(limits.tasks_max)),
        _ => None,
    };

    // The notices say what was not modelled, which may be why it ended so.
    let ended = match &summary.end {
        End::Outcome(Outcome::Exited(0)) => None,
        other => {
            let notices = summary.notices.iter().map(|n| format!("; {n}"));
            Some(format!("{other}{}", notices.collect::<String>()))
        }
    };

    Ok(Taken {
        trace: writer.finish().map_err(|e| CaseFailure::run(case, e))?,
        points,
        unknown: summary.unknown,
        reached,
        ended,
    })
}
