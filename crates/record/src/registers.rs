//! The emulated machine's registers for the start of a walk.

use unwind_sim_emulator::State;
use unwind_sim_unwind::regs::{Reg, Regs};

/// All registers that a walk starts from. The next instruction is at `rip`.
pub fn live_registers(state: &State, rip: u64) -> Regs {
    let mut regs = Regs::UNKNOWN;
    for (number, reg) in Reg::BY_NUMBER.into_iter().enumerate() {
        regs.set(reg, state.gpr(number));
    }
    regs.set(Reg::Rip, rip);
    regs.set(Reg::Rflags, state.rflags());
    regs
}
