//! The kernel's ORC unwinder: `__unwind_start` and `unwind_next_frame` of Linux
//! `arch/x86/kernel/unwind_orc.c`.

use super::end::Ended;
use super::entry_regs::{RegsPtr, is_user_cs};
use super::hijack::{self, Cursors};
use super::stacks::{NoStack, PAGE_SIZE, StackInfo, StackType, get_stack_info};
use super::{FoundEntry, Kernel, Source, StartFrom, State, Unwind};
use crate::memory::{Memory, MemoryError};
use crate::orc::{Entry, EntryType, OrcReg, SpIndirect};
use crate::pt_regs::{IRET_FRAME_LEN, IRET_FRAME_OFFSET, PT_REGS_LEN};
use crate::regs::{Reg, Regs};

/// `struct unwind_state` with `CONFIG_UNWINDER_ORC`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs)]
pub struct OrcState {
    pub stack: StackInfo,
    pub stack_mask: u64,
    /// `graph_idx` and `kr_cur`.
    pub cursors: Cursors,
    pub error: bool,
    pub signal: bool,
    pub full_regs: bool,
    pub sp: u64,
    pub bp: u64,
    pub ip: u64,
    pub regs: RegsPtr,
    pub prev_regs: RegsPtr,
}

/// Size of `struct inactive_task_frame`, bytes: six registers and the return address.
const INACTIVE_FRAME_LEN: u64 = 56;
/// Offset of rbp in it.
pub(super) const INACTIVE_BP: u64 = 40;
/// Offset of the return address in it.
const INACTIVE_RET: u64 = 48;

pub(super) fn start<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    from: StartFrom<'_>,
    first_frame: u64,
    skipped: &mut dyn FnMut(&Unwind<'_, M>),
) {
    let Kernel { code, task, memory } = unwind.kernel;
    let refused = if !code.has_orc() {
        Some(Ended::NoTables)
    } else if task.on_other_cpu && !task.is_current {
        // Its stack would change while it is read.
        Some(Ended::OtherCpu)
    } else {
        None
    };

    if let Some(why) = refused {
        unwind.end(why, true);
        return;
    }

    // Filled in place: a copy would have to wait for the stores just made.
    let State::Orc(state) = &mut unwind.state else {
        return;
    };

    match from {
        StartFrom::Regs(regs) => {
            // User space was interrupted, so there is no kernel frame.
            if is_user_cs(regs.get(Reg::Cs).unwrap_or(0)) {
                unwind.end(Ended::StartedInUser, false);
                return;
            }
            (state.ip, state.sp) = (regs.rip(), regs.rsp());
            state.bp = regs.get(Reg::Rbp).unwrap_or(0);
            state.regs = RegsPtr::Start;
            state.full_regs = true;
            state.signal = true;
        }
        StartFrom::Own(regs) => {
            (state.ip, state.sp) = (regs.rip(), regs.rsp());
            state.bp = regs.get(Reg::Rbp).unwrap_or(0);
        }
        StartFrom::Inactive => {
            let word = |offset| memory.read_u64(task.thread_sp.wrapping_add(offset));
            // `__switch_to_asm` pushed a `struct inactive_task_frame`.
            let frame = word(INACTIVE_BP).and_then(|bp| Ok((bp, word(INACTIVE_RET)?)));
            (state.bp, state.ip) = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    unwind.not_recorded(error);
                    return;
                }
            };

            let version = code.version();
            state.sp = if version.skips_inactive_task_frame() {
                task.thread_sp.wrapping_add(INACTIVE_FRAME_LEN)
            } else {
                task.thread_sp
            };

            // A new task starts at the first byte of this function, not behind a call in it.
            let new_task = if version.has_ret_from_fork_asm() {
                code.known().ret_from_fork_asm
            } else {
                code.known().ret_from_fork
            };
            state.signal = state.ip == new_task && new_task != 0;
        }
    }

    // The lookup marks the stack as visited, which ends a walk that comes back to it.
    let sp = state.sp;
    let mut find = |address| {
        let (info, mask) = (&mut state.stack, &mut state.stack_mask);
        get_stack_info(&task.stacks, task.is_current, address, info, mask)
    };
    if find(sp).is_err() {
        // This may be a guard page; try the stack above it.
        let next_page = sp.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let found = find(next_page);
        // The stack overflowed: the walk goes on, but it is not reliable.
        state.error = true;
        if found.is_err() {
            unwind.end(Ended::StartNotOnStack { sp }, true);
            return;
        }
    }

    // `__unwind_start` skips the frame of the registers: its caller has them.
    if let StartFrom::Regs(_) = from {
        skipped(unwind);
        unwind.next_frame();
        return;
    }

    // Frames are passed until the mark is on the current stack and sp is above it; versions differ
    // about a frame exactly at the mark.
    let keeps = code.version().keeps_frame_at_mark();
    let is_passed = |state: &OrcState| {
        state.stack.kind != StackType::Unknown
            && (!state.stack.holds(first_frame, 8)
                || state.sp < first_frame
                || state.sp == first_frame && !keeps)
    };

    while matches!(&unwind.state, State::Orc(state) if is_passed(state)) {
        skipped(unwind);
        unwind.next_frame();
    }
}

/// Why a step fails.
enum Stop {
    /// `goto err`, with the kernel's message.
    Error(Ended),
    /// The recording lacks a word.
    NotRecorded(MemoryError),
}

impl core::convert::From<MemoryError> for Stop {
    fn from(error: MemoryError) -> Self {
        Stop::NotRecorded(error)
    }
}

pub(super) fn next_frame<M: Memory + ?Sized>(unwind: &mut Unwind<'_, M>) -> bool {
    let State::Orc(state) = &mut unwind.state else {
        return false;
    };
    let kernel = unwind.kernel;
    if state.regs.is_some() {
        match state.regs.read(unwind.start, kernel.memory, Reg::Cs) {
            Ok(cs) if is_user_cs(cs) => return unwind.end(Ended::UserRegs, false),
            Ok(_) => {}
            Err(error) => return unwind.not_recorded(error),
        }
    }

    let (ip, version) = (state.ip, kernel.code.version());
    // Before 4.18 every end was alike.
    let tells = version.tells_end_from_error();
    // The code behind a call may have another layout, for example if the callee never returns.
    let lookup = if state.signal { ip } else { ip.wrapping_sub(1) };

    let found = match kernel.code.find(lookup, unwind.finds) {
        Some(found) => found,
        None if !version.falls_back_to_frame_pointer() => {
            return unwind.end(Ended::NoEntry { ip: lookup }, tells);
        }
        None => &FoundEntry {
            entry: Entry::FRAME_POINTER,
            source: Source::FramePointer,
        },
    };

    unwind.found = Some(*found);
    match found.entry.kind {
        EntryType::Undefined => return unwind.end(Ended::Undefined { ip: lookup }, tells),
        EntryType::EndOfStack => return unwind.end(Ended::EndOfStack, false),
        EntryType::Call | EntryType::Regs | EntryType::RegsPartial => {}
    }

    // The frame pointer is only a guess, so the rest of the walk is not reliable.
    state.error |= found.source == Source::FramePointer;

    // A failed step keeps the changes it has made.
    let mut step = Step {
        kernel,
        start: unwind.start,
        state,
        ip,
    };

    match step.apply(&found.entry) {
        Ok(()) => true,
        Err(Stop::Error(why)) => unwind.end(why, tells),
        Err(Stop::NotRecorded(error)) => unwind.not_recorded(error),
    }
}

struct Step<'s, 'a, M: ?Sized> {
    kernel: Kernel<'a, M>,
    start: &'s Regs,
    state: &'s mut OrcState,
    /// The frame's address before the step.
    ip: u64,
}

impl<M: Memory + ?Sized> Step<'_, '_, M> {
    /// `stack_access_ok`
    #[inline(always)]
    fn access(&mut self, address: u64, len: u64) -> Result<(), NoStack> {
        if self.state.stack.holds(address, len) {
            return Ok(());
        }
        let task = self.kernel.task;
        let (info, mask) = (&mut self.state.stack, &mut self.state.stack_mask);
        get_stack_info(&task.stacks, task.is_current, address, info, mask)?;
        if self.state.stack.holds(address, len) {
            Ok(())
        } else {
            Err(NoStack::Unknown)
        }
    }

    /// `deref_stack_reg`
    #[inline(always)]
    fn load(&mut self, address: u64) -> Result<u64, Stop> {
        let ip = self.ip;
        self.access(address, 8)
            .map_err(|why| Stop::Error(Ended::CannotRead { address, why, ip }))?;
        Ok(self.kernel.memory.read_u64(address)?)
    }

    /// `get_reg`
    fn reg(&self, reg: Reg) -> Result<Option<u64>, Stop> {
        let state = &*self.state;
        let from = if state.regs.is_some() && state.full_regs {
            state.regs
        } else if state.regs.is_some() && state.prev_regs.is_some() {
            state.prev_regs
        } else {
            return Ok(None);
        };
        let value = from.read(self.start, self.kernel.memory, reg)?;
        Ok(Some(value))
    }

    fn needed(&self, reg: Reg) -> Result<u64, Stop> {
        let missing = Ended::MissingReg { reg, ip: self.ip };
        self.reg(reg)?.ok_or(Stop::Error(missing))
    }

    fn bad(&self, what: &'static str) -> Stop {
        Stop::Error(Ended::BadEntry { what, ip: self.ip })
    }

    #[inline(always)]
    fn apply(&mut self, entry: &Entry) -> Result<(), Stop> {
        let version = self.kernel.code.version();
        let (prev_type, prev_sp, own_bp) = (self.state.stack.kind, self.state.sp, self.state.bp);

        // Older kernels do this only after the frame is read, so that a failed step keeps the old
        // value.
        if version.takes_signal_from_entry() {
            self.state.signal = entry.signal;
        }

        let offset = i64::from(entry.sp_offset) as u64;
        let sp = match entry.sp_reg {
            OrcReg::Sp => prev_sp.wrapping_add(offset),
            OrcReg::Bp => own_bp.wrapping_add(offset),
            OrcReg::SpIndirect => match version.encoding().sp_indirect {
                SpIndirect::LoadThenAdd => self.load(prev_sp)?.wrapping_add(offset),
                SpIndirect::LoadAtOffset => self.load(prev_sp.wrapping_add(offset))?,
            },
            OrcReg::BpIndirect => self.load(own_bp.wrapping_add(offset))?,
            // Known only if this frame was interrupted and its registers were saved (`get_reg`).
            OrcReg::R10 => self.needed(Reg::R10)?,
            OrcReg::R13 => self.needed(Reg::R13)?,
            OrcReg::Di => self.needed(Reg::Rdi)?,
            OrcReg::Dx => self.needed(Reg::Rdx)?,
            OrcReg::Ax => self.needed(Reg::Rax)?,
            OrcReg::Undefined | OrcReg::PrevSp => return Err(self.bad("unknown SP base reg")),
        };

        match entry.kind {
            EntryType::Call => {
                // A call pushed the return address just below the CFA.
                let slot = sp.wrapping_sub(8);
                let word = self.load(slot)?;
                let kernel = self.kernel;
                let cursors = &mut self.state.cursors;
                self.state.ip = hijack::recover(kernel.code, kernel.task, cursors, word, slot);
                self.state.sp = sp;
                self.state.regs = RegsPtr::None;
                self.state.prev_regs = RegsPtr::None;
            }
            EntryType::Regs => {
                self.saved(sp, sp, PT_REGS_LEN)?;
                self.state.regs = RegsPtr::At(sp);
                self.state.prev_regs = RegsPtr::None;
                self.state.full_regs = true;
            }
            EntryType::RegsPartial => {
                // Only the end of a `struct pt_regs` is there, but `regs` points to where it would
                // start.
                let regs = sp.wrapping_sub(IRET_FRAME_OFFSET);
                self.saved(regs, sp, IRET_FRAME_LEN)?;
                // Entry code has not saved the others yet: they still are in the full set before.
                if self.state.full_regs && version.has_prev_regs() {
                    self.state.prev_regs = self.state.regs;
                }
                self.state.regs = RegsPtr::At(regs);
                self.state.full_regs = false;
            }
            EntryType::Undefined | EntryType::EndOfStack => {
                return Err(self.bad("unknown .orc_unwind entry type"));
            }
        }

        if !version.takes_signal_from_entry() {
            self.state.signal = entry.kind != EntryType::Call;
        }

        let offset = i64::from(entry.bp_offset) as u64;
        match entry.bp_reg {
            OrcReg::Undefined => {
                // Unchanged by this function, so it is in the saved registers, if there are any.
                if let Some(bp) = self.reg(Reg::Rbp)? {
                    self.state.bp = bp;
                }
            }
            OrcReg::PrevSp => self.state.bp = self.load(sp.wrapping_add(offset))?,
            OrcReg::Bp => self.state.bp = self.load(own_bp.wrapping_add(offset))?,
            _ => return Err(self.bad("unknown BP base reg")),
        }

        // Bad entries could make a walk go round for ever. On another stack, sp may be anywhere.
        let state = &self.state;
        if state.stack.kind == prev_type && state.stack.holds(state.sp, 8) && state.sp <= prev_sp {
            return Err(Stop::Error(Ended::WrongDirection { ip: self.ip }));
        }

        Ok(())
    }

    /// `deref_stack_regs` and `deref_stack_iret_regs`: takes ip and sp from the present part of the
    /// `struct pt_regs` at `regs`: `len` bytes from `address`.
    fn saved(&mut self, regs: u64, address: u64, len: u64) -> Result<(), Stop> {
        let (ip, partial) = (self.ip, len != PT_REGS_LEN);
        self.access(address, len).map_err(|why| {
            Stop::Error(Ended::CannotReadRegs {
                address,
                partial,
                why,
                ip,
            })
        })?;
        let (start, kernel) = (self.start, self.kernel);
        let at = RegsPtr::At(regs);
        let word = at.read(start, kernel.memory, Reg::Rip)?;
        self.state.sp = at.read(start, kernel.memory, Reg::Rsp)?;
        // At the trampoline's entry, `ret` has popped the word that led there.
        let slot = self.state.sp.wrapping_sub(8);
        let cursors = &mut self.state.cursors;
        self.state.ip = hijack::recover_rethook(kernel.code, kernel.task, cursors, word, slot);
        Ok(())
    }
}
