//! Runs both sides: executes one instruction on each, compares, and repeats.

use super::difference::Difference;
use super::step::Lockstep;
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Followed, Kernel, Notice, Outcome, StartError};
use unwind_sim_emulator_native::StepError;

/// Number of instructions between checks of the clock.
const CLOCK_EVERY: u64 = 1 << 12;
/// Number of instructions that only the machine executes, between checks of the clock.
const SKIPPED_AT_ONCE: u64 = 1 << 22;
/// Number of steps timed for [`Run::bare_speed`], before and after the run.
const BARE_STEPS: u32 = 10_000;

/// Limits and options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Number of instructions that only the machine executes, at the start.
    pub skip: u64,
    /// Maximum number of instructions after these.
    pub instructions_max: u64,
    /// Maximum time.
    pub timeout: Option<Duration>,
    /// Also measure the speed of bare stepping.
    pub measure: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Run {
    /// How the program ended, if there was no difference.
    pub end: End,
    /// The first difference.
    pub difference: Option<Box<Difference>>,
    /// Instructions executed on both sides and fully compared.
    pub compared: u64,
    /// Those of them with a VEX prefix, such as those of AVX.
    pub vex: u64,
    /// Instructions for which the processor got the machine's result, such as system calls.
    pub led: u64,
    /// Exceptions raised on both sides.
    pub exceptions: u64,
    /// The duration.
    pub time: Duration,
    /// Steps per second on this computer when nothing is compared.
    pub bare_speed: Option<f64>,
    /// What the machine does not model and reported to the program as an error.
    pub notices: Vec<Notice>,
    /// What became of the schedule.
    pub followed: Followed,
}

impl Run {
    /// Instructions per second.
    pub fn speed(&self) -> f64 {
        (self.compared + self.led) as f64 / self.time.as_secs_f64()
    }
}

/// Why nothing could be compared.
#[derive(Debug, thiserror::Error)]
pub enum LockstepError {
    /// The program cannot be started in the machine.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The processor cannot be used.
    #[error(transparent)]
    Host(#[from] StepError),
}

/// Executes the first instructions in the machine. Says how it ended if it did.
fn skip(process: &mut Kernel, request: &Request) -> Option<End> {
    let begin = Instant::now();
    while process.executed() < request.skip {
        let left = request.skip - process.executed();
        match process.run(left.min(SKIPPED_AT_ONCE), &mut ()) {
            Outcome::Limit => {}
            outcome => return Some(End::Outcome(outcome)),
        }
        if request.timeout.is_some_and(|most| begin.elapsed() >= most) {
            return Some(End::Timeout);
        }
    }
    None
}

/// Runs a program on both sides, to its end, the first difference or a limit. `progress` is called
/// at intervals with the number of instructions.
///
/// # Errors
/// If the program cannot be started, or this computer does not allow ptrace.
pub fn run(
    program: RunningProgram,
    request: &Request,
    progress: &mut dyn FnMut(u64),
) -> Result<Run, LockstepError> {
    let mut process = Kernel::start(&program.path, program.options)?;
    let skipped = skip(&mut process, request);
    let mut lockstep = Lockstep::new(process)?;

    let mut bare = Vec::new();
    if request.measure {
        bare.push(lockstep.bare_speed(BARE_STEPS)?);
    }

    let begin = Instant::now();
    let mut difference = None;
    let end = loop {
        if let Some(end) = skipped {
            break end;
        }

        let number = lockstep.executed();
        if number >= request.instructions_max {
            break End::Outcome(Outcome::Limit);
        }

        // Not at each instruction, because reading the clock takes longer than many of them.
        if number.is_multiple_of(CLOCK_EVERY) {
            progress(number);
            if request.timeout.is_some_and(|most| begin.elapsed() >= most) {
                break End::Timeout;
            }
        }

        let (outcome, found) = lockstep.step()?;
        difference = found;
        if difference.is_some() || outcome != Outcome::Limit {
            break End::Outcome(outcome);
        }
    };

    // Steps compare memory and vector registers only now and then.
    if difference.is_none() {
        difference = lockstep.compare_all()?;
    }

    let time = begin.elapsed();
    if request.measure {
        bare.push(lockstep.bare_speed(BARE_STEPS)?);
    }

    Ok(Run {
        end,
        difference,
        compared: lockstep.compared,
        vex: lockstep.vex,
        led: lockstep.led,
        exceptions: lockstep.exceptions,
        time,
        bare_speed: (!bare.is_empty()).then(|| bare.iter().sum::<f64>() / bare.len() as f64),
        notices: lockstep.notices().to_vec(),
        followed: lockstep.followed(),
    })
}
