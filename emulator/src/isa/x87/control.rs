//! Control instructions: control and status word, the stack pointer, `fwait`. Not here:
//! instructions that save more than a word.

use super::execute::{execute, wait};
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::fpu::C1;
use crate::state::{State, reg};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn)) {
        (Fninit, _) => |state, _| {
            state.fpu.initialize();
            Flow::Next
        },
        (Fnclex, _) => |state, _| {
            state.fpu.clear_exceptions();
            Flow::Next
        },
        (Wait, _) => |state, _| flow(wait(state)),
        // Control instructions of the 8087 and the 80287.
        (Fneni | Fndisi | Fnsetpm, _) => |_, _| Flow::Next,
        (Fldcw, _) => load_control,
        (Fnstcw, _) => |state, op| {
            let word = state.fpu.control_word();
            flow(state.store::<16>(op.address(state), word.into()))
        },
        (Fnstsw, Form::M) => |state, op| {
            let word = state.fpu.status_word();
            flow(state.store::<16>(op.address(state), word.into()))
        },
        (Fnstsw, _) => |state, _| {
            let word = state.fpu.status_word();
            state.set::<16>(reg::RAX as u8, word.into());
            Flow::Next
        },
        (Fnop, _) => |state, op| execute(state, op, |_| {}),
        (Fincstp, _) => |state, op| rotate(state, op, 1),
        (Fdecstp, _) => |state, op| rotate(state, op, 7),
        (Ffree, _) => free::<false>,
        (Ffreep, _) => free::<true>,
        _ => return None,
    })
}

fn load_control(state: &mut State, op: &Op) -> Flow {
    if wait(state).is_none() {
        return Flow::Stop;
    }
    let Some(word) = state.load::<16>(op.address(state)) else {
        return Flow::Stop;
    };
    state.fpu.set_control_word(word as u16);
    Flow::Next
}

fn free<const POP: bool>(state: &mut State, op: &Op) -> Flow {
    execute(state, op, |fpu| {
        fpu.set_conditions(C1, 0);
        fpu.free(op.dst);
        if POP {
            fpu.pop();
        }
    })
}

fn rotate(state: &mut State, op: &Op, position: u8) -> Flow {
    execute(state, op, |fpu| {
        fpu.rotate(position);
        fpu.set_conditions(C1, 0);
    })
}
