//! Output: data goes to stdout, everything else to stderr, and a closed pipe is not an error.

use super::escape::Escaper;
use super::words;
use anyhow::{Context, Result};
#[cfg(feature = "machine")]
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::Path;
use unwind_sim_judge::run::RunError;
use unwind_sim_judge::shell::quoted;
#[cfg(feature = "machine")]
use unwind_sim_judge::verify::deadlock::DeadlockedThread;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_recordings::gaps::{Gaps, Problem};
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::trace::{Meta, OutputOptions, TraceFile};
use unwind_sim_unwind::printable::{printable, printable_lines};

/// `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}

impl Color {
    /// Applies the choice to all output of this process.
    pub(crate) fn apply(self) {
        let choice = match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Whether text on standard output is coloured.
pub(crate) fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// The size of the buffers of standard output.
const BUFFER_BYTES: usize = 1 << 16;

/// Standard output for text and JSON Lines: buffered, and coloured if that is wanted. What is not
/// printable is escaped.
pub(crate) fn stdout() -> Box<dyn Write> {
    let buffered = std::io::BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout());
    if is_coloured() {
        Box::new(escaped(super::paint::Painter::new(buffered)))
    } else {
        Box::new(escaped(buffered))
    }
}

/// Like [`stdout`], but never coloured.
pub(crate) fn plain_stdout() -> impl Write {
    escaped(std::io::stdout())
}

/// Standard output for formats that other programs read. Bytes pass unchanged, except on a terminal,
/// where a person reads them.
pub(crate) fn raw_stdout() -> Box<dyn Write> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() {
        Box::new(escaped(stdout))
    } else {
        Box::new(std::io::BufWriter::with_capacity(BUFFER_BYTES, stdout))
    }
}

/// A writer for text that a person reads. It gets large pieces.
pub(crate) fn escaped<W: Write>(inner: W) -> impl Write {
    std::io::BufWriter::with_capacity(BUFFER_BYTES, Escaper::new(inner))
}

/// Prints a line for a person on standard error, with what is not printable escaped.
macro_rules! tell {
    ($($arg:tt)*) => {
        $crate::command::output::tell_line(&format!($($arg)*))
    };
}
pub(crate) use tell;

/// [`tell!`].
pub(crate) fn tell_line(line: &str) {
    tell_text(&(printable(line) + "\n"));
}

/// Prints lines for a person on standard error, with what is not printable escaped.
pub(crate) fn tell_text(lines: &str) {
    // Where nobody reads, there is nothing to tell.
    let _ = std::io::stderr().write_all(printable_lines(lines).as_bytes());
}

/// Whether the reader of our output went away, which is not an error.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |kind| kind == Some(std::io::ErrorKind::BrokenPipe);
    error.chain().any(|cause| {
        let kind = match cause.downcast_ref() {
            Some(RunError::Output(error)) => Some(error.kind()),
            Some(RunError::Json(error)) => error.io_error_kind(),
            _ => None,
        };
        let plain = cause.downcast_ref().map(std::io::Error::kind);
        let json = cause
            .downcast_ref()
            .and_then(serde_json::Error::io_error_kind);
        broken(kind) || broken(plain) || broken(json)
    })
}

/// The command that reproduces this output: the command line that runs, quoted for a shell where
/// needed.
pub(crate) fn command_line() -> String {
    let args = words::given();
    std::iter::once("unwind-sim".to_owned())
        .chain(args.into_iter().map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Calls `write` with a new file, or with `stdout` if there is no path.
pub(crate) fn to_file_or<T>(
    path: Option<&Path>,
    mut stdout: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let Some(path) = path else {
        let done = write(&mut stdout)?;
        stdout.flush()?;
        return Ok(done);
    };
    let cannot = || format!("cannot write {}", path.printable());
    let mut file = OutputFile::create(path).with_context(cannot)?;
    let done = write(&mut file)?;
    file.finish().with_context(cannot)?;
    Ok(done)
}

/// [`to_file_or`] for text that a person reads: what is not printable is escaped in the file, too.
pub(crate) fn to_text_file_or<T>(
    path: Option<&Path>,
    mut stdout: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    if path.is_none() {
        let done = write(&mut stdout)?;
        stdout.flush()?;
        return Ok(done);
    }
    to_file_or(path, std::io::sink(), |file| {
        let mut out = escaped(file);
        let done = write(&mut out)?;
        out.flush()?;
        Ok(done)
    })
}

/// Writes a whole file with [`output_file::write`].
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    unwind_sim_recordings::output_file::write(path, bytes)
        .with_context(|| format!("cannot write {}", path.printable()))
}

#[cfg(feature = "machine")]
/// Calls `record` with a new trace. A trace without a sample is not written. After an error the
/// samples recorded so far are kept as `NAME.partial`, which is reported.
pub(crate) fn trace_file<T>(
    path: &Path,
    meta: &Meta,
    record: impl FnOnce(&mut TraceFile) -> Result<T>,
) -> Result<T> {
    trace_file_as(path, meta, OutputOptions::default(), record)
}

/// [`trace_file`] with options.
pub(crate) fn trace_file_as<T>(
    path: &Path,
    meta: &Meta,
    options: OutputOptions,
    record: impl FnOnce(&mut TraceFile) -> Result<T>,
) -> Result<T> {
    let mut file = TraceFile::create(path, meta, options)?;

    // Without a sample the file is dropped, and an older one of that name stays.
    let done = record(&mut file).and_then(|done| {
        if file.samples() > 0 {
            file.finish()
                .with_context(|| format!("cannot write {}", path.printable()))?;
        }
        Ok(done)
    });

    // What was recorded before an error may be all that there is of a rare run.
    if done.is_err() {
        let samples = file.samples();
        if let Some(partial) = file.abandon() {
            let samples = counted(samples, "sample");
            tell!(
                "{samples} recorded before the error: {}",
                partial.printable()
            );
        }
    }

    done
}

#[cfg(feature = "machine")]
/// Reports what is not modelled and made a call of the program fail.
pub(crate) fn tell_notices<N: Display>(notices: &[N]) {
    for notice in notices {
        tell!("unwind-sim: {notice}");
    }
}

#[cfg(feature = "machine")]
/// Reports a deadlock: the threads that wait for what cannot happen.
pub(crate) fn tell_deadlock(threads: &[DeadlockedThread]) {
    tell_text(&unwind_sim_view::deadlock::text(threads));
}

/// Reports how many samples a trace has and how the recording `ended` (may be empty).
pub(crate) fn tell_trace(samples: u64, path: &Path, ended: &str) {
    let ended = match ended {
        "" => String::new(),
        _ => format!("; {ended}"),
    };
    let shown = path.printable();
    match samples {
        0 => tell!("no sample was taken, so {shown} was not written{ended}"),
        n => {
            tell!("{} in {shown}{ended}", counted(n, "sample"));
        }
    }
}

/// The maximum number of problems of one kind that are listed; the rest are counted.
pub(crate) const TOLD_MAX: usize = 10;

/// Reports why parts of the recording at `path` cannot be read. What is missing at the end of the
/// file has one cause, so it is one message.
pub(crate) fn tell_problems(path: &Path, problems: &[Problem]) {
    let (cut, damaged): (Vec<_>, Vec<_>) = problems.iter().partition(|p| p.is_cut());
    if let Some((first, others)) = cut.split_first() {
        let more = match others.len() as u64 {
            0 => String::new(),
            n => format!("; parts of it that are missing too: {n}"),
        };
        let named = named(path, first);
        tell!("the recording was cut short; what is there is used: {named}{more}");
    }
    for problem in damaged.iter().take(TOLD_MAX) {
        tell!("{}", named(path, problem));
    }
    let more = damaged.len().saturating_sub(TOLD_MAX) as u64;
    if more > 0 {
        tell!("and {}", counted(more, "more problem"));
    }
}

/// A problem with the recording at `path`, with its file. Traces name theirs themselves.
fn named(path: &Path, problem: &Problem) -> String {
    match problem {
        Problem::Trace(cut) => cut.to_string(),
        Problem::Import(problem) => format!("{}: {problem}", path.printable()),
    }
}

/// Reports what was found missing while the recording at `path` was read.
pub(crate) fn tell_left_out(path: &Path, gaps: &Gaps) {
    // That records are missing at the end of a file that was cut short was said before.
    let is_cut = gaps.problems.iter().any(Problem::is_cut);
    let later = gaps.later.iter().filter(|p| !(is_cut && p.is_cut()));
    tell_problems(path, &later.cloned().collect::<Vec<_>>());
    for (why, n) in &gaps.skipped {
        tell!("{n} left out: {}", why.description());
    }
}

/// Reports image files that were not found or could not be read: the first ones, and how many
/// there are in all.
pub(crate) fn tell_files(problems: &[FileProblem], count: u64) {
    for problem in problems.iter().take(TOLD_MAX) {
        tell!("{problem}");
    }
    let more = count.saturating_sub(TOLD_MAX as u64);
    if more > 0 {
        tell!("and {}", counted(more, "more file"));
    }
}

/// Reports the next command for a trace that has samples.
pub(crate) fn tell_next(samples: u64, command: &str) {
    if samples > 0 {
        tell!("next: {command}");
    }
}

/// Reports what could not be read of the recording at `path`. What is there was used, so it is not
/// an error: the same holds for every command.
#[cfg(feature = "perf")]
pub(crate) fn tell_summary(path: &Path, summary: &unwind_sim_perf_data::Summary) {
    use unwind_sim_perf_data::Stop;
    use unwind_sim_recordings::import::ImportError;
    let stop = match summary.stop {
        Stop::Error(error) => Some(error),
        Stop::End | Stop::Asked => None,
    };
    let problems = summary.cut.into_iter().chain(stop);
    let problems: Vec<Problem> = problems
        .map(|error| ImportError::Perf(error).into())
        .collect();
    tell_problems(path, &problems);
    if let Some(error) = summary.first_skipped {
        let records = counted(summary.skipped, "record");
        tell!("{records} left out, the first: {error}");
    }
}
