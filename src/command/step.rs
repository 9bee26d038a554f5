//! `step`: the interactive stepper, its scripts, and the timeline as JSON.

use super::again::Given;
use super::args::{KernelArgs, WalkArgs};
use super::machine::MachineOptions;
use super::output;
use super::status::Status;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::{self, FileKind};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::shell::quoted;
use unwind_sim_judge::states::{Direction, Index, ProgramIndex, States, Target};
use unwind_sim_judge::verify::UNWINDERS_MAX;
use unwind_sim_judge::{case, cases, compare::GroupBy, spec, unwinders};
use unwind_sim_record::reversible::Reversible;
use unwind_sim_unwind::start::Variant;
use unwind_sim_view::json::Line;
use unwind_sim_view::timeline::{self, About, Builder};

#[cfg(feature = "terminal")]
mod terminal;

/// The number of bytes of each stack that a state of a program has.
const STACK_BYTES: u64 = 64 << 10;
/// The number of bytes that are kept of what the program writes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The unwinders that are shown by default.
const UNWINDERS: [&str; 5] = ["dwarf", "sframe", "orc", "fp", "guess"];

/// Step through a program in the emulated machine, forwards and backwards, or through the samples
/// of a recording, with every unwinder's walk beside the true chain.
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
  echo 's s c' | unwind-sim step --script - --size 80x24 corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s")]
pub(crate) struct Args {
    /// The first state: a number of instructions executed or of a sample, or a function.
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
    /// Play the keys in this file (`-`: standard input), and print the screen after each line.
    /// Keys are characters and names (Enter, Up, PageDown ..), separated by spaces; characters in
    /// double quotes are typed; `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// With --script: the size of the screen.
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "100x32", value_parser = size, requires = "script")]
    size: (u16, u16),
    /// Of a case: step through its sample points instead of all instructions. That is the default
    /// for a kernel's cases, and with fake registers.
    #[arg(long)]
    samples: bool,
    /// Of a recording: look for images below this folder first.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    walks: WalkArgs,
    /// Stop after N instructions.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    max_instructions: u64,
    /// Assemble the case with the defect in its header.
    #[arg(long)]
    defect: bool,
    #[command(flatten)]
    machine: MachineOptions,
    /// A trace, a perf.data, an ELF core, a capture, or a case (.s).
    #[arg(value_name = "TRACE|CASE")]
    path: Option<PathBuf>,
    /// A program and its arguments.
    #[arg(value_name = "PROG", last = true, conflicts_with = "path")]
    program: Vec<OsString>,
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let number = |s: &str| s.parse().ok().filter(|n| (1..=1000).contains(n));
    let parsed = text.split_once('x');
    let parsed = parsed.and_then(|(columns, rows)| Some((number(columns)?, number(rows)?)));
    parsed.ok_or_else(|| format!("`{text}` is not a size such as 80x24"))
}

/// The recordings whose samples are the states; anything else is run.
const SAMPLED: [FileKind; 4] = [
    FileKind::Trace,
    FileKind::PerfData,
    FileKind::Core,
    FileKind::Capture,
];

/// The number of instructions that are explored for `--json` and `--script`, which have to give the
/// same output every time, at most.
const EXPLORED_MAX: u64 = 1 << 28;

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let (words, first) = match (&args.path, args.program.as_slice()) {
        (Some(path), _) => (vec![path.clone().into_os_string()], path.as_path()),
        (None, [first, ..]) => (args.program.clone(), Path::new(first)),
        (None, []) => {
            bail!("nothing to step through: unwind-sim step TRACE|CASE, or unwind-sim step -- PROG")
        }
    };
    // What follows `--` is a program.
    let kind = match &args.path {
        Some(path) => input::file_kind(path).ok(),
        None => None,
    };
    let is_case = kind == Some(FileKind::Case);
    let is_recording = kind.is_some_and(|kind| SAMPLED.contains(&kind));
    let setting = match is_case {
        true => args.walks.setting(first)?,
        false => args.walks.changed(Setting::default())?,
    };
    let source = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    if is_recording || is_case && (args.samples || needs_samples(first, args)?) {
        let options = args.kernel.options(args.symfs.clone())?;
        let recording = super::args::open(first, &options)?;
        let is_kernel = recording.first(|view| view.sample.kernel.is_some());
        let names: &[&str] = match is_kernel {
            Some(true) => &unwinders::KERNEL,
            _ => &UNWINDERS,
        };
        let run = wanted(args, names, setting)?;
        let index = Index::of_recording(&run);
        let shown = Shown {
            run: &run,
            states: States::of_recording(recording),
            index,
            stop: Arc::default(),
            source,
        };
        return show(args, given, &words, shown);
    }
    if args.machine.allow_write {
        bail!("--allow-write: going back cannot undo what was written to files of this computer");
    }
    if args.machine.schedule.is_printed() {
        bail!("--print-schedule: unwind-sim emulate --print-schedule FILE writes the turns");
    }
    let run = wanted(args, &UNWINDERS, setting)?;
    let mut program = args.machine.program(&words, args.defect)?;
    program.program.options.limits.output_bytes = OUTPUT_BYTES_MAX;
    if is_case {
        program.program.start_in_its_folder();
    }
    let with_tables = run.engines.iter().filter(|e| e.finder().is_some());
    let names: Vec<_> = with_tables.map(|e| e.name().to_owned()).collect();
    let tables = spec::engines(&names[..names.len().min(UNWINDERS_MAX)])?;
    let limit = args.max_instructions;
    let stop = Arc::new(AtomicBool::new(false));
    let index = ProgramIndex::start(program.program.clone(), &tables, run.setting, limit)?;
    let index = Index::of_program(index, &tables);
    let mut reversible = Reversible::start(program.program.clone(), STACK_BYTES, stop.clone())?;
    reversible.set_limit(limit);
    let states = States::of_program(reversible, stop.clone());
    let source = match args.path {
        Some(_) => source,
        None => format!("-- {source}"),
    };
    let shown = Shown {
        run: &run,
        states,
        index,
        stop,
        source,
    };
    show(args, given, &words, shown)
}

/// The walks of each state.
fn wanted(args: &Args, default: &[&str], setting: Setting) -> Result<Run> {
    let names = match args.walks.unwinder.as_slice() {
        [] => default.iter().map(|&name| name.to_owned()).collect(),
        named => named.to_vec(),
    };
    Ok(Run {
        engines: spec::engines(&names)?,
        variants: args.walks.variants()?,
        setting,
        against: Against::Truth,
        group_by: GroupBy::default(),
    })
}

/// Whether a case can only be shown by its sample points: a kernel's, or one whose walks start from
/// fake registers.
fn needs_samples(path: &Path, args: &Args) -> Result<bool> {
    let case = cases::read(path)?;
    let is_fake = |variant: &Variant| matches!(variant, Variant::Fake(_));
    let is_kernel = case.header.machine == case::Machine::Kernel;
    Ok(is_kernel || args.walks.variants()?.iter().any(is_fake))
}

/// What is shown.
struct Shown<'a> {
    run: &'a Run,
    states: States,
    index: Index<'a>,
    /// Ends long ways.
    stop: Arc<AtomicBool>,
    source: String,
}

fn show(
    args: &Args,
    given: &Given<'_>,
    words: &[OsString],
    mut shown: Shown<'_>,
) -> Result<Status> {
    let first = first_state(args, &mut shown.states)?;
    if args.json {
        return json(args, shown, first);
    }
    #[cfg(feature = "terminal")]
    return terminal::show(args, given, words, shown, first);
    #[cfg(not(feature = "terminal"))]
    {
        let _ = (given, words, &shown.stop);
        bail!("this program was built without the feature `terminal`; --json writes the states")
    }
}

/// The number of the state to begin with.
fn first_state(args: &Args, states: &mut States) -> Result<u64> {
    let Some(from) = &args.from else { return Ok(0) };
    if let Ok(number) = from.parse() {
        return Ok(number);
    }
    let target = Target::Function(from.clone());
    let found = states.find(&target, 0, Direction::Forward)?;
    found.with_context(|| format!("no state is in a function {from}"))
}

/// Writes a window of states.
fn json(args: &Args, shown: Shown<'_>, first: u64) -> Result<Status> {
    let Shown {
        run,
        mut states,
        mut index,
        source,
        ..
    } = shown;
    let mut builder = Builder::new(run);
    while index.covered() < EXPLORED_MAX && index.fill(&states, 0)? {}
    while states.explored() < EXPLORED_MAX && states.explore(EXPLORED_MAX) {}
    let about = About {
        source,
        command: output::command_line(),
    };
    let window = (first, args.count);
    let timeline = timeline::window(about, &mut states, &mut builder, &index, window)?;
    if timeline.states.is_empty() && args.count > 0 {
        bail!(no_state(first, &states));
    }
    let mut out = output::raw_stdout();
    serde_json::to_writer(&mut out, &Line::Timeline(Box::new(timeline)))?;
    writeln!(out)?;
    out.flush()?;
    Ok(Status::AsExpected)
}

fn no_state(number: u64, states: &States) -> String {
    match states.total() {
        Some(total) => format!("there is no state {number}: there are {total}, counted from 0"),
        None => format!("there is no state {number}"),
    }
}
