//! Walks as the kernel's own users of its unwinders see them: `arch_stack_walk`,
//! `arch_stack_walk_reliable`, `show_trace_log_lvl`.

use super::with_walk;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::kernel::KernelUnwinder;
use unwind_sim_unwind::kernel::trace::{Line, Unreliable, show, stack_walk, stack_walk_reliable};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::start::Variant;

/// The maximum number of addresses of a printed walk (`MAX_STACK_ENTRIES` of livepatch is 100; the
/// limits of lockdep and stackdepot are smaller).
pub const ADDRESSES_MAX: usize = 1000;

/// How a walk is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Print {
    /// `arch_stack_walk`: the addresses.
    StackWalk,
    /// `arch_stack_walk_reliable`: the addresses, or why they are not reliable.
    Reliable,
    /// `show_trace_log_lvl`: every code address on the stacks, with a question mark before those
    /// that the unwinder did not give.
    Trace,
}

/// A walk, ready to be printed.
#[derive(Clone, Debug)]
pub enum Printed {
    /// [`Print::StackWalk`].
    StackWalk(Vec<u64>),
    /// [`Print::Reliable`].
    Reliable(Result<Vec<u64>, Unreliable>),
    /// [`Print::Trace`].
    Trace(Vec<Line>),
}

/// The walk of `unwinder` over a sample.
///
/// # Errors
/// If the sample cannot start this way.
pub fn print(
    view: &View<'_>,
    unwinder: &KernelUnwinder,
    variant: Variant,
    print: Print,
    cache: &mut Cache,
) -> Result<Printed, Reason> {
    with_walk(
        view,
        unwinder,
        variant,
        cache,
        |kind, kernel, begin, finds| match print {
            Print::StackWalk => {
                Printed::StackWalk(stack_walk(kind, kernel, begin, ADDRESSES_MAX, finds))
            }
            Print::Reliable => Printed::Reliable(stack_walk_reliable(
                kind,
                kernel,
                begin,
                ADDRESSES_MAX,
                finds,
            )),
            Print::Trace => Printed::Trace(show(kind, kernel, begin, finds)),
        },
    )
}
