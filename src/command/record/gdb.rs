//! `record --engine gdb`: records a kernel through a gdb stub.

use super::super::output::{self, tell};
use super::super::status::Status;
use super::{Args, Told};
use anyhow::{Result, bail};
use unwind_sim_host as host;
use unwind_sim_record::{At, TraceRecorder, gdb};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::kernel;
use unwind_sim_recordings::trace::{self, Meta, TimeUnit};

/// The maximum number of unreadable modules that are reported.
const PROBLEMS_SHOWN: usize = 8;

pub(super) fn run(args: &Args) -> Result<Status> {
    let Some(stub) = &args.stub else {
        bail!("no stub given: --engine gdb HOST:PORT");
    };

    // A stub gives registers and memory only; symbols come from the image.
    let opened = args.kernel.options(None)?;
    let Some(kernel) = &opened.kernel else {
        bail!("--engine gdb needs --kernel VMLINUZ");
    };
    // The machine behind the stub runs already, so nothing is started here.
    if args.fake || !args.program.is_empty() || args.pid.is_some() {
        bail!("--engine gdb does not take --fake, -p or a program");
    }

    let at = match args.when(true)? {
        at @ (At::Every(_) | At::Points(_)) => at,
        _ => bail!("--engine gdb takes only --at every:N and --at SYMBOL[+OFF]"),
    };

    let image = kernel::open(kernel, &opened.kernel_files)?;
    let mut meta = Meta {
        engine: trace::Engine::Gdb,
        time_unit: TimeUnit::Instructions,
        ..args.meta()
    };

    let options = gdb::GdbOptions {
        stub: stub.clone(),
        plan: args.plan(at, Some(host::stop_on_signals())),
        kaslr: opened.kaslr,
        hold_interrupts: args.hold_interrupts,
    };

    let summary = output::trace_file(&args.output, &meta.clone(), |writer| {
        let mut recorder = TraceRecorder::new(writer, Default::default());
        // The last metadata of a trace counts, so it is written again when the counts are known.
        let summary = gdb::record(&image, kernel.path(), &options, &mut recorder)?;
        if args.truth {
            meta.truth = args.truth_text(summary.instructions);
        }
        meta.instructions = summary.instructions;
        meta.unknown_instructions = summary.unknown;
        writer.meta(&meta)?;
        Ok(summary)
    })?;

    // A stub is left, not ended: the machine behind it usually runs on.
    let ended = summary
        .ended
        .as_deref()
        .unwrap_or("the machine is still running");
    args.tell(&Told {
        samples: summary.samples,
        ended: ended.to_owned(),
        not_located: &[],
        from_reached: true,
        instructions: summary.instructions,
        unknown: args.truth.then_some(summary.unknown),
    });

    tell!(
        "{} from user space, {} and exceptions in the kernel",
        counted(summary.entries, "entry"),
        counted(summary.interrupts, "interrupt")
    );

    if summary.left_early > 0 {
        let n = summary.left_early;
        tell!("{n} unwinds that the kernel did not finish were not kept");
    }
    if summary.changed > 0 {
        let n = summary.changed;
        tell!("{n} unwinds of tasks that ran in the meantime were not kept");
    }

    for problem in summary.unread_code.iter().take(PROBLEMS_SHOWN) {
        tell!("not mapped: {problem}");
    }
    if let Some(why) = &summary.why_unreadable {
        let stops = summary.unreadable;
        tell!("{stops} stops without a sample, the first because {why}");
    }

    // Only now that the trace is complete: this process may end here.
    host::end_by_signal();

    // Recording judges nothing, so samples are all that can be expected.
    Ok(match summary.samples {
        0 => Status::NothingJudged,
        _ => Status::AsExpected,
    })
}
