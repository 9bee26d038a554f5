//! rdrand and rdseed: numbers from the run's seed and the time, so that a run can be repeated.
//!
//! Source of the sequence: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), one step for each
//! instruction executed.

use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run};
use crate::operands::width;
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
    let step = time.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut value = (core.seed ^ SOURCE).wrapping_add(step);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    core.state.set::<W>(op.dst, value ^ value >> 31);
    core.state.flags = Flags::from_bits(flags::CF);
    Flow::Next
}
