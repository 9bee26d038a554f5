//! `step`: the interactive stepper, its scripts, and the timeline as JSON.

use super::again::Given;
use super::args::open_file;
use super::output::{self, tell};
use super::states::{self, Explored, Shown, StateArgs};
use super::status::Status;
use super::stdin;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_judge::extract;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_view::json::Line;
use unwind_sim_view::timeline;

#[cfg(feature = "terminal")]
mod editor;
#[cfg(feature = "terminal")]
mod terminal;
#[cfg(feature = "terminal")]
pub(crate) use terminal::demo;

/// Step through a program or a kernel in the emulated machine, forwards and backwards, or through the
/// samples of a recording, with every unwinder's walk beside the true chain.
///
/// In the terminal, `?` lists the keys. A program gets no standard input, and what it writes is not
/// shown.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim step corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s
  unwind-sim step --from main -- /bin/ls
  unwind-sim step trace.bin --unwinder orc --regs hw,fake:v5.2
  unwind-sim step --json --from 10 --count 5 trace.bin
  unwind-sim step --kernel vmlinuz --init ./init --from asm_exc_page_fault
  unwind-sim step --kernel vmlinuz --nmi at:error_entry --from asm_exc_nmi \
      --extract nmi.bin --scrub
  echo 's s c' | unwind-sim step --script - --size 80x24 \\
      corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s")]
pub(crate) struct Args {
    /// The first state: a number of instructions executed or of a sample, or a function. Without it
    /// and --walk, the stepper opens at the first finding of an unwinder whose errors count, or else of
    /// any; 0 is the start, where --json begins.
    #[arg(long, value_name = "N|FUNCTION")]
    from: Option<String>,
    /// Write a window of states as JSON.
    #[arg(long, conflicts_with = "script")]
    json: bool,
    /// With --json: the number of states.
    #[arg(long, value_name = "M", default_value_t = timeline::WINDOW, requires = "json")]
    count: u64,
    /// The walk that is told: an unwinder or, with --regs, UNWINDER@START.
    #[arg(long, value_name = "U[@START]", conflicts_with = "json")]
    walk: Option<String>,
    /// Show the first K steps of that walk.
    #[arg(long, value_name = "K", requires = "walk")]
    at_step: Option<usize>,
    /// Write states as a small recording, to keep or to share, instead of showing them: that of --from, or
    /// those of --states.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "script", "walk"])]
    extract: Option<PathBuf>,
    /// With --extract: the numbers of the states, in order.
    #[arg(
        long = "states",
        value_name = "N,N..",
        value_delimiter = ',',
        requires = "extract",
        conflicts_with = "from"
    )]
    numbers: Vec<u64>,
    /// With --extract: zero what no unwinder reads, and keep of a kernel's image only what walks use.
    #[arg(long, requires = "extract")]
    scrub: bool,
    #[command(flatten)]
    play: PlayArgs,
    #[command(flatten)]
    states: StateArgs,
    #[arg(value_name = "TRACE|CASE", help = stdin::help(FileKind::is_recording), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// A program and its arguments.
    #[arg(value_name = "PROG", last = true, conflicts_with = "path")]
    program: Vec<OsString>,
}

/// Keys from a file instead of the terminal.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct PlayArgs {
    /// Play the keys in this file (`-`: standard input), and print the screen after each line.
    /// Keys are characters and names (Enter, Up, PageDown ..), separated by spaces; characters in
    /// double quotes are typed; `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// With --script: the size of the screen.
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "100x32", value_parser = size, requires = "script")]
    size: (u16, u16),
}

impl PlayArgs {
    /// Whether there is a script.
    #[cfg(feature = "terminal")]
    pub(crate) fn is_given(&self) -> bool {
        self.script.is_some()
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let number = |s: &str| s.parse().ok().filter(|n| (1..=1000).contains(n));
    let parsed = text.split_once('x');
    let parsed = parsed.and_then(|(columns, rows)| Some((number(columns)?, number(rows)?)));
    parsed.ok_or_else(|| format!("`{text}` is not a size such as 80x24"))
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let Some(subject) = args.states.subject(args.path.as_deref(), &args.program)? else {
        bail!(
            "nothing to step through: unwind-sim step TRACE|CASE, unwind-sim step -- PROG, or unwind-sim \
             step --kernel FILE"
        )
    };
    let keys = args.play.script.as_deref();
    if keys == Some(std::path::Path::new("-"))
        && args.path.as_deref().is_some_and(stdin::is_named_by)
    {
        bail!("standard input cannot be both the recording and the script");
    }
    if args.json {
        let file = args.path.as_deref().map(open_file).transpose()?;
        return (args.states).open(&subject, file.as_ref(), |shown| json(args, shown));
    }
    if let Some(output) = &args.extract {
        let file = args.path.as_deref().map(open_file).transpose()?;
        let write = |shown: Shown<'_>| write_states(args, shown, output);
        return args.states.open(&subject, file.as_ref(), write);
    }
    #[cfg(feature = "terminal")]
    return terminal::run(args, given, &subject);
    #[cfg(not(feature = "terminal"))]
    {
        let _ = given;
        bail!("this program was built without the feature `terminal`; --json writes the states")
    }
}

/// Writes single states as a recording.
fn write_states(args: &Args, mut shown: Shown<'_>, output: &Path) -> Result<Status> {
    let numbers = match &*args.numbers {
        [] => vec![shown.first(args.from.as_deref())?],
        numbers => numbers.to_vec(),
    };
    if !numbers.is_sorted() {
        bail!("--states: the numbers are not in order");
    }
    let extracted = extract::extract_states(&mut shown.states, &numbers, args.scrub)?;
    extracted.write_trace(output)?;
    let kept = extracted.bytes_kept();
    tell!("{}: {kept} nonzero bytes of memory", output.printable());
    Ok(Status::AsExpected)
}

/// Writes a window of states.
fn json(args: &Args, mut shown: Shown<'_>) -> Result<Status> {
    let first = shown.first(args.from.as_deref())?;
    let Explored {
        about,
        mut states,
        mut builder,
        index,
    } = shown.explored()?;
    let window = (first, args.count);
    let timeline = timeline::window(about, &mut states, &mut builder, &index, window)?;
    if timeline.states.is_empty() && args.count > 0 {
        bail!(states::no_state(first, &states));
    }
    let mut out = output::raw_stdout();
    Line::Timeline(Box::new(timeline)).write(&mut out)?;
    out.flush()?;
    Ok(states::status(&states))
}
