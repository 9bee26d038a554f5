//! Reads the emulated machine's state for a recording: registers, stacks, and the program's entry
//! point.

use crate::registers::live_registers;
use crate::shadow::Shadow;
use unwind_sim_emulator::{AddressSpace, Core};
use unwind_sim_recordings::model::{Region, RegionRole};
use unwind_sim_unwind::regs::{Reg, Regs};

/// Bytes copied below rsp: the red zone (psABI 3.2.2) and what was just popped.
const BELOW_SP: u64 = 512;
/// `AT_ENTRY`: the program's own entry point, which the dynamic linker jumps to (Linux
/// `include/uapi/linux/auxvec.h`).
const AT_ENTRY: u64 = 9;
/// Maximum number of words between rsp and the end of the auxiliary vector.
const INITIAL_WORDS_MAX: u64 = 1 << 20;
/// Register numbers.
pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RDI: usize = 7;

/// All registers of a sample. The next instruction is at `rip`.
pub(super) fn live(core: &Core, rip: u64) -> Regs {
    /// The code segment of 64-bit programs (Linux `arch/x86/include/asm/segment.h`, `__USER_CS`).
    const USER_CS: u64 = 0x33;
    let mut regs = live_registers(&core.state, rip);
    regs.set(Reg::Cs, USER_CS);
    regs
}

/// The stack that contains `sp`, from [`BELOW_SP`] bytes below it to `max` bytes above it.
fn piece(memory: &AddressSpace, sp: u64, max: u64, role: RegionRole) -> Option<Region<'static>> {
    let (bounds, _) = memory.area(sp)?;
    let address = sp.saturating_sub(BELOW_SP).max(bounds.start) & !7;
    let end = sp.saturating_add(max).min(bounds.end);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(address)?).ok()?];
    memory.read(address, &mut bytes).ok()?;
    (!bytes.is_empty()).then_some(Region {
        role,
        bounds,
        next_sp: 0,
        address,
        bytes: bytes.into(),
    })
}

/// The stacks of the running thread, innermost first, without duplicates. At most `max` bytes of
/// each, from rsp upwards.
pub(super) fn stacks(core: &Core, shadow: &Shadow, max: u64) -> Vec<Region<'static>> {
    let first = piece(&core.memory, core.state.gpr(RSP), max, RegionRole::Stack);
    let mut out: Vec<Region<'static>> = first.into_iter().collect();
    for other in shadow.other_stacks() {
        let covered =
            |r: &Region<'_>| (r.address..r.address + r.bytes.len() as u64).contains(&other);
        if !out.iter().any(covered) {
            out.extend(piece(&core.memory, other, max, RegionRole::OtherStack));
        }
    }
    out
}

/// The running program's own entry point. The auxiliary vector follows the environment on the stack
/// (psABI 3.4.1).
pub(super) fn program_entry(core: &Core) -> Option<u64> {
    let rsp = core.state.gpr(RSP);
    let word = |index: u64| core.memory.read_u64(rsp.wrapping_add(index * 8)).ok();
    let behind_args = word(0)?.checked_add(2)?;
    let null = (behind_args..INITIAL_WORDS_MAX).find(|&i| word(i).is_none_or(|w| w == 0))?;
    let mut entries = (null + 1..INITIAL_WORDS_MAX).step_by(2);
    entries.find_map(|i| match word(i) {
        Some(AT_ENTRY) => Some(word(i + 1)),
        Some(0) | None => Some(None),
        Some(_) => None,
    })?
}
