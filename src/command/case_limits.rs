//! Options for how far the program of a case runs.

use super::args::{parse_seconds, seconds};
use anyhow::{Result, bail};
use unwind_sim_judge::input::FileKind;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::input_file::InputFile;
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
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
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
    /// The first option that was given.
    pub(crate) fn given(self) -> Option<&'static str> {
        let instructions = self.max_instructions.map(|_| "--max-instructions");
        instructions.or_else(|| self.others.given())
    }

    /// Checks that only a case gets limits: nothing else is run.
    pub(crate) fn check(self, file: &InputFile) -> Result<()> {
        if let Some(option) = self.given()
            && file.kind() != FileKind::Case
        {
            bail!(
                "{option} is for a case, whose program is run; {} is not one",
                file.path().printable()
            );
        }
        Ok(())
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

impl OtherLimitArgs {
    /// The first option that was given.
    pub(crate) fn given(self) -> Option<&'static str> {
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
