//! The mm registers: the significands of the x87 registers.
//!
//! Source: Intel SDM volume 1, chapter 9.

use super::x87::wait;
use crate::core::Core;
use crate::float::x87::F80;
use crate::op::{Flow, Op};
use crate::state::fpu::Fpu;

impl Fpu {
    #[inline]
    pub(super) fn mm(&self, number: u8) -> u64 {
        self.registers[usize::from(number & 7)].significand
    }

    fn set_mm(&mut self, number: u8, value: u64) {
        self.registers[usize::from(number & 7)] = F80 {
            sign_exponent: 0xffff,
            significand: value,
        };
    }

    /// What every instruction except `emms` does to the rest of the unit.
    #[inline]
    pub(super) fn begin_mmx(&mut self) {
        self.top = 0;
        self.empty = 0;
    }
}

/// Writes a function of the first operand to it. Nothing can fault any more.
pub(super) fn change(core: &mut Core, op: &Op, function: impl FnOnce(u64) -> u64) -> Flow {
    let fpu = &mut core.state.fpu;
    fpu.begin_mmx();
    fpu.set_mm(op.dst, function(fpu.mm(op.dst)));
    Flow::Next
}

/// Writes a function of both operands to the first one.
pub(super) fn from_both(core: &mut Core, op: &Op, function: impl FnOnce(u64, u64) -> u64) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let b = core.state.fpu.mm(op.src);
    change(core, op, |a| function(a, b))
}
