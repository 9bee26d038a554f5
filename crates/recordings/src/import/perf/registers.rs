//! User registers and the stack copy of a sample.

use crate::import::item::Skip;
use unwind_sim_perf_data::regs::{self, RegsAbi};
use unwind_sim_perf_data::{Sample, misc};
use unwind_sim_unwind::regs::{Reg, Regs};

/// Our register for each perf register number; `None` for vector and segment registers.
static REGISTERS: [Option<Reg>; 64] = {
    let mut table = [None; 64];
    let mut number = 0;
    while number < table.len() {
        table[number] = match number as u32 {
            regs::PERF_REG_X86_FLAGS => Some(Reg::Rflags),
            regs::PERF_REG_X86_CS => Some(Reg::Cs),
            perf => match regs::dwarf_number(perf) {
                Some(dwarf) => Reg::from_dwarf(dwarf),
                None => None,
            },
        };
        number += 1;
    }
    table
};

/// User registers, the stack copy, and the address at which the stack ends, if it is known.
pub type UserState<'a> = (Regs, &'a [u8], Option<u64>);

/// The user registers and the stack copy from rsp upwards, with the address at which the stack ends
/// if the kernel found no more of it; the copy is empty if there is none.
/// `None` if the event does not record user registers.
///
/// # Errors
/// Why the sample cannot be walked.
#[inline]
pub fn registers_and_stack<'a>(sample: &Sample<'a>) -> Result<Option<UserState<'a>>, Skip> {
    let damaged = |_| Skip::Damaged;
    let (user, stack, asked) = match sample.user_regs_and_stack().map_err(damaged)? {
        Some((user, stack)) => (user, stack.bytes, stack.size),
        None => match sample.user_regs().map_err(damaged)? {
            Some(user) => (user, &[][..], 0),
            None => return Ok(None),
        },
    };

    match user.abi {
        RegsAbi::Bits64 => {}
        // A kernel thread has no user registers (perf_event_open(2)).
        RegsAbi::None => return Err(Skip::KernelThread),
        RegsAbi::Bits32 => return Err(Skip::Bits32),
        RegsAbi::Unknown(_) => return Err(Skip::UnknownAbi),
    }

    let mut out = Regs::UNKNOWN;
    for (number, value) in user.iter() {
        if let Some(Some(reg)) = REGISTERS.get(number as usize) {
            out.set(*reg, value);
        }
    }

    // The flag is of the sample's own ip, which in the kernel is not that of the user registers.
    let is_exact = sample.is_exact_ip() && sample.cpumode() == misc::CPUMODE_USER;
    if is_exact && out.get(Reg::Rip) == sample.ip() {
        out.set_exact_ip();
    }

    match (out.get(Reg::Rip), out.get(Reg::Rsp)) {
        (Some(_), Some(rsp)) => {
            let length = stack.len() as u64;
            // The kernel copies less than it was asked for where the stack's mapping ends.
            let end = (length > 0 && length < asked).then(|| rsp.wrapping_add(length));
            Ok(Some((out, stack, end)))
        }
        _ => Err(Skip::NoIpOrSp),
    }
}

/// Rejects samples of a hypervisor's guest.
///
/// # Errors
/// [`Skip::Guest`].
#[inline]
pub fn refuse_guest(sample: &Sample<'_>) -> Result<(), Skip> {
    let guest = [
        misc::CPUMODE_GUEST_KERNEL,
        misc::CPUMODE_GUEST_USER,
        misc::CPUMODE_HYPERVISOR,
    ];
    if guest.contains(&sample.cpumode()) {
        Err(Skip::Guest)
    } else {
        Ok(())
    }
}
