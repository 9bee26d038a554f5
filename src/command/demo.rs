//! `demo`: built-in recordings, which need no file.

use super::output;
use super::status::Status;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_view::demo;

/// Show a built-in recording. seed-004 is from the mail that this project began with: one kernel
/// frame where there should be eight.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim demo
  unwind-sim demo seed-004
  unwind-sim demo seed-004 -o seed-004.bin")]
pub(crate) struct Args {
    /// The recording to show; without it all are listed.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Write the recording to this file instead.
    #[arg(long, short, value_name = "FILE", requires = "name")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::stdout();
    match &args.name {
        None => {
            for demo in demo::ALL {
                writeln!(out, "{:<12} {}", demo.name, demo.about)?;
            }
        }
        Some(name) => match demo::ALL.iter().find(|d| d.name == *name) {
            Some(demo) => match &args.output {
                None => write!(out, "{}", demo.show()?)?,
                path => {
                    let write = |out: &mut dyn Write| Ok(out.write_all(demo.trace)?);
                    output::to_file_or(path.as_deref(), std::io::sink(), write)?;
                }
            },
            None => {
                let names: Vec<&str> = demo::ALL.iter().map(|d| d.name).collect();
                bail!(
                    "unknown demo `{name}`; expected one of {}",
                    names.join(", ")
                );
            }
        },
    }
    out.flush()?;
    Ok(Status::AsExpected)
}
