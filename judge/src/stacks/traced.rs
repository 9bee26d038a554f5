//! Traces, cases and cores: sample by sample, on one thread.

use super::leader::thread_name;
use super::replay::{Counts, Options};
use super::source::Source;
use super::task::{Consumer, Taken, Task};
use super::unwind::How;
use crate::input::{Input, InputError};
use crate::run::RunError;
use std::collections::HashMap;
use unwind_sim_recordings::branches::Stitching;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::model::{Item, Sample};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::lbr::Branches;
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_unwind::unwinder::Stack;

/// Walks every sample of the recording that the filter lets through.
pub(super) fn replay<C: Consumer>(
    source: &Source,
    options: &Options<'_>,
    consumer: &mut C,
) -> Result<Counts, RunError> {
    let open = OpenOptions {
        symfs: source.symfs.clone(),
        ..OpenOptions::default()
    };
    let input = Input::open(&source.path, &open)?;
    let trace = input.trace();
    let filter = options.filter;
    if let Some(number) = filter.sample.filter(|&number| number >= trace.len()) {
        return Err(InputError::NoSample {
            number,
            len: trace.len(),
        }
        .into());
    }
    let mut world = World::new();
    let mut names = HashMap::new();
    let mut cache = Cache::new();
    let mut counts = Counts::default();
    let wants = options.how.engine.wants_stitching();
    let mut stitching = wants.then(Stitching::default);
    for chunk in trace.chunks() {
        let mut reader = chunk.read().map_err(InputError::from)?;
        while let Some(item) = reader.next() {
            let sample = match item.map_err(InputError::from)? {
                Item::Event(event) => {
                    world.apply(&event, trace.images());
                    continue;
                }
                Item::Sample(sample) => sample,
            };
            let stitched = stitching.as_mut().map(|s| s.next(&sample));
            let number = counts.samples;
            counts.samples += 1;
            let wanted = match filter.sample {
                Some(only) => only == number,
                None => {
                    filter.tid.is_none_or(|tid| tid == sample.tid)
                        && filter
                            .time
                            .is_none_or(|(a, b)| (a..b).contains(&sample.time))
                }
            };
            if !wanted || filter.limit.is_some_and(|limit| counts.stacks >= limit) {
                continue;
            }
            counts.stacks += 1;
            let (pid, tid) = (sample.pid, sample.tid);
            let name = thread_name(&world, &mut names, pid, tid);
            let task = Task {
                pid,
                tid,
                name,
                space: world.shared_space(pid),
            };
            let stitched = stitched.as_deref().unwrap_or_default();
            one(&options.how, &sample, stitched, &task, &mut cache, consumer);
        }
    }
    Ok(counts)
}

fn one<C: Consumer>(
    how: &How<'_>,
    sample: &Sample<'_>,
    stitched: &[Vec<u64>],
    task: &Task,
    cache: &mut Cache,
    consumer: &mut C,
) {
    let memory = sample.memory();
    let memory = match how.setting.view {
        unwind_sim_recordings::view::MemoryView::Cpu => memory,
        unwind_sim_recordings::view::MemoryView::Copy(bytes) => {
            let live = sample.regs.live().copied().unwrap_or_default();
            memory.profiler_copy(live.rsp(), bytes)
        }
    };
    let taken = match sample.regs.is_fake() {
        true => Variant::Fake(FakeVariant::V5_2),
        false => Variant::Hardware,
    };
    let variant = how.variant.unwrap_or(taken);
    let branches = Branches {
        stacks: &sample.branches,
        stitched,
    };
    let frame_pointers = how.setting.frame_pointer_kernel;
    let start = how.engine.start(sample, variant, frame_pointers, &memory);
    let (chain, end) = match &start {
        Err(reason) => (Chain::default(), reason.code()),
        Ok(start) => {
            let (space, memory, limits) = (&*task.space, &memory, how.setting.limits);
            let stack = Stack {
                start,
                space,
                memory,
                limits,
                task: None,
                branches,
            };
            let chain = how.engine.walk(&stack, cache);
            let end = chain.end.reason.code();
            (chain, end)
        }
    };
    let pcs: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();
    let numbered = chain.frames.iter().zip(0u32..);
    let exact = numbered.filter(|(frame, _)| frame.pc.is_instruction());
    let exact: Vec<u32> = exact.map(|(_, at)| at).collect();
    consumer.stack(&Taken {
        task,
        time: sample.time,
        pcs: &pcs,
        exact: &exact,
        end,
    });
}
