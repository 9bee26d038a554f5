//! Calls of the kernel's functions that have not returned yet, and the samples that they are about.

use crate::kernel::callchain::CallchainArguments;
use crate::machine::KERNEL_STACK;
use unwind_sim_recordings::console::ConsoleLine;
use unwind_sim_recordings::model::{RecordedChain, Sample};
use unwind_sim_unwind::kernel::State;

/// Maximum number of calls at a time. More have not returned only if some never do.
const CALLS_MAX: usize = 64;

/// A function that was called.
#[derive(Debug)]
pub(super) enum Function {
    /// `get_perf_callchain`.
    Callchain(Option<CallchainArguments>),
    /// A helper of BPF programs.
    Helper(Helper),
    /// `perf_callchain_kernel`, with the address of the entry that it adds to, and how many words are there.
    KernelPart { entry: u64, before: u64 },
    /// `__unwind_start`.
    Start,
    /// `unwind_next_frame`.
    Next,
    /// A walk, with the address of the function that it hands each address to.
    Walk { walk: Walk, consumer: u64 },
    /// A function that stores a walk's addresses, with its name, and where it stores them.
    Save { name: &'static str, store: u64 },
    /// `stack_trace_save_user`, which stores the addresses of user space, and where.
    SaveUser { store: u64 },
    /// `show_trace_log_lvl`, which prints a walk and what else looks like a return address.
    Trace,
}

/// A walk that hands over each address as it finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    /// `arch_stack_walk`.
    Plain,
    /// `arch_stack_walk_reliable`.
    Reliable,
}

impl Walk {
    /// The name of the chains that it gives.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Walk::Plain => "arch_stack_walk",
            Walk::Reliable => "arch_stack_walk_reliable",
        }
    }
}

/// A helper of BPF programs that gives a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Helper {
    /// `bpf_get_stack`, with the program's memory that it fills.
    Stack { buffer: u64 },
    /// `bpf_get_stackid`, with the map that it fills.
    StackId { map: u64 },
}

impl Helper {
    /// The name of the chains that it gives.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Helper::Stack { .. } => "bpf_get_stack",
            Helper::StackId { .. } => "bpf_get_stackid",
        }
    }
}

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    /// Where it returns to, and rsp after that.
    pub(super) back: (u64, u64),
    pub(super) function: Function,
    /// The sample that it is about, unless that is the one of the function around it.
    pub(super) draft: Option<Draft>,
}

/// What is known so far of a sample.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The sample, and the name of its task if that is new.
    pub(super) sample: Option<(Option<String>, Sample<'static>)>,
    /// The address of the kernel's `struct unwind_state`.
    pub(super) state_at: Option<u64>,
    /// The states so far.
    pub(super) states: Vec<State>,
    /// The addresses that the kernel's unwinder has found, once they are known.
    pub(super) found: Option<Vec<u64>>,
    /// What else it has handed over or printed so far.
    pub(super) walked: Walked,
}

/// A walk that is no callchain of perf.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Whether it is one, whose sample is taken where it begins.
    pub(super) is_it: bool,
    /// The addresses that were handed over.
    pub(super) offered: Vec<u64>,
    /// The lines that were printed.
    pub(super) printed: Vec<ConsoleLine>,
    /// The address of the saved registers that were printed last, until something else is.
    pub(super) registers: Option<u64>,
}

impl Draft {
    /// Adds a chain to the sample.
    pub(super) fn add(&mut self, chain: RecordedChain) {
        if let Some((_, sample)) = &mut self.sample {
            sample.recorded.push(chain);
        }
    }
}

/// The calls that have not returned, innermost last.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The number of samples whose function never returned.
    pub(super) lost: u64,
}

impl Calls {
    /// A function was called. One that makes a callchain begins a draft, unless the function around it has.
    pub(super) fn push(&mut self, back: (u64, u64), function: Function) {
        // A function that prints a walk may end with a jump to the one that does it.
        let is_jump = |call: &Call| call.back == back && matches!(call.function, Function::Trace);
        if matches!(function, Function::Trace) && self.calls.last().is_some_and(is_jump) {
            return;
        }
        // Two calls cannot return to the same place on the stack: the earlier one never did.
        let same = self.calls.iter().position(|call| call.back.1 == back.1);
        let stale = same.or_else(|| (self.calls.len() == CALLS_MAX).then_some(0));
        if let Some(at) = stale {
            self.truncate(at);
        }

        let around = self.calls.last().map(|call| &call.function);
        // A helper may call another one, and both a callchain.
        let begins = match function {
            Function::Helper(_) | Function::Callchain(_) => {
                !matches!(around, Some(Function::Helper(_)))
            }
            Function::KernelPart { .. } => !matches!(around, Some(Function::Callchain(_))),
            Function::Walk { .. } => !matches!(around, Some(Function::Save { .. })),
            // One may be a part of the other.
            Function::Trace => !matches!(around, Some(Function::Trace)),
            Function::Save { .. } => true,
            Function::SaveUser { .. } | Function::Start | Function::Next => false,
        };
        let is_walk = matches!(
            function,
            Function::Walk { .. } | Function::Save { .. } | Function::Trace
        );
        let draft = begins.then(|| Draft {
            walked: Walked {
                is_it: is_walk,
                ..Walked::default()
            },
            ..Draft::default()
        });
        self.calls.push(Call {
            back,
            function,
            draft,
        });
    }

    /// The innermost call.
    pub(super) fn last(&self) -> Option<&Function> {
        self.calls.last().map(|call| &call.function)
    }

    /// Whether the function at this address is the one that the innermost call hands its addresses to.
    #[inline]
    pub(super) fn is_consumer(&self, address: u64) -> bool {
        matches!(self.last(), Some(Function::Walk { consumer, .. }) if *consumer == address)
    }

    /// Forgets the calls from index `at` on.
    fn truncate(&mut self, at: usize) {
        let lost = self.calls.drain(at..).filter(|call| call.draft.is_some());
        self.lost += lost.count() as u64;
    }

    /// The innermost call that returns to this address with this rsp. It is over, and so are those inside it,
    /// on the same stack. Those on others may be of other tasks.
    pub(super) fn pop(&mut self, back: (u64, u64)) -> Option<Call> {
        let at = self.calls.iter().rposition(|call| call.back == back)?;
        let stack = |rsp: u64| rsp / KERNEL_STACK;
        let inside = self
            .calls
            .extract_if(at + 1.., |call| stack(call.back.1) == stack(back.1));
        let lost = inside.filter(|call| call.draft.is_some()).count();
        self.lost += lost as u64;
        Some(self.calls.remove(at))
    }

    /// Whether one of the calls returns to this address.
    #[inline]
    pub(super) fn is_back(&self, address: u64) -> bool {
        self.calls.iter().any(|call| call.back.0 == address)
    }

    /// The draft of the innermost callchain that is being made.
    pub(super) fn draft(&mut self) -> Option<&mut Draft> {
        self.calls
            .iter_mut()
            .rev()
            .find_map(|call| call.draft.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Function {
        Function::KernelPart {
            entry: 0,
            before: 0,
        }
    }

    #[test]
    fn a_kernel_part_belongs_to_the_callchain_around_it() {
        let mut calls = Calls::default();
        calls.push((1, 0x100), Function::Callchain(None));
        calls.push((2, 0x80), part());
        calls.push((3, 0x40), Function::Start);
        calls.draft().expect("of the callchain").state_at = Some(7);
        // An interrupt takes a sample meanwhile.
        calls.push((2, 0x20), part());
        assert_eq!(calls.draft().expect("its own").state_at, None);
        assert!(calls.pop((2, 0x20)).expect("it returns").draft.is_some());

        assert!(calls.pop((3, 0x48)).is_none(), "another rsp");
        assert!(calls.pop((3, 0x40)).expect("it returns").draft.is_none());
        assert!(calls.pop((2, 0x80)).expect("it returns").draft.is_none());
        let whole = calls.pop((1, 0x100)).expect("it returns");
        assert_eq!(whole.draft.and_then(|draft| draft.state_at), Some(7));
        assert_eq!(calls.lost, 0);
    }

    #[test]
    fn a_callchain_belongs_to_the_helper_around_it() {
        let mut calls = Calls::default();
        let helper = || Function::Helper(Helper::Stack { buffer: 0 });
        calls.push((1, 0x100), helper());
        calls.push((2, 0x80), helper());
        calls.push((3, 0x60), Function::Callchain(None));
        calls.push((4, 0x40), part());
        for (back, has_draft) in [
            ((4, 0x40), false),
            ((3, 0x60), false),
            ((2, 0x80), false),
            ((1, 0x100), true),
        ] {
            let call = calls.pop(back).expect("it returns");
            assert_eq!(call.draft.is_some(), has_draft, "{back:?}");
        }
    }

    #[test]
    fn a_trace_is_printed_by_a_function_and_a_part_of_it() {
        let mut calls = Calls::default();
        // One that jumps to the other, and one that calls it.
        for (inner, has_draft) in [((1, 0x100), true), ((2, 0x80), false)] {
            calls.push((1, 0x100), Function::Trace);
            calls.push(inner, Function::Trace);
            let call = calls.pop(inner).expect("it returns");
            assert_eq!(call.draft.is_some(), has_draft, "{inner:?}");
        }
        assert!(calls.pop((1, 0x100)).expect("it returns").draft.is_some());
        assert_eq!(calls.lost, 0);
    }

    /// Another task has begun a walk meanwhile, on its own stack.
    #[test]
    fn a_return_ends_only_what_is_on_its_stack() {
        let mut calls = Calls::default();
        let save = || Function::Save {
            name: "stack_trace_save",
            store: 0,
        };
        calls.push((1, 0x1_0100), save());
        calls.push((2, 0x2_0100), save());
        assert!(calls.pop((1, 0x1_0100)).is_some());
        assert!(calls.pop((2, 0x2_0100)).is_some());
        assert_eq!(calls.lost, 0);
    }

    #[test]
    fn what_never_returns_is_lost_with_what_is_inside_it() {
        let mut calls = Calls::default();
        calls.push((1, 0x100), Function::Callchain(None));
        calls.push((2, 0x80), Function::Start);
        calls.push((1, 0x100), part());
        assert_eq!(calls.lost, 1);
        assert!(calls.pop((2, 0x80)).is_none());
        // Too many: all of them are given up.
        for n in 1..=CALLS_MAX as u64 {
            calls.push((3, 0x200 + n), part());
        }
        assert_eq!(calls.lost, 1 + CALLS_MAX as u64);
        // Inside a call that returns, none goes on.
        calls.push((4, 0x80), part());
        assert!(calls.pop((3, 0x200 + CALLS_MAX as u64)).is_some());
        assert_eq!(calls.lost, 2 + CALLS_MAX as u64);
    }
}
