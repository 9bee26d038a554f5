//! `perf bpf`: runs a BPF handler on recorded samples.

use crate::command::args::kernel_list;
use crate::command::output;
use crate::command::status::Status;
use crate::command::stdin;
use crate::perf::bpf::{self, MapsText, Options};
use anyhow::{Context as _, Result};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_perf_script::symbols::Places;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;

/// Maximum size of a text of maps.
const MAPS_BYTES_MAX: u64 = 1 << 30;

/// Run a BPF handler on the samples of a recording.
///
/// The object is made by `clang -target bpf`. Its handler runs for each sample as it would in the
/// kernel, with every access checked. The output is what it wrote, its maps at the end, and how
/// many samples it kept, dropped and lost, and why. Exit status 1 means that it did something that
/// the kernel's verifier would reject, or that its maps are not those of `--against`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf bpf corpus/bpf/profile.bpf.o perf.data
  unwind-sim perf bpf --kallsyms /proc/kallsyms --symfs / \\
      profile.bpf.o perf.data
  unwind-sim perf bpf --against maps.txt profile.bpf.o perf.data
  unwind-sim perf bpf --program cache_lines lines.bpf.o perf.data")]
pub(crate) struct Args {
    /// The object file.
    #[arg(value_name = "OBJECT")]
    object: PathBuf,
    /// The recording.
    #[arg(value_name = "FILE", default_value = "perf.data", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The program to run: for perf events, a tracepoint or a kprobe. The default is the first one
    /// for perf events.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// Give stack helpers the sample's own chain with its markers, as the kernel does for events
    /// opened with callchains. By default its frames are used as the result of a walk.
    #[arg(long)]
    sample_callchain: bool,
    /// Symbolize stacks; look for all files below this folder.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Symbolize stacks; take the kernel's symbols from this file, in the format of /proc/kallsyms.
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// Compare what the program left with what it left in a kernel: a text with `map NAME` above
    /// each map's entries, as `bpftool map dump` prints these on a line each.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "json")]
    against: Option<PathBuf>,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let object = InputFile::expect(&args.object, "a BPF object", &[FileKind::Bpf])?;
    let recording = InputFile::expect(&args.path, "a perf.data", &[FileKind::PerfData])?;
    kernel_list(args.kallsyms.as_deref())?;
    let against = match &args.against {
        None => None,
        Some(path) => {
            let of = || path.printable().to_string();
            let text = open::read_text(path, MAPS_BYTES_MAX).with_context(of)?;
            Some(MapsText::parse(&text).with_context(of)?)
        }
    };

    let options = Options {
        program: args.program.clone(),
        sample_callchain: args.sample_callchain,
        // Without these options no file of this computer is read: the recording may be from another
        // one.
        symbols: (args.symfs.is_some() || args.kallsyms.is_some()).then(|| Places {
            symfs: args.symfs.clone(),
            kallsyms: args.kallsyms.clone(),
            ..Places::default()
        }),
    };

    let handled = bpf::handle(&object, &recording, &options)?;
    // A fault is something that the kernel would reject.
    let status = match (handled.samples(), handled.faults()) {
        (0, _) => Status::NothingJudged,
        (_, 0) => Status::AsExpected,
        _ => Status::Difference.known(),
    };

    let mut out = output::plain_stdout();
    if args.json {
        handled.write_json(&output::command_line(), &mut out)?;
    } else {
        writeln!(out, "# {}", output::command_line())?;
        handled.print(&mut out)?;
    }
    let status = match &against {
        None => status,
        Some(there) => match (handled.against(there, &mut out)?, status) {
            (_, Status::NothingJudged) | ((0, 0), Status::AsExpected) => Status::NothingJudged,
            ((_, 0), status) => status,
            _ => Status::Difference.known(),
        },
    };

    out.flush()?;
    // Last, below the counts that it qualifies: how much of the recording could not be read.
    output::tell_summary(&args.path, &handled.summary);
    Ok(status)
}
