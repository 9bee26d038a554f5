//! Instructions on single flags: clc, stc, cmc, cld, std, lahf, sahf.

use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::state::{State, reg};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match insn.mnemonic() {
        Mnemonic::Clc => clc,
        Mnemonic::Stc => stc,
        Mnemonic::Cmc => cmc,
        Mnemonic::Cld => cld,
        Mnemonic::Std => std,
        Mnemonic::Lahf => lahf,
        Mnemonic::Sahf => sahf,
        _ => return None,
    })
}

fn clc(state: &mut State, _: &Op) -> Flow {
    state.flags.set_cf(false);
    Flow::Next
}

fn stc(state: &mut State, _: &Op) -> Flow {
    state.flags.set_cf(true);
    Flow::Next
}

fn cmc(state: &mut State, _: &Op) -> Flow {
    let cf = state.flags.cf();
    state.flags.set_cf(!cf);
    Flow::Next
}

fn cld(state: &mut State, _: &Op) -> Flow {
    state.other_flags &= !flags::DF;
    Flow::Next
}

fn std(state: &mut State, _: &Op) -> Flow {
    state.other_flags |= flags::DF;
    Flow::Next
}

/// The arithmetic flags in the low byte of rflags: all except OF.
const LOW: u64 = flags::ARITHMETIC & 0xff;

fn lahf(state: &mut State, _: &Op) -> Flow {
    let value = state.flags.bits() & LOW | flags::FIXED;
    state.set::<8>(reg::HIGH, value);
    Flow::Next
}

fn sahf(state: &mut State, _: &Op) -> Flow {
    let value = state.get::<8>(reg::HIGH);
    let of = state.flags.bits() & flags::OF;
    state.flags = Flags::from_bits(value & LOW | of);
    Flow::Next
}
