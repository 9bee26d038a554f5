//! `record --engine ptrace`: records on this machine's processor.

use super::super::output;
use super::super::status::Status;
use super::environment::{Environment, tell_left_out};
use super::{Args, Ended, StatusOf, Told};
use crate::command::machine::{in_path, is_program, not_in_path};
use anyhow::{Result, bail};
use std::path::Path;
use unwind_sim_host as host;
use unwind_sim_host::{Launch, ProgramEnd, RecorderOptions, Target};
use unwind_sim_record::{At, TraceRecorder, emulator, ptrace};
use unwind_sim_recordings::file_kind::is_case;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::trace::{self, Meta, TimeUnit};

fn options(args: &Args, at: At, environment: Environment) -> Result<RecorderOptions> {
    let target = match (args.pid, args.program.split_first()) {
        (Some(pid), _) => Target::Attach(pid),
        (None, Some((path, rest))) => Target::Run(Launch {
            path: path.clone(),
            args: rest.to_vec(),
            env: Some(environment.variables),
            ..Launch::default()
        }),
        (None, None) => bail!("no program given; write it after --"),
    };
    Ok(RecorderOptions {
        children: !args.no_children,
        randomize: args.randomize,
        ..RecorderOptions::new(target, args.plan(at, Some(host::stop_on_signals())))
    })
}

pub(super) fn run(args: &Args) -> Result<Status> {
    if let Some(option) = args.machine.given() {
        bail!("{option} is for --engine emulator");
    }
    if args.timeout.is_some() {
        bail!("--timeout is for --engine emulator");
    }

    // The defaults differ: with the truth every instruction is stepped, so samples are by
    // instructions; otherwise by time.
    let at = args.when(args.truth)?;
    if let Some(path) = args.program.first().map(Path::new) {
        may_run(path)?;
    }
    // A place that does not exist would be noticed only at the end of the run.
    if !args.program.is_empty() {
        let program = args.machine.program(&args.program, false)?;
        args.warn_of_places(
            &at,
            &program.program,
            emulator::finder_options(Path::new("/")),
        );
    }

    // Only single steps count instructions; without them, time is that of the clock.
    let steps = args.truth || at.needs_steps();
    let environment = args.environment();
    // `options` takes the environment, but what it leaves out is reported only after the run.
    let left_out = environment.left_out.clone();
    let options = options(args, at, environment)?;

    let mut meta = Meta {
        engine: trace::Engine::Ptrace,
        time_unit: if steps {
            TimeUnit::Instructions
        } else {
            TimeUnit::Nanoseconds
        },
        ..args.meta()
    };

    let summary = output::trace_file(&args.output, &meta.clone(), |writer| {
        let mut recorder = TraceRecorder::new(writer, ptrace::finder_options());
        let summary = host::record(&options, &mut recorder)?;
        // Code around the sampled places is known only now, so it follows the samples.
        recorder.write_text()?;
        if let Some(problem) = recorder.unread() {
            output::tell_files(std::slice::from_ref(problem), 1);
        }
        // The last metadata of a trace counts; these fields are known only now.
        if args.truth {
            meta.truth = args.truth_text(summary.instructions);
        }
        meta.instructions = summary.instructions;
        meta.unknown_instructions = summary.tracker.unknown;
        meta.status = ended(summary.program).wait_status();
        writer.meta(&meta)?;
        Ok(summary)
    })?;

    let end = ended(summary.program);
    // An attached process keeps the environment that it has.
    if args.pid.is_none() {
        tell_left_out(&left_out);
    }
    args.tell(&Told {
        samples: summary.samples,
        ended: end_text(summary.program),
        not_located: &summary.not_located,
        from_reached: summary.from_reached,
        instructions: summary.instructions,
        unknown: args.truth.then_some(summary.tracker.unknown),
    });

    // Only now that the trace is complete: this process may end here.
    host::end_by_signal();

    // A program that still runs has no status; then that of the recording is returned.
    if let (StatusOf::Program, Some(status)) = (args.status, end.status()) {
        return Ok(Status::Program(status));
    }
    Ok(if summary.samples == 0 {
        Status::NothingJudged
    } else {
        Status::AsExpected
    })
}

/// Checks the program before anything is written.
fn may_run(path: &Path) -> Result<()> {
    if path.is_file() && is_case(path) {
        bail!(
            "{} is a case; run it with --engine emulator",
            path.printable()
        );
    }
    if path.components().count() > 1 {
        return is_program(path);
    }
    match in_path(path, Path::new("/")) {
        Some(found) => is_program(&found),
        None => not_in_path(path),
    }
}

fn ended(end: ProgramEnd) -> Ended {
    match end {
        ProgramEnd::Exited(status) => Ended::Exited(status),
        ProgramEnd::Killed(signal) => Ended::Killed(signal),
        ProgramEnd::RunsOn => Ended::Not,
    }
}

fn end_text(end: ProgramEnd) -> String {
    match end {
        ProgramEnd::Exited(status) => format!("the program exited with {status}"),
        ProgramEnd::Killed(signal) => format!("signal {signal} killed the program"),
        ProgramEnd::RunsOn => "the program is still running".to_owned(),
    }
}
