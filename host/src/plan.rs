//! What is recorded of a run, and when: the same for every engine that records.

use std::sync::atomic::{AtomicBool, Ordering};

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
    /// `SYMBOL`, `SYMBOL+OFFSET` or a hexadecimal address.
    pub name: String,
    /// Makes this a fake start, as at a tracepoint: the place lies in the function that fetches
    /// the caller's registers.
    pub fetch: Option<FetchFrame>,
    /// For a fake start: where the unwinder's own registers are taken, the first time that this
    /// place is reached after `name`; `None`: at the same place.
    pub own: Option<String>,
}

/// When samples are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// Every so many instructions, counted over all threads.
    Every(u64),
    /// So many times a second, of each running thread.
    Freq(u32),
    /// At each system call.
    Syscall,
    /// At the first instruction of each called function.
    Call,
    /// At these places.
    Points(Vec<Point>),
}

impl At {
    /// Can this only be found by single-stepping?
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

/// A recording as it is planned.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When samples are taken.
    pub at: At,
    /// Keep a shadow stack that knows the true chain. The emulated machine always does.
    pub truth: bool,
    /// Record from the first time that this place is reached (see [`Point::name`]).
    pub from: Option<String>,
    /// Stop after so many instructions, counted over all threads from `from` on. Only where
    /// instructions are counted.
    pub max_instructions: Option<u64>,
    /// Stop after so many samples.
    pub max_samples: Option<u64>,
    /// Bytes of a stack that are copied at most, above rsp.
    pub stack_bytes: u64,
    /// The recording ends when this becomes true.
    pub stop: Option<&'static AtomicBool>,
}

impl Plan {
    /// Bytes of a stack copied by default.
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

    /// How many instructions are left after so many.
    pub fn instructions_left(&self, instructions: u64) -> u64 {
        let most = self.max_instructions.unwrap_or(u64::MAX);
        most.saturating_sub(instructions)
    }

    /// Have as many samples been taken as were asked for?
    pub fn has_samples(&self, samples: u64) -> bool {
        self.max_samples.is_some_and(|most| samples >= most)
    }

    /// Has as much been recorded as was asked for?
    pub fn is_complete(&self, samples: u64, instructions: u64) -> bool {
        self.has_samples(samples) || self.instructions_left(instructions) == 0
    }

    /// Was the recording asked to end?
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl From<At> for Plan {
    fn from(at: At) -> Plan {
        Plan::new(at)
    }
}
