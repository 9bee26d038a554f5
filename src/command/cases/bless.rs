//! `cases bless`: writes the expectations of cases anew.

use super::{Corpus, Outcome, SomeArgs};
use crate::command::case_limits::CaseLimitArgs;
use crate::command::output;
use crate::command::status::Status;
use anyhow::Result;
use std::io::Write;
use std::path::Path;
use unwind_sim_judge::cases;

/// Regenerate the expectations of cases, on the default processor.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases bless fp-loses-the-caller-before-push-rbp
  unwind-sim cases bless frame --accept recursion-gives-the-same-pc-many-times:fp")]
pub(super) struct Args {
    #[command(flatten)]
    cases: SomeArgs,
    /// Let this cell get worse.
    #[arg(long, value_name = "CASE:UNWINDER")]
    accept: Vec<String>,
    #[command(flatten)]
    limits: CaseLimitArgs,
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let paths = corpus.some(&args.cases, true)?;
    let mut out = output::stdout();
    let mut outcome = Outcome::of(paths.len());

    for path in paths {
        let accept = accepted(&path, &args.accept);
        match cases::bless(&path, &accept, &args.limits.limits()) {
            Ok(blessed) if blessed.changes.is_empty() => {}
            Ok(blessed) => {
                let changes = blessed.changes.join("\n");
                writeln!(out, "blessed {}\n{changes}", blessed.name)?;
            }
            Err(failure) => outcome.failed(&mut out, "REFUSED ", &failure)?,
        }
        // After each case, so that a reader sees the outcome while the next one runs.
        out.flush()?;
    }

    outcome.status()
}

/// The unwinders that `--accept` names for this case.
fn accepted(path: &Path, accept: &[String]) -> Vec<String> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let of_case = accept.iter().filter_map(|a| a.split_once(':'));
    of_case
        .filter(|(case, _)| *case == stem)
        .map(|(_, unwinder)| unwinder.to_owned())
        .collect()
}
