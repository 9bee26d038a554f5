//! Delta-encodes samples; the counterpart of `decode`.

use super::{Inner, SLOTS_MAX, Slot, Thread, branches, frame, kernel, pc_slot, presence, region};
use crate::model::{RecordedChain, Region, Sample};
use crate::trace::error::WriteError;
use crate::trace::layout::{
    CHUNK_DECODED_BYTES_MAX, NAME_BYTES_MAX, RECORDED_CHAINS_MAX, RECORDED_IPS_MAX, REGIONS_MAX,
    TRUTH_FRAMES_MAX,
};
use crate::trace::varint::{put, put_bytes, put_difference};
use crate::trace::window;
use std::collections::HashMap;
use unwind_sim_unwind::memory::{Memory, Regions};
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

/// Maximum bytes for the runs of one sample; a region beyond this is written as literals. Together
/// with [`TRUTH_BYTES_MAX`] and the other limits, this keeps every record under 512 KiB.
const RUNS_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes for a true chain; a longer one is truncated.
const TRUTH_BYTES_MAX: usize = 320 << 10;

/// Encodes the samples of one block.
#[derive(Default)]
pub(crate) struct Encoder {
    threads: Vec<Thread>,
    numbers: HashMap<(u32, u32), usize>,
    sources: Vec<String>,
    time: u64,
}

/// Rejects a sample that the format cannot hold.
pub(crate) fn check(sample: &Sample<'_>) -> Result<(), WriteError> {
    WriteError::check("regions of a sample", sample.regions.len(), REGIONS_MAX)?;

    let mut total = 0usize;
    for r in &sample.regions {
        let bytes = r.bytes.len() as u64;
        // The format has the end of a region, which must not wrap.
        if r.address.checked_add(bytes).is_none() {
            return Err(WriteError::RegionWraps {
                address: r.address,
                bytes,
            });
        }
        total = total.saturating_add(r.bytes.len());
    }

    let recorded = &sample.recorded;
    WriteError::check(
        "recorded chains of a sample",
        recorded.len(),
        RECORDED_CHAINS_MAX,
    )?;
    let ips = recorded.iter().map(|r| r.ips.len()).sum();
    WriteError::check(
        "addresses in a sample's recorded chains",
        ips,
        RECORDED_IPS_MAX,
    )?;

    for r in recorded {
        // The source names of a sample must together fit into one record.
        let max = NAME_BYTES_MAX / RECORDED_CHAINS_MAX;
        WriteError::check(
            "bytes in the name of a recorded chain's source",
            r.source.len(),
            max,
        )?;
    }

    branches::check(&sample.branches)?;
    if let Some(kernel) = &sample.kernel {
        kernel::check(kernel)?;
    }

    // The other half leaves room for the other parts, such as the longest true chain.
    let max = CHUNK_DECODED_BYTES_MAX / 2;
    WriteError::check("bytes in the regions of a sample", total, max as usize)
}

impl Encoder {
    /// Number of threads seen.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Adds a sample that [`check`] has accepted.
    pub(crate) fn sample(
        &mut self,
        sample: &Sample<'_>,
        records: &mut Vec<u8>,
        literals: &mut Vec<u8>,
    ) {
        let key = (sample.pid, sample.tid);
        let new = self.threads.len();
        // Threads are numbered in the order of their first samples.
        let number = *self.numbers.entry(key).or_insert(new);
        if number == new {
            self.threads.push(Thread::new(sample.pid, sample.tid));
            // A thread that was not seen before in this block.
            put(records, 0);
            put(records, u64::from(sample.pid));
            put(records, u64::from(sample.tid));
        } else {
            put(records, number as u64 + 1);
        }

        // Relative to the last sample of the block, whatever its thread.
        put_difference(records, sample.time, self.time);
        self.time = sample.time;

        // A chain that is too deep is kept as far as it fits.
        let kept = kept_frames(sample);
        records.push(presence_of(sample, kept));

        let thread = &mut self.threads[number];
        put_regs(&sample.regs.sampled, &thread.regs[0], records, literals);
        for (regs, before) in [sample.regs.fetch, sample.regs.own]
            .iter()
            .zip(&thread.regs[1..])
        {
            if let Some(regs) = regs {
                put_regs(regs, before, records, literals);
            }
        }
        // The differences of the thread's next sample are to these.
        thread.set_regs(&sample.regs);

        // Before the truth: a reader takes predicted pcs from the regions.
        put(records, sample.regions.len() as u64);
        put_regions(thread, &sample.regions, records, literals);

        if sample.truth != Truth::Unknown {
            put_truth(thread, sample, kept, records);
        }

        if !sample.recorded.is_empty() {
            put(records, sample.recorded.len() as u64);
            for (i, chain) in sample.recorded.iter().enumerate() {
                put_recorded(&mut self.sources, &mut thread.recorded, i, chain, records);
            }
        }

        if let Some(kernel) = &sample.kernel {
            kernel::put_kernel(kernel, records);
        }

        if !sample.branches.is_empty() {
            branches::put_branches(&sample.branches, &mut thread.branches, records);
        }
    }
}

fn presence_of(sample: &Sample<'_>, kept: usize) -> u8 {
    let truth = match sample.truth {
        Truth::Unknown => 0,
        // A truncated chain is known to a depth, not complete.
        Truth::Complete(_) if kept == sample.truth.frames().len() => 2,
        Truth::Known(_) | Truth::Complete(_) => 1,
    };

    let mut bits = truth << presence::TRUTH_SHIFT;

    if sample.regs.fetch.is_some() {
        bits |= presence::FETCH;
    }
    if sample.regs.own.is_some() {
        bits |= presence::OWN;
    }
    if sample.kernel.is_some() {
        bits |= presence::KERNEL;
    }
    if !sample.recorded.is_empty() {
        bits |= presence::RECORDED;
    }
    if !sample.branches.is_empty() {
        bits |= presence::BRANCHES;
    }
    bits
}

/// The values are written as literals, because the stack often holds the same values.
fn put_regs(regs: &Regs, before: &Regs, records: &mut Vec<u8>, literals: &mut Vec<u8>) {
    put(records, u64::from(regs.known().0 ^ before.known().0));
    let differs = |r: &Reg| regs.get_or_zero(*r) != before.get_or_zero(*r);
    let changed = regs.known().iter().filter(differs);
    let changed = changed.fold(RegMask::NONE, RegMask::with);
    put(records, u64::from(changed.0));
    for reg in changed.iter() {
        literals.extend_from_slice(&regs.get_or_zero(reg).to_le_bytes());
    }
}

fn put_regions(
    thread: &mut Thread,
    regions: &[Region<'_>],
    records: &mut Vec<u8>,
    literals: &mut Vec<u8>,
) {
    // Two regions in one slot would change the same window.
    let mut used = [false; REGIONS_MAX];
    // Shared by all regions of the sample, so that its record stays small.
    let mut budget = RUNS_BYTES_MAX;
    let mut runs = Vec::new();

    for r in regions {
        let number = choose_slot(&thread.slots, r, &used);
        used[number] = true;
        if number == thread.slots.len() {
            thread.slots.push(Slot::default());
        }

        let slot = &mut thread.slots[number];
        let mut head = r.role as u8;

        // If the runs would take too much, the slot forgets its memory, and all bytes are literals.
        if !window::encode(
            &mut slot.window,
            r.address,
            &r.bytes,
            budget,
            &mut runs,
            literals,
        ) {
            head |= region::FRESH;
            // Without a window there are no runs, so a budget of 0 is enough.
            slot.window.clear();
            window::encode(
                &mut slot.window,
                r.address,
                &r.bytes,
                0,
                &mut runs,
                literals,
            );
        }

        budget -= runs.len();

        let same = slot.bounds == r.bounds && slot.next_sp == r.next_sp;
        if !same {
            head |= region::BOUNDS;
        }

        records.push(head);
        put(records, number as u64);

        if !same {
            put_difference(records, r.bounds.start, slot.bounds.start);
            put_difference(records, r.bounds.end, slot.bounds.end);
            put_difference(records, r.next_sp, slot.next_sp);
        }

        let range = r.address..r.address + r.bytes.len() as u64;
        put_difference(records, range.start, slot.region.start);
        put_difference(records, range.end, slot.region.end);
        // Only now: the head, which comes first, says whether the slot forgets its memory.
        records.extend_from_slice(&runs);

        // The thread's next region in this slot is relative to these.
        slot.bounds = r.bounds.clone();
        (slot.next_sp, slot.region) = (r.next_sp, range);
    }
}

/// The slot whose window touches the region, else a new slot, else any unused one.
fn choose_slot(slots: &[Slot], r: &Region<'_>, used: &[bool; REGIONS_MAX]) -> usize {
    let range = r.address..r.address + r.bytes.len() as u64;
    let free = |i: &usize| !used[*i];
    let mut all = (0..slots.len()).filter(free);
    let continued = all.clone().find(|&i| slots[i].window.touches(&range));
    // Every region of a sample needs its own slot, even beyond the limit per thread.
    let new = (slots.len() < SLOTS_MAX).then_some(slots.len());
    continued
        .or(new)
        .or_else(|| all.next())
        .unwrap_or(slots.len())
}

/// Number of true frames to write.
fn kept_frames(sample: &Sample<'_>) -> usize {
    /// Maximum bytes of a frame.
    const WORST: usize = 1 + 10 + 10 + 1 + 6 * 10;
    let frames = sample.truth.frames();
    let count = frames.len().min(TRUTH_FRAMES_MAX);
    if count * WORST <= TRUTH_BYTES_MAX {
        return count;
    }
    let mut records = Vec::new();
    let (memory, mut inner) = (sample.memory(), Inner::new(&sample.regs));
    for i in 0..count {
        put_frame(frames, i, &mut inner, &memory, &mut records);
        if records.len() > TRUTH_BYTES_MAX {
            return i;
        }
    }
    count
}

fn put_truth(thread: &mut Thread, sample: &Sample<'_>, kept: usize, records: &mut Vec<u8>) {
    let frames = &sample.truth.frames()[..kept];
    let pairs = frames.iter().rev().zip(thread.truth.iter().rev());
    let shared = pairs.take_while(|(a, b)| a == b).count();
    let new = frames.len() - shared;
    put(records, new as u64);
    put(records, shared as u64);
    let (memory, mut inner) = (sample.memory(), Inner::new(&sample.regs));
    for i in 0..new {
        put_frame(frames, i, &mut inner, &memory, records);
    }
    let gone = thread.truth.len() - shared;
    thread.truth.splice(..gone, frames[..new].iter().copied());
}

fn put_frame(
    frames: &[TrueFrame],
    i: usize,
    inner: &mut Inner,
    memory: &Regions<'_>,
    records: &mut Vec<u8>,
) {
    let f = &frames[i];

    // A pc that is where the sample's memory has it need not be written.
    let expected = match f.kind {
        TrueKind::Top => Some(inner.pc),
        kind => pc_slot(&frames[..i], kind).and_then(|slot| memory.read_u64(slot).ok()),
    };

    // A frame without known registers passes on those of its inner frame.
    let saved = f.saved.unwrap_or(inner.saved);
    let mut head = f.kind as u8;
    let flags = [
        (expected == Some(f.pc), frame::PC_FROM_STACK),
        (f.saved.is_some(), frame::SAVED),
        (saved != inner.saved, frame::SAVED_DIFFER),
    ];
    for (_, bit) in flags.iter().filter(|(set, _)| *set) {
        head |= bit;
    }

    records.push(head);
    if expected != Some(f.pc) {
        put_difference(records, f.pc, inner.pc);
    }

    put_difference(records, f.cfa, inner.cfa);
    if saved != inner.saved {
        let differ = |i: &usize| saved[*i] != inner.saved[*i];
        // A bit for each of the six callee-saved registers (psABI 3.2.1).
        records.push((0..6).filter(differ).map(|i| 1 << i).sum());
        for i in (0..6).filter(differ) {
            put_difference(records, saved[i], inner.saved[i]);
        }
    }

    inner.set(f);
}

fn put_recorded(
    sources: &mut Vec<String>,
    before: &mut Vec<Vec<u64>>,
    i: usize,
    chain: &RecordedChain,
    records: &mut Vec<u8>,
) {
    // A name is written once in a block; after that, its number is.
    match sources.iter().position(|s| *s == chain.source) {
        Some(number) => put(records, number as u64 + 1),
        None => {
            put(records, 0);
            put_bytes(records, chain.source.as_bytes());
            sources.push(chain.source.clone());
        }
    }

    // Compared with the chain at the same place in the thread's last sample, whatever its source.
    if before.len() <= i {
        before.push(Vec::new());
    }

    // Innermost first: the outer frames, at the end, are often those of the chain before.
    let (ips, before) = (&chain.ips, &mut before[i]);
    let pairs = ips.iter().rev().zip(before.iter().rev());
    let shared = pairs.take_while(|(a, b)| a == b).count();
    let new = ips.len() - shared;
    put(records, new as u64);
    put(records, shared as u64);

    let mut last = 0;
    for &ip in &ips[..new] {
        put_difference(records, ip, last);
        last = ip;
    }

    let gone = before.len() - shared;
    before.splice(..gone, ips[..new].iter().copied());
}

#[cfg(test)]
mod tests;
