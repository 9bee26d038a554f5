//! What all x87 instructions do besides their arithmetic: raise a pending exception, and record
//! where the instruction is.
//!
//! An unmasked exception stays pending until the next instruction that checks for it: any x87 or
//! MMX instruction, except those whose names begin with `fn`.
//!
//! The pointers to the last instruction are kept as on current processors. All instructions except
//! control instructions write FIP. FOP and FDP are written only by instructions that raise an
//! unmasked exception (Intel's `cpuid` says so), on AMD's processors by all that write FIP. The
//! selectors FCS and FDS are always 0.

use crate::core::Core;
use crate::op::{Flow, Op};
use crate::processor::Vendor;
use crate::state::fpu::Fpu;
use crate::stop::{Exception, Stop};

/// Raises a pending exception.
pub(in crate::isa) fn wait(core: &mut Core) -> Option<()> {
    if !core.state.fpu.is_pending() {
        return Some(());
    }
    core.stop = Stop::Exception(Exception::X87);
    None
}

/// Executes an instruction without a memory operand, after a pending exception was raised.
pub(super) fn execute(core: &mut Core, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
    match wait(core) {
        Some(()) => commit(core, op, run),
        None => Flow::Stop,
    }
}

/// Executes the part of an instruction that cannot fault any more, and records where the
/// instruction is. No exception may be pending before.
pub(super) fn commit(core: &mut Core, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
    run(&mut core.state.fpu);
    let rip = core.state.rip.wrapping_add(op.offset.into());
    core.state.fpu.instruction = rip;
    if core.state.fpu.is_pending() || core.processor.vendor() == Vendor::Amd {
        note_operand(core, op, rip);
    }
    Flow::Next
}

/// Records the opcode and the memory operand of the instruction at `rip`.
#[cold]
fn note_operand(core: &mut Core, op: &Op, rip: u64) {
    let mut bytes = (0..u64::from(op.len)).map(|i| {
        let mut byte = [0];
        let fetched = core.memory.fetch(rip.wrapping_add(i), &mut byte);
        fetched.map_or(0, |()| byte[0])
    });
    // No prefix has one of these values.
    let Some(first) = bytes.find(|byte| matches!(byte, 0xd8..=0xdf)) else {
        return;
    };
    let second = bytes.next().unwrap_or(0);
    core.state.fpu.opcode = u16::from(first & 7) << 8 | u16::from(second);
    if second < 0xc0 {
        let base = core.state.gpr[(op.extra & 31) as usize];
        core.state.fpu.data = op.address(core).wrapping_sub(base);
    }
}
