//! Walks traces, cases and cores, sample by sample, on one thread.

use super::leader::thread_name;
use super::replay::{Counts, ReplayOptions};
use super::source::Source;
use super::task::{Consumer, Taken, Task};
use super::unwind::How;
use crate::input::Input;
use crate::run::RunError;
use std::collections::HashMap;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_unwind::unwinder::Stack;

/// Walks every sample of the recording that passes the filter.
pub(super) fn replay<C: Consumer>(
    source: &Source,
    options: &ReplayOptions<'_>,
    consumer: &mut C,
) -> Result<Counts, RunError> {
    let open = OpenOptions {
        symfs: source.symfs.clone(),
        ..OpenOptions::default()
    };
    let input = Input::open(&source.path, &open)?;
    let filter = Filter {
        stitch: options.how.engine.wants_stitching(),
        ..options.filter
    };
    let mut names = HashMap::new();
    let mut cache = Cache::new();
    let mut counts = Counts::default();
    input.for_each::<RunError>(&filter, &mut |view| {
        let (pid, tid) = (view.sample.pid, view.sample.tid);
        // Every sample of a recording has a world.
        let Some(world) = view.world else {
            return Ok(());
        };
        counts.stacks += 1;
        let task = Task {
            pid,
            tid,
            name: thread_name(world, &mut names, pid, tid),
            space: world.shared_space(pid),
        };
        one(&options.how, view, &task, &mut cache, consumer);
        Ok(())
    })?;
    counts.gaps = input.gaps();
    counts.samples = input.sample_count().unwrap_or(counts.stacks);
    Ok(counts)
}

fn one<C: Consumer>(
    how: &How<'_>,
    view: &View<'_>,
    task: &Task,
    cache: &mut Cache,
    consumer: &mut C,
) {
    let sample = view.sample;
    let memory = view.memory(how.setting.view);
    let taken = match sample.regs.is_fake() {
        true => Variant::Fake(FakeVariant::V5_2),
        false => Variant::Hardware,
    };
    let variant = how.variant.unwrap_or(taken);
    let branches = view.branches();
    let frame_pointers = how.setting.frame_pointer_kernel;
    let start = how.engine.start(sample, variant, frame_pointers, &memory);
    let (chain, end) = match &start {
        Err(reason) => (Chain::default(), reason.code()),
        Ok(start) => {
            let mut stack = Stack::new(start, &task.space, &memory);
            stack.limits = how.setting.limits;
            stack.branches = branches;
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
