//! Where ways go on that every walker follows: both sides of a conditional jump, and the code that
//! replaces other code.

use super::exec::{push, refine, tells};
use super::state::State;
use super::value::Value;
use crate::file::File;
use crate::kernel::Alternative;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of instructions followed in the replacement of other code.
pub const REPLACEMENT_MAX: usize = 256;

/// A way on from a conditional jump.
#[expect(
    clippy::large_enum_variant,
    reason = "it is looked at once, and not kept"
)]
pub enum BranchOutcome {
    /// It is never taken.
    Impossible,
    /// Nothing more is known there than before the jump.
    Same,
    /// This is known there.
    With(State),
}

/// What is known where a conditional jump is taken, `state` being what is known before it; of a loop, its
/// counter is changed in that, too. Where it is not taken, [`not_taken`] says the rest.
pub fn taken(insn: &Instruction, state: &mut State) -> BranchOutcome {
    // It counts down before it decides, and changes no flags (Intel SDM volume 2, LOOP/LOOPcc).
    if insn.is_loop() || insn.is_loopcc() {
        let is_whole = counts_in_rcx(insn.code());
        let count = state.reg(Reg::Rcx);
        let count = if is_whole {
            count.plus(-1)
        } else {
            Value::Computed
        };
        state.set(Reg::Rcx, count);
    }

    if insn.mnemonic() == Mnemonic::Xbegin {
        // Why the transaction was aborted.
        let mut aborted = state.clone();
        aborted.set(Reg::Rax, Value::Computed);
        return BranchOutcome::With(aborted);
    }

    // If the flags tell nothing, both ways go on with the same state.
    let condition = insn.condition_code();
    if !tells(state, condition, true) {
        state.has_branched = true;
        return BranchOutcome::Same;
    }

    // The jump is taken: what was compared is known better there.
    let mut taken = state.clone();
    if refine(&mut taken, condition, true) {
        (taken.has_branched, state.has_branched) = (true, true);
        BranchOutcome::With(taken)
    } else {
        BranchOutcome::Impossible
    }
}

/// Whether the counter of a loop is all of rcx, not its lower half.
fn counts_in_rcx(code: Code) -> bool {
    matches!(
        code,
        Code::Loop_rel8_64_RCX | Code::Loope_rel8_64_RCX | Code::Loopne_rel8_64_RCX
    )
}

/// Adds to `state` what is known where a conditional jump is not taken. Whether there is such a way.
pub fn not_taken(insn: &Instruction, state: &mut State) -> bool {
    // A loop also ends when its counter is zero, whatever the flags are.
    insn.is_loopcc() || refine(state, insn.condition_code(), false)
}

/// An instruction of a replacement.
pub enum ReplacedInsn {
    /// It is done: the next one is at this address (svma).
    Done(u64),
    /// To be executed.
    Execute(Instruction),
    /// Not an instruction.
    Undecodable,
}

/// The instruction at `pc` (svma) of a replacement, which is followed once, without its own loops.
pub fn replaced(file: &File, by: &Alternative, pc: u64, state: &mut State) -> ReplacedInsn {
    let insn = Decoder::with_ip(64, file.bytes(pc), pc, DecoderOptions::NONE).decode();
    if insn.is_invalid() {
        return ReplacedInsn::Undecodable;
    }
    let target = insn.near_branch64();
    let is_inside = insn.op0_kind() == OpKind::NearBranch64 && by.replacement.contains(&target);
    if is_inside && target > pc && insn.mnemonic() == Mnemonic::Call {
        // A return stack is filled: what lies behind the call catches speculation.
        push(state, 8, Value::Computed);
        return ReplacedInsn::Done(target);
    }
    if is_inside && insn.flow_control() == FlowControl::ConditionalBranch {
        return ReplacedInsn::Done(insn.next_ip());
    }
    ReplacedInsn::Execute(insn)
}
