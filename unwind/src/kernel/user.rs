//! The user part of a callchain, walked as by the kernel: `perf_callchain_user` (Linux
//! `arch/x86/events/core.c`) and `unwind_user` (`kernel/unwind/user.c`, since 6.17).
//!
//! Context markers, and whether there is a user part at all, are handled in `callchain`.

use crate::memory::{Memory, MemoryError};
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;
use core::fmt;

/// The first address that is not in user space (`TASK_SIZE_MAX`).
const TASK_SIZE: u64 = (1 << 47) - 4096;
/// Bits in `regs->flags` that prevent a walk: X86_VM_MASK and PERF_EFLAGS_VM.
const VM_FLAGS: u64 = 1 << 17 | 1 << 5;
/// The code segments of 64-bit programs: `__USER_CS`, and `FLAT_USER_CS64` under Xen.
const USER64_CS: [u64; 2] = [0x33, 0xe033];

/// Where uprobes' page of copied instructions lies, `[uprobes]`, if that place is free: the highest
/// page of user space, with page tables of four and of five levels (`xol_add_vma` in Linux
/// `kernel/events/uprobes.c`). Its first slot is the trampoline of return probes.
const TRAMPOLINES: [u64; 2] = [(1 << 47) - 2 * 4096, (1 << 56) - 2 * 4096];

/// The return addresses that return probes took from a task's user stack. Each was replaced by the
/// address of a trampoline (`utask->return_instances`, Linux `kernel/events/uprobes.c`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uretprobes {
    /// The address of the trampoline (`uprobe_get_trampoline_vaddr`); `u64::MAX` if there is none.
    pub trampoline: u64,
    /// The return addresses (`orig_ret_vaddr`), in the order of the list: the newest first. A
    /// function that several probes took over, such as after a tail call, has as many.
    pub originals: Vec<u64>,
}

/// What the kernel knows of a task's user space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserSpace {
    /// The registers with which user space was left (`task_pt_regs`); `None` if the task has no
    /// user space (`current->mm` is NULL): a kernel thread, or a task that is exiting.
    pub regs: Option<Regs>,
    /// The process whose mappings contain its code.
    pub pid: u32,
    /// The first bytes of the instruction at a uprobe, if one is being handled
    /// (`is_uprobe_at_func_entry`, since 6.11, and in earlier stable versions).
    pub uprobe: Option<[u8; 4]>,
    /// The return addresses that return probes took; `None` if they are not recorded.
    pub uretprobes: Option<Uretprobes>,
}

/// What return probes did to a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Hijack {
    /// The address is as it was found.
    #[default]
    None,
    /// It was replaced by the trampoline, and the kernel put it back into the callchain.
    PutBack,
    /// The trampoline's address is in its place, and which address the kernel put there is not
    /// recorded.
    Unknown,
}

/// How a user-space address was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFound {
    /// In the registers.
    Regs,
    /// At a function's entry: on top of the stack.
    Entry {
        /// The address that it was read from.
        slot: u64,
    },
    /// In the word after a saved frame pointer.
    FramePointer {
        /// The address of the saved frame pointer.
        fp: u64,
    },
}

/// A user-space address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserFrame {
    /// The address.
    pub ip: u64,
    /// How it was found.
    pub found: UserFound,
    /// Whether a return probe took it.
    pub hijack: Hijack,
}

impl UserFrame {
    /// An address that is as it was found.
    const fn new(ip: u64, found: UserFound) -> UserFrame {
        let hijack = Hijack::None;
        UserFrame { ip, found, hijack }
    }
}

/// Why a user part ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserEnd {
    /// A frame is not in user space (`__access_ok`).
    NotUser {
        /// The address.
        address: u64,
    },
    /// A word cannot be read: it is not mapped, or not in the recording.
    Fault(MemoryError),
    /// `unwind_user`: the frame pointer is below sp.
    FpBelowSp {
        /// The frame pointer.
        fp: u64,
        /// sp of the frame.
        sp: u64,
    },
    /// `unwind_user`: the frame's CFA is not above sp.
    CfaNotAboveSp {
        /// The CFA.
        cfa: u64,
        /// sp of the frame.
        sp: u64,
    },
    /// `unwind_user`: the frame's CFA is not aligned.
    Misaligned {
        /// The CFA.
        cfa: u64,
    },
    /// The callchain has reached the maximum number of addresses (`max_stack`).
    MaxStack {
        /// The maximum, in addresses.
        max: u32,
    },
    /// Virtual 8086 mode, which is not walked.
    Vm86,
    /// The recording lacks this register.
    RegisterMissing(Reg),
}

impl UserEnd {
    /// The corresponding [`Reason`].
    pub const fn reason(self) -> Reason {
        match self {
            UserEnd::NotUser { address } => Reason::Memory(MemoryError::Unmapped { address }),
            UserEnd::Fault(error) => Reason::Memory(error),
            UserEnd::FpBelowSp { fp, sp } => Reason::SpDidNotAdvance { from: sp, to: fp },
            UserEnd::CfaNotAboveSp { cfa, sp } => Reason::SpDidNotAdvance { from: sp, to: cfa },
            UserEnd::Misaligned { .. } | UserEnd::Vm86 => Reason::NotAtRoot,
            UserEnd::MaxStack { max } => Reason::FrameLimit { limit: max },
            UserEnd::RegisterMissing(reg) => Reason::RegistersMissing { reg },
        }
    }
}

impl fmt::Display for UserEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserEnd::NotUser { address } => {
                write!(f, "fault: {address:#x} is not a user-space address")
            }
            UserEnd::Fault(error) => write!(f, "fault: {error}"),
            UserEnd::FpBelowSp { fp, sp } => write!(f, "fp < sp: {fp:#x} is below {sp:#x}"),
            UserEnd::CfaNotAboveSp { cfa, sp } => {
                write!(f, "cfa <= sp: {cfa:#x} is not above {sp:#x}")
            }
            UserEnd::Misaligned { cfa } => write!(f, "misaligned: cfa {cfa:#x}"),
            UserEnd::MaxStack { max } => write!(f, "max_stack: {max} addresses are stored"),
            UserEnd::Vm86 => write!(f, "virtual 8086 mode"),
            UserEnd::RegisterMissing(reg) => write!(f, "{reg} is not recorded"),
        }
    }
}

/// A user part: its addresses, innermost first, and why it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserChain {
    /// The addresses.
    pub frames: Vec<UserFrame>,
    /// Why the part ended.
    pub end: UserEnd,
}

/// `fixup_uretprobe_trampoline_entries` (Linux `kernel/events/callchain.c`, since 6.11): from the
/// innermost address on, each trampoline becomes the next return address of the list. A list that
/// has several for one trampoline is therefore used up too early, as in the kernel.
///
/// If the list is not recorded, the addresses at which a trampoline is expected are marked.
pub(super) fn put_back(frames: &mut [UserFrame], pending: Option<&Uretprobes>) {
    let Some(pending) = pending else {
        for frame in frames.iter_mut().filter(|f| TRAMPOLINES.contains(&f.ip)) {
            frame.hijack = Hijack::Unknown;
        }
        return;
    };
    let trampolines = frames.iter_mut().filter(|f| f.ip == pending.trampoline);
    for (frame, original) in trampolines.zip(&pending.originals) {
        (frame.ip, frame.hijack) = (*original, Hijack::PutBack);
    }
}

/// Whether a uprobe with this instruction is at a function's entry: `push %rbp` or `endbr64`.
const fn at_entry(insn: [u8; 4], is_64: bool) -> bool {
    insn[0] == 0x55 || is_64 && matches!(insn, [0xf3, 0x0f, 0x1e, 0xfa])
}

/// The size of a word, according to `user_64bit_mode`, bytes.
fn word_size(regs: &Regs) -> u64 {
    match regs.get(Reg::Cs) {
        Some(cs) if !USER64_CS.contains(&cs) => 4,
        _ => 8,
    }
}

/// `compat_ptr`: truncates the pointers of a 32-bit program.
const fn pointer(value: u64, size: u64) -> u64 {
    if size == 4 {
        value & 0xffff_ffff
    } else {
        value
    }
}

/// `perf_callchain_user`: at most `max` addresses. Like the kernel, it does not check the order of
/// frames.
pub fn perf_callchain_user<M: Memory + ?Sized>(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &M,
    max: usize,
) -> UserChain {
    let mut frames = Vec::new();
    let end = follow_frames(regs, uprobe, memory, max, &mut frames);
    UserChain { frames, end }
}

fn follow_frames<M: Memory + ?Sized>(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &M,
    max: usize,
    out: &mut Vec<UserFrame>,
) -> UserEnd {
    // `perf_callchain_user` does not walk virtual 8086 mode.
    if regs.get(Reg::Rflags).unwrap_or(0) & VM_FLAGS != 0 {
        return UserEnd::Vm86;
    }

    let Some(ip) = regs.get(Reg::Rip) else {
        return UserEnd::RegisterMissing(Reg::Rip);
    };

    let size = word_size(regs);
    let store = |out: &mut Vec<UserFrame>, ip, found| {
        if out.len() < max {
            out.push(UserFrame::new(ip, found));
        }
    };

    // The sampled ip comes first, before anything is read from memory.
    store(out, ip, UserFound::Regs);

    // A uprobe at `push %rbp`: there is no frame yet, so rbp would lead past the caller.
    if let (Some(insn), Some(slot)) = (uprobe, regs.get(Reg::Rsp))
        && at_entry(insn, size == 8)
        && let Ok(ret) = word(memory, slot, size)
    {
        store(out, ret, UserFound::Entry { slot });
    }

    let Some(bp) = regs.get(Reg::Rbp) else {
        return UserEnd::RegisterMissing(Reg::Rbp);
    };
    let mut fp = pointer(bp, size);

    while out.len() < max {
        // `struct stack_frame`: the caller's frame pointer, then the return address.
        let frame = word(memory, fp, size)
            .and_then(|next| Ok((next, word(memory, fp.wrapping_add(size), size)?)));
        match frame {
            Ok((next, ip)) => {
                store(out, ip, UserFound::FramePointer { fp });
                fp = pointer(next, size);
            }
            Err(end) => return end,
        }
    }

    limit(max)
}

fn limit(max: usize) -> UserEnd {
    UserEnd::MaxStack {
        max: u32::try_from(max).unwrap_or(u32::MAX),
    }
}

/// Reads a word of user space, like `__get_user` after `__access_ok`.
fn word<M: Memory + ?Sized>(memory: &M, address: u64, size: u64) -> Result<u64, UserEnd> {
    if address.checked_add(size).is_none_or(|end| end > TASK_SIZE) {
        return Err(UserEnd::NotUser { address });
    }
    if size == 8 {
        return memory.read_u64(address).map_err(UserEnd::Fault);
    }
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes).map_err(UserEnd::Fault)?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// `unwind_user` with frame pointers, at most `max` addresses. Each frame's CFA must be above sp
/// and aligned. With a uprobe at a function's entry (6.19), the first frame has not pushed rbp yet.
pub fn unwind_user<M: Memory + ?Sized>(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &M,
    max: usize,
) -> UserChain {
    let mut frames = Vec::new();
    let end = check_frames(regs, uprobe, memory, max, &mut frames);
    UserChain { frames, end }
}

fn check_frames<M: Memory + ?Sized>(
    regs: &Regs,
    uprobe: Option<[u8; 4]>,
    memory: &M,
    max: usize,
    out: &mut Vec<UserFrame>,
) -> UserEnd {
    for reg in [Reg::Rip, Reg::Rsp, Reg::Rbp] {
        if regs.get(reg).is_none() {
            return UserEnd::RegisterMissing(reg);
        }
    }

    let size = word_size(regs);
    let (mut ip, mut sp) = (regs.rip(), regs.rsp());
    let mut fp = pointer(regs.get_or_zero(Reg::Rbp), size);
    let mut found = UserFound::Regs;
    // At a function's entry there is no frame yet: the CFA is one word above rsp.
    let mut at_start = uprobe.is_some_and(|insn| at_entry(insn, size == 8));

    while out.len() < max {
        out.push(UserFrame::new(ip, found));

        let first = core::mem::take(&mut at_start);
        // The checks of `unwind_user` (`kernel/unwind/user.c`).
        if !first && fp < sp {
            return UserEnd::FpBelowSp { fp, sp };
        }

        let cfa = if first {
            sp.wrapping_add(size)
        } else {
            fp.wrapping_add(2 * size)
        };

        if cfa <= sp {
            return UserEnd::CfaNotAboveSp { cfa, sp };
        }
        if cfa % size != 0 {
            return UserEnd::Misaligned { cfa };
        }

        // The return address is just below the CFA, and the caller's frame pointer below that.
        let slot = cfa - size;
        let next = word(memory, slot, size).and_then(|ra| {
            if first {
                Ok((ra, fp))
            } else {
                Ok((ra, word(memory, cfa - 2 * size, size)?))
            }
        });
        found = if first {
            UserFound::Entry { slot }
        } else {
            UserFound::FramePointer { fp }
        };

        match next {
            Ok(next) => (ip, fp) = next,
            Err(end) => return end,
        }

        sp = cfa;
    }

    limit(max)
}
