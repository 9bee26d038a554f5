//! Where ways go on that every walker follows: both sides of a conditional jump, and the code that
//! replaces other code.

use super::exec::{push, refine, tells};
use super::state::State;
use super::value::Value;
use crate::file::File;
use crate::kernel::Alternative;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of instructions followed in the replacement of other code.
pub const REPLACEMENT_MAX: usize = 256;

/// What is known where a conditional jump is taken, if that is more than `state`, which is what is known
/// before it; of a loop, its counter is changed in both. Where it is not taken, [`refine`] says the rest.
pub fn taken(insn: &Instruction, state: &mut State) -> Option<State> {
    if insn.is_loop() || insn.is_loopcc() {
        state.set(Reg::Rcx, Value::Computed);
    }
    let condition = insn.condition_code();
    tells(state, condition, true).then(|| {
        let mut taken = state.clone();
        refine(&mut taken, condition, true);
        taken
    })
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
