//! rdrand and rdseed: numbers from the run's seed and the time, so that a run can be repeated. The sequence
//! takes one step for each instruction executed.

use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::operands::width;
use crate::random::number;
use iced_x86::{Instruction, Mnemonic};

/// Make the numbers of the two instructions, and those of the system calls, differ.
const RDRAND: u64 = 0x6a09_e667_f3bc_c908;
const RDSEED: u64 = 0xbb67_ae85_84ca_a73b;

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    Some(match (insn.mnemonic(), width(insn, 0)) {
        (Mnemonic::Rdrand, 16) => random::<RDRAND, 16>,
        (Mnemonic::Rdrand, 32) => random::<RDRAND, 32>,
        (Mnemonic::Rdrand, 64) => random::<RDRAND, 64>,
        (Mnemonic::Rdseed, 16) => random::<RDSEED, 16>,
        (Mnemonic::Rdseed, 32) => random::<RDSEED, 32>,
        (Mnemonic::Rdseed, 64) => random::<RDSEED, 64>,
        _ => return None,
    })
}

/// Always succeeds: CF is set, the others are clear. `imm` is the number of instructions before it
/// in the block.
fn random<const SOURCE: u64, const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let time = core.time.wrapping_add(op.imm());
    let value = number(core.seed ^ SOURCE, time);
    core.state.set::<W>(op.dst, value);
    core.state.flags = Flags::from_bits(flags::CF);
    Flow::Next
}
