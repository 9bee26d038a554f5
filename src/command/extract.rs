//! `extract`: one sample, or all, as a separate trace or case.

use super::args::{open, open_file};
use super::case_limits::CaseLimitArgs;
use super::status::Status;
use super::stdin;
use super::suggest;
use crate::command::output::tell;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use unwind_sim_judge::case::Case;
use unwind_sim_judge::extract::{self, Written};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::printable::PrintableName as _;

/// Extract one sample, or all, into a small trace or a case, to keep or to share.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim extract trace.bin --sample 12 -o small.bin
  unwind-sim extract trace.bin --sample 12 -o small.bin --scrub
  unwind-sim extract trace.bin --sample 12 -o sample.s
  unwind-sim extract trace.bin --sample 12 --unwinder dwarf -o sample.s")]
pub(crate) struct Args {
    #[arg(value_name = "TRACE", help = stdin::help(FileKind::is_recording), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// The sample, counted from 0; without it, all samples.
    #[arg(long, value_name = "N")]
    sample: Option<u64>,
    /// The file to write: a trace, or a case if its name ends in .s.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// For a case: the unwinders whose verdicts it must reproduce. The case is run, and not written
    /// if its verdicts differ. The default is dwarf, sframe, orc and fp.
    #[arg(long, short, value_name = "U[,U..]", value_delimiter = ',', hide_possible_values = true, value_parser = suggest::unwinders())]
    unwinder: Vec<String>,
    /// Zero what no unwinder reads: the rest of the stack, and unused registers.
    #[arg(long)]
    scrub: bool,
    #[command(flatten)]
    case: CaseLimitArgs,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let file = open_file(&args.path)?;
    args.case.check(&file)?;
    let options = OpenOptions {
        case_limits: args.case.limits(),
        ..OpenOptions::default()
    };

    let input = open(&file, &options)?;
    let is_case = args.output.extension().is_some_and(|e| e == "s");
    if !args.unwinder.is_empty() && !is_case {
        bail!("--unwinder needs a case (.s) as output; a trace holds no verdicts");
    }

    let extracted = extract::extract(&input, args.sample, args.scrub)?;
    if is_case {
        let (group, number) = (group(&args.output), args.sample.unwrap_or(0));
        let Written { text, recorded } = extracted.to_case(&group, number, &args.unwinder)?;
        // Reports a name that is invalid for a case now, not when the case is run.
        Case::parse(&args.output.to_string_lossy(), &text)?;

        // The case is run: one that does not reproduce the verdicts of the recording is not
        // written.
        extract::check(&text, &args.output, &recorded)?;
        super::output::write_file(&args.output, text.as_bytes())?;
    } else {
        extracted.write_trace(&args.output)?;
    }

    let kept = extracted.bytes_kept();
    tell!(
        "{}: {kept} nonzero bytes of memory",
        args.output.printable()
    );
    Ok(Status::AsExpected)
}

/// The group in the header of a case: the folder it is in, or `extracted` if the folder's name is
/// not valid as a group.
fn group(path: &Path) -> String {
    let parent = std::path::absolute(path).ok();
    let parent = parent.as_deref().and_then(Path::parent);
    let folder = parent.and_then(Path::file_name).unwrap_or_default();
    let folder = folder.to_string_lossy();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !folder.is_empty() && folder.bytes().all(plain) {
        folder.into_owned()
    } else {
        "extracted".to_owned()
    }
}
