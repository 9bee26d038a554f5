//! `import`: converts other tools' recordings to a trace.

use super::again::{COMPARE, Given};
use super::args::{KernelArgs, ProgramArgs, open_file};
use super::output;
use super::status::Status;
use super::stdin;
use anyhow::{Context, Result};
use std::path::PathBuf;
use unwind_sim_judge::shell::path_argument;
use unwind_sim_recordings::convert;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::gaps::Gaps;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::trace::OutputOptions;

/// Import a perf.data, an ELF core, a kernel capture or a vmcore into a trace. Its truth is
/// unknown; chains that perf recorded are kept for comparison.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim import perf.data -o trace.bin
  unwind-sim import core.1234 -o trace.bin --symfs /mnt/target
  unwind-sim import points.json -o trace.bin --kernel vmlinuz
  unwind-sim import vmcore -o trace.bin --kernel vmlinuz")]
pub(crate) struct Args {
    #[arg(value_name = "FILE", help = stdin::help(FileKind::is_imported), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The trace to write.
    #[arg(short, long, value_name = "FILE", default_value = "trace.bin")]
    output: PathBuf,
    /// Look for images below this folder first. One that is not there is taken from its original
    /// path if its build ID is the recorded one.
    #[arg(long, visible_alias = "sysroot", value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    kernel: KernelArgs,
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let input = open_file(&args.path)?;
    let mut options = args.kernel.options(args.symfs.clone())?;
    args.program.set(&mut options)?;

    let mut meta = convert::meta(&input);
    // An import can be made again from its input, so it is compressed less and faster.
    let fast = OutputOptions::fast();
    let imported = output::trace_file_as(&args.output, &meta.clone(), fast, |writer| {
        let imported = convert::into(&input, &options, writer)
            .with_context(|| args.path.printable().to_string())?;
        // What is left out is known only when all is read.
        meta.lost_samples = imported.skipped.values().sum();
        writer.meta(&meta)?;
        Ok(imported)
    })?;

    output::tell_trace(imported.samples, &args.output, "");
    output::tell_files(&imported.file_problems, imported.file_problem_count);
    let samples = imported.samples;
    let gaps = Gaps::from(imported);
    output::tell_problems(&args.path, &gaps.problems);
    output::tell_left_out(&args.path, &gaps);

    // The options of this run that the next command needs, too, are repeated in it.
    let next = given.command(&COMPARE, &[path_argument(&args.output)], &[]);
    output::tell_next(samples, &next);
    Ok(if samples == 0 {
        Status::NothingJudged
    } else {
        Status::AsExpected
    })
}
