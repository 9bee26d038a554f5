//! Kernel stacks: compares the states that the kernel's own unwinder recorded at a stop with ours.

mod console;
mod perf;
mod printed;

pub use console::{EntryTruth, Places, PrintedTrace, is_confirmed, logged_entries, printed_trace};
pub use perf::{
    Agreement, PerfChain, PerfWrong, Shapes, in_kernel, perf_chain, recorded_options,
    recorded_request,
};
pub use printed::{ADDRESSES_MAX, Print, Printed, print};

use crate::diagnose::Diagnosis;
use crate::engine::Outcome;
use unwind_sim_recordings::model::RecordedChain;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::kernel::perf::{Begin, Difference, first_difference, states};
use unwind_sim_unwind::kernel::{
    FindCache, Kernel, KernelUnwinder, State, Task, UnwinderKind, UserBoundary, UserRegs, Version,
};
use unwind_sim_unwind::memory::{Memory as _, Regions};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Stack;
use unwind_sim_unwind::verdict::{Verdict, judge_addresses};

/// The source of chains that a kernel recorded.
pub const RECORDED: &str = "kernel";
/// The source of chains that a kernel's walk handed to another part of it.
const WALK: &str = "arch_stack_walk";

/// The maximum number of states of a walk.
const STATES_MAX: usize = 4096;

/// Judges `unwinder` on this sample by what the kernel recorded: its states, where the first
/// difference counts, and the addresses of its callchain.
pub fn judge(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
    found: &[u64],
    cache: &mut Cache,
) -> Verdict {
    let Some(kernel) = &view.sample.kernel else {
        return Verdict::Unjudged;
    };

    let is_of = |s: &State| s.kind() == unwinder.kind();
    let mut verdict = Verdict::Unjudged;
    // States say more than addresses: the first one that differs is where the unwinders part.
    if kernel.states.first().is_some_and(is_of) {
        verdict = match all_states(view, unwinder, variant, cache) {
            Some((ours, skipped)) => match difference(view, &ours, skipped) {
                None => Verdict::Ok,
                Some(first) => Verdict::Wrong {
                    at: first.ours as u32,
                },
            },
            None => Verdict::Unsupported,
        };
    }

    let chain = view.sample.recorded.iter().find(|r| r.source == RECORDED);
    // The recorded kernel has one unwinder, and its chain is only that one's.
    // ORC is the default of kernels for x86-64.
    let is_own = kernel.kind().unwrap_or(UnwinderKind::Orc) == unwinder.kind();

    match chain {
        Some(chain) if verdict == Verdict::Ok || kernel.states.is_empty() && is_own => {
            let wanted = match is_stopped(view) {
                true => chain.ips.len(),
                false => found.len(),
            };
            let found = &found[..found.len().min(wanted)];
            judge_addresses(found, &chain.ips, true).0
        }
        _ => verdict,
    }
}

/// Whether the kernel's walk did not end by itself: what its addresses were handed to had enough of them.
pub fn is_stopped(view: &View<'_>) -> bool {
    let is_walk = |chain: &RecordedChain| chain.source == WALK;
    let last = view.sample.kernel.as_ref().and_then(|k| k.states.last());
    view.sample.recorded.iter().any(is_walk) && last.is_some_and(|last| !last.is_done())
}

/// The first of our states that differs from those that the kernel recorded.
fn difference(view: &View<'_>, ours: &[State], skipped: usize) -> Option<Difference> {
    let recorded = &view.sample.kernel.as_ref()?.states;
    if !is_stopped(view) {
        return first_difference(ours, recorded, skipped);
    }
    // As far as the kernel's went, whatever the first states are that were not recorded.
    let mut readings = (0..=skipped).map(|skip| {
        let most = ours.len().min(skip + recorded.len());
        first_difference(&ours[..most], recorded, skip)
    });
    let first = readings.next()?;
    match readings.any(|reading| reading.is_none()) {
        true => None,
        false => first,
    }
}

/// The first state of a walk that differs from those that the kernel recorded.
#[derive(Clone, Copy, Debug)]
pub struct StateDifference {
    /// The number of our state.
    pub number: usize,
    /// Our state; `None` if our walk has ended.
    pub ours: Option<State>,
    /// The kernel's; `None` if its walk has ended.
    pub recorded: Option<State>,
}

/// Compares our states with those that the kernel recorded. The outer `None` means that it recorded
/// none for this unwinder, or that the sample cannot start this way.
pub fn compare_states(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
) -> Option<Option<StateDifference>> {
    let recorded = &view.sample.kernel.as_ref()?.states;
    recorded.first().filter(|s| s.kind() == unwinder.kind())?;
    let (ours, skipped) = all_states(view, unwinder, variant, &mut Cache::new())?;
    let first = difference(view, &ours, skipped);
    Some(first.map(|first| StateDifference {
        number: first.ours,
        ours: ours.get(first.ours).copied(),
        recorded: recorded.get(first.recorded).copied(),
    }))
}

/// What a walk took for the registers of user space, and the true ones. `None` if they are right or
/// not known.
pub fn wrong_user_regs(view: &View<'_>, outcome: &Outcome) -> Option<(UserRegs, UserBoundary)> {
    let is_it = |d: &&Diagnosis| d.code == Code::WrongUserRegs;
    outcome.diagnosis.as_ref().filter(is_it)?;
    let kernel = view.sample.kernel.as_ref()?;
    Some((outcome.chain.user_regs?, kernel.boundary?))
}

/// All states of a walk, and the number of them that `__unwind_start` skipped. `None` if the sample
/// cannot start this way.
fn all_states(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
    cache: &mut Cache,
) -> Option<(Vec<State>, usize)> {
    let walked = with_walk(
        view,
        unwinder,
        variant,
        cache,
        |kind, kernel, begin, finds| states(kind, kernel, begin, STATES_MAX, finds),
    );
    walked.ok()
}

/// Calls `act` with the input of a walk.
fn with_walk<R>(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
    cache: &mut Cache,
    act: impl FnOnce(UnwinderKind, Kernel<'_, Regions<'_>>, Begin<'_>, &mut FindCache) -> R,
) -> Result<R, Reason> {
    let sample = view.sample;
    let task = sample.kernel.as_ref().map(|k| &k.task);
    let memory = sample.memory();
    let start = sample.regs.start(variant, false, &memory)?;
    let mut stack = Stack::new(&start, view.space, &memory);
    stack.task = task;
    let code = unwinder.code(&stack, cache);

    // Without a recorded task, the walk knows at least the stack that it starts on.
    let alone = Task::of_stack(memory.stack_bounds(start.regs.rsp()));
    let kernel = Kernel {
        code: &code,
        task: task.unwrap_or(&alone),
        memory: &memory,
    };
    let begin = Begin::new(kernel, &start)?;
    Ok(act(
        unwinder.kind(),
        kernel,
        begin,
        &mut FindCache::default(),
    ))
}

/// Parses a kernel version given on the command line; `None` if it is something else, such as a
/// file.
pub fn version(text: &str) -> Option<Version> {
    Version::from_name(text).filter(|_| text.starts_with(|c: char| c.is_ascii_digit()))
}

/// The unwinder's name, with the kernel version appended if it takes one and has none.
pub fn with_version(spec: &str, version: Version) -> String {
    if spec.ends_with(":kernel") {
        format!("{spec}-{version}")
    } else {
        spec.to_owned()
    }
}
