//! `record --engine emulator`: records in the emulated machine.

use super::super::output;
use super::super::status::Status;
use super::environment::tell_left_out;
use super::{Args, Ended, LbrStorage, StatusOf, Told};
use crate::command::args::seconds;
use crate::command::emulate::CHAINS;
use anyhow::{Result, bail};
use std::sync::atomic::AtomicBool;
use unwind_sim_emulator::linux::End;
use unwind_sim_emulator::linux::{Input, Outcome, Output};
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::deadlock;
use unwind_sim_perf_lbr::Storage;
use unwind_sim_record::emulator::{self, EmulatorOptions, Lbr};
use unwind_sim_record::{At, TraceRecorder};
use unwind_sim_recordings::trace::{self, Meta, TimeUnit};

pub(super) fn run(args: &Args) -> Result<Status> {
    // Refused, not ignored: a trace made without an option that was given would mislead.
    let only_ptrace = [
        (args.pid.is_some(), "-p"),
        (args.randomize, "--randomize"),
        (args.no_children, "--no-children (here: --children none)"),
    ];
    if let Some((_, option)) = only_ptrace.iter().find(|(given, _)| *given) {
        bail!("{option} is for --engine ptrace");
    }

    let at = args.when(true)?;
    if let At::Freq(_) = at {
        bail!("--at freq: the emulated machine counts instructions, not seconds; use --at every:N");
    }

    let mut program = args.machine.program(&args.program, false)?;
    let environment = args.environment();
    // A case has none.
    let has_ours = !program.program.options.env.is_empty();
    if has_ours {
        program.program.options.env = environment.pairs();
    }
    program.program.options.observed = args.children.observed();

    // Images are looked up below `--root`, where the program finds them.
    let finder = emulator::finder_options(args.machine.root());
    args.warn_of_places(&at, &program.program, finder);
    // As natively, the program uses the terminal of this command.
    let machine = &mut program.program.options;
    machine.stdin = Input::Inherit;
    (machine.stdout, machine.stderr) = (Output::Inherit, Output::Inherit);

    // A signal ends the recording, so that the samples taken so far are written to a whole file.
    let stop = stop_on_signals();
    machine.stream_stop = stop;
    let options = EmulatorOptions {
        plan: args.plan(at, stop),
        lbr: Lbr {
            depths: args.lbr.iter().map(|depth| depth.0).collect(),
            storage: match args.lbr_storage {
                LbrStorage::Task => Storage::PerTask,
                LbrStorage::Cpu => Storage::PerContext,
            },
        },
        timeout: args.timeout.map(seconds),
    };

    let mut meta = Meta {
        engine: trace::Engine::Emulator,
        time_unit: TimeUnit::Instructions,
        ..args.meta()
    };

    let mut summary = output::trace_file(&args.output, &meta.clone(), |writer| {
        let finder = emulator::finder_options(args.machine.root());
        // The file gets its name only when this closure succeeds; after an error, the samples so
        // far are kept under another name.
        let mut recorder = TraceRecorder::new(writer, finder);
        let summary = emulator::record(program.program, &options, &mut recorder)?;
        // Code around the sampled places is known only now, so it follows the samples.
        recorder.write_text()?;
        if let Some(problem) = recorder.unread() {
            output::tell_files(std::slice::from_ref(problem), 1);
        }
        // The last metadata of a trace counts; these fields are known only now.
        meta.truth = args.truth_text(summary.instructions);
        meta.instructions = summary.instructions;
        meta.unknown_instructions = summary.unknown;
        meta.status = ended(&summary.end).wait_status();
        writer.meta(&meta)?;
        Ok(summary)
    })?;

    let end = ended(&summary.end);
    if has_ours {
        tell_left_out(&environment.left_out);
    }
    output::tell_notices(&summary.notices);

    args.tell(&Told {
        samples: summary.samples,
        ended: match end {
            Ended::Exited(status) => format!("the program exited with {status}"),
            Ended::Killed(_) => format!("the program was {}", summary.end),
            Ended::Not => summary.end.to_string(),
        },
        not_located: &summary.not_located,
        from_reached: summary.from_reached,
        instructions: summary.instructions,
        unknown: Some(summary.unknown),
    });

    // In a deadlock, the stacks of the waiting threads say why nothing can happen any more.
    if let End::Outcome(Outcome::Blocked { .. }) = summary.end {
        let engines = [spec::engine(CHAINS)?];
        let truth = |task| {
            let mut all = summary.waiting.iter();
            Some(all.find(|(waiting, _)| *waiting == task)?.1.clone())
        };
        let root = args.machine.root();
        let threads = deadlock::threads(&mut summary.process, root, &engines, &truth);
        output::tell_deadlock(&threads);
    }

    // Only now that the trace is complete: this process may end here.
    end_by_signal();
    args.machine
        .schedule
        .finish(&summary.followed, &summary.end)?;

    let status = match (args.status, end.status()) {
        // A program that was stopped has no status of its own, and then the recording has one.
        (StatusOf::Program, Some(status)) => Status::Program(status),
        _ if summary.samples == 0 || summary.end.is_not_modelled() => Status::NothingJudged,
        _ => Status::AsExpected,
    };

    Ok(status.of_machine(&summary.notices))
}

/// A flag that is set when a signal asks this process to end.
pub(super) fn stop_on_signals() -> Option<&'static AtomicBool> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return Some(unwind_sim_host::stop_on_signals());
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    None
}

/// Ends this process by the signal that asked for it.
pub(super) fn end_by_signal() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    unwind_sim_host::end_by_signal();
}

fn ended(end: &End) -> Ended {
    match end {
        End::Outcome(Outcome::Exited(status)) => Ended::Exited(*status),
        End::Outcome(Outcome::Killed { signal, .. }) => Ended::Killed((*signal).into()),
        _ => Ended::Not,
    }
}
