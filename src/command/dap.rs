//! `dap`: a run or a recording behind the Debug Adapter Protocol of editors.

use super::args::open_file;
use super::output;
use super::states::StateArgs;
use super::status::Status;
use anyhow::Result;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;
use unwind_sim_serve::dap::{self, Launch};
use unwind_sim_serve::debuggee::Opened;

/// Serve an editor: the Debug Adapter Protocol on standard input and output.
///
/// The editor starts it, and launches a program, a trace or a case. Its call-stack panel then has a
/// thread for the true chain and one for each unwinder. docs/dap.md says how to set up VS Code, Neovim
/// and Emacs.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Arguments of launch:
  program, args   a program and its arguments, or
  trace, case     the path of a recording or a case
  from            the first state: a number or a function
  stopOnEntry     false to go on from there
  options         options of `unwind-sim step`, such as [\"--unwinder\", \"dwarf,orc\"]; a kernel
                  that is booted is named here, as [\"--kernel\", \"vmlinuz\"]

Examples:
  unwind-sim dap")]
pub(crate) struct Args {}

/// The options of `launch`.
#[derive(Parser, Debug)]
#[command(name = "options", no_binary_name = true, disable_help_flag = true)]
struct Options {
    #[command(flatten)]
    states: StateArgs,
}

pub(crate) fn run(_: &Args) -> Result<Status> {
    let mut out = output::raw_stdout();
    dap::serve(std::io::stdin(), &mut out, &mut |launch, debug| {
        open(launch, debug).map_err(|error| format!("{error:#}"))
    })?;
    Ok(Status::AsExpected)
}

/// Opens what is launched, and debugs it.
fn open(
    launch: &Launch,
    debug: &mut dyn FnMut(Opened<'_>) -> Result<(), unwind_sim_serve::Error>,
) -> Result<Result<(), unwind_sim_serve::Error>> {
    let options = Options::try_parse_from(&launch.options)?;
    let (subject, file) = match &launch.subject {
        dap::Subject::File(path) => {
            let path = Path::new(path);
            (
                options.states.subject(Some(path), &[])?,
                Some(open_file(path)?),
            )
        }
        dap::Subject::Program(words) => {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            (options.states.subject(None, &words)?, None)
        }
        dap::Subject::Kernel => (options.states.subject(None, &[])?, None),
    };
    let Some(subject) = subject else {
        anyhow::bail!("nothing to launch");
    };
    options.states.open(&subject, file.as_ref(), |mut shown| {
        let first = shown.first(launch.from.as_deref())?;
        Ok(debug(shown.opened(first)))
    })
}
