//! `replay`: unwinds every recorded stack and prints the chains.

#[cfg(feature = "machine")]
mod confirm;

use super::args::{InputArgs, ProfileFormat, WalkArgs, open, open_file};
use super::output::{self, tell};
use super::status::{self, Status};
use super::suggest;
use anyhow::{Result, bail};
use clap::builder::PossibleValue;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::input::{FileKind, Input, check_recording};
use unwind_sim_judge::kernel::{Agreement, Shapes};
use unwind_sim_judge::run::{Against, Column, Describe, Run, RunError};
use unwind_sim_judge::stacks::Source as StackSource;
use unwind_sim_judge::{kernel, unwinders};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::kernel::{CallchainOptions, UnwinderKind, UserWalk};
use unwind_sim_view::listing::ListingLength;
use unwind_sim_view::{json, kernel as show, profile, text};

/// What `replay` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Text,
    Profile(ProfileFormat),
}

impl clap::ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Format::Text,
            Format::Profile(ProfileFormat::PerfScript),
            Format::Profile(ProfileFormat::Folded),
            Format::Profile(ProfileFormat::Speedscope),
            Format::Profile(ProfileFormat::Firefox),
            Format::Profile(ProfileFormat::Pprof),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Format::Text => Some(PossibleValue::new("text").help("Chains with verdicts")),
            Format::Profile(format) => format.to_possible_value(),
        }
    }
}

/// The kernel function whose output is imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Print {
    /// arch_stack_walk: the addresses.
    StackWalk,
    /// arch_stack_walk_reliable: the addresses, if they are reliable.
    Reliable,
    /// show_trace_log_lvl: all code addresses on the stacks, with a question mark before those that
    /// the unwinder did not give.
    Trace,
    /// get_perf_callchain, printed as perf script does: the kernel's frames, then the user's.
    Perf,
}

/// How the user part of a callchain is walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum User {
    /// perf_callchain_user: frame pointers.
    Fp,
    /// unwind_user (6.17), deferred: frame pointers, with checks.
    #[value(name = "unwind-user")]
    Unwind,
    /// Not at all.
    None,
}

/// Unwind recorded stacks: print each chain with its verdict and, where it is wrong, the cause.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim replay trace.bin --unwinder orc
  unwind-sim replay trace.bin --unwinder dwarf,fp --sample 12
  unwind-sim replay seed.bin --unwinder orc --regs fake:v5.1
  unwind-sim replay perf.data --unwinder dwarf --format folded
  unwind-sim replay perf.data --unwinder dwarf,fp --format firefox \\
      -o profile.json.gz
  unwind-sim replay core --unwinder all --confirm
  unwind-sim replay capture.json --kernel vmlinuz --as perf --max-stack 16
  unwind-sim replay trace.bin --unwinder cmd:./fp.py --json")]
pub(crate) struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    walk: WalkArgs,
    /// The format to write.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With a profile's format, of a perf.data: only the samples of this event, such as cpu-clock. By
    /// default each event has a profile of its own.
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// For kernel stacks: print the walks as the kernel does.
    #[arg(long = "as", value_enum, conflicts_with = "format")]
    print: Option<Print>,
    /// Show every frame. By default, of frames that repeat, as in a deep recursion, text has only the
    /// first and the last.
    #[arg(long)]
    all: bool,
    /// Also exit with 1 for what derived tables cannot represent.
    #[arg(long)]
    strict: bool,
    /// With --as perf: how the user part is walked. By default as the event asked, if the recording
    /// says it, else fp.
    #[arg(long, value_enum)]
    user: Option<User>,
    /// With --as perf: store at most N addresses, kernel and user together. By default as many as
    /// the event asked for (sample_max_stack), if the recording says it, else 127
    /// (kernel.perf_event_max_stack).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_stack: Option<u32>,
    /// With --as perf: store at most N context markers (kernel.perf_event_max_contexts_per_stack).
    #[arg(long, value_name = "N", default_value_t = CallchainOptions::MAX_CONTEXTS)]
    max_contexts: u32,
    /// With --as perf: the event belongs to a task other than the running one.
    #[arg(long)]
    crosstask: bool,
    /// JSON Lines instead of text.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<std::path::PathBuf>,
    #[cfg(feature = "machine")]
    #[command(flatten)]
    confirm: confirm::ConfirmArgs,
    /// Worker threads, except for --as, --confirm and the format perf-script; 0 means one for each
    /// processor.
    #[arg(long, value_name = "N", default_value = "0", value_parser = super::args::threads)]
    threads: usize,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let file = open_file(&args.input.path)?;
    check_recording(&file)?;
    let is_case = file.kind() == FileKind::Case;
    // Refused, not ignored: nothing else of this command runs a program.
    if args.input.case.max_instructions.is_some() && !is_case && !args.confirms() {
        bail!("--max-instructions is for --confirm, and for a case, whose program is run");
    }

    if args.event.is_some() && args.format == Format::Text {
        bail!("--event works only with --format and one of a profile's formats");
    }

    let input = args.opened(&file)?;
    let run = Run {
        engines: args.engines(&input)?,
        variants: args.walk.variants()?,
        setting: args.walk.setting(&input)?,
        against: Against::Truth,
        group_by: GroupBy::Cause,
    };

    // Text is for people, so it is escaped in a file, too; profiles are for other programs.
    let path = args.output.as_deref();
    match args.format {
        Format::Text => output::to_text_file_or(path, output::stdout(), |out| match args.print {
            #[cfg(feature = "machine")]
            _ if args.confirm.is_wanted() => {
                let confirm = |input: &Input| confirm::run(args, &run, input, out);
                args.input.read_opened(&input, confirm)
            }
            None => {
                let chains = |input: &Input| chains(args, &run, input, out);
                args.input.read_opened(&input, chains)
            }
            Some(Print::Perf) => {
                let chains = |input: &Input| as_perf(args, &run, input, out);
                args.input.read_opened(&input, chains)
            }
            Some(_) if args.json => {
                bail!("--as with --json needs --as perf")
            }
            Some(_) => {
                let chains = |input: &Input| as_kernel(args, &run, input, out);
                args.input.read_opened(&input, chains)
            }
        }),
        Format::Profile(format) => output::to_file_or(path, output::raw_stdout(), |out| {
            let (source, format) = (args.source(&input)?, format.into());
            let written = profile::write(&source, &run, format, args.threads, out)?;
            Ok(told(&args.input.path, &written))
        }),
    }
}

impl Args {
    /// Whether the stacks are resumed.
    fn confirms(&self) -> bool {
        #[cfg(feature = "machine")]
        return self.confirm.is_wanted();
        #[cfg(not(feature = "machine"))]
        false
    }

    /// Reads the head of the recording. What a profile lacks is told after it.
    fn opened(&self, file: &InputFile) -> Result<Input> {
        let mut wanted = self.input.clone();
        // With --confirm this is a limit of each stack, not of a case.
        if self.confirms() && file.kind() != FileKind::Case {
            wanted.case.max_instructions = None;
        }
        let options = wanted.options(file)?;
        match self.format {
            Format::Text => open(file, &options),
            Format::Profile(_) => Ok(Input::of(file, &options)?),
        }
    }

    /// How much of each chain text has.
    fn shown(&self) -> ListingLength {
        if self.all {
            ListingLength::All
        } else {
            ListingLength::Folded
        }
    }

    /// The unwinders. With `--as perf` the default is those of kernels, of which each sample gets its
    /// own kernel's.
    fn engines(&self, input: &Input) -> Result<Vec<Engine>> {
        let mut walk = self.walk.clone();
        if self.print == Some(Print::Perf) && walk.unwinder.is_empty() {
            walk.unwinder = unwinders::KERNEL.map(str::to_owned).to_vec();
        }
        walk.engines(input, &self.input.kernel, &[unwinders::REFERENCE])
    }

    /// What a profile is made of.
    fn source<'i>(&self, input: &'i Input) -> Result<StackSource<'i>> {
        let mut source = StackSource {
            input,
            filter: self.input.filter(),
            event: None,
        };
        if let Some(name) = &self.event {
            let events = profile::events(input);
            let event = events.iter().position(|event| event == name);
            if events.is_empty() {
                bail!("--event {name}: the recording says nothing of events");
            }
            let Some(event) = event else {
                let known: Vec<&str> = events.iter().map(String::as_str).collect();
                bail!("--event {name}: {}", suggest::not_one_of(name, &known));
            };
            source.event = Some(event);
        }
        Ok(source)
    }
}

/// Reports on stderr what is missing from a profile.
fn told(path: &Path, written: &profile::Written) -> Status {
    output::tell_problems(path, &written.gaps.problems);
    output::tell_left_out(path, &written.gaps);
    output::tell_files(&written.file_problems, written.file_problem_count);
    if written.stacks == 0 {
        Status::NothingJudged
    } else {
        Status::AsExpected
    }
}

/// Notes what is wrong before it is written: the reader may go away.
struct Noting<'r, D> {
    inner: D,
    run: &'r Run,
    columns: Vec<Column>,
    strict: bool,
}

impl<'r, D: Describe> Noting<'r, D> {
    fn new(inner: D, run: &'r Run, strict: bool) -> Noting<'r, D> {
        Noting {
            inner,
            run,
            columns: run.columns(),
            strict,
        }
    }
}

impl<D: Describe> Describe for Noting<'_, D> {
    fn describe(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
        out: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        let engine = self.columns[column].engine;
        if self.run.is_unexpected(engine, outcome, self.strict) {
            status::found();
        }
        self.inner.describe(view, column, outcome, out)
    }
}

/// Chains as text.
struct ChainText {
    names: Vec<String>,
    shown: ListingLength,
}

impl Describe for ChainText {
    fn describe(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
        out: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        if column == 0 {
            writeln!(out, "{}", text::sample_line(view))?;
            for recorded in &view.sample.recorded {
                let text = text::recorded_text(view.space, recorded, self.shown);
                out.extend_from_slice(text.as_bytes());
            }
        }
        let name = &self.names[column];
        let text = text::chain_text(name, view, outcome, self.shown);
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn chains(args: &Args, run: &Run, input: &Input, out: &mut dyn Write) -> Result<Status> {
    let (threads, filter) = (args.threads, args.input.filter());
    let comparison = if args.json {
        let new = || Noting::new(json::ChainWriter::new(run), run, args.strict);
        let comparison = run.write_on(threads, input, &filter, new, out)?;
        let line = json::summary(&comparison, None, &output::command_line());
        line.write(out)?;
        comparison
    } else {
        let new = || {
            let text = ChainText {
                names: run.column_names(),
                shown: args.shown(),
            };
            Noting::new(text, run, args.strict)
        };
        run.write_on(threads, input, &filter, new, out)?
    };

    // Chains without a truth are printed, but say nothing about the unwinders.
    if !comparison.judged() {
        return Ok(Status::NothingJudged);
    }
    let unexpected = run.unexpected(&comparison, args.strict, None);
    Ok(if unexpected {
        Status::Difference
    } else {
        Status::AsExpected
    })
}

/// `--as`: prints walks, and does not judge them.
fn as_kernel(args: &Args, run: &Run, input: &Input, out: &mut dyn Write) -> Result<Status> {
    let print = match args.print {
        Some(Print::Reliable) => kernel::Print::Reliable,
        Some(Print::Trace) => kernel::Print::Trace,
        Some(Print::StackWalk | Print::Perf) | None => kernel::Print::StackWalk,
    };

    let (columns, names) = (run.columns(), run.column_names());
    // One cache for all samples: rows are found once, and no result depends on what is in it.
    let mut cache = Cache::new();
    let mut count = 0;

    input.for_each::<RunError>(&args.input.filter(), &mut |view| {
        writeln!(out, "{}", text::sample_line(view))?;
        for (column, name) in columns.iter().zip(&names) {
            // Other unwinders have nothing that a kernel would print.
            let Engine::Kernel(unwinder) = &run.engines[column.engine] else {
                continue;
            };

            count += 1;
            let variant = column.variant_for(view);
            writeln!(out, "{name}:")?;
            match kernel::print(view, unwinder, variant, print, &mut cache) {
                Ok(walk) => write!(out, "{}", show::printed(view, &walk))?,
                Err(reason) => writeln!(out, "  not started: {reason}")?,
            }
        }
        Ok(())
    })?;

    Ok(match count {
        0 => Status::NothingJudged,
        _ => Status::AsExpected,
    })
}

/// What `--as perf` was told on the command line.
struct Told<'a>(&'a Args);

impl Told<'_> {
    /// `options` with what the command line says in place of their own.
    fn apply(&self, options: CallchainOptions) -> CallchainOptions {
        let Told(args) = self;
        CallchainOptions {
            max_stack: args.max_stack.unwrap_or(options.max_stack),
            max_contexts: args.max_contexts,
            user: match args.user {
                None => options.user,
                Some(User::Fp) => UserWalk::FramePointer,
                Some(User::Unwind) => UserWalk::UnwindUser,
                Some(User::None) => UserWalk::None,
            },
            crosstask: args.crosstask || options.crosstask,
            ..options
        }
    }

    /// Whether it says nothing.
    fn is_nothing(&self) -> bool {
        let Told(args) = self;
        let default = args.max_contexts == CallchainOptions::MAX_CONTEXTS && !args.crosstask;
        default && args.max_stack.is_none() && args.user.is_none()
    }
}

/// How many callchains are those that perf recorded.
#[derive(Default)]
struct Counts {
    equal: u64,
    different: u64,
    taken: u64,
    cut: u64,
    /// With arguments that the recording does not say: as text, and how many.
    fits: BTreeMap<String, u64>,
}

impl Counts {
    fn add(&mut self, agreement: Option<Agreement>) {
        match agreement {
            None => {}
            Some(Agreement::Equal) => self.equal += 1,
            Some(Agreement::Different(_)) => self.different += 1,
            Some(Agreement::Taken(_)) => self.taken += 1,
            Some(Agreement::Cut(_)) => self.cut += 1,
            Some(Agreement::Fits(options)) => {
                *self
                    .fits
                    .entry(show::callchain_request(options))
                    .or_default() += 1;
            }
        }
    }

    /// Whether perf recorded chains, and of none it is known whether it is the same.
    fn is_all_unknown(&self) -> bool {
        self.taken + self.cut > 0 && self.equal == 0 && self.fits.is_empty()
    }

    /// Prints them, if perf recorded any.
    fn print(&self) {
        // Taken apart without `..`, so that a new count cannot be forgotten here.
        let Counts {
            equal,
            different,
            taken,
            cut,
            fits,
        } = self;
        if equal + different + taken + cut > 0 || !fits.is_empty() {
            tell!("callchains: {equal} as perf recorded them, {different} different");
        }
        for (request, count) in fits {
            tell!(
                "callchains: {count} as perf recorded them if the kernel was asked for {request}, \
                 which the recording does not say"
            );
        }
        // These are not `different`: nothing shows that the kernel would have done otherwise.
        if *cut > 0 {
            tell!(
                "callchains: {cut} not known: perf's chain ends earlier, all its words are the same, \
                 and the event's limit is not recorded (--max-stack)"
            );
        }
        if *taken > 0 {
            tell!(
                "callchains: {taken} not known: return probes took return addresses, and which the \
                 kernel put back is not recorded; all other words are as perf recorded them"
            );
        }
    }
}

/// Whether the engine is the unwinder of the recorded kernel, or of most kernels if that is not known.
fn is_own(view: &View<'_>, engine: &Engine) -> bool {
    let own = view.sample.kernel.as_ref().and_then(|k| k.kind());
    let own = own.unwrap_or(UnwinderKind::Orc);
    matches!(engine, Engine::Kernel(unwinder) if unwinder.kind() == own)
}

/// `--as perf`: prints callchains, and judges them where the recording has perf's own.
fn as_perf(args: &Args, run: &Run, input: &Input, out: &mut dyn Write) -> Result<Status> {
    let told = Told(args);
    let is_default = args.walk.unwinder.is_empty();

    let columns = run.columns();
    let (mut cache, mut counts) = (Cache::new(), Counts::default());
    let (mut count, mut wrong) = (0, 0);
    let mut shapes = Shapes::default();

    // What the kernel was asked for is not always recorded; then all chains together say what fits.
    if told.is_nothing() {
        input.for_each::<RunError>(&args.input.filter(), &mut |view| {
            shapes.add(view);
            Ok(())
        })?;
    }

    input.for_each::<RunError>(&args.input.filter(), &mut |view| {
        let asked = kernel::recorded_options(view, CallchainOptions::default());
        let options = told.apply(asked);
        // A chain is judged by what the kernel was asked for, not by what the command line says.
        let judged = match kernel::recorded_request(view) {
            Some(_) => asked,
            None => options,
        };

        for column in &columns {
            let engine = &run.engines[column.engine];
            let variant = column.variant_for(view);
            let setting = &run.setting;
            // By default, a sample is walked by the unwinder of its own kernel.
            if is_default && !is_own(view, engine) {
                continue;
            }

            let mut chain_of =
                |options| kernel::perf_chain(view, engine, variant, setting, options, &mut cache);
            let chain = chain_of(options);
            // The chain that is printed follows the command line; one that follows the recording is
            // made beside it, only to be judged.
            let other = (judged != options).then(|| chain_of(judged));
            let shapes = told.is_nothing().then_some(&shapes);
            let agreement = other
                .as_ref()
                .unwrap_or(&chain)
                .agreement(view, setting, judged, shapes);

            count += 1;
            counts.add(agreement);
            let start = variant.as_str();
            if let Some(what) = chain.wrong(view) {
                let what = show::perf_wrong(what);
                let number = view.number;
                tell!("sample {number}, {}@{start}: {what}", engine.name());
                // An unwinder that was named may be one that is expected to err; then it is
                // reported, but not counted.
                wrong += u64::from(is_default || !run.may_err(column.engine));
            }
            // Noted before the line is written: the reader may go away.
            if counts.different + wrong > 0 {
                status::found();
            }
            if args.json {
                let line = json::callchain(view, engine.name(), start, &chain, agreement);
                line.write(out)?;
                continue;
            }
            let event = format!("{}@{start}", engine.name());
            write!(out, "{}", show::perf_script(view, &event, &chain))?;
            if let Some(what) = agreement.and_then(show::perf_difference) {
                tell!("sample {}, {event}: {what}", view.number);
            }
        }
        Ok(())
    })?;

    counts.print();
    Ok(match (count, counts.different + wrong) {
        (0, _) => Status::NothingJudged,
        // What was recorded is all of a kind that cannot be judged.
        (_, 0) if counts.is_all_unknown() => Status::NothingJudged,
        (_, 0) => Status::AsExpected,
        _ => Status::Difference,
    })
}
