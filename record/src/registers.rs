//! The emulated machine's registers as a walk starts from them.

use unwind_sim_emulator::State;
use unwind_sim_unwind::regs::{Reg, Regs};

/// All registers, as a walk starts from.
pub fn live_registers(state: &State, rip: u64) -> Regs {
    const ORDER: [Reg; 16] = [
        Reg::Rax,
        Reg::Rcx,
        Reg::Rdx,
        Reg::Rbx,
        Reg::Rsp,
        Reg::Rbp,
        Reg::Rsi,
        Reg::Rdi,
        Reg::R8,
        Reg::R9,
        Reg::R10,
        Reg::R11,
        Reg::R12,
        Reg::R13,
        Reg::R14,
        Reg::R15,
    ];
    let mut regs = Regs::UNKNOWN;
    for (number, reg) in ORDER.into_iter().enumerate() {
        regs.set(reg, state.gpr(number));
    }
    regs.set(Reg::Rip, rip);
    regs.set(Reg::Rflags, state.rflags());
    regs
}
