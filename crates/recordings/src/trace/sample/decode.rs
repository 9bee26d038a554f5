//! Decodes delta-encoded samples; the counterpart of `encode`.
//!
//! [`Decoder::step`] advances by one sample in time proportional to the sample's encoded size. Only
//! [`Decoder::sample`] builds the sample, so skipping samples is cheap.

use super::details::Detail;
use super::{
    Inner, ROLES, Slot, Thread, branches, frame, kernel, kind_of, pc_slot, presence, region,
};
use crate::model::{CallchainRequest, KernelSample, RecordedChain, Region, RegionRole, Sample};
use crate::trace::error::Bad;
use crate::trace::layout::{
    CHUNK_DECODED_BYTES_MAX, FRAME_BYTES, NAME_BYTES_MAX, RECORDED_CHAINS_MAX, RECORDED_IPS_MAX,
    REGIONS_MAX, TRUTH_FRAMES_MAX,
};
use crate::trace::varint::Cursor;
use crate::trace::window;
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::regs::{Reg, RegMask, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

/// Decodes the samples of one block.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    threads: Vec<Thread>,
    sources: Vec<String>,
    time: u64,
    /// Bytes that the samples so far would take if all were copied out.
    weight: u64,
    now: Now,
}

/// The state of the current sample that is not kept in its thread.
#[derive(Debug, Default)]
struct Now {
    thread: usize,
    presence: u8,
    regs: SampleRegs,
    /// Slot and role of each region.
    regions: Vec<(usize, RegionRole)>,
    /// Source of each recorded chain, and what the kernel was asked for.
    recorded: Vec<(usize, Option<CallchainRequest>)>,
    kernel: Option<Box<KernelSample>>,
    branches: Vec<BranchStack>,
}

impl Now {
    /// The word at `address`, from the first region that contains all of it.
    fn word(&self, slots: &[Slot], address: u64) -> Option<u64> {
        let range = address..address.checked_add(8)?;
        let inside = |r: &Range<u64>| r.start <= range.start && range.end <= r.end;
        let mut held = self.regions.iter().map(|&(slot, _)| &slots[slot]);
        let slot = held.find(|s| inside(&s.region))?;
        let bytes = slot.window.get(&range)?;
        bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
    }
}

impl Decoder {
    /// Decodes the next sample's differences. After an error nothing more can be read.
    pub(crate) fn step(
        &mut self,
        records: &mut Cursor<'_>,
        literals: &mut Cursor<'_>,
    ) -> Result<(), Bad> {
        let number = self.thread(records)?;
        self.time = records.difference(self.time)?;

        let bits = records.u8()?;
        // The two bits of the truth have only three defined values.
        if bits & !presence::ALL != 0 || bits >> presence::TRUTH_SHIFT & 3 > 2 {
            return Err(records.bad("a sample has unknown presence bits"));
        }

        let (now, thread) = (&mut self.now, &mut self.threads[number]);
        (now.thread, now.presence) = (number, bits);

        // A set that is absent keeps its last values.
        let mut regs = |present: u8, before: &Regs| {
            let read = || read_regs(before, records, literals);
            (present != 0).then(read).transpose()
        };
        now.regs = SampleRegs {
            sampled: regs(1, &thread.regs[0])?.unwrap_or(Regs::UNKNOWN),
            fetch: regs(bits & presence::FETCH, &thread.regs[1])?,
            own: regs(bits & presence::OWN, &thread.regs[2])?,
        };
        thread.set_regs(&now.regs);

        // Before the truth, whose predicted pcs are read from the regions.
        let mut weight = read_regions(now, thread, records, literals)?;
        if bits >> presence::TRUTH_SHIFT & 3 != 0 {
            read_truth(now, thread, records)?;
            weight += thread.truth.len() as u64 * FRAME_BYTES;
        }

        // `now` is reused: parts that are absent must not keep those of the sample before.
        now.recorded.clear();
        if bits & presence::RECORDED != 0 {
            weight += read_recorded(now, thread, &mut self.sources, records)?;
        }

        now.kernel = None;
        if bits & presence::KERNEL != 0 {
            let kernel = kernel::read(records)?;
            weight += kernel::weight(&kernel);
            now.kernel = Some(Box::new(kernel));
        }

        now.branches.clear();
        if bits & presence::BRANCHES != 0 {
            now.branches = branches::read(&mut thread.branches, records)?;
            weight += branches::weight(&now.branches);
        }

        // A small block can repeat a large stack in every sample.
        self.weight = self.weight.saturating_add(weight);
        if self.weight > CHUNK_DECODED_BYTES_MAX {
            return Err(records.bad("the samples of a block come to more than 64 MiB"));
        }
        Ok(())
    }

    /// Adds a detail to the current sample.
    pub(crate) fn detail(&mut self, detail: Detail) -> Result<(), &'static str> {
        match detail {
            Detail::Request(chain, request) => {
                let chain = self.now.recorded.get_mut(chain);
                let (_, known) = chain.ok_or("a request for a chain that the sample lacks")?;
                *known = Some(request);
            }
            Detail::Unwinder(kind) => {
                let kernel = self.now.kernel.as_mut();
                let kernel = kernel.ok_or("the unwinder of a sample without a kernel")?;
                kernel.unwinder = Some(kind);
            }
            Detail::Uretprobes(taken) => {
                let kernel = self.now.kernel.as_mut();
                let user = kernel.and_then(|kernel| kernel.user.as_mut());
                let user = user.ok_or("return probes of a sample without a task's user space")?;
                user.uretprobes = Some(taken);
            }
        }
        Ok(())
    }

    fn thread(&mut self, records: &mut Cursor<'_>) -> Result<usize, Bad> {
        let number = records.count(self.threads.len(), "a thread that was not named before")?;
        if let Some(number) = number.checked_sub(1) {
            return Ok(number);
        }
        let (pid, tid) = (records.u32()?, records.u32()?);
        self.threads.push(Thread::new(pid, tid));
        Ok(self.threads.len() - 1)
    }

    /// The current sample.
    pub(crate) fn sample(&self) -> Sample<'_> {
        let now = &self.now;
        let thread = &self.threads[now.thread];

        let regions = now.regions.iter().map(|&(slot, role)| {
            let slot = &thread.slots[slot];
            Region {
                role,
                bounds: slot.bounds.clone(),
                next_sp: slot.next_sp,
                address: slot.region.start,
                // Not copied: the thread's window has them.
                bytes: Cow::Borrowed(slot.window.get(&slot.region).unwrap_or(&[])),
            }
        });

        // The n-th chain of the sample is the thread's n-th, whatever its source.
        let recorded =
            now.recorded
                .iter()
                .zip(&thread.recorded)
                .map(|(&(source, request), ips)| RecordedChain {
                    source: self.sources[source].clone(),
                    ips: ips.clone(),
                    request,
                });

        Sample {
            pid: thread.pid,
            tid: thread.tid,
            time: self.time,
            regs: now.regs,
            regions: regions.collect(),
            truth: match now.presence >> presence::TRUTH_SHIFT & 3 {
                0 => Truth::Unknown,
                1 => Truth::Known(thread.truth.clone()),
                _ => Truth::Complete(thread.truth.clone()),
            },
            recorded: recorded.collect(),
            branches: now.branches.clone(),
            kernel: now.kernel.clone(),
            process_memory: None,
        }
    }
}

fn read_regs(
    before: &Regs,
    records: &mut Cursor<'_>,
    literals: &mut Cursor<'_>,
) -> Result<Regs, Bad> {
    let known = RegMask(records.u32()? ^ before.known().0);
    let changed = RegMask(records.u32()?);
    if known.and(RegMask::ALL) != known || changed.and(known) != changed {
        return Err(records.bad("registers that do not exist"));
    }
    let mut regs = Regs::UNKNOWN;
    for reg in known.iter() {
        let value = if changed.contains(reg) {
            let bytes = literals
                .take(8)
                .map_err(|_| records.bad("the literals end too early"))?;
            bytes.try_into().map_or(0, u64::from_le_bytes)
        } else {
            before.get_or_zero(reg)
        };
        regs.set(reg, value);
    }
    Ok(regs)
}

/// Returns the total number of bytes of all regions.
fn read_regions(
    now: &mut Now,
    thread: &mut Thread,
    records: &mut Cursor<'_>,
    literals: &mut Cursor<'_>,
) -> Result<u64, Bad> {
    now.regions.clear();
    let mut weight = 0u64;

    for _ in 0..records.count(REGIONS_MAX, "more regions than a sample may have")? {
        let head = records.u8()?;
        let role = ROLES[usize::from(head & region::ROLE)];
        if head & !region::ALL != 0 {
            return Err(records.bad("a region has unknown bits"));
        }

        // One that was used already, or the next.
        let max = thread.slots.len().min(REGIONS_MAX - 1);
        let number = records.count(max, "a slot that was not used before")?;
        // Both would change the same window.
        if now.regions.iter().any(|(slot, _)| *slot == number) {
            return Err(records.bad("two regions of a sample in one slot"));
        }

        if number == thread.slots.len() {
            thread.slots.push(Slot::default());
        }

        let slot = &mut thread.slots[number];
        // The writer does so where the runs would take too much.
        if head & region::FRESH != 0 {
            slot.window.clear();
        }

        // Otherwise the slot's last bounds are still right.
        if head & region::BOUNDS != 0 {
            slot.bounds.start = records.difference(slot.bounds.start)?;
            slot.bounds.end = records.difference(slot.bounds.end)?;
            slot.next_sp = records.difference(slot.next_sp)?;
        }

        slot.region.start = records.difference(slot.region.start)?;
        slot.region.end = records.difference(slot.region.end)?;
        let Some(bytes) = slot.region.end.checked_sub(slot.region.start) else {
            return Err(records.bad("a region ends before it starts"));
        };

        // The whole region counts, not only what is encoded: most of it may be in the window.
        weight = weight.saturating_add(bytes);
        window::decode(&mut slot.window, &slot.region, records, literals)?;
        now.regions.push((number, role));
    }

    Ok(weight)
}

fn read_truth(now: &Now, thread: &mut Thread, records: &mut Cursor<'_>) -> Result<(), Bad> {
    let new = records.count(TRUTH_FRAMES_MAX, "more frames than a true chain may have")?;
    let what = "more frames shared with the previous chain than it has";
    let shared = records.count(thread.truth.len().min(TRUTH_FRAMES_MAX - new), what)?;
    let mut frames = Vec::with_capacity(new.min(records.left()));
    let mut inner = Inner::new(&now.regs);
    for _ in 0..new {
        let frame = read_frame(now, &thread.slots, &frames, &mut inner, records)?;
        frames.push(frame);
    }
    let gone = thread.truth.len() - shared;
    thread.truth.splice(..gone, frames);
    Ok(())
}

fn read_frame(
    now: &Now,
    slots: &[Slot],
    frames: &[TrueFrame],
    inner: &mut Inner,
    records: &mut Cursor<'_>,
) -> Result<TrueFrame, Bad> {
    let head = records.u8()?;
    let kind = kind_of(head & frame::KIND).filter(|_| head & !frame::ALL == 0);
    let kind = kind.ok_or_else(|| records.bad("a true frame of unknown kind"))?;

    // A predicted pc is read from the sample's memory.
    let pc = if head & frame::PC_FROM_STACK == 0 {
        records.difference(inner.pc)?
    } else {
        // A top frame's pc is rip, a call's is the return address, that of a frame that a signal
        // interrupted is in the signal frame.
        let word = match kind {
            TrueKind::Top => Some(inner.pc),
            _ => pc_slot(frames, kind).and_then(|address| now.word(slots, address)),
        };
        word.ok_or_else(|| records.bad("a true frame's pc is not in the sample's memory"))?
    };

    let cfa = records.difference(inner.cfa)?;

    // A frame without known registers passes on those of its inner frame.
    let mut saved = inner.saved;
    if head & frame::SAVED_DIFFER != 0 {
        let changed = records.u8()?;
        // A bit for each of the six callee-saved registers (psABI 3.2.1).
        if changed >> Reg::CALLEE_SAVED.len() != 0 {
            return Err(records.bad("registers that do not exist"));
        }
        for (i, value) in saved.iter_mut().enumerate() {
            if changed & 1 << i != 0 {
                *value = records.difference(*value)?;
            }
        }
    }

    let saved = (head & frame::SAVED != 0).then_some(saved);
    let frame = TrueFrame {
        pc,
        cfa,
        kind,
        saved,
    };

    inner.set(&frame);
    Ok(frame)
}

/// Returns the total number of bytes of all chains.
fn read_recorded(
    now: &mut Now,
    thread: &mut Thread,
    sources: &mut Vec<String>,
    records: &mut Cursor<'_>,
) -> Result<u64, Bad> {
    let mut total = 0;
    let chains = records.count(RECORDED_CHAINS_MAX, "more recorded chains than allowed")?;

    for i in 0..chains {
        // A source is named once in a block; 0 announces a new name.
        let number = records.count(sources.len(), "a source that was not named before")?;
        let source = match number.checked_sub(1) {
            Some(number) => number,
            None => {
                sources.push(records.string(NAME_BYTES_MAX)?.to_owned());
                sources.len() - 1
            }
        };

        now.recorded.push((source, None));
        if thread.recorded.len() <= i {
            thread.recorded.push(Vec::new());
        }
        let before = &mut thread.recorded[i];

        // All chains of a sample share the limit.
        let room = RECORDED_IPS_MAX - total;
        let new = records.count(room, "more recorded addresses than allowed")?;
        let what = "more addresses shared with the previous chain than it has";
        let shared = records.count(before.len().min(room - new), what)?;

        // An address takes at least a byte, so the count is not believed beyond what is left.
        let mut ips = Vec::with_capacity(new.min(records.left()));
        let mut last = 0;
        for _ in 0..new {
            last = records.difference(last)?;
            ips.push(last);
        }

        let gone = before.len() - shared;
        before.splice(..gone, ips);
        // Shared addresses count, too: a few bytes can repeat a whole chain.
        total += new + shared;
    }

    Ok(total as u64 * 8)
}

#[cfg(test)]
mod tests;
