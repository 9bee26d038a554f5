//! What is recorded, and when.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Program {
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
    Run(Program),
    /// A process that runs: all its threads.
    Attach(i32),
}

/// How the frame of a fetching function is found when its sample is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FetchFrame {
    /// The point is the function's first instruction: rsp is its CFA - 8.
    #[default]
    Entry,
    /// The point lies behind `push %rbp; mov %rsp, %rbp`: rbp is its CFA - 16.
    Rbp,
}

/// A place in the program where samples are taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// What [`crate::Recorder::locate`] is asked for: `SYMBOL`, `SYMBOL+OFF`, whatever it knows.
    pub name: String,
    /// Makes this a fake start, as at a tracepoint: the place lies in the function that fetches
    /// the caller's registers.
    pub fetch: Option<FetchFrame>,
    /// For a fake start: where the unwinder's own registers are taken, the first time that this
    /// place is reached after `name`; `None`: at the same place.
    pub own: Option<String>,
}

/// When samples are taken.
#[derive(Clone, Debug)]
pub enum At {
    /// Every so many instructions, counted over all threads.
    Every(u64),
    /// So many times a second, of each thread that runs.
    Freq(u32),
    /// At each system call.
    Syscall,
    /// At the first instruction that each call goes to.
    Call,
    /// At these places.
    Points(Vec<Point>),
}

impl At {
    /// Can this only be found by single-stepping?
    pub(crate) const fn needs_steps(&self) -> bool {
        matches!(self, At::Every(_) | At::Call)
    }

    pub(crate) fn points(&self) -> &[Point] {
        match self {
            At::Points(points) => points,
            _ => &[],
        }
    }
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
pub struct Options {
    /// The program.
    pub target: Target,
    /// When samples are taken.
    pub at: At,
    /// Single-step and keep a shadow stack.
    pub truth: bool,
    /// Record from the first time that this place is reached; see [`crate::Recorder::locate`].
    pub from: Option<String>,
    /// With `truth` and `from`: so many instructions are single-stepped at most between the
    /// program's entry and `from`. Beyond, it runs there at full speed, and the frames outside
    /// of `from` stay unknown.
    pub approach_max: u64,
    /// Stop after so many single-stepped instructions, counted over all threads from `from` on.
    pub max_instructions: Option<u64>,
    /// Stop after so many samples.
    pub max_samples: Option<u64>,
    /// Bytes of a stack that are copied at most, above rsp.
    pub stack_bytes: u64,
    /// Follow child processes; threads are always followed.
    pub children: bool,
    /// Leave the address space randomized. Without it two recordings are alike.
    pub randomize: bool,
    /// What becomes of the program when the recording ends before it.
    pub after_limit: AfterLimit,
    /// The recording ends when this becomes true; see [`crate::stop_on_signals`].
    pub stop: Option<&'static AtomicBool>,
}

impl Options {
    /// Bytes of a stack copied by default.
    pub const STACK_BYTES: u64 = 1 << 20;
    /// Instructions single-stepped on the way to `from` by default: about a minute.
    pub const APPROACH_MAX: u64 = 3_000_000;

    /// Record `target` at `at`, without truth, from its start to its end.
    pub const fn new(target: Target, at: At) -> Options {
        Options {
            target,
            at,
            truth: false,
            from: None,
            approach_max: Options::APPROACH_MAX,
            max_instructions: None,
            max_samples: None,
            stack_bytes: Options::STACK_BYTES,
            children: true,
            randomize: false,
            after_limit: AfterLimit::LetRun,
            stop: None,
        }
    }

    /// Is the program single-stepped?
    pub(crate) const fn steps(&self) -> bool {
        self.truth || self.at.needs_steps()
    }
}
