//! The first instructions on the stack of a coroutine: where it starts, or starts anew on a stack
//! that another one has abandoned.

use super::Tracker;
use crate::insn::ends_with_call;
use crate::truth::stacks::{Chain, Cpu, Origin, Segment, Suspended, World};
use alloc::boxed::Box;

/// Where the thread is on a stack that it has just switched to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Past its first jump or call.
    Past,
    /// A suspended chain is being resumed, which had this many frames.
    Resumed { frames: usize },
    /// The same, but far from where it was suspended and resumes: `at`. The chain of the old stack
    /// was suspended at `left`. If a call follows, the old chain continues on this stack.
    Visiting {
        frames: usize,
        at: (u64, u64),
        left: u64,
    },
    /// Frames of the stack that rsp left for an earlier stack of the chain were dropped: `chain` is
    /// the chain before, left at `left`. If a call follows, none of them has ended.
    Back { chain: Box<Chain>, left: u64 },
    /// A coroutine has started at this address, without a return address.
    Started { rip: u64 },
}

/// The maximum distance from the start of a coroutine to a jump that acts as a call:
/// boost.context's trampoline is `push %rbp; jmp *%rbx`.
const TRAMPOLINE_MAX: u64 = 16;

impl Tracker {
    /// Starts a chain at the root, on a stack that reaches up to `high` at least. The word at rsp
    /// is the return address if it is a code address. Returns the chain before.
    pub(super) fn begin(&mut self, high: u64, after: &Cpu, world: &mut dyn World) -> Chain {
        let mut chain = Chain::new(Origin::Root, after.rsp, high.max(after.rsp));
        core::mem::swap(&mut self.chain, &mut chain);
        self.planted.clear();
        self.doubt = false;
        self.settle();
        self.arrival = Arrival::Started { rip: after.rip };
        self.plant(high, after, world);
        chain
    }

    /// Makes a frame of the return address at rsp, if there is one.
    fn plant(&mut self, high: u64, after: &Cpu, world: &mut dyn World) {
        let planted = world.word(after.rsp).filter(|&w| world.is_code(w));
        if let Some(pc) = planted {
            let cfa = after.rsp.wrapping_add(8);
            let segment = self.chain.last_mut();
            segment.high = segment.high.max(high).max(cfa);
            self.push(after.rsp, cfa, pc, after);
            self.arrival = Arrival::Past;
        }
    }

    /// rsp was loaded with an address on the stack of a suspended chain, but not where it was
    /// suspended. Continues with it, at least until a call.
    pub(super) fn visit(&mut self, chain: Chain, old: u64, new: u64, suspended: &mut Suspended) {
        let at = (chain.rsp, chain.resumes_to);
        self.resume(chain, old, new, suspended);
        if let Arrival::Resumed { frames } = self.arrival {
            self.arrival = Arrival::Visiting {
                frames,
                at,
                left: old,
            };
        }
    }

    /// rsp was loaded at `left` with an address on the stack of an earlier segment, and the chain
    /// continues there, at least until a call.
    pub(super) fn go_back(&mut self, index: usize, left: u64) {
        if self.chain.top().is_some() {
            self.arrival = Arrival::Back {
                chain: Box::new(self.chain.clone()),
                left,
            };
        }
        self.cut_to_segment(index);
    }

    /// A call. If it is the first transfer of control since rsp was loaded with an address in the
    /// middle of another chain's stack, the running function has only borrowed that stack: Go's
    /// `systemstack`, `mcall` and `morestack` do so with the stack of the scheduler. If the stack
    /// is an earlier one of the same chain, the frames on both live: a callback from C to Go runs
    /// on the goroutine's stack, from which C was called.
    pub(super) fn call_on_other_stack(&mut self, rsp: u64, suspended: &mut Suspended) {
        match core::mem::replace(&mut self.arrival, Arrival::Past) {
            Arrival::Visiting { at, left, .. } => {
                let Some(own) = suspended.take_at(left) else {
                    return;
                };
                let mut visited = core::mem::replace(&mut self.chain, own);
                (visited.rsp, visited.resumes_to) = at;
                suspended.push(visited);
                self.borrow(left, rsp);
            }
            Arrival::Back { chain, left } => {
                self.chain = *chain;
                self.borrow(left, rsp);
            }
            _ => {}
        }
    }

    /// The chain left its stack at `left` and continues on another one at `rsp`.
    fn borrow(&mut self, left: u64, rsp: u64) {
        self.chain.last_mut().low = left;
        self.chain.segments.push(Segment {
            first: self.chain.frames.len(),
            high: rsp,
            low: rsp,
            pending: None,
        });
        self.settle();
    }

    /// A return or indirect jump that does not end a frame: whether it is the first on this stack,
    /// and starts something there.
    pub(super) fn arrive(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) -> bool {
        // A switch that is not decided yet is decided by `transfer`.
        if self.chain.last().pending.is_some() {
            return false;
        }

        // Only the first transfer of control counts, whatever comes of it.
        match core::mem::replace(&mut self.arrival, Arrival::Past) {
            Arrival::Past | Arrival::Back { .. } => false,
            Arrival::Started { rip } => {
                let frames = self.chain.frames.len();
                // boost.context's trampoline pushes the address where a function is to return, and
                // jumps.
                let is_near = before.rip.wrapping_sub(rip) <= TRAMPOLINE_MAX;
                let is_pushed = after.rsp == self.chain.root_sp.wrapping_sub(8);
                if frames == 0 && is_near && is_pushed {
                    self.plant(after.rsp, after, world);
                }

                // Whether planting has made a frame shows in the count.
                frames != self.chain.frames.len()
            }
            Arrival::Resumed { frames } | Arrival::Visiting { frames, .. } => {
                // A new chain can start only where nothing of the resumed one is left to return to.
                let is_root = self.chain.origin == Origin::Root && self.chain.segments.len() == 1;
                let live = self.chain.frames.as_slice();
                let is_at_start = match live {
                    [] => true,
                    [first] => after.rsp == first.slot,
                    _ => false,
                };

                if !is_root || !is_at_start || live.len() >= frames {
                    return false;
                }

                // Control that arrives behind a call returns; it does not start anything.
                let bytes = world.word(after.rip.wrapping_sub(8));
                if bytes.is_some_and(|bytes| ends_with_call(bytes.to_le_bytes())) {
                    return false;
                }

                // The chain found there is over; it is kept, in case its stack was moved.
                let ended = self.begin(self.chain.last().high, after, world);
                suspended.displace(ended);
                true
            }
        }
    }
}
