//! Control instructions: control and status word, the stack pointer, `fwait`. Not here:
//! instructions that save more than a word.

use super::execute::{execute, wait};
use crate::core::Core;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::fpu::C1;
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;

    Some(match (insn.mnemonic(), form(insn)) {
        // Instructions with an `n` do not report a pending exception first. Assemblers write
        // `finit` as `wait; fninit`.
        (Fninit, _) => |core, _| {
            core.state.fpu.initialize();
            Flow::Next
        },
        (Fnclex, _) => |core, _| {
            core.state.fpu.clear_exceptions();
            Flow::Next
        },
        (Wait, _) => |core, _| flow(wait(core)),
        // Control instructions of the 8087 and the 80287.
        (Fneni | Fndisi | Fnsetpm, _) => |_, _| Flow::Next,
        (Fldcw, _) => load_control,
        (Fnstcw, _) => |core, op| {
            let word = core.state.fpu.control_word();
            flow(core.store::<16>(op.address(core), word.into()))
        },
        (Fnstsw, Form::M) => |core, op| {
            let word = core.state.fpu.status_word();
            flow(core.store::<16>(op.address(core), word.into()))
        },
        (Fnstsw, _) => |core, _| {
            let word = core.state.fpu.status_word();
            core.state.set::<16>(reg::RAX as u8, word.into());
            Flow::Next
        },
        // In spite of its name, it reports a pending exception (SDM volume 2, FNOP).
        (Fnop, _) => |core, op| execute(core, op, |_| {}),
        (Fincstp, _) => |core, op| rotate(core, op, 1),
        // Backwards by one of eight is forwards by seven.
        (Fdecstp, _) => |core, op| rotate(core, op, 7),
        (Ffree, _) => free::<false>,
        (Ffreep, _) => free::<true>,
        _ => return None,
    })
}

fn load_control(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let Some(word) = core.load::<16>(op.address(core)) else {
        return Flow::Stop;
    };
    core.state.fpu.set_control_word(word as u16);
    Flow::Next
}

fn free<const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        fpu.set_conditions(C1, 0);
        fpu.free(op.dst);
        if POP {
            fpu.pop();
        }
    })
}

fn rotate(core: &mut Core, op: &Op, position: u8) -> Flow {
    execute(core, op, |fpu| {
        fpu.rotate(position);
        fpu.set_conditions(C1, 0);
    })
}
