//! What is recorded, and when.

use crate::plan::Plan;
use std::ffi::OsString;
use std::path::PathBuf;

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// Path, or a name that is looked up in `PATH`.
    pub path: OsString,
    /// Arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; `None` is ours.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` is ours.
    pub directory: Option<PathBuf>,
    /// Its output goes to `/dev/null`, and it reads nothing.
    pub quiet: bool,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started.
    Run(Launch),
    /// A process that runs: all its threads.
    Attach(i32),
}

/// What becomes of a started program when the recording ends before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AfterLimit {
    /// It runs on, untraced, and its end is waited for.
    #[default]
    LetRun,
    /// It is killed.
    Kill,
}

/// What is recorded, and how.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The program.
    pub target: Target,
    /// When samples are taken, and when the recording ends.
    pub plan: Plan,
    /// With truth and a start: so many instructions are single-stepped at most between the
    /// program's entry and [`Plan::from`]. Beyond, it runs there at full speed, and the frames
    /// outside of `from` stay unknown.
    pub approach_max: u64,
    /// Follow child processes; threads are always followed.
    pub children: bool,
    /// Leave the address space randomized. Without it two recordings are alike.
    pub randomize: bool,
    /// What becomes of the program when the recording ends before it.
    pub after_limit: AfterLimit,
}

impl RecorderOptions {
    /// Instructions single-stepped on the way to [`Plan::from`] by default: about a minute.
    pub const APPROACH_MAX: u64 = 3_000_000;

    /// Records `target` as planned.
    pub fn new(target: Target, plan: impl Into<Plan>) -> RecorderOptions {
        RecorderOptions {
            target,
            plan: plan.into(),
            approach_max: RecorderOptions::APPROACH_MAX,
            children: true,
            randomize: false,
            after_limit: AfterLimit::LetRun,
        }
    }

    /// Is the program single-stepped?
    pub(crate) const fn steps(&self) -> bool {
        self.plan.truth || self.plan.at.needs_steps()
    }
}
