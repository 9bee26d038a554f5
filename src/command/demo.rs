//! `demo`: built-in recordings, no file needed.

use super::{Status, output};
use anyhow::{Result, bail};
use std::io::Write;
use unwind_sim::demo;

/// Show a built-in recording: seed-004 is the mail that this project began with, one kernel frame
/// against eight.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim demo
  unwind-sim demo seed-004")]
pub(crate) struct Args {
    /// Which; without it they are listed.
    #[arg(value_name = "NAME")]
    name: Option<String>,
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
            Some(demo) => write!(out, "{}", demo.show()?)?,
            None => {
                let names: Vec<&str> = demo::ALL.iter().map(|d| d.name).collect();
                bail!("no demo `{name}`; there are {}", names.join(", "));
            }
        },
    }
    out.flush()?;
    Ok(Status::AsExpected)
}
