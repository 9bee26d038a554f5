//! What to record, and how.

use crate::plan::Plan;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Path, or a name to look up in `PATH`.
    pub path: OsString,
    /// Arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; `None` inherits ours.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` inherits ours.
    pub directory: Option<PathBuf>,
    /// Redirect input and output to `/dev/null`.
    pub quiet: bool,
}

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program to start.
    Run(Launch),
    /// All threads of a running process.
    Attach(i32),
}

/// What happens to a started program if the recording ends first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AfterLimit {
    /// It keeps running untraced, and the recorder waits for its end.
    #[default]
    LetRun,
    /// It is killed, and every process that it has started.
    Kill,
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The program.
    pub target: Target,
    /// When to take samples, and when to end the recording.
    pub plan: Plan,
    /// With [`Plan::truth`] and [`Plan::from`]: the most instructions to single-step between the
    /// program's entry and `from`. After that the program runs to `from` at full speed, and the
    /// frames outside of it stay unknown.
    pub approach_max: u64,
    /// Follow child processes; threads are always followed.
    pub children: bool,
    /// Keep the address space randomized. Without randomization, recordings can be repeated
    /// exactly.
    pub randomize: bool,
    /// Kill the program when the recording has taken this long, also while the program waits.
    pub timeout: Option<Duration>,
    /// End the recording when there are more threads and processes than this at the same time.
    pub tasks_max: usize,
    /// What happens to the program if the recording ends first.
    pub after_limit: AfterLimit,
}

impl RecorderOptions {
    /// Default of [`RecorderOptions::approach_max`]: takes about a minute.
    pub const APPROACH_MAX: u64 = 3_000_000;

    /// Records `target` as planned.
    pub fn new(target: Target, plan: impl Into<Plan>) -> RecorderOptions {
        RecorderOptions {
            target,
            plan: plan.into(),
            approach_max: RecorderOptions::APPROACH_MAX,
            children: true,
            randomize: false,
            timeout: None,
            tasks_max: usize::MAX,
            after_limit: AfterLimit::LetRun,
        }
    }

    /// Whether the program is single-stepped.
    pub(crate) const fn steps(&self) -> bool {
        self.plan.truth || self.plan.at.needs_steps()
    }
}
