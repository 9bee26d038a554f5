//! The shadow stack of a single-stepped kernel: which frame returns where, independent of any
//! table.
//!
//! A call makes a frame, and so does an interrupt or exception in the kernel (its iret frame). An
//! entry from user space is the root. A frame ends with the return that pops its slot, or when
//! anything else lifts rsp above the slot. Loading rsp with an address on another task's stack is a
//! task switch: each task has its own chain. On another stack of the same processor, the chain
//! continues. A return address that was popped into a register is kept until the code jumps to it.
//! The same holds for one that a tracer replaced, until the tracer's trampoline jumps to it.
//!
//! An entry from user space also gives the registers with which user space was left
//! ([`UserBoundary`]), and changes that the kernel makes to them (a signal, `execve`) are followed.
//!
//! Only one processor is followed. If a task ran on another one in the meantime, its stack shows
//! it: a chain is resumed only if all of its return addresses are still there.
//!
//! Unlike the tracker for user space ([`super::Tracker`]), which must guess, it knows the kernel's
//! stacks and its interrupt descriptor table.

use super::{Cpu, TrueFrame, TrueKind, Truth};
use crate::insn::Insn;
use crate::kernel::{THREAD_SIZE, UserBoundary, is_user_cs};
use crate::pt_regs::{IRET_FRAME_OFFSET, offset_of};
use crate::regs::Reg;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// The maximum number of frames of a task; a stack has no room for more.
const FRAMES_MAX: usize = (THREAD_SIZE / 8) as usize * 4;
/// The maximum number of tasks whose chains are kept.
const TASKS_MAX: usize = 4096;
/// Bytes that `ret`, with or without an operand, pops from the stack.
const RET_POPS: core::ops::RangeInclusive<u64> = 8..=8 + u16::MAX as u64;

/// What is observed between two instructions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedState {
    /// rip, rsp and the callee-saved registers.
    pub cpu: Cpu,
    /// The code segment.
    pub cs: u64,
}

impl ObservedState {
    /// Whether this is user mode.
    pub const fn is_user(&self) -> bool {
        is_user_cs(self.cs)
    }
}

/// What the processor pushed for an interrupt.
#[derive(Clone, Copy, Debug)]
pub struct IretFrame {
    /// Interrupted instruction.
    pub rip: u64,
    /// Its code segment.
    pub cs: u64,
    /// Interrupted stack pointer.
    pub rsp: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct KernelFrame {
    /// The address of the return address; `None` if it was popped into a register or taken by a
    /// tracer.
    slot: Option<u64>,
    pc: u64,
    /// rsp after the return.
    cfa: u64,
    trapped: bool,
    /// Whether it was made by a call to the next instruction.
    thunk: bool,
    saved: [u64; 6],
}

/// User space at the moment it was left.
#[derive(Clone, Copy, Debug)]
pub struct LeftUserSpace {
    /// The registers.
    pub boundary: UserBoundary,
    /// Address of the `struct pt_regs` at the end of the task's stack.
    pub pt_regs: Option<u64>,
    /// Whether the registers have been seen there. From then on, a change is made by the kernel.
    saved: bool,
}

impl LeftUserSpace {
    /// User space that was left with these registers, which `pt_regs` is going to contain.
    pub const fn new(boundary: UserBoundary, pt_regs: Option<u64>) -> LeftUserSpace {
        LeftUserSpace {
            boundary,
            pt_regs,
            saved: false,
        }
    }

    /// Follows what the kernel does to the saved registers.
    pub fn follow(&mut self, word: &mut dyn FnMut(u64) -> Option<u64>) {
        let Some(at) = self.pt_regs else { return };
        let mut saved = |reg| word(at.wrapping_add(offset_of(reg)));
        let (Some(ip), Some(sp)) = (saved(Reg::Rip), saved(Reg::Rsp)) else {
            return;
        };
        let boundary = &mut self.boundary;
        self.saved |= (ip, sp) == (boundary.ip, boundary.sp);
        if self.saved {
            (boundary.ip, boundary.sp) = (ip, sp);
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Chain {
    frames: Vec<KernelFrame>,
    /// Whether it starts at an entry from user space.
    complete: bool,
    /// The registers with which user space was left, and where the kernel keeps them.
    left: Option<LeftUserSpace>,
    /// rsp when the processor switched to another task.
    rsp: u64,
}

/// The shadow stacks of a kernel's tasks.
#[derive(Debug, Default)]
pub struct Shadow {
    chain: Chain,
    /// The chains of tasks that do not run, by the start of their stacks.
    others: BTreeMap<u64, Chain>,
    /// The stacks that belong to the processor rather than to a task.
    processor: Vec<Range<u64>>,
    /// The addresses that tracers put in place of return addresses.
    trampolines: Vec<u64>,
}

impl Shadow {
    /// No frames yet. `trampolines` are the addresses that tracers put in place of return
    /// addresses.
    pub fn new(trampolines: Vec<u64>) -> Shadow {
        Shadow {
            trampolines,
            ..Shadow::default()
        }
    }

    /// Sets the processor's stacks.
    pub fn set_processor(&mut self, stacks: Vec<Range<u64>>) {
        self.processor = stacks;
    }

    /// The start of the stack that rsp points into or to the end of, and whether it is a task's
    /// stack. Task stacks are aligned to their size.
    fn stack(&self, rsp: u64) -> (u64, bool) {
        let inside = rsp.wrapping_sub(1);
        match self.processor.iter().find(|s| s.contains(&inside)) {
            Some(stack) => (stack.start, false),
            None => (inside & !(THREAD_SIZE - 1), inside >> 63 != 0),
        }
    }

    /// The start of the stack that contains a return address.
    fn stack_of_slot(&self, slot: u64) -> u64 {
        self.stack(slot.wrapping_add(8)).0
    }

    /// An entry from user space: the kernel's stack is empty. `left` is the state of user space, if
    /// known.
    pub fn root(&mut self, left: Option<LeftUserSpace>) {
        self.chain.frames.clear();
        self.chain.complete = true;
        self.chain.left = left;
    }

    /// The registers with which user space was left, if the chain starts there and they are known.
    pub fn boundary(&self) -> Option<UserBoundary> {
        let left = self.chain.left.filter(|_| self.chain.complete);
        left.map(|left| left.boundary)
    }

    /// The kernel ran unobserved.
    pub fn lost(&mut self) {
        self.chain = Chain::default();
    }

    /// An interrupt was delivered, and `handler` is about to run. If it interrupted user space,
    /// `pt_regs` is where the entry code will save the registers.
    pub fn interrupted(
        &mut self,
        handler: &ObservedState,
        slot: u64,
        frame: IretFrame,
        pt_regs: Option<u64>,
    ) {
        if is_user_cs(frame.cs) {
            let boundary = UserBoundary {
                ip: frame.rip,
                sp: frame.rsp,
                pushed_at: Some(slot.wrapping_sub(IRET_FRAME_OFFSET)),
            };
            return self.root(Some(LeftUserSpace::new(boundary, pt_regs)));
        }
        self.push(KernelFrame {
            slot: Some(slot),
            pc: frame.rip,
            cfa: frame.rsp,
            trapped: true,
            thunk: false,
            saved: handler.cpu.saved,
        });
    }

    fn push(&mut self, held: KernelFrame) {
        if self.chain.frames.len() < FRAMES_MAX {
            self.chain.frames.push(held);
        }
    }

    /// An instruction of class `insn` was executed, and no interrupt was delivered. `word` reads
    /// the stack after the instruction.
    pub fn step(
        &mut self,
        insn: Insn,
        before: &ObservedState,
        after: &ObservedState,
        word: &mut dyn FnMut(u64) -> Option<u64>,
    ) {
        // No kernel frame outlives user space.
        if after.is_user() || before.is_user() {
            return self.root(None);
        }

        let (old, new) = (before.cpu.rsp, after.cpu.rsp);
        // Nothing was executed: another processor's stop came first.
        if (before.cpu.rip, old) == (after.cpu.rip, new) {
            return;
        }

        // The kernel may rewrite the saved registers of user space as long as it runs.
        if let Some(left) = &mut self.chain.left {
            left.follow(word);
        }

        // Each class is taken only if rsp changed as it does: otherwise something else happened.
        match insn {
            Insn::Call { len, .. } if new == old.wrapping_sub(8) => {
                let pc = before.cpu.rip.wrapping_add(u64::from(len));
                return self.push(KernelFrame {
                    slot: Some(new),
                    pc,
                    cfa: old,
                    trapped: false,
                    thunk: after.cpu.rip == pc,
                    saved: after.cpu.saved,
                });
            }
            Insn::Ret if RET_POPS.contains(&new.wrapping_sub(old)) => {
                self.returned(old, after.cpu.rip);
            }
            Insn::Far => self.iret(&after.cpu),
            Insn::Push if new == old.wrapping_sub(8) => self.pushed(new, word),
            Insn::Pop if new == old.wrapping_add(8) => self.popped(old),
            Insn::JumpIndirect => self.went(after.cpu.rip),
            _ => {}
        }

        // Whatever the class: frames that rsp has passed are over.
        self.moved(old, new, word);
    }

    /// A `ret` popped the word at `slot`.
    fn returned(&mut self, slot: u64, to: u64) {
        let frames = &mut self.chain.frames;
        // The entry code moves its return address around.
        let moved = |f: &KernelFrame| !f.trapped && f.pc == to;
        let found = frames
            .iter()
            .rposition(|f| !f.trapped && f.slot == Some(slot))
            .or_else(|| frames.last().filter(|f| moved(f)).map(|_| frames.len() - 1));
        let Some(at) = found else { return };
        if frames[at].pc != to && self.trampolines.contains(&to) {
            frames[at].slot = None;
            return frames.truncate(at + 1);
        }
        frames.truncate(at);
        self.went(to);
    }

    /// The code went to an address that is not on the stack.
    fn went(&mut self, to: u64) {
        let frames = &mut self.chain.frames;
        if frames
            .last()
            .is_some_and(|f| f.slot.is_none() && f.pc == to)
        {
            frames.pop();
        }
    }

    fn iret(&mut self, after: &Cpu) {
        let is_it = |f: &KernelFrame| f.trapped && f.pc == after.rip && f.cfa == after.rsp;
        if let Some(at) = self.chain.frames.iter().rposition(is_it) {
            self.chain.frames.truncate(at);
        }
    }

    /// A return address that was popped into a register may have been pushed again.
    fn pushed(&mut self, new: u64, word: &mut dyn FnMut(u64) -> Option<u64>) {
        if let Some(top) = self.chain.frames.last_mut()
            && !top.trapped
            && word(new) == Some(top.pc)
        {
            (top.slot, top.cfa) = (Some(new), new.wrapping_add(8));
        }
    }

    fn popped(&mut self, slot: u64) {
        // The frame of a thunk, which only reads its own address, is dropped when rsp leaves it.
        let top = self.chain.frames.last_mut();
        if let Some(top) = top.filter(|f| f.slot == Some(slot) && !f.trapped && !f.thunk) {
            top.slot = None;
        }
    }

    /// rsp changed.
    fn moved(&mut self, old: u64, new: u64, word: &mut dyn FnMut(u64) -> Option<u64>) {
        if new == old {
            return;
        }

        // Two tasks' stacks: a context switch, which sets the whole chain aside.
        let ((from, from_task), (to, to_task)) = (self.stack(old), self.stack(new));
        if from != to && from_task && to_task {
            return self.switched((from, old), (to, new), word);
        }

        if from != to {
            // After the return from a stack of the processor, the frames on it are over.
            let back = |f: &KernelFrame| f.slot.is_some_and(|slot| self.stack_of_slot(slot) == to);
            if let Some(at) = self.chain.frames.iter().rposition(back) {
                let over = |f: &KernelFrame| f.trapped || f.slot.is_none();
                if !self.chain.frames[at + 1..].iter().any(over) {
                    self.chain.frames.truncate(at + 1);
                }
            }
        }

        while let Some(top) = self.chain.frames.last() {
            let dropped = top
                .slot
                .is_some_and(|slot| slot < new && self.stack_of_slot(slot) == to);
            // Only `iret` ends what an interrupt has begun.
            if !dropped || top.trapped {
                break;
            }

            self.chain.frames.pop();
        }
    }

    /// Switches from one task's stack and rsp to those of another.
    fn switched(
        &mut self,
        (from, old): (u64, u64),
        (to, new): (u64, u64),
        word: &mut dyn FnMut(u64) -> Option<u64>,
    ) {
        let trampolines = &self.trampolines;
        let mut is_there = |held: &KernelFrame| match held.slot {
            Some(slot) => word(slot).is_some_and(|pc| pc == held.pc || trampolines.contains(&pc)),
            None => true,
        };
        let next = self.others.remove(&to);
        let next = next.filter(|c| c.rsp == new && c.frames.iter().all(&mut is_there));
        let mut left = core::mem::replace(&mut self.chain, next.unwrap_or_default());
        left.rsp = old;
        if self.others.len() < TASKS_MAX {
            self.others.insert(from, left);
        }
    }

    /// The true chain.
    pub fn truth(&self, cpu: &Cpu) -> Truth {
        let frames = &self.chain.frames;
        // A held frame has the rsp after the return to it: the CFA of the frame inside it.
        let cfa = |count: usize| count.checked_sub(1).map_or(0, |index| frames[index].cfa);

        let mut out = Vec::with_capacity(frames.len() + 1);
        out.push(TrueFrame {
            pc: cpu.rip,
            cfa: cfa(frames.len()),
            kind: TrueKind::Top,
            saved: Some(cpu.saved),
        });

        for (index, held) in frames.iter().enumerate().rev() {
            out.push(TrueFrame {
                pc: held.pc,
                cfa: cfa(index),
                kind: if held.trapped {
                    TrueKind::Trapped
                } else {
                    TrueKind::Call
                },
                saved: Some(held.saved),
            });
        }

        // Without a root, the frames seen so far are known, but not their number.
        match (self.chain.complete, frames.is_empty()) {
            (true, _) => Truth::Complete(out),
            (false, true) => Truth::Unknown,
            (false, false) => Truth::Known(out),
        }
    }
}

#[cfg(test)]
mod tests;
