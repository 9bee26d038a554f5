//! What a case is told that does not end: the limit, its value, and the option that raises it.

use std::fmt;
use unwind_sim_recordings::case_limits::CaseLimits;

/// A limit that the program of a case has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    /// [`CaseLimits::instructions_max`].
    Instructions(u64),
    /// [`CaseLimits::samples_max`].
    Samples(u64),
    /// [`CaseLimits::tasks_max`].
    Tasks(usize),
    /// [`CaseLimits::timeout`].
    Time(std::time::Duration),
}

impl Reached {
    /// The limit at which a recording ends that has as much as its plan asks for.
    pub(super) fn of_plan(limits: &CaseLimits, samples: u64) -> Reached {
        if samples >= limits.samples_max {
            Reached::Samples(limits.samples_max)
        } else {
            Reached::Instructions(limits.instructions_max)
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reached::Instructions(most) => write!(
                f,
                "it does not end: it was stopped at the limit of {most} instructions; \
                 --max-instructions N raises it"
            ),
            Reached::Samples(most) => write!(
                f,
                "it does not end: it was stopped at the limit of {most} visits of sample points; \
                 --max-samples N raises it"
            ),
            Reached::Tasks(most) => write!(
                f,
                "it was stopped at the limit of {most} threads and processes at the same time; \
                 --max-tasks N raises it"
            ),
            Reached::Time(most) => write!(
                f,
                "it does not end: it was stopped at the limit of {} s; --timeout SECONDS raises it",
                most.as_secs_f64()
            ),
        }
    }
}
