//! `cases list`: the names and claims of cases.

use super::{Corpus, SomeArgs};
use crate::command::status::Status;
use crate::command::{output, suggest};
use anyhow::{Result, bail};
use std::io::Write;
use unwind_sim_judge::cases;
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::reason::Code;

/// Print names and claims of cases.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases list frame
  unwind-sim cases list --covers US203")]
pub(super) struct Args {
    #[command(flatten)]
    cases: SomeArgs,
    /// Only cases that cover this code.
    #[arg(long, value_name = "USnnn", hide_possible_values = true, value_parser = suggest::codes())]
    covers: Option<String>,
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let covers = match &args.covers {
        None => None,
        Some(name) => match Code::from_name(name) {
            Some(code) => Some(code),
            None => bail!("{}", suggest::unknown_code(name)),
        },
    };

    let mut out = output::stdout();
    for path in corpus.some(&args.cases, false)? {
        let case = cases::read(&path)?;
        if covers.is_none_or(|code| case.header.covers.contains(&code)) {
            let claim = Printable::new(&case.header.claim);
            writeln!(out, "{}\n    {claim}", Printable::new(&case.name))?;
        }
        // What is known is shown before an error of the next case.
        out.flush()?;
    }

    Ok(Status::AsExpected)
}
