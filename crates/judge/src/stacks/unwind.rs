//! Unwinds samples of a perf.data to addresses. Each thread has its own unwinding.
//!
//! Stack copies are in memory that is not in the processor's caches. The samples of a group are
//! touched together before the first is walked, so that the processor fetches them in parallel.

use super::batch::Batch;
use super::task::{Consumer, Counted, Taken, Task};
use crate::engine::{Engine, Setting};
use arrayvec::ArrayVec;
use std::collections::BTreeMap;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::callchain::Context;
use unwind_sim_perf_data::{RawRecord, Sample, flag};
use unwind_sim_recordings::import::Skip;
use unwind_sim_recordings::import::perf::{refuse_guest, registers_and_stack};
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Sink, Step};
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::MemoryCopy;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{FakeVariant, SampleRegs, Start, Variant};
use unwind_sim_unwind::unwinder::Stack;
use unwind_sim_unwind::walk::{WalkTarget, walk};

/// The number of samples in a group.
const GROUP: usize = 8;
/// The size of a cache line, in bytes.
const LINE: usize = 64;
/// The size of a sample before its stack copy, as perf records it, in bytes.
const HEAD: usize = 320;
/// The usual distance of the copy's length from the end of a sample, in bytes: at most two fields
/// of 8 bytes follow it.
const TAIL: usize = 24;
/// The maximum number of bytes of a stack that are fetched before its walk.
const FETCH_MAX: u64 = 4096;

/// How stacks are walked.
#[derive(Clone, Copy)]
pub struct How<'a> {
    /// The unwinder.
    pub engine: &'a Engine,
    /// The start; `None` for the one that the sample was taken with.
    pub variant: Option<Variant>,
    /// The limits, and the memory that a walk can read.
    pub setting: Setting,
}

/// Collects the pcs, the indices of the exact ones, and the last sp.
#[derive(Debug, Default)]
struct Pcs {
    pcs: Vec<u64>,
    exact: Vec<u32>,
    sp: u64,
}

impl Sink for Pcs {
    const DETAIL: bool = false;
    #[inline]
    fn frame(&mut self, step: Step<'_>) {
        if step.pc.is_instruction() {
            self.exact.push(self.pcs.len() as u32);
        }
        self.pcs.push(step.pc.value());
        self.sp = step.sp;
    }
}

/// The state of unwinding a recording.
pub(super) struct Unwinding<'a> {
    how: How<'a>,
    cache: Cache,
    pcs: Pcs,
    /// The kernel's part of the last chain.
    kernel: Vec<u64>,
    /// The only event whose samples to take, if set.
    event: Option<usize>,
    /// A moving average of the bytes from rsp that walks needed.
    extent: u64,
    /// The number of the only sample to take, if set.
    pub(super) only: Option<u64>,
    /// The number of samples that may still be taken.
    pub(super) left: u64,
    pub(super) seen: u64,
    pub(super) stacks: u64,
    pub(super) skipped: BTreeMap<Skip, u64>,
}

/// The user registers and the stack copy of a sample.
#[inline]
fn user_state<'a>(sample: &Sample<'a>) -> Result<(Regs, &'a [u8]), Skip> {
    refuse_guest(sample)?;
    let (regs, stack, _) = registers_and_stack(sample)?.ok_or(Skip::NoRegisters)?;
    Ok((regs, stack))
}

/// The event of a sample, and what it counted.
#[inline]
fn counted(file: &PerfFile<'_>, sample: &Sample<'_>) -> Counted {
    let attr = sample.attr();
    let event = match file.attrs() {
        [_] => None,
        several => several.iter().position(|other| std::ptr::eq(other, attr)),
    };
    // Without the field all samples have the period that was set, which may be a frequency.
    let set = || (attr.flags & flag::FREQ == 0).then_some(attr.sample_period);
    Counted {
        event: event.unwrap_or(0) as u32,
        period: sample.period().or_else(set).unwrap_or(0),
    }
}

impl<'a> Unwinding<'a> {
    pub(super) fn new(how: How<'a>, event: Option<usize>) -> Unwinding<'a> {
        Unwinding {
            how,
            cache: Cache::new(),
            pcs: Pcs::default(),
            kernel: Vec::new(),
            event,
            extent: 0,
            only: None,
            left: u64::MAX,
            seen: 0,
            stacks: 0,
            skipped: BTreeMap::new(),
        }
    }

    /// Unwinds a batch.
    pub(super) fn take<C: Consumer>(
        &mut self,
        file: &PerfFile<'_>,
        batch: &Batch,
        consumer: &mut C,
    ) {
        consumer.part(batch.number);
        for entries in batch.entries.chunks(GROUP) {
            let mut group: ArrayVec<(RawRecord<'_>, u32), GROUP> = ArrayVec::new();
            for entry in entries {
                match batch.raw(file, entry) {
                    Some(raw) => group.push((raw, entry.task)),
                    None => self.skip(Skip::Damaged),
                }
            }
            self.fetch(&group);
            for (raw, task) in &group {
                let task = &batch.tasks[*task as usize];
                if let Err(skip) = self.one(file, raw, task, consumer) {
                    self.skip(skip);
                }
            }
        }
    }

    fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Touches what the walks of the group will most likely read: the fields before the stack copy,
    /// its start, and its length after it.
    fn fetch(&self, group: &[(RawRecord<'_>, u32)]) {
        let len = HEAD + self.extent.min(FETCH_MAX) as usize;
        let mut sum = 0u8;
        for (raw, _) in group {
            let front = raw.body.get(..len).unwrap_or(raw.body);
            sum = front.iter().step_by(LINE).fold(sum, |sum, byte| sum ^ byte);
            sum ^= raw
                .body
                .len()
                .checked_sub(TAIL)
                .map_or(0, |at| raw.body[at]);
        }
        std::hint::black_box(sum);
    }

    fn one<C: Consumer>(
        &mut self,
        file: &PerfFile<'_>,
        raw: &RawRecord<'_>,
        task: &Task,
        consumer: &mut C,
    ) -> Result<(), Skip> {
        // Only counted: each record has its own length, so the next one can still be read.
        let sample = file
            .sample(raw)
            .map_err(|_| Skip::Damaged)?
            .ok_or(Skip::Damaged)?;
        let (regs, stack) = user_state(&sample)?;

        // Numbers count samples that have a stack, whether they are walked or not.
        let number = self.seen;
        self.seen += 1;
        if self.left == 0 || self.only.is_some_and(|only| only != number) {
            return Ok(());
        }

        // The number of a sample counts those of all events, so the event is looked at after it.
        let counted = counted(file, &sample);
        if self
            .event
            .is_some_and(|only| only != counted.event as usize)
        {
            return Ok(());
        }

        self.left -= 1;
        self.pcs.pcs.clear();
        self.pcs.exact.clear();
        let end = self.walk(&regs, stack, &task.space);
        self.stacks += 1;

        // The kernel part is as perf recorded it: without its stack it cannot be walked here.
        self.kernel.clear();
        if let Some(chain) = sample.callchain().map_err(|_| Skip::Damaged)? {
            self.kernel.extend(chain.frames_of(Context::Kernel));
        }

        let (pcs, exact) = (&self.pcs.pcs[..], &self.pcs.exact[..]);
        let time = sample.time().unwrap_or(0);
        consumer.stack(&Taken {
            task,
            time,
            counted: Some(counted),
            kernel: &self.kernel,
            pcs,
            exact,
            end,
        });

        Ok(())
    }

    /// The pcs of a sample's user stack, and the indices of the exact ones.
    pub(super) fn walk_sample(
        &mut self,
        sample: &Sample<'_>,
        space: &AddressSpace,
    ) -> Option<(&[u64], &[u32])> {
        let (regs, stack) = user_state(sample).ok()?;
        self.pcs.pcs.clear();
        self.pcs.exact.clear();
        if stack.is_empty() {
            return None;
        }
        self.walk(&regs, stack, space);
        Some((&self.pcs.pcs, &self.pcs.exact))
    }

    fn walk(&mut self, regs: &Regs, stack: &[u8], space: &AddressSpace) -> Code {
        let setting = &self.how.setting;
        let rsp = regs.rsp();
        let memory = MemoryCopy::new(rsp, stack);
        let memory = match setting.view {
            MemoryView::Cpu => memory,
            MemoryView::Copy(bytes) => memory.window(rsp, bytes),
        };
        let hardware = regs.is_hardware();

        // Intel SDM volume 1, 3.4.3: bit 1 of the flags is always set, so the kernel made registers
        // without it.
        let start = match self.how.variant {
            None | Some(Variant::Hardware) if hardware => Start::from_regs(*regs),
            variant => {
                let variant = variant.unwrap_or(Variant::Fake(FakeVariant::V5_2));
                let regs = SampleRegs::hardware(*regs);
                match regs.start(variant, setting.frame_pointer_kernel, &memory) {
                    Ok(start) => start,
                    Err(reason) => return reason.code(),
                }
            }
        };

        let place = WalkTarget {
            space,
            memory: &memory,
        };

        let Some(finder) = self.how.engine.finder() else {
            // One that walks by itself says of each frame whether its address was called from.
            let mut stack = Stack::new(&start, space, &memory);
            stack.limits = setting.limits;
            let chain = self.how.engine.walk(&stack, &mut self.cache);
            for (frame, at) in chain.frames.iter().zip(0u32..) {
                self.pcs.pcs.push(frame.pc.value());
                if frame.pc.is_instruction() {
                    self.pcs.exact.push(at);
                }
            }
            return chain.end.reason.code();
        };

        let end = walk(
            finder,
            &place,
            &start,
            &setting.limits,
            &mut self.cache,
            &mut self.pcs,
        );

        // A moving average; a wild sp counts as the maximum.
        let used = self.pcs.sp.wrapping_sub(rsp).min(FETCH_MAX);
        self.extent = (self.extent * 15 + used) / 16;

        end.reason.code()
    }
}
