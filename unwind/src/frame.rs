//! The frame that a rule is applied to: a pc and the known registers.

use crate::address::CodeAddress;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use arrayvec::ArrayVec;

/// A frame: its pc and its known registers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The instruction address or return address.
    pub pc: CodeAddress,
    /// The registers; rsp is the sp of this frame.
    pub regs: Regs,
    /// The address of the word that `pc` was read from.
    pub slot: Option<u64>,
    /// Whether this is the frame in which the walk starts.
    pub topmost: bool,
    /// Whether this frame may be on a different stack from its callee.
    pub may_change_stack: bool,
    /// Callee-saved registers that are unknown, and why.
    pub lost: ArrayVec<(Reg, Reason), 6>,
    /// The callee's rbp, if this frame's rbp is lost because its slot lies below the callee's sp:
    /// the callee has already popped it, so rbp holds the caller's value again. Only a fallback may
    /// use it, because the slot may also lie in a leaf's red zone.
    pub popped_rbp: Option<u64>,
}

impl Frame {
    /// The frame in which a walk starts.
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

    /// Turns this frame into its caller, whose other registers are already set.
    #[inline]
    pub(crate) fn enter(&mut self, pc: CodeAddress, sp: u64, slot: Option<u64>) {
        self.pc = pc;
        self.regs.set(Reg::Rsp, sp);
        self.regs.set(Reg::Rip, pc.value());
        self.slot = slot;
        self.topmost = false;
    }

    /// Marks `reg` as unknown because of `cause`.
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

    /// Why `reg` is not known here, so that a rule that needs it cannot be applied: a table gave it
    /// up, its slot could not be read, or the unwinder does not carry it. Of a register that is
    /// known it says nothing.
    #[cold]
    pub fn why_unknown(&self, reg: Reg) -> Reason {
        match self.lost.iter().find(|(r, _)| *r == reg) {
            Some((_, cause)) => *cause,
            None if self.topmost => Reason::RegistersMissing { reg },
            None => Reason::RegisterNotCarried { reg },
        }
    }
}
