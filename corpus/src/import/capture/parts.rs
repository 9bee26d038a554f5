//! The pieces of a stop: registers, stacks, words, return addresses that were taken.

use super::json::{Object, Problem};
use super::states;
use crate::import::ImportError;
use crate::kernel::KernelImage;
use crate::model::{Region, RegionRole};
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::kernel::{GraphReturn, StackInfo, StackType, State, Task};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;

/// `ret_stack` of Linux before 6.10: `struct ftrace_ret_stack` {ret, func, calltime, retp}, of which
/// `curr_ret_stack` is the number of the last one, or -1.
pub(super) fn graph(from: &Object<'_>) -> Result<Vec<GraphReturn>, Problem> {
    let bytes = from.memory("ret_stack")?;
    let last = from.signed("curr_ret_stack")?.unwrap_or(-1);
    let count = usize::try_from(last + 1).unwrap_or(0);
    let word = |entry: &[u8; 32], at: usize| {
        entry[at..]
            .first_chunk()
            .map_or(0, |b| u64::from_le_bytes(*b))
    };
    let entries = bytes.as_chunks::<32>().0.iter().take(count);
    Ok(entries
        .map(|e| GraphReturn {
            ret: word(e, 0),
            retp: word(e, 24),
        })
        .collect())
}

/// The unwinder's own registers inside of `__unwind_start`: those of its first state; else those
/// that it returns to.
pub(super) fn own_regs(states: &[State], entry: Regs, regions: &[Region<'_>]) -> Regs {
    if let Some(State::Orc(first)) = states.first() {
        return Regs::frame(first.ip, first.sp, first.bp);
    }
    let sp = entry.rsp();
    match word_at(regions, sp) {
        Some(ret) => Regs::frame(ret, sp.wrapping_add(8), entry.get(Reg::Rbp).unwrap_or(0)),
        None => entry,
    }
}

/// What an inactive task has in the place of registers: `struct inactive_task_frame`.
pub(super) fn inactive_regs(sp: u64, regions: &[Region<'_>]) -> SampleRegs {
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rsp, sp.wrapping_add(56));
    for (reg, offset) in [(Reg::Rbp, 40), (Reg::Rip, 48)] {
        if let Some(value) = word_at(regions, sp.wrapping_add(offset)) {
            regs.set(reg, value);
        }
    }
    SampleRegs::hardware(regs)
}

/// The word at an offset.
pub(super) fn word(bytes: &[u8], offset: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(offset).ok()?..)?;
    bytes.first_chunk().map(|b| u64::from_le_bytes(*b))
}

/// The word at an address, from the regions.
pub(super) fn word_at(regions: &[Region<'_>], address: u64) -> Option<u64> {
    let found = |r: &Region<'_>| word(&r.bytes, address.checked_sub(r.address)?);
    regions.iter().find_map(found)
}

pub(super) fn region(
    address: u64,
    bytes: Vec<u8>,
    bounds: Range<u64>,
    next_sp: u64,
) -> Region<'static> {
    Region {
        role: RegionRole::Stack,
        bounds,
        next_sp,
        address,
        bytes: Cow::Owned(bytes),
    }
}

/// Adds the stacks that `from` lists, but for those that are known already.
pub(super) fn stacks(
    from: &Object<'_>,
    task: &mut Task,
    regions: &mut Vec<Region<'static>>,
) -> Result<(), Problem> {
    for stack in from.objects("stacks")? {
        let name = stack.string("type")?.unwrap_or_default();
        let kind = StackType::from_name(name);
        let kind = kind.ok_or_else(|| stack.problem("type", "no type of a stack"))?;
        let (begin, end) = (stack.needed("begin")?, stack.needed("end")?);
        let bytes = stack.memory("data")?;
        let at = stack.number("data_at")?.unwrap_or(begin);
        let linked = kind
            .next_sp_at(end)
            .and_then(|slot| word(&bytes, slot.checked_sub(at)?));
        let next_sp = stack.number("next_sp")?.or(linked).unwrap_or(0);
        match task.stacks.iter_mut().find(|s| s.kind == kind) {
            Some(known) => known.next_sp = next_sp,
            None => {
                task.stacks.push(StackInfo {
                    kind,
                    begin,
                    end,
                    next_sp,
                });
                regions.push(region(at, bytes, begin..end, next_sp));
            }
        }
    }
    Ok(())
}

/// The registers of an object by their names in gdb; flags are `eflags`.
pub(super) fn registers(from: &Object<'_>) -> Result<Regs, Problem> {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        let name = match reg {
            Reg::Rflags => "eflags",
            other => other.as_str(),
        };
        if let Some(value) = from.number(name)? {
            regs.set(reg, value);
        }
    }
    Ok(regs)
}

/// How far the kernel was moved: where most of the code addresses in the capture are return
/// addresses or begin an instruction that was stopped at.
pub(super) fn kaslr(root: &Object<'_>, image: &KernelImage) -> Result<u64, ImportError> {
    let mut addresses = Vec::new();
    for point in root.objects("points")? {
        let states = states::all(&point, "kernel")?;
        addresses.extend(states.iter().filter_map(|s| match s {
            State::Orc(s) if !s.signal => Some(s.ip),
            _ => None,
        }));
    }
    for sample in root.objects("samples")? {
        addresses.extend(sample.numbers("result")?.into_iter().skip(1));
    }
    Ok(image.kaslr(&addresses).unwrap_or(0))
}
