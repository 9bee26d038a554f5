//! `record --kernel`: boots a kernel, and records it where it unwinds itself.

use super::emulator::{end_by_signal, stop_on_signals};
use super::{Args, Engine, StatusOf};
use crate::command::args::seconds;
use crate::command::boot::{BootArgs, BootFiles};
use crate::command::output::{self, tell};
use crate::command::status::Status;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use unwind_sim_judge::shell::{quoted, quoted_path};
use unwind_sim_record::answers::{self, AnswersOptions, KERNEL_PART, Summary};
use unwind_sim_record::boot::ObservedFrom;
use unwind_sim_record::emulate::Bounds;
use unwind_sim_record::kernel_stacks::KernelPlaces;
use unwind_sim_record::{At, TraceRecorder};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_recordings::trace::{self, Meta};

/// Maximum size of a console's text that is kept, bytes.
const CONSOLE_LOG_MAX: usize = 64 << 20;

/// Whether a kernel is booted: a first process is given, or a kernel with nothing else that could run.
pub(super) fn is_booted(args: &Args) -> bool {
    let is_alone = args.stub.is_none() && args.pid.is_none() && args.engine != Some(Engine::Gdb);
    args.boot.has_process() || args.kernel.is_given() && is_alone
}

/// Refuses what does not go with a kernel that is booted. Returns its image.
fn image(args: &Args) -> Result<&Path> {
    let Some(image) = args.kernel.image() else {
        bail!(
            "--kernel names a version here; what is booted is an image: unwind-sim record --kernel FILE \
             --init PROG"
        );
    };
    match args.engine {
        Some(Engine::Gdb) => bail!(
            "--init and --initrd boot a kernel in the emulated machine; the kernel behind a stub runs \
             already: unwind-sim record --engine gdb HOST:PORT --kernel {}",
            quoted_path(image)
        ),
        Some(Engine::Ptrace) => {
            bail!("--engine ptrace runs programs; a kernel is booted in the emulated machine")
        }
        Some(Engine::Emulator) | None => {}
    }
    if let Some(program) = args.program.first() {
        bail!(
            "--kernel boots a kernel, which starts the program of --init: unwind-sim record --kernel {} \
             --init {}",
            quoted_path(image),
            quoted(program)
        );
    }
    let options = [
        (args.stub.is_some(), "a stub"),
        (args.pid.is_some(), "-p"),
        (args.from.is_some(), "--from"),
        (args.fake, "--fake"),
        (args.hold_interrupts, "--hold-interrupts"),
        (!args.lbr.is_empty(), "--lbr"),
        (args.no_children, "--no-children"),
        (args.children.is_given(), "--children"),
        (args.keep_env, "--keep-env"),
        (args.randomize, "--randomize"),
        (args.status != StatusOf::Recording, "--status"),
    ];
    let given = options.iter().find(|(given, _)| *given);
    let option = given.map(|(_, option)| *option);
    let of_program = args.machine.given_for_program();
    let of_recording = args.kernel.given_for_recording();
    if let Some(option) = option.or(of_program).or(of_recording) {
        bail!(
            "{option} does not go with a kernel that is booted; with --kernel there are --init, --initrd, \
             --append, --memory, --console-input, --kaslr, --cpu, --seed, --clock, --max-samples, \
             --max-instructions and --timeout"
        );
    }
    if args.at.as_deref().is_some_and(|at| at != KERNEL_PART) {
        bail!("a kernel that is booted is recorded where it unwinds itself: --at {KERNEL_PART}");
    }
    Ok(image)
}

pub(super) fn run(args: &Args) -> Result<Status> {
    let path = image(args)?;
    let files = BootArgs::of(path, args.kernel.offset(), &args.boot).open()?;
    let image = files.image()?;
    let Some(places) = KernelPlaces::of(&image, files.slide()) else {
        bail!(
            "{} has no symbols of the code that switches between tasks (__switch_to_asm), without which \
             the stacks of a kernel cannot be told apart; a kernel with CONFIG_KALLSYMS has them",
            path.printable()
        );
    };

    let machine = &args.machine;
    let clock = u64::try_from(machine.clock()).context("--clock")?;
    let boot = files.boot(machine.cpu().processor(), machine.seed(), clock);
    // A signal ends the recording, so that the samples taken so far are written to a whole file.
    let plan = args.plan(At::Points(Vec::new()), stop_on_signals());
    let options = AnswersOptions {
        image: &image,
        path,
        places: &places,
        is_only_perf: args.at.is_some(),
        from: match args.from_init {
            true => ObservedFrom::FirstProcess,
            false => ObservedFrom::Start,
        },
        plan: &plan,
        bounds: Bounds {
            instructions_max: args.max_instructions.unwrap_or(u64::MAX),
            timeout: args.timeout.map(seconds),
        },
    };
    let mut meta = Meta {
        engine: trace::Engine::Emulator,
        ..args.meta()
    };

    let mut lines = 0;
    let mut progress = Progress::new("pieces of the console", false);
    let mut log = Vec::new();
    let is_kept = args.console_log.is_some();
    let mut console = |text: &[u8]| -> io::Result<()> {
        lines += 1;
        progress.tell(lines);
        if is_kept && log.len() < CONSOLE_LOG_MAX {
            log.extend_from_slice(text);
        }
        Ok(())
    };
    let summary = output::trace_file(&args.output, &meta.clone(), |writer| {
        let mut recorder = TraceRecorder::new(writer, Default::default());
        let summary = answers::record(&boot, &options, &mut recorder, &mut console)?;
        // The last metadata of a trace counts; these fields are known only now.
        let from = match args.from_init {
            true => "from the first process",
            false => "from the start",
        };
        meta.truth = format!("{from}, of the kernel");
        meta.instructions = summary.truth.instructions;
        meta.unknown_instructions = summary.truth.unknown;
        writer.meta(&meta)?;
        Ok(summary)
    })?;
    drop(progress);
    if let Some(path) = &args.console_log {
        output::to_file_or(Some(path), io::sink(), |out| {
            Ok(io::Write::write_all(out, &log)?)
        })?;
    }
    tell_end(args, &files, &summary);

    // Only now that the trace is complete: this process may end here.
    end_by_signal();
    Ok(match summary.samples {
        0 => Status::NothingJudged,
        _ => Status::AsExpected,
    })
}

fn tell_end(args: &Args, files: &BootFiles, summary: &Summary) {
    let run = &summary.boot;
    let place = run.end.rip().and_then(|rip| files.place(rip));
    let place = place.map_or_else(String::new, |place| format!(", in {place}"));
    let ended = format!(
        "{}{place}, after {} and {:.3} s of the kernel's time",
        run.end,
        counted(run.instructions, "instruction"),
        run.now as f64 / 1e9
    );
    output::tell_trace(summary.samples, &args.output, &ended);
    if summary.samples == 0 || !run.end.is_end_of_kernel() {
        let lines = run.last_lines.iter();
        let text = lines.fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "  {line}");
            text
        });
        output::tell_text(&format!("the console's last lines:\n{text}"));
    }

    let of_perf = summary.samples - summary.deferred - summary.walks - summary.traces;
    tell!(
        "{} of perf with registers of hardware, {} with made-up ones",
        counted(of_perf - summary.fake, "sample"),
        summary.fake
    );
    if summary.walks + summary.traces > 0 {
        tell!(
            "{} of other walks, {} of those that were printed",
            counted(summary.walks, "sample"),
            summary.traces
        );
    }
    tell!(
        "the true chain of {} is complete",
        counted(summary.known, "sample")
    );
    if summary.helpers > 0 {
        tell!(
            "{} given to BPF programs, {} of them as the callchain made for them",
            counted(summary.helpers, "stack"),
            summary.helpers_same
        );
    }
    if summary.deferred > 0 {
        let n = summary.deferred;
        tell!("{n} samples are of user space, whose part of callchains was left for later");
    }
    let truth = &summary.truth;
    tell!(
        "{} of the kernel, truth unknown at {} of them",
        counted(truth.instructions, "instruction"),
        truth.unknown
    );
    if let Some(why) = &summary.why_unreadable {
        let stops = summary.unreadable;
        tell!("{stops} samples were not kept, the first because {why}");
    }
    if summary.left_early > 0 {
        let n = summary.left_early;
        tell!("{n} samples that the kernel did not finish were not kept");
    }
    let file = quoted_path(&args.output);
    output::tell_next(
        summary.samples,
        &format!("unwind-sim compare {file} --unwinder orc:kernel"),
    );
}
