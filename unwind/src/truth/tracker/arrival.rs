//! The first instructions on the stack of a coroutine: where it starts, or starts anew on a stack
//! that another one has abandoned.

use super::Tracker;
use crate::insn::ends_with_call;
use crate::truth::stacks::{Chain, Cpu, Origin, Segment, Suspended, World};

/// Where the thread is on a stack that it has just switched to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// A coroutine has started at this address, without a return address.
    Started { rip: u64 },
}

/// The maximum distance from the start of a coroutine to a jump that acts as a call: boost.context's
/// trampoline is `push %rbp; jmp *%rbx`.
const TRAMPOLINE_MAX: u64 = 16;

impl Tracker {
    /// Starts a chain at the root, on a stack that reaches up to `high` at least. The word at rsp is
    /// the return address if it is a code address. Returns the chain before.
    pub(super) fn begin(&mut self, high: u64, after: &Cpu, world: &mut dyn World) -> Chain {
        let mut chain = Chain::new(Origin::Root, after.rsp, high.max(after.rsp));
        core::mem::swap(&mut self.chain, &mut chain);
        self.doubt = false;
        self.limit = self.chain.limit();
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

    /// A call. If it is the first transfer of control since rsp was loaded with an address in the
    /// middle of another chain's stack, the running function has only borrowed that stack: Go's
    /// `systemstack`, `mcall` and `morestack` do so with the stack of the scheduler.
    pub(super) fn call_on_other_stack(&mut self, rsp: u64, suspended: &mut Suspended) {
        let Arrival::Visiting { at, left, .. } =
            core::mem::replace(&mut self.arrival, Arrival::Past)
        else {
            return;
        };
        let Some(mut own) = suspended.take_at(left) else {
            return;
        };
        own.last_mut().low = left;
        own.segments.push(Segment {
            first: own.frames.len(),
            high: rsp,
            low: rsp,
            pending: None,
        });
        core::mem::swap(&mut self.chain, &mut own);
        (own.rsp, own.resumes_to) = at;
        suspended.push(own);
        self.limit = self.chain.limit();
    }

    /// A return or indirect jump that does not end a frame: whether it is the first on this stack,
    /// and starts something there.
    pub(super) fn arrive(&mut self, before: &Cpu, after: &Cpu, world: &mut dyn World) -> bool {
        if self.chain.last().pending.is_some() {
            return false;
        }
        match core::mem::replace(&mut self.arrival, Arrival::Past) {
            Arrival::Past => false,
            Arrival::Started { rip } => {
                let frames = self.chain.frames.len();
                let is_near = before.rip.wrapping_sub(rip) <= TRAMPOLINE_MAX;
                let is_pushed = after.rsp == self.chain.root_sp.wrapping_sub(8);
                if frames == 0 && is_near && is_pushed {
                    self.plant(after.rsp, after, world);
                }
                frames != self.chain.frames.len()
            }
            Arrival::Resumed { frames } | Arrival::Visiting { frames, .. } => {
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
                let bytes = world.word(after.rip.wrapping_sub(8));
                if bytes.is_some_and(|bytes| ends_with_call(bytes.to_le_bytes())) {
                    return false;
                }
                self.begin(self.chain.last().high, after, world);
                true
            }
        }
    }
}
