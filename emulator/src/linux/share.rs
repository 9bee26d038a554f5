//! How long the running thread may run: a number of instructions that the run's seed gives, or the
//! current turn of a given schedule. Not here: which thread is next (`schedule`).

use super::turns::{Turn, TurnRecord};
use crate::random::Random;
use std::sync::Arc;

/// Instructions that a thread runs at most before another one does. On average it is half of it.
const QUANTUM_MAX: u64 = 20_000;
/// Makes the random numbers of the schedule others than those that programs draw.
const STREAM: u64 = 0x7363_6865_6475_6c65;

/// The processor's time.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Random,
    /// The number of executed instructions at which the running thread has had its share.
    pub(super) end: u64,
    /// A schedule to follow; then the seed decides.
    pub(super) given: Option<GivenSchedule>,
    /// What was taken, if it is kept.
    pub(super) taken: Option<TurnRecord>,
}

/// A given schedule.
#[derive(Clone, Debug)]
pub(super) struct GivenSchedule {
    pub(super) turns: Arc<[Turn]>,
    /// The index of the current turn.
    at: usize,
    /// When its thread began to run.
    pub(super) begun: Option<u64>,
}

impl Schedule {
    pub(super) fn new(seed: u64, given: Option<Arc<[Turn]>>, is_kept: bool) -> Schedule {
        Schedule {
            random: Random::new(seed ^ STREAM),
            end: 0,
            given: given.map(|turns| GivenSchedule {
                turns,
                at: 0,
                begun: None,
            }),
            taken: is_kept.then(TurnRecord::default),
        }
    }

    /// Gives the running thread its share.
    pub(super) fn begin(&mut self, executed: u64) {
        if let Some((_, turn)) = self.turn() {
            if let Some(given) = &mut self.given
                && given.begun.is_none()
            {
                given.begun = Some(executed);
                self.end = executed.saturating_add(turn.instructions);
            }
            return;
        }
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        self.end = executed + 1 + u64::from_le_bytes(bytes) % QUANTUM_MAX;
    }

    /// Takes the rest of the running thread's share away.
    pub(super) fn give_way(&mut self) {
        if self.turn().is_none() {
            self.end = 0;
        }
    }

    /// The current turn of a given schedule, with its index.
    pub(super) fn turn(&self) -> Option<(usize, Turn)> {
        let given = self.given.as_ref()?;
        Some((given.at, *given.turns.get(given.at)?))
    }

    /// Whether the thread of the current turn has run.
    pub(super) fn has_begun(&self) -> bool {
        self.given
            .as_ref()
            .is_some_and(|given| given.begun.is_some())
    }

    /// Goes on to the next turn of a given schedule.
    pub(super) fn next_turn(&mut self) {
        if let Some(given) = &mut self.given {
            given.at += 1;
            given.begun = None;
        }
    }

    /// The running thread has another number from here on.
    pub(super) fn renumbered(&mut self, thread: u32, executed: u64) {
        if let Some(taken) = &mut self.taken {
            taken.run(thread, executed);
        }
    }
}
