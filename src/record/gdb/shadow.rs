//! The shadow stack of a kernel that is single-stepped: who will return where, whatever any table
//! says.
//!
//! A call makes a frame, and so does an interrupt or exception in the kernel: the frame that `iret`
//! takes. An entry from user space is the root. A return that takes a frame's slot ends it, and so
//! does whatever lifts rsp above the slot. Loading rsp with an address of another task's stack is a
//! switch of tasks: each has a chain of its own. On another stack of the same processor the chain
//! goes on. A return address popped into a register is kept until somebody goes there; so is one
//! that a tracer took from the stack, when the tracer's trampoline is returned to instead.
//!
//! Only one processor is followed. A task that ran on another one meanwhile is told by its stack: a
//! chain is taken up again only if all of its return addresses are still there.
//!
//! It knows the kernel's stacks and its interrupt descriptor table, unlike the tracker for user
//! space (`unwind::truth`), which must guess both.

use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_unwind::kernel::{THREAD_SIZE, is_user_cs};
use unwind_sim_unwind::truth::{Cpu, Insn, TrueFrame, TrueKind, Truth};

/// Most frames of a task: a stack has no room for more.
const FRAMES_MAX: usize = (THREAD_SIZE / 8) as usize * 4;
/// Most tasks whose chains are kept.
const TASKS_MAX: usize = 4096;

/// What is seen between two instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) cpu: Cpu,
    pub(super) cs: u64,
}

impl Seen {
    pub(super) const fn is_user(&self) -> bool {
        is_user_cs(self.cs)
    }
}

/// What the processor pushed for an interrupt.
#[derive(Clone, Copy, Debug)]
pub(super) struct IretFrame {
    pub(super) rip: u64,
    pub(super) cs: u64,
    pub(super) rsp: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Held {
    /// Where the return address is; `None` if it was popped into a register, or a tracer has it.
    slot: Option<u64>,
    pc: u64,
    /// rsp after going back.
    cfa: u64,
    trapped: bool,
    /// Made by a call to the next instruction.
    thunk: bool,
    saved: [u64; 6],
}

#[derive(Clone, Debug, Default)]
struct Chain {
    frames: Vec<Held>,
    /// Does it begin at an entry from user space?
    complete: bool,
    /// rsp when another task was switched to.
    rsp: u64,
}

/// The shadow stacks.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    chain: Chain,
    /// Of tasks that do not run, by the begins of their stacks.
    others: HashMap<u64, Chain>,
    /// The stacks that belong to the processor, not to a task.
    processor: Vec<Range<u64>>,
    /// What tracers have functions return to.
    trampolines: Vec<u64>,
}

impl Shadow {
    /// Knows the trampolines of tracers, to which functions return.
    pub(super) fn new(trampolines: Vec<u64>) -> Shadow {
        Shadow {
            trampolines,
            ..Shadow::default()
        }
    }

    /// Tells of the processor's stacks.
    pub(super) fn set_processor(&mut self, stacks: Vec<Range<u64>>) {
        self.processor = stacks;
    }

    /// The begin of the stack that rsp points into, or ends; and is it a task's? Those are aligned
    /// to their size.
    fn stack(&self, rsp: u64) -> (u64, bool) {
        let inside = rsp.wrapping_sub(1);
        match self.processor.iter().find(|s| s.contains(&inside)) {
            Some(stack) => (stack.start, false),
            None => (inside & !(THREAD_SIZE - 1), inside >> 63 != 0),
        }
    }

    /// The begin of the stack that a return address lies on.
    fn stack_of_slot(&self, slot: u64) -> u64 {
        self.stack(slot.wrapping_add(8)).0
    }

    /// User space: there is nothing on the kernel's stack.
    pub(super) fn root(&mut self) {
        self.chain.frames.clear();
        self.chain.complete = true;
    }

    /// The kernel ran unseen.
    pub(super) fn lost(&mut self) {
        self.chain = Chain::default();
    }

    /// An interrupt was delivered, and `handler` is about to run.
    pub(super) fn interrupted(&mut self, handler: &Seen, slot: u64, frame: IretFrame) {
        if is_user_cs(frame.cs) {
            return self.root();
        }
        self.push(Held {
            slot: Some(slot),
            pc: frame.rip,
            cfa: frame.rsp,
            trapped: true,
            thunk: false,
            saved: handler.cpu.saved,
        });
    }

    fn push(&mut self, held: Held) {
        if self.chain.frames.len() < FRAMES_MAX {
            self.chain.frames.push(held);
        }
    }

    /// An instruction of class `insn` was executed, and no interrupt was delivered.
    /// `word` reads the stack as it is now.
    pub(super) fn step(
        &mut self,
        insn: Insn,
        before: &Seen,
        after: &Seen,
        word: &mut dyn FnMut(u64) -> Option<u64>,
    ) {
        if after.is_user() || before.is_user() {
            return self.root();
        }
        let (old, new) = (before.cpu.rsp, after.cpu.rsp);
        match insn {
            Insn::Call { len, .. } if new == old.wrapping_sub(8) => {
                let pc = before.cpu.rip.wrapping_add(u64::from(len));
                return self.push(Held {
                    slot: Some(new),
                    pc,
                    cfa: old,
                    trapped: false,
                    thunk: after.cpu.rip == pc,
                    saved: after.cpu.saved,
                });
            }
            Insn::Ret => self.returned(old, after.cpu.rip),
            Insn::Far => self.iret(&after.cpu),
            Insn::Push => self.pushed(new, word),
            Insn::Pop if new == old.wrapping_add(8) => self.popped(old),
            Insn::JumpIndirect => self.went(after.cpu.rip),
            _ => {}
        }
        self.moved(old, new, word);
    }

    /// A `ret` took the word at `slot`.
    fn returned(&mut self, slot: u64, to: u64) {
        let frames = &mut self.chain.frames;
        // The entry code moves its return address about.
        let moved = |f: &Held| !f.trapped && f.pc == to;
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

    /// Somebody went to an address that is not on the stack.
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
        let is_it = |f: &Held| f.trapped && f.pc == after.rip && f.cfa == after.rsp;
        if let Some(at) = self.chain.frames.iter().rposition(is_it) {
            self.chain.frames.truncate(at);
        }
    }

    /// A return address that was taken into a register may have been put back.
    fn pushed(&mut self, new: u64, word: &mut dyn FnMut(u64) -> Option<u64>) {
        if let Some(top) = self.chain.frames.last_mut()
            && !top.trapped
            && word(new) == Some(top.pc)
        {
            (top.slot, top.cfa) = (Some(new), new.wrapping_add(8));
        }
    }

    fn popped(&mut self, slot: u64) {
        let frames = &mut self.chain.frames;
        match frames.last_mut() {
            Some(top) if top.slot == Some(slot) && !top.trapped && !top.thunk => top.slot = None,
            Some(top) if top.slot == Some(slot) && !top.trapped => {
                frames.pop();
            }
            _ => {}
        }
    }

    /// rsp was changed.
    fn moved(&mut self, old: u64, new: u64, word: &mut dyn FnMut(u64) -> Option<u64>) {
        if new == old {
            return;
        }
        let ((from, from_task), (to, to_task)) = (self.stack(old), self.stack(new));
        if from != to && from_task && to_task {
            return self.switched((from, old), (to, new), word);
        }
        if from != to {
            // Back from a stack of the processor, what was on it is over.
            let back = |f: &Held| f.slot.is_some_and(|slot| self.stack_of_slot(slot) == to);
            if let Some(at) = self.chain.frames.iter().rposition(back) {
                let over = |f: &Held| f.trapped || f.slot.is_none();
                if !self.chain.frames[at + 1..].iter().any(over) {
                    self.chain.frames.truncate(at + 1);
                }
            }
        }
        while let Some(top) = self.chain.frames.last() {
            let dropped = top
                .slot
                .is_some_and(|slot| slot < new && self.stack_of_slot(slot) == to);
            if !dropped || top.trapped {
                break;
            }
            self.chain.frames.pop();
        }
    }

    /// From one task's stack and rsp to those of another.
    fn switched(
        &mut self,
        (from, old): (u64, u64),
        (to, new): (u64, u64),
        word: &mut dyn FnMut(u64) -> Option<u64>,
    ) {
        let trampolines = &self.trampolines;
        let mut is_there = |held: &Held| match held.slot {
            Some(slot) => word(slot).is_some_and(|pc| pc == held.pc || trampolines.contains(&pc)),
            None => true,
        };
        let next = self.others.remove(&to);
        let next = next.filter(|c| c.rsp == new && c.frames.iter().all(&mut is_there));
        let mut left = std::mem::replace(&mut self.chain, next.unwrap_or_default());
        left.rsp = old;
        if self.others.len() < TASKS_MAX {
            self.others.insert(from, left);
        }
    }

    /// The true chain.
    pub(super) fn truth(&self, cpu: &Cpu) -> Truth {
        let frames = &self.chain.frames;
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
                kind: match held.trapped {
                    true => TrueKind::Trapped,
                    false => TrueKind::Call,
                },
                saved: Some(held.saved),
            });
        }
        match (self.chain.complete, frames.is_empty()) {
            (true, _) => Truth::Complete(out),
            (false, true) => Truth::Unknown,
            (false, false) => Truth::Known(out),
        }
    }
}

#[cfg(test)]
mod tests;
