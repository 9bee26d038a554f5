//! `cases run`: checks everything that cases state.

use super::{Corpus, Outcome, SomeArgs};
use crate::command::case_limits::CaseLimitArgs;
use crate::command::machine::CpuArgs;
use crate::command::output;
use crate::command::status::Status;
use anyhow::Result;
use std::io::Write;
use unwind_sim_judge::cases;
use unwind_sim_recordings::printable::PrintableName as _;

/// Run cases, and check everything they state.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim cases run
  unwind-sim cases run fp-loses-the-caller-before-push-rbp
  unwind-sim cases run frame --cpu v2,amd")]
pub(super) struct Args {
    #[command(flatten)]
    cases: SomeArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    limits: CaseLimitArgs,
}

pub(super) fn run(corpus: &Corpus<'_>, args: &Args) -> Result<Status> {
    let paths = corpus.some(&args.cases, false)?;
    let mut out = output::stdout();
    let mut outcome = Outcome::of(paths.len());

    for path in paths {
        match cases::check_on(&path, args.cpu.processor(), &args.limits.limits()) {
            Ok(()) => writeln!(out, "ok   {}", path.printable())?,
            Err(failure) => {
                let word = format!("FAIL {}\n", path.printable());
                outcome.failed(&mut out, &word, &failure)?;
            }
        }
        // After each case, so that a reader sees the outcome while the next one runs.
        out.flush()?;
    }

    outcome.status()
}
