//! `inspect`: shows what is in a file.

use super::args::{open_file, text_file};
use super::case_limits::CaseLimitArgs;
use super::output;
use super::status::Status;
use super::stdin;
use super::suggest::not_one_of;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_recordings::kernel::{OpenOptions, ToldLayout};
use unwind_sim_view::inspect;

/// Show what is in a trace, a perf.data, a core, an ELF file's unwind tables, or a kernel image.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim inspect trace.bin
  unwind-sim inspect /usr/bin/git
  unwind-sim inspect /lib/x86_64-linux-gnu/libc.so.6 --rows qsort
  unwind-sim inspect /boot/vmlinuz")]
pub(crate) struct Args {
    /// The file; - for standard input.
    #[arg(value_name = "FILE", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// For an ELF file: show every row, in every table, of the function with this name.
    #[arg(long, value_name = "FUNCTION")]
    rows: Option<String>,
    /// For a kernel image: use the symbols of this System.map instead of the image's own.
    #[arg(long, value_name = "SYSTEM_MAP")]
    symbols: Option<PathBuf>,
    /// The layout of the ORC entries of a kernel image, module or other ELF file, named after the first
    /// kernel that had it: 4.14, 5.12, 6.3, 6.4 or 7.1. One that the entries do not have is refused.
    #[arg(long, value_name = "LAYOUT", value_parser = layout, conflicts_with = "rows")]
    orc_layout: Option<ToldLayout>,
    #[command(flatten)]
    case: CaseLimitArgs,
}

fn layout(name: &str) -> Result<ToldLayout, String> {
    ToldLayout::from_name(name).ok_or_else(|| not_one_of(name, &ToldLayout::NAMES))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let system_map = args.symbols.as_deref().map(text_file).transpose()?;
    let file = open_file(&args.path)?;
    args.case.check(&file)?;
    let kernel = OpenOptions {
        system_map,
        orc_layout: args.orc_layout,
    };
    let text = inspect::inspect(&file, args.rows.as_deref(), &kernel, &args.case.limits())?;
    let mut out = output::stdout();
    write!(out, "{text}")?;
    out.flush()?;
    Ok(Status::AsExpected)
}
