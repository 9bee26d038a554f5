//! The checkpoints of a run: at each, registers, devices and shadow stacks, and what of memory differs
//! from the checkpoint before. So whoever is at one of them can go to each other, in both directions.

use super::computer::{Computer, Known};
use unwind_sim_emulator::address_space::Difference;
use unwind_sim_emulator::system::{SystemSnapshot, SystemState};

/// Maximum number of checkpoints, and of the bytes of what differs between them.
const CHECKPOINTS_MAX: usize = 1 << 10;
const BYTES_MAX: usize = 512 << 20;

struct Checkpoint {
    state: SystemState,
    known: Known,
    /// What leads here from the one before, and back.
    way: Difference,
}

/// The checkpoints, by their numbers.
pub(super) struct Checkpoints {
    all: Vec<Checkpoint>,
    /// That of the scout at the last one.
    snapshot: SystemSnapshot,
    /// States between two. Doubles when there are too many.
    every: u64,
    bytes: usize,
}

impl Checkpoints {
    /// With a checkpoint where `scout` is now, and others every so many states.
    pub(super) fn new(scout: &mut Computer, every: u64) -> Checkpoints {
        let first = Checkpoint {
            state: scout.system.state(),
            known: scout.known().clone(),
            way: Difference::default(),
        };
        Checkpoints {
            all: vec![first],
            snapshot: scout.system.snapshot(),
            every,
            bytes: 0,
        }
    }

    /// The number of the state at which the next one is due.
    pub(super) fn due(&self) -> u64 {
        let last = self.number(self.all.len() - 1);
        (last / self.every + 1) * self.every
    }

    /// The number of the state of a checkpoint.
    pub(super) fn number(&self, index: usize) -> u64 {
        self.all[index].known.number
    }

    /// The last one that is not behind state `number`.
    pub(super) fn last_at(&self, number: u64) -> usize {
        let behind = self.all.partition_point(|c| c.known.number <= number);
        behind.saturating_sub(1)
    }

    /// Leaves one where `scout`, which has left all others, is now.
    pub(super) fn leave(&mut self, scout: &mut Computer) {
        let way = scout.system.difference(&self.snapshot);
        // It is held, the scout has no other one, and drops nothing that it has saved.
        debug_assert!(way.is_ok(), "{way:?}");
        let way = way.unwrap_or_default();
        self.bytes += way.bytes();
        self.all.push(Checkpoint {
            state: scout.system.state(),
            known: scout.known().clone(),
            way,
        });
        self.snapshot = scout.system.snapshot();
    }

    /// Whether there have to be fewer.
    pub(super) fn is_too_much(&self) -> bool {
        self.all.len() > CHECKPOINTS_MAX || self.bytes > BYTES_MAX && self.all.len() > 2
    }

    /// The checkpoint at or before this one that [`Checkpoints::thin`] keeps.
    pub(super) fn kept_before(&self, index: usize) -> usize {
        index - index % 2
    }

    /// Drops every second one.
    pub(super) fn thin(&mut self) {
        let mut kept: Vec<Checkpoint> = Vec::with_capacity(self.all.len());
        let mut way = Difference::default();
        let last = self.all.len() - 1;
        for (index, mut checkpoint) in self.all.drain(..).enumerate() {
            way = way.then(&checkpoint.way);
            // The last one is where the scout's snapshot is.
            if index % 2 == 0 || index == last {
                checkpoint.way = std::mem::take(&mut way);
                kept.push(checkpoint);
            }
        }
        self.bytes = kept.iter().map(|checkpoint| checkpoint.way.bytes()).sum();
        self.all = kept;
        self.every = self.every.saturating_mul(2);
    }

    /// Drops those behind one, from which `scout` goes on.
    pub(super) fn truncate(&mut self, last: usize, scout: &mut Computer) {
        let restored = scout.system.restore(&self.snapshot);
        debug_assert!(restored.is_ok(), "{restored:?}");
        self.lead(self.all.len() - 1, last, scout);
        self.all.truncate(last + 1);
        self.bytes = self
            .all
            .iter()
            .map(|checkpoint| checkpoint.way.bytes())
            .sum();
        self.snapshot = scout.system.snapshot();
    }

    /// Leads `walker` from one checkpoint to another.
    pub(super) fn lead(&self, from: usize, to: usize, walker: &mut Computer) {
        let (low, high) = (from.min(to), from.max(to));
        let ways = self.all[low + 1..=high].iter().map(|c| &c.way);
        let goal = &self.all[to];
        walker.system.go_to(&goal.state, ways);
        walker.set_known(goal.known.clone());
    }
}
