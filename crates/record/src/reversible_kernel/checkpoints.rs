//! The checkpoints of a run: at each, registers, devices and shadow stacks, and what of memory differs
//! from the checkpoint before. So whoever is at one of them can go to each other, in both directions.
//!
//! A line of memory may differ at each of many checkpoints. So ways over many of them are joined, which
//! have it once, and a long way is made of few.

use super::computer::{Computer, Known};
use unwind_sim_emulator::address_space::Difference;
use unwind_sim_emulator::system::{SystemSnapshot, SystemState};

/// Maximum number of checkpoints, and of the bytes of what differs between them.
const CHECKPOINTS_MAX: usize = 1 << 12;
const BYTES_MAX: usize = 512 << 20;
/// How many ways are one on the level above, and the number of levels.
const JOINED: usize = 16;
const LEVELS: usize = 3;

struct Checkpoint {
    state: SystemState,
    known: Known,
    /// What leads here from the one before, and back; on the level above, from the one [`JOINED`] before,
    /// and so on, as far as the number of this one is a multiple of that.
    ways: Vec<Difference>,
}

impl Checkpoint {
    fn bytes(&self) -> usize {
        self.ways.iter().map(Difference::bytes).sum()
    }
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
            ways: Vec::new(),
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
        self.add(Checkpoint {
            state: scout.system.state(),
            known: scout.known().clone(),
            ways: vec![way.unwrap_or_default()],
        });
        self.snapshot = scout.system.snapshot();
    }

    /// Adds one behind all others, with the way from the last one, and joins ways that it completes.
    fn add(&mut self, mut checkpoint: Checkpoint) {
        let number = self.all.len();
        let mut step = 1;
        for level in 0..LEVELS - 1 {
            if !number.is_multiple_of(step * JOINED) {
                break;
            }
            let before = (1..JOINED).rev();
            let others = before.map(|back| &self.all[number - back * step].ways[level]);
            let all = others.chain([&checkpoint.ways[level]]);
            let joined = all.fold(Difference::default(), |joined, way| joined.then(way));
            checkpoint.ways.push(joined);
            step *= JOINED;
        }
        self.bytes += checkpoint.bytes();
        self.all.push(checkpoint);
    }

    /// What leads from one to a later one, and back.
    pub(super) fn ways(&self, mut low: usize, high: usize) -> Vec<&Difference> {
        let mut ways = Vec::new();
        while low < high {
            // The longest way that begins here and does not lead beyond.
            let mut step = 1;
            let mut level = 0;
            while level + 1 < LEVELS
                && low.is_multiple_of(step * JOINED)
                && low + step * JOINED <= high
            {
                step *= JOINED;
                level += 1;
            }
            low += step;
            ways.push(&self.all[low].ways[level]);
        }
        ways
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
        let all = std::mem::take(&mut self.all);
        self.bytes = 0;
        let last = all.len() - 1;
        let mut way = Difference::default();
        for (index, mut checkpoint) in all.into_iter().enumerate() {
            let ways = std::mem::take(&mut checkpoint.ways);
            way = match ways.into_iter().next() {
                Some(next) => way.then(&next),
                None => way,
            };
            // The last one is where the scout's snapshot is.
            if index == 0 {
                self.all.push(checkpoint);
            } else if index % 2 == 0 || index == last {
                checkpoint.ways.push(std::mem::take(&mut way));
                self.add(checkpoint);
            }
        }
        self.every = self.every.saturating_mul(2);
    }

    /// Drops those behind one, from which `scout` goes on.
    pub(super) fn truncate(&mut self, last: usize, scout: &mut Computer) {
        let restored = scout.system.restore(&self.snapshot);
        debug_assert!(restored.is_ok(), "{restored:?}");
        self.lead(self.all.len() - 1, last, scout);
        self.all.truncate(last + 1);
        self.bytes = self.all.iter().map(Checkpoint::bytes).sum();
        self.snapshot = scout.system.snapshot();
    }

    /// Leads `walker` from one checkpoint to another.
    pub(super) fn lead(&self, from: usize, to: usize, walker: &mut Computer) {
        let (low, high) = (from.min(to), from.max(to));
        let goal = &self.all[to];
        let ways = self.ways(low, high).into_iter();
        walker.system.go_to(&goal.state, ways);
        walker.set_known(goal.known.clone());
    }
}
