//! `--stitch-lbr`: chains longer than the ring, combined from two samples.
//!
//! As in `has_stitched_lbr()` and `lbr_callchain_add_lbr_ip()` of `tools/perf/util/machine.c`
//! (Linux 7.2): if the bottom of the ring still has entries that the thread's previous sample has
//! too, the previous sample's entries below them are appended to this sample. This is a guess:
//! those entries have been overwritten since, and returns followed by other calls may leave the
//! same records.

/// An entry to compare and stitch: source, target and flags of a branch.
pub trait Entry: Copy + PartialEq {
    /// Address of the branch.
    fn from(&self) -> u64;
}

impl Entry for crate::BranchEntry {
    fn from(&self) -> u64 {
        self.from
    }
}

/// The branch stack of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack<E> {
    /// Newest first.
    pub entries: Vec<E>,
    /// Hardware index of the newest entry (`hw_idx`).
    pub hw_index: u64,
}

/// The stitching state of one thread.
#[derive(Clone, Debug)]
pub struct LbrStitcher<E> {
    previous: Option<Stack<E>>,
    /// Entries taken from earlier samples, nearest to the leaf first.
    taken: Vec<E>,
    depth: u64,
    taken_max: usize,
}

/// Maximum number of entries taken from earlier samples. perf has no limit; without one, the chains
/// of a hostile file would grow with every sample.
const TAKEN_MAX: usize = 1024;

impl<E: Entry> LbrStitcher<E> {
    /// A thread without samples so far, on CPUs whose rings have `depth` entries (`branches` of the
    /// PMU's capabilities).
    pub fn new(depth: u32) -> Self {
        Self {
            previous: None,
            taken: Vec::new(),
            depth: depth.into(),
            taken_max: TAKEN_MAX,
        }
    }

    /// The user chain of a sample, innermost first: its address, the addresses of its branches, and
    /// the stitched ones.
    pub fn chain(&mut self, ip: u64, stack: Stack<E>) -> Vec<u64> {
        match self
            .previous
            .as_ref()
            .and_then(|previous| self.matching(previous, &stack))
        {
            Some(found) => {
                // The nearest entries are those that this sample has lost since.
                let room = self.taken_max.saturating_sub(found.len());
                self.taken.truncate(room);
                self.taken.splice(0..0, found);
            }
            None => self.taken.clear(),
        }
        let own = stack.entries.iter();
        let chain = std::iter::once(ip)
            .chain(own.chain(&self.taken).map(Entry::from))
            .collect();
        self.previous = Some(stack);
        chain
    }

    /// The previous sample's entries below the shared ones; `None` if no entries are shared.
    fn matching(&self, previous: &Stack<E>, current: &Stack<E>) -> Option<Vec<E>> {
        let count = current.entries.len() as u64;
        if count == 0 || previous.entries.is_empty() {
            return None;
        }

        // Hardware index of the oldest entry of this sample, and its distance from the newest one
        // of the previous sample; indices wrap around.
        let base = self
            .depth
            .checked_sub(count)?
            .checked_add(current.hw_index)?
            .checked_add(1)?;
        let distance = if previous.hw_index > base {
            previous.hw_index - base
        } else {
            self.depth
                .checked_add(previous.hw_index)?
                .checked_sub(base)?
        };

        let distance = usize::try_from(distance).ok()?;
        // Too many branches in between: nothing is shared.
        if distance >= previous.entries.len() {
            return None;
        }

        // Entry 0 is the newest. The entries that both should have are compared from the oldest on.
        let shared = previous.entries[..=distance].iter().rev();
        let equal = shared.zip(current.entries.iter().rev());
        let equal = equal.take_while(|(before, now)| before == now).count();
        (equal > 0).then(|| previous.entries[distance + 1..].to_vec())
    }
}
