//! The frame that a rule is applied to: a pc, and what is known of the registers there.

use crate::address::CodeAddress;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use arrayvec::ArrayVec;

/// A frame: its pc and what is known of its registers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The instruction, or the return address.
    pub pc: CodeAddress,
    /// The registers; rsp is the sp in this frame.
    pub regs: Regs,
    /// The address of the word that `pc` was read from.
    pub slot: Option<u64>,
    /// Is this where the walk began?
    pub topmost: bool,
    /// May this frame be on another stack than the one it called?
    pub may_change_stack: bool,
    /// Callee-saved registers that are unknown, and why.
    pub lost: ArrayVec<(Reg, Reason), 6>,
    /// rbp of the frame inside, where this frame's is lost because its slot lies below that
    /// frame's sp: whoever popped it has put the caller's value back already. Only a fallback may
    /// use it, as the slot can also be a leaf's red zone.
    pub popped_rbp: Option<u64>,
}

impl Frame {
    /// The frame that a walk starts in.
    pub fn top(regs: Regs) -> Frame {
        Frame {
            pc: CodeAddress::Instruction(regs.rip()),
            regs,
            slot: None,
            topmost: true,
            may_change_stack: false,
            lost: ArrayVec::new(),
            popped_rbp: None,
        }
    }

    /// Becomes the caller, whose other registers are in place.
    #[inline]
    pub(crate) fn enter(&mut self, pc: CodeAddress, sp: u64, slot: Option<u64>) {
        self.pc = pc;
        self.regs.set(Reg::Rsp, sp);
        self.regs.set(Reg::Rip, pc.value());
        self.slot = slot;
        self.topmost = false;
    }

    /// `reg` is unknown from here on.
    pub(crate) fn lose(&mut self, reg: Reg, cause: Reason) {
        if reg == Reg::Rbp {
            let sp = self.regs.rsp();
            let is_popped = matches!(cause, Reason::Memory(error) if error.address() < sp);
            self.popped_rbp = self.regs.get(Reg::Rbp).filter(|_| is_popped);
        }
        self.regs.forget(reg);
        self.lost.retain(|(r, _)| *r != reg);
        let _ = self.lost.try_push((reg, cause));
    }

    /// Why a rule that needs `reg` cannot be applied.
    #[cold]
    pub(crate) fn why_unknown(&self, reg: Reg) -> Reason {
        match self.lost.iter().find(|(r, _)| *r == reg) {
            Some((_, cause)) => *cause,
            None if self.topmost => Reason::RegistersMissing { reg },
            None => Reason::RegisterNotCarried { reg },
        }
    }
}
