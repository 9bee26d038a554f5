//! The shadow stack of one thread.
//!
//! The executor calls [`Tracker::step`] for every completed instruction, [`Tracker::signal`] when
//! the kernel has delivered a signal, and [`Tracker::trap`] when the processor has delivered an
//! interrupt in ring 0. Frames are determined by the machine's behaviour alone:
//!
//! - A call makes a frame, whatever it calls. In a `call next; pop %reg` thunk, the frame exists
//!   until the pop takes its return address off the stack. Otherwise, a frame whose return address
//!   was popped continues in the register, until a jump to that address, or a `ret` without it. It
//!   is in memory again, perhaps elsewhere, once the address is pushed.
//! - A return address that the program puts where a return will find it, on the stack or in a
//!   register, and a jump to a function, are a call, too. If it is the function's own return
//!   address, the function has only moved it. Where the word may as well be data, the frame is
//!   doubtful: it and the frames outside it are unknown, until they return or the word is dropped
//!   (`planted.rs`).
//! - A frame lives until rsp rises above its return-address slot. So anything that lifts rsp drops
//!   frames: `ret`, `add`, `pop`, and the rsp load in `longjmp` or in a C++ unwinder that throws.
//!   As after a tail call, the code that still runs after that load (`__longjmp`) has the caller of
//!   the function that it jumps to.
//! - A jump, including `push` and `ret`, replaces the running function: a tail call.
//! - A `ret` that pops a frame's slot ends that frame. If it goes to an address other than the
//!   call's, the program wrote the slot. If that was seen, it is explained (a retpoline); otherwise
//!   it is counted.
//! - A load of rsp with an address on another stack is decided by the next transfer of control. A
//!   call: the running function continues on the new stack, and the chain on the old one. A `ret`
//!   or a jump through a register: a coroutine. The chain of the old stack is suspended until rsp
//!   is loaded with an address on it again, and then believed if memory still contains its return
//!   addresses; or until rsp is loaded with an address on a copy of the stack that contains all of
//!   them.
//! - When such a stack is entered for the first time, the word at rsp is the return address if it
//!   is a code address: `makecontext` put it there. Otherwise the function entered is the root.
//!   A call right after a load into the middle of a suspended chain's stack only borrows that
//!   stack.
//!   If that stack is an earlier one of the same chain, and functions run on the one that is left,
//!   it is a callback: the frames on both live.
//!   A stack that was abandoned is entered for the first time again if all of its frames are dead.
//! - A signal makes two frames: the interrupted one, and the restorer to which the handler returns.
//!   `rt_sigreturn` ends the former.
//! - An interrupt in ring 0 makes one frame, which ends with `iret`. Its saved registers say where the
//!   interrupted code goes on (`trapped.rs`).

mod arrival;
mod interrupts;
mod loans;
mod moved;
mod planted;
mod switches;
mod traced;
mod trapped;

use super::stacks::{Chain, Cpu, Origin, Segment, ShadowFrame, Suspended, World};
use super::{Stats, TrueFrame, TrueKind, Truth};
use crate::insn::{Insn, SYS_RT_SIGRETURN};
use crate::regs::SAVED_RBP;
use alloc::vec::Vec;
use arrival::Arrival;
use core::ops::Range;
use moved::SinceEntry;
use planted::{Planted, may_jump};

/// A jump through a register is a switch table, not an entry to a coroutine, if rsp moved as with
/// `alloca` and the target is at most this far away.
const SWITCH_TABLE_REACH: u64 = 64 << 10;

/// The shadow stack of one thread.
#[derive(Clone, Debug)]
pub struct Tracker {
    chain: Chain,
    /// [`Chain::limit`], cached for the fast path of every instruction; 0 while a word is watched.
    limit: u64,
    /// The code addresses that functions have put on the stack, those of inner functions last.
    planted: Vec<Planted>,
    /// Whether the last one belongs to the running function, and is watched.
    watches: bool,
    /// Whether the innermost frame is doubtful.
    hides: bool,
    /// What jumps turned out to be.
    sites: Vec<((u64, u64), bool)>,
    /// The last targets of indirect jumps, or addresses that code has read by calling it: a
    /// register may still hold one.
    entered: [u64; 4],
    /// pc and rsp of the function to which the last return did not go, because the program wrote
    /// another address.
    skipped: (u64, u64),
    /// The slot that the program last wrote as data at the top of the stack; 0 if none.
    written_slot: u64,
    /// Whether the innermost frame's return address was pushed once more at its function's entry.
    entry: SinceEntry,
    /// The words that were pushed one below the other.
    pushed: Range<u64>,
    /// The frame that the last load or rise of rsp dropped, alone.
    dropped: Option<ShadowFrame>,
    /// Whether nothing is known until a return proves a frame.
    doubt: bool,
    /// Where this chain is in its first or next instructions.
    arrival: Arrival,
    /// The same of interrupted code, with the number of its segments.
    interrupted: Vec<(usize, Arrival)>,
    /// The number of the loan of the chain's other stacks, while the thread does not run.
    loan: Option<u64>,
    stats: Stats,
}

impl Tracker {
    fn with(chain: Chain) -> Tracker {
        Tracker {
            limit: chain.limit(),
            chain,
            planted: Vec::new(),
            watches: false,
            hides: false,
            sites: Vec::new(),
            entered: [0; 4],
            skipped: (0, 0),
            written_slot: 0,
            entry: SinceEntry::Past,
            pushed: 0..0,
            dropped: None,
            doubt: false,
            arrival: Arrival::Past,
            interrupted: Vec::new(),
            loan: None,
            stats: Stats::default(),
        }
    }

    /// Starts at the first instruction of a program or thread, whose stack ends at `high`.
    pub fn root(cpu: &Cpu, high: u64) -> Tracker {
        Tracker::with(Chain::new(Origin::Root, cpu.rsp, high.max(cpu.rsp)))
    }

    /// Starts in the middle of a thread: frames outside the running function stay unknown.
    pub fn middle(cpu: &Cpu, high: u64) -> Tracker {
        Tracker::with(Chain::new(Origin::Middle, cpu.rsp, high.max(cpu.rsp)))
    }

    /// Starts at the first instruction of a function in the middle of a thread. The caller's pc,
    /// the word at rsp, is then known, too.
    pub fn function_entry(cpu: &Cpu, return_address: u64, high: u64) -> Tracker {
        let mut tracker = Tracker::middle(cpu, high);
        tracker.push(cpu.rsp, cpu.rsp.wrapping_add(8), return_address, cpu);
        tracker.stats = Stats::default();
        tracker
    }

    /// Starts a thread whose first frame was prepared on its stack: the running function returns to
    /// `return_address`, the word at rsp, where the thread begins.
    pub fn prepared(cpu: &Cpu, return_address: u64, high: u64) -> Tracker {
        let mut tracker = Tracker::root(cpu, high);
        tracker.push(cpu.rsp, cpu.rsp.wrapping_add(8), return_address, cpu);
        tracker.stats = Stats::default();
        tracker
    }

    /// A copy of the chain for a forked child, with all counters at zero.
    #[must_use]
    pub fn fork(&self) -> Tracker {
        let mut child = self.clone();
        child.stats = Stats::default();
        child
    }

    /// The counters so far.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether the caller of the running function is unknown: until a return proves a frame, or
    /// because the innermost frame is doubtful.
    #[inline]
    pub const fn in_doubt(&self) -> bool {
        self.doubt || self.hides
    }

    /// [`Tracker::step`] for instructions that leave all frames as they are. Returns true if it
    /// counted the instruction; otherwise it did nothing.
    #[inline]
    pub fn step_quick(&mut self, insn: Insn, rsp: u64) -> bool {
        let quick = matches!(
            insn,
            Insn::Other | Insn::Pop | Insn::Jump | Insn::Breakpoint
        ) && rsp <= self.limit;
        self.stats.instructions += u64::from(quick);
        self.stats.unknown += u64::from(quick && self.in_doubt());
        quick
    }

    /// Up to where rsp may rise without leaving a frame.
    #[inline]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Counts `count` instructions for which [`Tracker::step_quick`] would return true.
    #[inline]
    pub fn step_many(&mut self, count: u64) {
        self.stats.instructions += count;
        self.stats.unknown += if self.in_doubt() { count } else { 0 };
    }

    /// Takes back `count` instructions that were [counted](Tracker::step_many), and then were not executed.
    pub fn unstep_many(&mut self, count: u64) {
        self.stats.instructions -= count;
        self.stats.unknown -= if self.in_doubt() { count } else { 0 };
    }

    /// The frames held, outermost first.
    pub fn frames(&self) -> &[ShadowFrame] {
        &self.chain.frames
    }

    /// The indices of the frames by stack, the innermost stack last; within a stack, slots descend.
    pub fn stacks(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let segments = &self.chain.segments;
        let ends = segments.iter().skip(1).map(|s| s.first);
        let ends = ends.chain([self.chain.frames.len()]);
        segments.iter().zip(ends).map(|(s, end)| s.first..end)
    }

    /// The number of stacks that the frames are on.
    #[inline]
    pub fn stack_count(&self) -> usize {
        self.chain.segments.len()
    }

    /// Whether all frames are on one stack.
    #[inline]
    pub fn is_on_one_stack(&self) -> bool {
        self.stack_count() == 1
    }

    /// rsp where the chain continues on another stack, innermost first: interrupted by a signal, or
    /// left by the function that switched stacks.
    pub fn other_stacks(&self) -> impl Iterator<Item = u64> + '_ {
        let earlier = &self.chain.segments[..self.chain.segments.len() - 1];
        earlier.iter().rev().map(|s| s.low)
    }

    /// The true chain at the instruction boundary where the thread's state is `cpu`.
    pub fn truth(&self, cpu: &Cpu) -> Truth {
        if self.in_doubt() {
            return Truth::Unknown;
        }

        let frames = &self.chain.frames;
        let hidden = self.chain.hidden();
        // A held frame has the rsp after the return to it: the CFA of the frame inside it.
        let cfa = |count: usize| match count.checked_sub(1) {
            Some(index) => frames[index].cfa,
            None => self.chain.root_sp,
        };

        // One more than the frames: the running function itself.
        let mut out = Vec::with_capacity(frames.len() + 1);
        out.push(TrueFrame {
            pc: cpu.rip,
            cfa: cfa(frames.len()),
            kind: TrueKind::Top,
            saved: Some(cpu.saved),
        });

        // A doubtful frame hides itself and those outside it.
        for (index, held) in frames.iter().enumerate().skip(hidden).rev() {
            out.push(TrueFrame {
                pc: held.pc,
                cfa: cfa(index),
                kind: held.kind,
                saved: Some(held.saved),
            });
        }

        // Only a chain that was followed from the start of the thread is known to be complete.
        match self.chain.origin {
            Origin::Root if hidden == 0 => Truth::Complete(out),
            Origin::Root | Origin::Middle => Truth::Known(out),
        }
    }

    /// An instruction of class `insn` was executed. `rax` is its value before the instruction, used
    /// only for [`Insn::Syscall`].
    #[inline]
    pub fn step<W: World>(
        &mut self,
        insn: Insn,
        before: &Cpu,
        rax: u64,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut W,
    ) {
        if self.step_quick(insn, after.rsp) {
            return;
        }
        self.stats.instructions += 1;
        self.stats.unknown += u64::from(self.in_doubt());
        match insn {
            Insn::Pop if self.keep_in_register(after.rsp, world) => {}
            _ => self.step_slow(insn, before, rax, after, suspended, world),
        }
    }

    fn step_slow(
        &mut self,
        insn: Insn,
        before: &Cpu,
        rax: u64,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        // A dropped frame can be revived by a push, but not after any other kind of instruction.
        if !matches!(
            insn,
            Insn::Push
                | Insn::Other
                | Insn::Pop
                | Insn::Jump
                | Insn::JumpLinked { .. }
                | Insn::StoreBelow { .. }
        ) {
            self.dropped = None;
        }

        match insn {
            Insn::Call { len, .. } => {
                self.call_on_other_stack(before.rsp, suspended);
                self.stats.calls += 1;
                self.chain.last_mut().pending = None;
                let pc = before.rip.wrapping_add(u64::from(len));
                self.push(after.rsp, before.rsp, pc, after);
            }
            Insn::Ret => self.ret(before, after, suspended, world),
            Insn::JumpIndirect => self.jump(before, after, suspended, world),
            Insn::Far => {
                // `iret` and far returns load rsp and jump at once.
                self.load_sp(before, after, suspended, world);
                self.transfer(before, after, suspended, world);
            }
            Insn::MoveSp => {
                self.load_sp(before, after, suspended, world);
                if self.watches {
                    self.watch(before, after, false, world);
                }
            }
            Insn::Push | Insn::Pushf => {
                self.entry = self.entry.after_push();
                // The word may be a return address that was popped or dropped before.
                if !self.put_back(after.rsp, world) && !self.revive(after.rsp, world) {
                    self.build_frame(before, after, world);
                }
                self.follow_copy(after, world);
                self.written_slot = after.rsp;
                self.note_push(after.rsp);
                self.rise(after.rsp, world);
                self.put_word((after.rsp, after.rsp), false, world);
            }
            Insn::StoreTop => {
                self.written_slot = after.rsp;
                self.put_back(after.rsp, world);
                match self.top_mut().filter(|f| f.slot == after.rsp) {
                    // The function writes its own return address, as a retpoline does.
                    Some(top) => top.rewritten = true,
                    None => self.put_word((after.rsp, after.rsp), true, world),
                }
            }
            Insn::SwapTop => self.swap(after, world),
            Insn::StoreBelow { offset } => {
                let slot = after.rsp.wrapping_add_signed(offset.into());
                self.put_word((slot, after.rsp), false, world);
            }
            Insn::StoreFrame => {
                // The return address is just above the saved rbp.
                let slot = before.saved[SAVED_RBP].wrapping_add(8);
                if let Some(top) = self.top_mut().filter(|f| f.slot == slot) {
                    top.rewritten = true;
                }
            }
            // It ends a signal frame and restores all registers, so rsp may go to another stack.
            Insn::Syscall if rax == SYS_RT_SIGRETURN => {
                self.sigreturn(before, after, suspended, world);
            }
            Insn::Syscall
            | Insn::Syscall32
            | Insn::Other
            | Insn::Pop
            | Insn::Jump
            | Insn::JumpLinked { .. }
            | Insn::Breakpoint => self.pass(insn, before, after, world),
        }
    }

    /// An instruction that may move rsp by an offset, or a jump to a displacement. Only of a jump,
    /// and while a word is watched, is the state before it known.
    fn pass(&mut self, insn: Insn, before: &Cpu, after: &Cpu, world: &mut dyn World) {
        let is_kept = insn == Insn::Other
            && after.rsp > self.chain.limit()
            && self.keep_read_address(after, world);
        if !is_kept {
            self.rise(after.rsp, world);
        }
        let jumps = || may_jump(insn, before, after);
        if self.watches && self.watch(before, after, jumps(), world) {
            return;
        }
        if let Insn::JumpLinked { link } = insn {
            let pc = before.rip.wrapping_add(link.back().into());
            let is_there = link.saved().is_none_or(|index| before.saved[index] == pc);
            if is_there {
                self.call_by_register(pc, before, after, world);
            }
        }
    }

    /// A jump through a register or memory.
    fn jump(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        suspended: &mut Suspended,
        world: &mut dyn World,
    ) {
        if !self.leave_by_register(before, after, world)
            && !self.call_by_push(before, after, world)
            && !self.arrive(before, after, suspended, world)
            && !self.enter_planted(before, after, world)
        {
            self.transfer(before, after, suspended, world);
            // A function that was skipped by writing its return address goes on after all.
            if self.skipped == (after.rip, after.rsp) {
                self.stats.unheld += 1;
            }
            self.call_by_registers(before, after);
        }
        self.note_entered(after.rip);
    }

    fn push(&mut self, slot: u64, cfa: u64, pc: u64, entry: &Cpu) {
        self.chain.frames.push(ShadowFrame {
            slot,
            cfa,
            pc,
            saved: entry.saved,
            kind: TrueKind::Call,
            rewritten: false,
            taken: false,
            thunk: entry.rip == pc,
            in_register: false,
            planted: false,
            entry: entry.rip,
        });
        self.entry = SinceEntry::At;
        self.pushed.start = self.pushed.start.max(cfa);
        self.planted.pop_if(|p| p.is_at(slot));
        self.settle();
    }

    fn top_mut(&mut self) -> Option<&mut ShadowFrame> {
        let first = self.chain.last().first;
        self.chain.frames[first..].last_mut()
    }

    /// rsp is `sp` after an instruction that does not load it from elsewhere.
    fn rise(&mut self, sp: u64, world: &mut dyn World) {
        // Most instructions leave rsp below all slots: then nothing has ended.
        if sp <= self.chain.limit() || self.outlives(sp, world) || self.leaves_copy(sp) {
            return;
        }

        // The innermost return address was passed without a return: it was taken off the stack or
        // dropped.
        if let Some(&top) = self.chain.top().filter(|f| f.slot < sp && sp <= f.cfa) {
            if top.thunk {
                self.note_entered(top.pc);
            }
            if self.hides {
                self.resolve(false);
            }
        }

        self.pop_below(sp);

        let segment = self.chain.last();
        if sp > segment.high {
            let nested = segment.pending.is_some_and(|p| p.nested);
            // rsp is on an earlier stack, or this one is higher than was known.
            match self.chain.earlier_segment(sp) {
                Some(index) if !nested => {
                    self.cut_to_segment(index);
                    self.pop_below(sp);
                }
                _ => self.chain.last_mut().high = sp,
            }
        }

        self.settle();
    }

    fn pop_below(&mut self, sp: u64) {
        let count = self.chain.frames.len();
        let top = self.chain.frames.last().copied();
        self.chain.pop_below(sp);
        let dropped = count - self.chain.frames.len();
        self.dropped = top.filter(|_| dropped == 1);
        self.stats.dropped += dropped as u64;
    }

    fn cut_to_segment(&mut self, index: usize) {
        let count = self.chain.frames.len();
        self.chain.cut_to_segment(index);
        self.stats.dropped += (count - self.chain.frames.len()) as u64;
    }

    fn ret(&mut self, before: &Cpu, after: &Cpu, suspended: &mut Suspended, world: &mut dyn World) {
        let slot = before.rsp;
        self.entry = SinceEntry::Past;
        if self.return_from_register(before, after) {
            return self.rise(after.rsp, world);
        }

        // Only a return through the innermost slot can be the return of the innermost frame.
        let held = self.chain.top().copied().filter(|f| f.slot == slot);
        if let Some(held) = held {
            // `ret n` leaves rsp above the CFA.
            let returns = held.pc == after.rip && after.rsp >= held.cfa;
            if returns {
                self.resolve(true);
            }

            if !returns && self.return_to_tracer(&held, after.rip, world) {
                return self.rise(after.rsp, world);
            }
            self.chain.frames.pop();
            self.settle();
            if returns {
                self.stats.returns += 1;
                // It went where the chain said, which proves the frames outside.
                self.doubt = false;
            } else if held.rewritten {
                self.stats.rewritten += 1;
                self.skipped = (held.pc, held.cfa);
            } else {
                self.stats.mismatched += 1;
            }

            if !returns {
                self.note_entered(after.rip);
                self.return_by_tracer(after);
                // A retpoline: that is the function that runs for the caller now.
                if let Some(top) = self.top_mut() {
                    top.entry = after.rip;
                }
            }
            self.arrival = Arrival::Past;
        } else if self.arrive(before, after, suspended, world) {
            // It starts something on this stack, which `arrive` has entered in the chain.
        } else if self.return_by_planted(slot, before, after, world) {
            self.note_entered(after.rip);
        } else if self.chain.last().pending.is_some() {
            self.transfer(before, after, suspended, world);
        } else if self.written_slot == slot {
            self.stats.trampolines += 1;
        } else if self.pushed.contains(&slot) {
            self.stats.trampolines += 1;
            self.enter_pushed(after, world);
        } else if self.jumps_for_tracer(after, world) {
            self.stats.trampolines += 1;
        } else if self.chain.frames.is_empty() && self.chain.origin == Origin::Middle {
            // A return into a frame that was not observed.
        } else {
            self.stats.unheld += 1;
            self.doubt = true;
            // What seemed to be the root has callers.
            if self.chain.frames.is_empty() {
                self.chain.origin = Origin::Middle;
            }
        }

        // Whatever it was, rsp has risen over the word that was taken.
        self.rise(after.rsp, world);
        self.dropped = None;
        self.pushed.start = self.pushed.start.max(after.rsp);
    }
}
