//! A change of stacks that leaves the way back on the new one, as the kernel's `call_on_stack`:
//!
//! ```text
//! mov %rsp, (%rbx)    # the word on top of the new stack points to the old one
//! mov %rbx, %rsp
//! call function
//! pop %rsp
//! ```
//!
//! In between, the CFA is at a known distance from what the word at rsp points to, which is objtool's
//! `SP_INDIRECT` (Linux `tools/objtool/check.c`, `update_cfi_state`, since 5.12).

use super::access::general;
use super::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use unwind_sim_unwind::regs::Reg;

/// What the first instruction has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swizzle {
    /// The register with the address of the word on top of the new stack.
    pub top: Reg,
    /// What that word holds: an address in the frame.
    pub back: Value,
}

impl Swizzle {
    /// What a store of `value` begins, which is not to this stack.
    pub(super) fn begin(insn: &Instruction, value: Value) -> Option<Swizzle> {
        let is_plain = insn.mnemonic() == Mnemonic::Mov
            && insn.memory_index() == Register::None
            && insn.memory_displacement64() == 0
            && insn.op1_kind() == OpKind::Register;
        let top = general(insn.memory_base())?;
        let is_back = is_plain && value.is_stack() && insn.memory_base().size() == 8;
        is_back.then_some(Swizzle { top, back: value })
    }

    /// Whether `insn` makes the word that was stored the top of the stack.
    pub(super) fn is_ended_by(self, insn: &Instruction) -> bool {
        insn.op0_register() == Register::RSP
            && insn.op1_register().size() == 8
            && general(insn.op1_register()) == Some(self.top)
    }
}
