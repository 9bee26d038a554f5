//! Where ways go on that every walker follows: both sides of a conditional jump, and the code that
//! replaces other code.

use super::exec::{push, refine};
use super::state::State;
use super::value::Value;
use crate::file::File;
use crate::kernel::Alternative;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of instructions followed in the replacement of other code.
pub const REPLACEMENT_MAX: usize = 256;

/// Splits the state before a conditional jump: into what is returned, where it is taken, and `state`,
/// where it is not.
pub fn split(insn: &Instruction, state: &mut State) -> State {
    let mut taken = state.clone();
    let condition = insn.condition_code();
    refine(&mut taken, condition, true);
    refine(state, condition, false);
    if insn.is_loop() || insn.is_loopcc() {
        taken.set(Reg::Rcx, Value::Computed);
        state.set(Reg::Rcx, Value::Computed);
    }
    taken
}

/// An instruction of a replacement.
pub enum Replaced {
    /// It is done: the next one is at this address (svma).
    Done(u64),
    /// To be executed.
    Execute(Instruction),
    /// Not an instruction.
    Undecodable,
}

/// The instruction at `pc` (svma) of a replacement, which is followed once, without its own loops.
pub fn replaced(file: &File, by: &Alternative, pc: u64, state: &mut State) -> Replaced {
    let insn = Decoder::with_ip(64, file.bytes(pc), pc, DecoderOptions::NONE).decode();
    if insn.is_invalid() {
        return Replaced::Undecodable;
    }
    let target = insn.near_branch64();
    let is_inside = insn.op0_kind() == OpKind::NearBranch64 && by.replacement.contains(&target);
    if is_inside && target > pc && insn.mnemonic() == Mnemonic::Call {
        // A return stack is filled: what lies behind the call catches speculation.
        push(state, 8, Value::Computed);
        return Replaced::Done(target);
    }
    if is_inside && insn.flow_control() == FlowControl::ConditionalBranch {
        return Replaced::Done(insn.next_ip());
    }
    Replaced::Execute(insn)
}
