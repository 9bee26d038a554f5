//! `inspect`: what is in a file.

use super::{Status, output};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim::inspect;

/// Show what is in a trace, a perf.data, a core, or an ELF file's unwind tables.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim inspect trace.bin
  unwind-sim inspect /usr/bin/git
  unwind-sim inspect /lib/x86_64-linux-gnu/libc.so.6 --rows qsort")]
pub(crate) struct Args {
    /// The file.
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// For an ELF file: every row, of every table, of the function with this name.
    #[arg(long, value_name = "FUNCTION")]
    rows: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    write!(
        out,
        "{}",
        inspect::inspect(&args.path, args.rows.as_deref())?
    )?;
    out.flush()?;
    Ok(Status::AsExpected)
}
