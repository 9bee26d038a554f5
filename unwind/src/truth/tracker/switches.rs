//! Loads of rsp: `alloca`, `longjmp`, and other stacks.

use super::{Arrival, SWITCH_TABLE_REACH, Tracker};
use crate::insn::ends_with_call;
use crate::truth::TrueKind;
use crate::truth::stacks::{Chain, Claim, Cpu, Pending, Segment, Suspended, World};

/// A load of rsp at most this far above its value in a frame's caller is a `longjmp` into that
/// caller; a coroutine's stack in a local array starts farther up.
const LONGJMP_SLACK: u64 = 512;
/// A load of rsp farther down than this, or into another mapping, is not `alloca`.
const ALLOCA_MAX: u64 = 64 << 10;

impl Tracker {
    /// rsp was loaded with an unrelated value.
    pub(super) fn load_sp(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        let (old, new) = (before.rsp, after.rsp);
        let upward = old <= new;
        if upward && (new <= self.chain.limit() || self.outlives(new, world)) {
            return;
        }

        // From the surest to the vaguest: a chain suspended exactly here needs no guess.
        if let Some(chain) = suspended.claim(new, Claim::Exact, world) {
            self.resume(chain, old, new, suspended);
        } else if world.has_coroutines()
            && !self.is_alloca(old, new, world)
            && self.chain.return_to_copy(new, world)
        {
            self.stats.switches += 1;
            self.pop_below(new);
        } else if upward && new <= self.chain.last().high {
            self.load_upward(old, new, world);
        } else if let Some(index) = self.chain.earlier_segment(new)
            // From below the segment and farther down: `alloca` again.
            && (upward || old > self.chain.segments[index].low)
        {
            self.go_back(index, old);
            self.pop_below(new);
            self.reread_top(world);
        } else if let Some(chain) = suspended.claim(new, Claim::Inside, world) {
            self.visit(chain, old, new, suspended);
        } else if let Some(chain) = suspended.claim_moved(new, world) {
            self.resume(chain, old, new, suspended);
        } else if let Some(chain) = suspended.claim(new, Claim::Anywhere, world) {
            self.visit(chain, old, new, suspended);
        } else {
            // Near and in the same mapping, it may be `alloca`.
            let far = old.abs_diff(new) > ALLOCA_MAX || !world.same_mapping(old, new);
            self.enter_segment(old, new, Pending { nested: false, far });
        }

        self.settle();
    }

    /// Whether the load is `alloca`: slightly farther down, below the stack that was left last.
    /// Memory there may look like a copy of that stack if functions recurse.
    fn is_alloca(&self, old: u64, new: u64, world: &mut dyn World) -> bool {
        let is_near = new < old && old - new <= ALLOCA_MAX;
        let left = self.chain.segments.iter().rev().nth(1);
        is_near && left.is_some_and(|left| old <= left.low) && world.same_mapping(old, new)
    }

    pub(super) fn enter_segment(&mut self, old: u64, new: u64, pending: Pending) {
        if self.chain.last().pending.is_some() {
            // Loaded twice without a call in between: the first load does not count.
            self.chain.segments.pop();
        } else {
            self.chain.last_mut().low = old;
        }
        self.chain.segments.push(Segment {
            first: self.chain.frames.len(),
            high: new,
            low: new,
            pending: Some(pending),
        });
    }

    /// rsp was loaded within the segment, but above the innermost frame.
    fn load_upward(&mut self, old: u64, new: u64, world: &mut dyn World) {
        let frames = &self.chain.frames[self.chain.last().first..];
        let dead = frames.partition_point(|f| f.slot >= new);
        let exact = frames
            .get(dead)
            .is_none_or(|f| new - f.slot <= LONGJMP_SLACK)
            || dead > 0 && frames[dead - 1].slot == new;
        if exact {
            self.pop_below(new);
            self.reread_top(world);
        } else {
            let pending = Pending {
                nested: true,
                far: true,
            };
            self.enter_segment(old, new, pending);
        }
    }

    /// An unwinder that lands in a handler may have written the return address that it leaves
    /// through (`__builtin_eh_return`).
    fn reread_top(&mut self, world: &mut dyn World) {
        let first = self.chain.last().first;
        if let Some(top) = self.chain.frames[first..].last_mut()
            && top.kind == TrueKind::Call
            && world.word(top.slot).is_some_and(|word| word != top.pc)
        {
            top.rewritten = true;
        }
    }

    /// Continues with `chain`; the current chain is suspended at `old`.
    pub(super) fn resume(
        &mut self,
        mut chain: Chain,
        old: u64,
        new: u64,
        suspended: &mut Suspended,
    ) {
        self.stats.switches += 1;
        self.planted.clear();
        core::mem::swap(&mut self.chain, &mut chain);
        self.suspend(chain, old, suspended);
        self.arrival = Arrival::Resumed {
            frames: self.chain.frames.len(),
        };
        self.pop_below(new);
        self.settle();
    }

    fn suspend(&mut self, mut chain: Chain, rsp: u64, suspended: &mut Suspended) {
        chain.loan = None;
        let mut at = rsp;
        if chain.last().pending.is_some() {
            chain.segments.pop();
            at = chain.last().low;
        }
        chain.suspend_at(at);
        suspended.push(chain);
    }

    /// Control was transferred by a return or an indirect jump: decides a pending segment.
    pub(super) fn transfer(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        let segment = self.chain.last();
        let Some(pending) = segment.pending else {
            return;
        };
        if !world.has_coroutines() {
            self.chain.last_mut().pending = None;
            return;
        }

        if !pending.nested && self.leave_for_copy(segment, after.rsp, world) {
            return;
        }

        let is_near = before.rip.abs_diff(after.rip) < SWITCH_TABLE_REACH;
        // After `alloca`, a short jump through a register is a switch table.
        if !pending.far && is_near {
            return;
        }

        // Code behind a call is returned to, so no other stack was entered.
        let lands_behind_call = |world: &mut dyn World| {
            let before = world.word(after.rip.wrapping_sub(8));
            before.is_some_and(|word| ends_with_call(word.to_le_bytes()))
        };
        if pending.nested && lands_behind_call(world) {
            self.chain.segments.pop();
            self.pop_below(after.rsp);
            self.settle();
            return;
        }

        // None of the harmless explanations holds, so a new chain begins on this stack.
        self.stats.switches += 1;
        let chain = self.begin(segment.high, after, world);
        self.suspend(chain, before.rsp, suspended);
    }

    /// What looked like `alloca` was the switch to a copy of the stack that was left last.
    fn leave_for_copy(&mut self, pending: Segment, sp: u64, world: &mut dyn World) -> bool {
        self.chain.segments.pop();
        let is_copy = self.chain.return_to_copy(pending.high, world);
        if is_copy {
            self.stats.switches += 1;
            self.pop_below(sp);
            self.settle();
        } else {
            self.chain.segments.push(pending);
        }
        is_copy
    }
}
