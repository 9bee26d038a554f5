//! `scrub`: a recording without the program's data, to be sent.

use super::args::{KernelArgs, open_file};
use super::output::{self, tell};
use super::status::Status;
use super::stdin;
use anyhow::{Context, Result};
use std::path::PathBuf;
use unwind_sim_judge::scrub::{self, Done, Options, Written};
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::Progress;

/// Remove a program's data from a recording, so that it can be sent: environment, arguments, keys,
/// contents of files.
///
/// Of memory and registers three kinds of words are kept: those that an unwinder, with any profile,
/// fallback and start, or the proof reads; addresses of code; addresses of a stack. All others
/// become zero, and so does what else holds data: arguments of commands, raw data of tracepoints,
/// traces of the processor, and of a core everything but stacks and registers. A word that is read
/// but cannot be an address, as text cannot, is replaced by a number. Then all unwinders and doctor
/// are run on the new file; it gets its name only if they give the same as before.
///
/// A trace gives a trace, and a perf.data a perf.data without compression. A core and a capture are
/// written as a trace.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim scrub trace.bin -o send.bin
  unwind-sim scrub perf.data -o send.data --names
  unwind-sim scrub core.1234 -o send.bin")]
pub(crate) struct Args {
    #[arg(value_name = "FILE", help = stdin::help(FileKind::is_recorded), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Also replace names by numbers: of files outside of the system's folders, threads and hosts.
    /// Names of functions stay.
    #[arg(long)]
    names: bool,
    /// Look for images below this folder first. One that is not there is taken from its original
    /// path if its build ID is the recorded one.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    kernel: KernelArgs,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let open = args.kernel.options(args.symfs.clone())?;
    let input = open_file(&args.path)?;
    let kind = input.kind();

    // The output is of another kind than the input, which its name may not say.
    if kind.is_converted() {
        tell!(
            "{}: {} is scrubbed into a trace",
            args.path.printable(),
            kind.description()
        );
    }

    let mut progress = Progress::new("samples", false);
    let options = Options { names: args.names };
    let done = scrub::scrub(&input, &open, &args.output, options, &mut |n| {
        progress.tell(n);
    });
    // Erased before errors and notes are printed.
    drop(progress);
    let done = done.with_context(|| args.path.printable().to_string())?;

    output::tell_problems(&args.path, &done.gaps.problems);
    output::tell_left_out(&args.path, &done.gaps);
    for line in lines(&done) {
        tell!("{}: {line}", args.output.printable());
    }

    Ok(match done.checked {
        0 => Status::NothingJudged,
        _ => Status::AsExpected,
    })
}

/// What was kept and what was left out.
fn lines(done: &Done) -> Vec<String> {
    // People who send the file want to know what of their data is still in it, so each kind is
    // counted.
    let kept = &done.kept;
    let what = match done.written {
        Written::Trace => "a trace",
        Written::PerfData => "a perf.data",
    };

    let mut lines = vec![
        format!(
            "{what} of {}, in which all unwinders and doctor give the same as before",
            counted(done.checked, "sample")
        ),
        format!(
            "{} of memory were not zero: kept {} that are read, {} of code and {} of stacks; {} \
             are replaced, {} became zero",
            counted(kept.words, "word"),
            kept.read,
            counted(kept.code, "address"),
            kept.stack,
            kept.replaced,
            kept.zeroed
        ),
        format!(
            "{} became zero or another number",
            counted(kept.registers, "register")
        ),
    ];

    // To replace such a word would change the walk that reads it.
    if kept.as_they_are > 0 {
        lines.push(format!(
            "in {} words that cannot be addresses decide a walk: they are kept as they are, look at \
             them before you send the file",
            counted(kept.as_they_are, "sample")
        ));
    }

    if done.words > 0 {
        lines.push(format!(
            "{} of command lines left out",
            counted(done.words, "word")
        ));
    }

    let left_out = &done.left_out;
    // Readers of the file may miss these records, so their types are listed.
    if !left_out.records.is_empty() {
        let all = left_out.records.iter();
        let all: Vec<String> = all
            .map(|(kind, count)| format!("{count} of type {kind}"))
            .collect();
        lines.push(format!("records left out: {}", all.join(", ")));
    }
    if !left_out.features.is_empty() {
        let all: Vec<String> = left_out.features.iter().map(u8::to_string).collect();
        lines.push(format!("feature sections left out: {}", all.join(", ")));
    }

    if left_out.damaged > 0 {
        lines.push(format!(
            "{} left out",
            counted(left_out.damaged, "damaged record")
        ));
    }
    // Only with --names: without it names stay, which the reader may not want to send.
    if done.names > 0 {
        lines.push(format!("{} replaced", counted(done.names, "name")));
    }

    lines
}
