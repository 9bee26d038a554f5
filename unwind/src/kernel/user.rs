//! The user part of a callchain, as the kernel walks it: `perf_callchain_user` (Linux
//! `arch/x86/events/core.c`) and `unwind_user` (`kernel/unwind/user.c`, since 6.17).

use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;

/// The first address that user space cannot have (`TASK_SIZE_MAX`).
const TASK_SIZE: u64 = (1 << 47) - 4096;
/// Bits of `regs->flags` with which nothing is walked: X86_VM_MASK and PERF_EFLAGS_VM.
const VM_FLAGS: u64 = 1 << 17 | 1 << 5;
/// `__USER32_CS`, the code segment of 32-bit programs.
const USER32_CS: u64 = 0x23;

/// What the kernel knows besides registers and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserFrames {
    /// The first bytes of the instruction that a uprobe is at, if it is one that asks
    /// (`is_uprobe_at_func_entry`, since 6.11).
    pub uprobe: Option<[u8; 4]>,
    /// Most addresses (`max_stack`).
    pub max: usize,
}

/// Is a uprobe with this instruction at the entry of a function: `push %rbp`, or `endbr64`?
const fn at_entry(insn: [u8; 4], is_64: bool) -> bool {
    insn[0] == 0x55 || is_64 && matches!(insn, [0xf3, 0x0f, 0x1e, 0xfa])
}

/// `perf_callchain_user`: the addresses, innermost first, and why there are no more. The order of
/// frames is not checked, as the kernel does not check it.
pub fn perf_callchain_user<M: Memory + ?Sized>(
    regs: &Regs,
    memory: &M,
    what: UserFrames,
) -> (Vec<u64>, Reason) {
    let mut out = Vec::new();
    if regs.get(Reg::Rflags).unwrap_or(0) & VM_FLAGS != 0 {
        return (out, Reason::NotAtRoot);
    }
    let Some(rip) = regs.get(Reg::Rip) else {
        return (out, Reason::RegistersMissing { reg: Reg::Rip });
    };
    let is_64 = regs.get(Reg::Cs) != Some(USER32_CS);
    let size = if is_64 { 8 } else { 4 };
    let store = |out: &mut Vec<u64>, address| {
        if out.len() < what.max {
            out.push(address);
        }
    };
    store(&mut out, rip);
    if let (Some(insn), Some(sp)) = (what.uprobe, regs.get(Reg::Rsp))
        && at_entry(insn, is_64)
        && let Ok(ret) = word(memory, sp, size)
    {
        store(&mut out, ret);
    }
    let Some(mut fp) = regs.get(Reg::Rbp) else {
        return (out, Reason::RegistersMissing { reg: Reg::Rbp });
    };
    while out.len() < what.max {
        let frame = word(memory, fp, size).and_then(|next| {
            let ret = word(memory, fp.wrapping_add(size), size)?;
            Ok((next, ret))
        });
        match frame {
            Ok((next, ret)) => {
                store(&mut out, ret);
                fp = next;
            }
            Err(reason) => return (out, reason),
        }
    }
    let limit = u32::try_from(what.max).unwrap_or(u32::MAX);
    (out, Reason::FrameLimit { limit })
}

/// A word of user space, as `__get_user` behind `__access_ok`.
fn word<M: Memory + ?Sized>(memory: &M, address: u64, size: u64) -> Result<u64, Reason> {
    if address.checked_add(size).is_none_or(|end| end > TASK_SIZE) {
        return Err(crate::memory::MemoryError::Unmapped { address }.into());
    }
    if size == 8 {
        return Ok(memory.read_u64(address)?);
    }
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes)?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// `unwind_user` with frame pointers: each frame's CFA must lie above sp and be aligned. With
/// `at_function_start` (6.19) the first frame has not pushed rbp yet.
pub fn unwind_user<M: Memory + ?Sized>(
    regs: &Regs,
    memory: &M,
    at_function_start: bool,
    max: usize,
) -> (Vec<u64>, Reason) {
    let mut out = Vec::new();
    for reg in [Reg::Rip, Reg::Rsp, Reg::Rbp] {
        if regs.get(reg).is_none() {
            return (out, Reason::RegistersMissing { reg });
        }
    }
    let is_64 = regs.get(Reg::Cs) != Some(USER32_CS);
    let size = if is_64 { 8 } else { 4 };
    let (mut ip, mut sp) = (regs.rip(), regs.rsp());
    let mut fp = regs.get(Reg::Rbp).unwrap_or(0);
    let mut topmost = true;
    while out.len() < max {
        out.push(ip);
        let at_start = core::mem::take(&mut topmost) && at_function_start;
        let cfa = match at_start {
            true => sp.wrapping_add(size),
            false if fp < sp => return (out, Reason::SpDidNotAdvance { from: sp, to: fp }),
            false => fp.wrapping_add(2 * size),
        };
        if cfa <= sp || cfa % size != 0 {
            return (out, Reason::SpDidNotAdvance { from: sp, to: cfa });
        }
        let next = word(memory, cfa - size, size).and_then(|ra| match at_start {
            true => Ok((ra, fp)),
            false => Ok((ra, word(memory, cfa - 2 * size, size)?)),
        });
        match next {
            Ok(next) => (ip, fp) = next,
            Err(reason) => return (out, reason),
        }
        sp = cfa;
    }
    let limit = u32::try_from(max).unwrap_or(u32::MAX);
    (out, Reason::FrameLimit { limit })
}
