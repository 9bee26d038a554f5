//! Walks traces, cases and cores, sample by sample, on one thread.

use super::leader::thread_name;
use super::replay::{Counts, ReplayOptions};
use super::source::Source;
use super::task::{Consumer, Taken, Task};
use super::unwind::How;
use crate::engine::stack_of;
use crate::kernel::RECORDED;
use crate::run::{Column, RunError, kernel_part};
use std::collections::HashMap;
use std::sync::Arc;
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::Chain;

/// Walks every sample of the recording that passes the filter.
pub(super) fn replay<C: Consumer>(
    source: &Source<'_>,
    options: &ReplayOptions<'_>,
    consumer: &mut C,
) -> Result<Counts, RunError> {
    let input = source.input;

    // Stitching needs the branch records of the samples before, so it is not done needlessly.
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
            kernel: Arc::default(),
        };

        one(&options.how, view, &task, &mut cache, consumer);
        Ok(())
    })?;

    counts.gaps = input.gaps();
    // Only a trace says how many it has.
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

    // As in a run with verdicts: a kernel's unwinder needs the task, and its version says how a
    // walk from fake registers starts.
    let column = Column::of(how.engine, how.variant);
    let variant = column.variant_for(view);
    let frame_pointers = how.setting.frame_pointer_kernel;
    let start = how.engine.start(sample, variant, frame_pointers, &memory);

    let (chain, end) = match &start {
        Err(reason) => (Chain::default(), reason.code()),
        Ok(start) => {
            let stack = stack_of(view, start, &memory, &how.setting);
            let chain = how.engine.walk(&stack, cache);
            let end = chain.end.reason.code();
            (chain, end)
        }
    };

    let pcs: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();

    // Only return addresses are looked up one byte further in, so consumers have to know which are
    // not.
    let numbered = chain.frames.iter().zip(0u32..);
    let exact = numbered.filter(|(frame, _)| frame.pc.is_instruction());
    let exact: Vec<u32> = exact.map(|(_, at)| at).collect();

    // Of a kernel's stack, what was recorded is another walk of it, not a part of this one.
    let of_user = sample.kernel.is_none();
    let of_perf = sample
        .recorded
        .iter()
        .filter(|chain| of_user && chain.source != RECORDED);
    let kernel: Vec<u64> = of_perf.flat_map(|chain| kernel_part(&chain.ips)).collect();

    consumer.stack(&Taken {
        task,
        time: sample.time,
        counted: None,
        kernel: &kernel,
        pcs: &pcs,
        exact: &exact,
        end,
    });
}
