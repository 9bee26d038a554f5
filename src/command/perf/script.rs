//! `perf script`: prints a recording as perf does.

mod unsupported;

use crate::command::args::{ProfileFormat, kernel_list, text_file};
use crate::command::output::{self, tell, tell_text};
use crate::command::status::Status;
use crate::command::suggest;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::spec;
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_view::perf::recording::Recording;
use unwind_sim_view::perf::script::{
    self, FieldList, Filter, Mode, Options, Report, RequestedFields, TimeSpan,
};

/// Maximum size of a list of names, bytes.
const NAMES_BYTES_MAX: u64 = 64 << 20;

pub(crate) use unsupported::explain;

/// The default recording, as in perf.
const USUAL: &str = "perf.data";

/// A tool whose joining of deferred callchains is imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Like {
    /// As perf 7.2 does.
    #[value(name = "perf-7.2")]
    Perf72,
    /// As proposed in 2023: by thread and order.
    Rfc2023,
}

/// A list of process or thread ids.
#[derive(Clone, Debug)]
struct Ids(Vec<i32>);

/// Print a perf.data as `perf script` does, or write it as a profile.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data
  unwind-sim perf script -i perf.data -F comm,tid,time,event,ip,sym \\
      --comms cc1,as
  perf record -g -o - -- ls | unwind-sim perf script -i -
  unwind-sim perf script --time 10%-20% --max-stack 16 perf.data
  unwind-sim perf script --format speedscope -o perf.speedscope.json perf.data")]
pub(crate) struct Args {
    /// The recording; - for standard input. By default a pipe into this command, else perf.data.
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
    /// The recording, as in perf.
    #[arg(long, short, value_name = "FILE", conflicts_with = "path")]
    input: Option<PathBuf>,
    /// Look for all files below this folder.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// The kernel's symbols, in the format of /proc/kallsyms.
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// The format to write.
    #[arg(long, value_enum, default_value = "perf-script")]
    format: ProfileFormat,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The fields to print for every event: comm, tid, pid, time, cpu, event, trace, ip, sym,
    /// symoff, srcline, dso, addr, period, bpf-output. A + adds a field to the default ones, a -
    /// removes it; hw:, sw:, trace:, raw:, break: or synth: before the list applies it to events of
    /// that type only.
    #[arg(long, short = 'F', value_name = "LIST", value_parser = FieldList::parse, allow_hyphen_values = true)]
    fields: Vec<FieldList>,
    /// Only samples of tasks with these names: NAME,NAME.., or file://PATH with one in each line.
    #[arg(long, short, value_name = "LIST")]
    comms: Option<String>,
    /// Only samples of these processes: PID,PID..
    #[arg(long, value_name = "LIST", value_parser = ids, allow_hyphen_values = true)]
    pid: Option<Ids>,
    /// Only samples of these threads: TID,TID..
    #[arg(long, value_name = "LIST", value_parser = ids, allow_hyphen_values = true)]
    tid: Option<Ids>,
    /// Only samples in these times: START,STOP in seconds, either of which may be missing (separate
    /// several by spaces); or in parts of the recording: 10%-20%, 10%, 10%/2 (the second tenth;
    /// separate several by commas).
    #[arg(long, value_name = "SPAN", value_parser = TimeSpan::parse, allow_hyphen_values = true)]
    time: Option<TimeSpan>,
    /// The maximum number of frames of a callchain; 127 by default.
    #[arg(long, value_name = "N", value_parser = frames, allow_hyphen_values = true)]
    max_stack: Option<u32>,
    /// Print the user frames that this unwinder finds, where a sample has user registers and a stack
    /// copy: dwarf, sframe, orc, fp, guess or cmd:PROGRAM, as in replay. Without the option they are
    /// what perf and libdw find.
    #[arg(long, short, value_name = "U", conflicts_with_all = ["hide_call_graph", "like", "stitch_lbr"], hide_possible_values = true, value_parser = suggest::unwinders())]
    unwinder: Option<String>,
    /// Print the sampled address instead of the callchain.
    #[arg(long, short = 'G')]
    hide_call_graph: bool,
    /// Print no inlined functions. By default each is a frame, as far as the files have debug
    /// information.
    #[arg(long)]
    no_inline: bool,
    /// First print when, where and how the recording was made.
    #[arg(long)]
    header: bool,
    /// Print only when, where and how the recording was made.
    #[arg(long)]
    header_only: bool,
    /// Print deferred callchains separately instead of joining them with their samples.
    #[arg(long)]
    no_merge_callchains: bool,
    /// Join them as this tool does, including its defects.
    #[arg(long, value_enum)]
    like: Option<Like>,
    /// Extend stacks of branch records with those of earlier samples of the thread. This is a
    /// guess, made as perf makes it; it needs the ring's depth in the recording.
    #[arg(long)]
    stitch_lbr: bool,
    /// Print times to the nanosecond.
    #[arg(long)]
    ns: bool,
    /// Accepted for perf's sake: the owner of the file is never checked.
    #[arg(long, short, hide = true)]
    force: bool,
}

fn ids(text: &str) -> Result<Ids, String> {
    let id = |word: &str| {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
        let wrong = || format!("{word:?} is not an id; accepted: ids with commas, 12,34");
        word.parse().ok().filter(|_| is_plain).ok_or_else(wrong)
    };
    text.split(',').map(id).collect::<Result<_, _>>().map(Ids)
}

fn frames(text: &str) -> Result<u32, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    // perf stores the number in an `int`.
    let number = number.filter(|&number| number <= i32::MAX.unsigned_abs());
    number.ok_or_else(|| format!("accepted: a number of frames, 0 to {}", i32::MAX))
}

/// The names of a list. As in perf, `file://PATH` is a file with one name per line.
fn names(list: &str) -> Result<Vec<Vec<u8>>> {
    let Some(path) = list.strip_prefix("file://") else {
        return Ok(list.split(',').map(Into::into).collect());
    };
    let text = text_file(Path::new(path))?.bytes_within(NAMES_BYTES_MAX);
    let text = text.with_context(|| format!("cannot read {path}"))?;
    let lines = (*text).as_ref().split(|&byte| byte == b'\n');
    Ok(lines
        .filter(|line| !line.is_empty())
        .map(Into::into)
        .collect())
}

impl Args {
    fn options(&self) -> Result<Options> {
        Ok(Options {
            fields: RequestedFields::of(&self.fields),
            nanoseconds: self.ns,
            stitch_lbr: self.stitch_lbr,
            join: match self.like {
                _ if self.no_merge_callchains => None,
                None => Some(Mode::Own),
                Some(Like::Perf72) => Some(Mode::Perf72),
                Some(Like::Rfc2023) => Some(Mode::Rfc2023),
            },
            frames_max: self.max_stack.map(|frames| frames as usize),
            hide_chains: self.hide_call_graph,
            unwound: self.unwinder.is_some(),
            inline: !self.no_inline,
            filter: Filter {
                time: self.time.clone(),
                comms: self.comms.as_deref().map(names).transpose()?,
                pids: self.pid.clone().map(|ids| ids.0),
                tids: self.tid.clone().map(|ids| ids.0),
            },
        })
    }

    /// The chosen unwinder.
    fn engine(&self) -> Result<Option<Engine>> {
        let Some(name) = &self.unwinder else {
            return Ok(None);
        };
        let engine = spec::engine(name)?;
        if matches!(engine, Engine::Kernel(_)) {
            bail!("--unwinder {name}: a kernel's unwinder; a perf.data has no kernel stacks");
        }
        if !engine.needs_stack() {
            bail!("--unwinder {name}: branch records are printed without this option");
        }
        Ok(Some(engine))
    }

    /// Opens the recording. As in perf, a pipe on standard input is the default.
    fn open(&self) -> Result<Recording> {
        let named = self.input.as_deref().or(self.path.as_deref());
        let path = named.unwrap_or(Path::new(USUAL));
        if path == Path::new("-") || named.is_none() && is_piped() {
            let input = InputFile::open(Path::new("/dev/stdin"))?;
            return Ok(Recording::stream("standard input", &input)?);
        }
        let file = InputFile::expect(path, "a perf.data", &[FileKind::PerfData])?;
        Ok(Recording::read(&file)?)
    }
}

/// Whether standard input is a pipe.
#[cfg(unix)]
fn is_piped() -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata("/dev/stdin").is_ok_and(|data| data.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_piped() -> bool {
    false
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    // These change only the text of perf; a profile has no place for them.
    let of_text = [
        (!args.fields.is_empty(), "--fields"),
        (args.ns, "--ns"),
        (args.no_merge_callchains, "--no-merge-callchains"),
        (args.header, "--header"),
        (args.header_only, "--header-only"),
    ];

    let mut given = of_text.iter().filter(|(given, _)| *given);
    if let Some((_, name)) = given
        .next()
        .filter(|_| args.format != ProfileFormat::PerfScript)
    {
        bail!("{name} works only with --format perf-script");
    }

    kernel_list(args.kallsyms.as_deref())?;
    let (options, unwinder) = (args.options()?, args.engine()?);
    let places = Places {
        symfs: args.symfs.clone(),
        kallsyms: args.kallsyms.clone(),
        ..Places::default()
    };

    // Opened before the output is made, so that a recording that cannot be read replaces no file.
    let recording = args.open()?;
    let path = args.output.as_deref();
    let report = output::to_file_or(path, output::raw_stdout(), |out| {
        print(args, &recording, &options, places, unwinder.as_ref(), out)
    })?;

    if let Some(report) = &report {
        tell(Path::new(recording.name()), report);
    }

    Ok(Status::AsExpected)
}

/// Prints the requested header and samples; returns the report on the samples.
fn print(
    args: &Args,
    recording: &Recording,
    options: &Options,
    places: Places,
    unwinder: Option<&Engine>,
    out: &mut dyn Write,
) -> Result<Option<Report>> {
    if args.header || args.header_only {
        script::header(recording, !args.header_only, out)?;
    }
    if args.header_only {
        return Ok(None);
    }
    let format = args.format.into();
    let report = script::profile(recording, options, places, format, unwinder, out)?;
    Ok(Some(report))
}

/// Reports on standard error what was left out or lost.
fn tell(path: &Path, report: &Report) {
    tell_text(&report.losses);
    if report.guests != 0 {
        let samples = counted(report.guests, "sample");
        tell!("{samples} of guests left out");
    }
    if report.kept != 0 {
        let samples = counted(report.kept, "sample");
        tell!("{samples} without user registers or stack copy: the recorded chain is shown");
    }
    output::tell_summary(path, &report.summary);
}
