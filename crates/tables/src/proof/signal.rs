//! The frame of a signal handler's caller, which the kernel writes.
//!
//! At the first instruction of the trampoline, `mov $15, %eax; syscall`, rsp is the address of the
//! `struct ucontext` in the frame (Linux `arch/x86/include/asm/sigframe.h`, `struct rt_sigframe`):
//! the handler's `ret` has popped `pretcode`. The registers lie in `uc_mcontext`
//! (`arch/x86/include/uapi/asm/sigcontext.h`, `struct sigcontext_64`).

use super::claim::Subject;
use crate::table::Table;
use unwind_sim_unwind::derived::simplify;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, Value};

/// Offset of `uc_mcontext` in `struct ucontext`, bytes.
const MCONTEXT: i32 = 40;

/// Offset of a register in `struct sigcontext_64`, bytes.
const fn offset(reg: Reg) -> Option<i32> {
    Some(match reg {
        Reg::R8 => 0,
        Reg::R9 => 8,
        Reg::R10 => 16,
        Reg::R11 => 24,
        Reg::R12 => 32,
        Reg::R13 => 40,
        Reg::R14 => 48,
        Reg::R15 => 56,
        Reg::Rdi => 64,
        Reg::Rsi => 72,
        Reg::Rbp => 80,
        Reg::Rbx => 88,
        Reg::Rdx => 96,
        Reg::Rax => 104,
        Reg::Rcx => 112,
        Reg::Rsp => 120,
        Reg::Rip => 128,
        _ => return None,
    })
}

/// Calls `each` for every claim of a signal frame's rule: whether it names the place where the
/// kernel saves that register. `None` for a form that is not understood.
pub fn judge(table: &Table, rule: &Rule, mut each: impl FnMut(Subject, Option<bool>)) {
    // glibc's trampoline has expressions for all of these rules.
    let rule = simplify(rule, table.section());
    let saved_at = |reg: Reg| offset(reg).map(|o| o + MCONTEXT);

    // Rules give an address by rsp or by the CFA, and each is followed to its distance from rsp.
    let place = |value: Value, cfa: Option<i32>| match value {
        Value::Load {
            base: Base::Reg(Reg::Rsp),
            offset,
            addend: 0,
        } => Some(offset),
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => cfa?.checked_add(offset),
        _ => None,
    };

    // The CFA is the interrupted rsp, or any known place if rsp has a rule of its own.
    let (cfa, by_register) = match rule.cfa {
        Value::Offset {
            base: Base::Reg(Reg::Rsp),
            offset,
        } => (None, Some(offset)),
        value => (place(value, None), None),
    };

    let is_sp = |at: Option<i32>| at.map(|at| Some(at) == saved_at(Reg::Rsp));
    match rule.sp {
        _ if rule.sp_is_cfa() => each(Subject::Cfa, is_sp(cfa)),
        sp => each(Subject::Sp, is_sp(place(sp, by_register))),
    }

    let at = |value| place(value, by_register);
    let is = |reg, value| at(value).map(|at| Some(at) == saved_at(reg));

    // The return address of a signal frame is the interrupted rip.
    each(Subject::ReturnAddress, is(Reg::Rip, rule.ra));

    for (reg, value) in Reg::CALLEE_SAVED.into_iter().zip(rule.saved) {
        match value {
            // A register that is not told about is lost, which is no wrong claim.
            Value::Undefined => {}
            // Interrupted code may have changed it.
            Value::Same | Value::Unspecified => each(Subject::Register(reg), Some(false)),
            value => each(Subject::Register(reg), is(reg, value)),
        }
    }
}
