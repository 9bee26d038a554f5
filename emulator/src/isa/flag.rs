//! Instructions on single flags: clc, stc, cmc, cld, std, lahf, sahf.

use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::state::reg;
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

fn clc(core: &mut Core, _: &Op) -> Flow {
    core.state.flags.set_cf(false);
    Flow::Next
}

fn stc(core: &mut Core, _: &Op) -> Flow {
    core.state.flags.set_cf(true);
    Flow::Next
}

fn cmc(core: &mut Core, _: &Op) -> Flow {
    let cf = core.state.flags.cf();
    core.state.flags.set_cf(!cf);
    Flow::Next
}

fn cld(core: &mut Core, _: &Op) -> Flow {
    core.state.other_flags &= !flags::DF;
    Flow::Next
}

fn std(core: &mut Core, _: &Op) -> Flow {
    core.state.other_flags |= flags::DF;
    Flow::Next
}

/// The arithmetic flags in the low byte of rflags: all except OF.
const LOW: u64 = flags::ARITHMETIC & 0xff;

fn lahf(core: &mut Core, _: &Op) -> Flow {
    let value = core.state.flags.bits() & LOW | flags::FIXED;
    core.state.set::<8>(reg::HIGH, value);
    Flow::Next
}

fn sahf(core: &mut Core, _: &Op) -> Flow {
    let value = core.state.get::<8>(reg::HIGH);
    let of = core.state.flags.bits() & flags::OF;
    core.state.flags = Flags::from_bits(value & LOW | of);
    Flow::Next
}
