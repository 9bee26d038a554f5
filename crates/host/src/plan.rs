//! What is recorded of a run, and when. Every recording engine uses the same plan.

use std::sync::atomic::{AtomicBool, Ordering};

/// How to find the frame of a fetching function when its sample is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FetchFrame {
    /// The point is the function's first instruction: CFA = rsp + 8.
    #[default]
    Entry,
    /// The point comes after `push %rbp; mov %rsp, %rbp`: CFA = rbp + 16.
    Rbp,
}

/// A place in the program where samples are taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// `SYMBOL`, `SYMBOL+OFFSET` or a hexadecimal address.
    pub name: String,
    /// If set, the sample has a fake start, as at a tracepoint: the point lies in the function that
    /// fetches the caller's registers.
    pub fetch: Option<FetchFrame>,
    /// For a fake start: where the unwinder's own registers are taken, the first time that this
    /// place is reached after `name`. `None`: at `name`.
    pub own: Option<String>,
}

/// When samples are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// Every N instructions, counted over all threads.
    Every(u64),
    /// N times a second in each running thread.
    Freq(u32),
    /// At each system call.
    Syscall,
    /// At the first instruction of each called function.
    Call,
    /// At these places.
    Points(Vec<Point>),
}

impl At {
    /// Whether this requires single-stepping.
    pub const fn needs_steps(&self) -> bool {
        matches!(self, At::Every(_) | At::Call)
    }

    /// The places, if samples are taken at places.
    pub fn points(&self) -> &[Point] {
        match self {
            At::Points(points) => points,
            _ => &[],
        }
    }
}

/// The plan of a recording.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When samples are taken.
    pub at: At,
    /// Keep a shadow stack that knows the true chain. The emulated machine always does.
    pub truth: bool,
    /// Start recording when this place is first reached (see [`Point::name`]).
    pub from: Option<String>,
    /// Stop after this many instructions, counted over all threads since `from`. Applies only where
    /// instructions are counted.
    pub max_instructions: Option<u64>,
    /// Stop after this many samples.
    pub max_samples: Option<u64>,
    /// Maximum number of bytes copied of a stack, from rsp up.
    pub stack_bytes: u64,
    /// The recording ends when this becomes true.
    pub stop: Option<&'static AtomicBool>,
}

impl Plan {
    /// Default of [`Plan::stack_bytes`].
    pub const STACK_BYTES: u64 = 1 << 20;

    /// Samples at `at`, without truth, from the start of the program to its end.
    pub const fn new(at: At) -> Plan {
        Plan {
            at,
            truth: false,
            from: None,
            max_instructions: None,
            max_samples: None,
            stack_bytes: Plan::STACK_BYTES,
            stop: None,
        }
    }

    /// The instructions left once `instructions` have been recorded.
    pub fn instructions_left(&self, instructions: u64) -> u64 {
        let most = self.max_instructions.unwrap_or(u64::MAX);
        most.saturating_sub(instructions)
    }

    /// Whether as many samples have been taken as were asked for.
    pub fn has_samples(&self, samples: u64) -> bool {
        self.max_samples.is_some_and(|most| samples >= most)
    }

    /// Whether as much has been recorded as was asked for.
    pub fn is_complete(&self, samples: u64, instructions: u64) -> bool {
        self.has_samples(samples) || self.instructions_left(instructions) == 0
    }

    /// Whether the recording was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl From<At> for Plan {
    fn from(at: At) -> Plan {
        Plan::new(at)
    }
}
