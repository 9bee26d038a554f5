//! Options for how far the program of a case runs.

use super::args::seconds;
use anyhow::{Result, bail};
use std::path::Path;
use unwind_sim_judge::input::{FileKind, file_kind};
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::printable::PrintableName as _;

/// The limits of each run of a case's program.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct CaseLimitArgs {
    /// Of a case: stop its program after N instructions. The default is 20000000.
    #[arg(long, value_name = "N")]
    pub(crate) max_instructions: Option<u64>,
    #[command(flatten)]
    others: OtherLimitArgs,
}

/// [`CaseLimitArgs`] for commands that have their own limit of instructions.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct OtherLimitArgs {
    /// Of a case: stop its program after this many seconds. The default is 60.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Of a case: stop its program after N visits of its sample points. The default is 100000.
    #[arg(long, value_name = "N")]
    max_samples: Option<u64>,
    /// Of a case: stop its program when it has more than N threads and processes. The default is
    /// 256.
    #[arg(long, value_name = "N")]
    max_tasks: Option<usize>,
}

impl CaseLimitArgs {
    /// Checks that only a case gets limits: nothing else is run. What else uses the limit of
    /// instructions checks that one itself.
    pub(crate) fn check(self, path: &Path) -> Result<()> {
        refuse(self.others.given(), path)
    }

    /// [`CaseLimitArgs::check`], where nothing else uses the limit of instructions.
    pub(crate) fn check_all(self, path: &Path) -> Result<()> {
        let counts = self.max_instructions.is_some();
        refuse(counts.then_some("--max-instructions"), path)?;
        self.check(path)
    }

    /// The limits, those not given with their defaults.
    pub(crate) fn limits(self) -> CaseLimits {
        let limits = self.others.limits();
        CaseLimits {
            instructions_max: self.max_instructions.unwrap_or(limits.instructions_max),
            ..limits
        }
    }
}

/// Refuses an option that was given, if what is at `path` is no case.
fn refuse(given: Option<&str>, path: &Path) -> Result<()> {
    match given {
        Some(option) if file_kind(path)? != FileKind::Case => bail!(
            "{option} is for a case, whose program is run; {} is none",
            path.printable()
        ),
        _ => Ok(()),
    }
}

impl OtherLimitArgs {
    /// The first option that was given.
    fn given(self) -> Option<&'static str> {
        let options = [
            (self.timeout.is_some(), "--timeout"),
            (self.max_samples.is_some(), "--max-samples"),
            (self.max_tasks.is_some(), "--max-tasks"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        given.map(|(_, option)| *option)
    }

    /// The limits, those not given with their defaults.
    pub(crate) fn limits(self) -> CaseLimits {
        let defaults = CaseLimits::default();
        CaseLimits {
            timeout: self.timeout.map_or(defaults.timeout, seconds),
            samples_max: self.max_samples.unwrap_or(defaults.samples_max),
            tasks_max: self.max_tasks.unwrap_or(defaults.tasks_max),
            ..defaults
        }
    }
}
