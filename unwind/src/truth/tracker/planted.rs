//! Return addresses that no call made: the running function puts a code address on its stack, or
//! into a register, and jumps.
//!
//! A jump with such a word at rsp calls a function, if a `ret` will take the word; it is a jump
//! within the function, if the word is data. What is certain is decided at the jump. Otherwise the
//! frame is doubtful, and all frames from it outwards are unknown until it returns, or is dropped;
//! that also decides the same jump from then on. A `ret` that takes a word that was held for data
//! is a failure of the self-check.

use super::Tracker;
use crate::insn::{INSN_BYTES_MAX, Insn};
use crate::truth::TrueKind;
use crate::truth::stacks::{Cpu, DoubtfulFrame, ShadowFrame, World};

/// A jump, and its target.
type Site = (u64, u64);

/// A code address that the running function put on its stack, neither by a call nor to save a
/// register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Planted {
    slot: u64,
    pc: u64,
    /// The number of frames when it was put there: they tell whose word it is.
    frames: usize,
    /// Whether rsp was never as low as the word.
    is_below: bool,
    /// Whether it was stored where a local variable may be, rather than pushed.
    is_stored: bool,
    /// Whether code was entered there shortly before: a register still had the pointer.
    is_entered: bool,
    /// The jump at which it was held for data.
    left: Option<Site>,
}

impl Planted {
    /// Whether the word is at `slot`.
    pub(super) const fn is_at(&self, slot: u64) -> bool {
        self.slot == slot
    }

    /// The number of frames when it was put there.
    pub(super) const fn frames(&self) -> usize {
        self.frames
    }

    /// Changes that number if it is more than `first`.
    pub(super) fn renumber(&mut self, first: usize, number: impl Fn(usize) -> usize) {
        if self.frames > first {
            self.frames = number(self.frames);
        }
    }
}

/// How far behind a jump the address is to which its target returns: the jump itself, and padding.
const BEHIND_MAX: u64 = 32;
/// A jump forward by less than this may skip data, to which a register points; a function may reach
/// as far.
const SKIP_MAX: u64 = 4096;
/// A code address is not below this one (Linux `vm.mmap_min_addr`).
const CODE_MIN: u64 = 0x1000;
/// In place of a jump's target: rsp rose to another copy of the return address.
const COPIED: u64 = 1;
/// The number of jumps of which is remembered what they were; the oldest one is forgotten.
const SITES_MAX: usize = 64;
/// The number of innermost frames that must have an aligned stack before alignment says something.
const ALIGNED_FRAMES: usize = 4;
/// The number of innermost frames whose functions are known not to be returned to at their start.
const ENTRIES: usize = 8;
/// The number of words per thread. Beyond it, no more are watched.
const PLANTED_MAX: usize = 64;
/// `endbr64`, with which a function begins whose address is taken.
const ENDBR64: u32 = 0xfa1e_0ff3;

/// Whether a return address behind a jump at `rip` may be `pc`.
fn is_behind(pc: u64, rip: u64) -> bool {
    (1..=BEHIND_MAX).contains(&pc.wrapping_sub(rip))
}

/// Whether `pc` may be in the function of the jump at `rip`.
fn is_near(pc: u64, rip: u64) -> bool {
    pc.abs_diff(rip) < SKIP_MAX
}

/// How many bytes of code are looked at.
const RUN_MAX: u64 = 16;

/// Whether the few bytes from `pc` to `target` are code that runs on there: nothing in them ends a
/// way.
fn runs_on(pc: u64, target: u64, world: &mut dyn World) -> bool {
    let gap = target.wrapping_sub(pc);
    if gap > RUN_MAX {
        return false;
    }
    let words = [world.word(pc), world.word(pc.wrapping_add(8))];
    let [Some(first), Some(second)] = words else {
        return false;
    };
    let mut bytes = [0; RUN_MAX as usize];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    let code = &bytes[..gap as usize];
    // Returns, jumps, traps and padding, wherever their bytes are.
    let may_end = |byte: &u8| {
        matches!(
            byte,
            0xc2 | 0xc3 | 0xe9 | 0xeb | 0xff | 0x0f | 0xf4 | 0xcc | 0x90
        )
    };
    !code.iter().any(may_end)
}

/// Whether the code at `pc` is a trap, to which nobody returns: `ud2`, `int3`, `hlt`.
fn is_trap(pc: u64, world: &mut dyn World) -> bool {
    let code = world.word(pc).map(u64::to_le_bytes);
    code.is_some_and(|code| code.starts_with(&[0x0f, 0x0b]) || matches!(code[0], 0xcc | 0xf4))
}

/// Whether a frame's return address is no longer where the call put it.
fn has_left<W: World + ?Sized>(frame: &ShadowFrame, world: &mut W) -> bool {
    world.word(frame.slot).is_some_and(|word| word != frame.pc)
}

impl Tracker {
    /// Frames or words have changed: what depends on them follows.
    pub(super) fn settle(&mut self) {
        let frames = self.chain.frames.len();
        while self.chain.hidden() > frames {
            self.chain.doubts.pop();
        }
        while self.planted.last().is_some_and(|p| p.frames > frames) {
            self.planted.pop();
        }

        self.hides = frames != 0 && self.chain.hidden() == frames;
        let innermost = self.planted.last();
        self.watches = innermost.is_some_and(|p| p.frames == frames && p.left.is_none());
        self.limit = if self.watches { 0 } else { self.chain.limit() };
    }

    /// Whether a pushed `value` may be a return address. One that the caller had in a callee-saved
    /// register is saved.
    #[inline]
    pub(super) fn may_return_to<W: World + ?Sized>(&self, value: u64, world: &mut W) -> bool {
        let top = self.chain.frames.last();
        if value < CODE_MIN || top.is_some_and(|f| f.saved.contains(&value)) {
            return false;
        }
        world.is_returned_to(value) || top.is_some_and(|f| f.pc == value && has_left(f, world))
    }

    /// Whether a push to `slot` leaves the planted words as they are.
    #[inline]
    pub(super) fn is_below_planted(&self, slot: u64) -> bool {
        self.planted.last().is_none_or(|p| slot < p.slot)
    }

    /// The running function has written the word at `slot`.
    /// `is_stored`: at rsp, without moving it.
    pub(super) fn put_word(
        &mut self,
        (slot, rsp): (u64, u64),
        is_stored: bool,
        world: &mut dyn World,
    ) {
        let frames = self.chain.frames.len();
        // Words at the slot are overwritten; those below it are below what was just written. Those of the
        // code that a handler has interrupted may be on another stack.
        let first = self.chain.last().first;
        let is_handler = self
            .chain
            .frames
            .get(first)
            .is_some_and(|f| f.kind != TrueKind::Call);
        let is_outer = |p: &Planted| is_handler && p.frames <= first;
        while self
            .planted
            .last()
            .is_some_and(|p| p.slot <= slot && !is_outer(p))
        {
            self.planted.pop();
        }

        // Words above the own return address are the caller's.
        let is_own = self.chain.top().is_none_or(|f| slot < f.slot);
        let pc = world.word(slot).filter(|_| is_own);
        if let Some(pc) = pc.filter(|&pc| self.may_return_to(pc, world))
            && self.planted.len() < PLANTED_MAX
        {
            self.planted.push(Planted {
                slot,
                pc,
                frames,
                is_below: slot < rsp,
                is_stored,
                is_entered: self.entered.contains(&pc),
                left: None,
            });
        }
        self.settle();
    }

    /// An instruction was executed while a word is watched: rsp may have left it, or come to it.
    /// `jumps`: it may be a jump. Returns whether that was a call.
    pub(super) fn watch(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        jumps: bool,
        world: &mut dyn World,
    ) -> bool {
        let frames = self.chain.frames.len();
        while let Some(last) = self.planted.last_mut().filter(|p| p.frames == frames) {
            if last.is_below && (jumps || after.rsp <= last.slot) {
                last.is_below = false;
            }
            if last.is_below || after.rsp <= last.slot {
                break;
            }
            self.planted.pop();
        }
        let calls = jumps && self.enter_planted(before, after, world);
        self.settle();
        calls
    }

    /// A transfer of control: if a planted word is at rsp, it is the return address of the function
    /// that starts, or data. Returns whether a frame was made.
    pub(super) fn enter_planted(
        &mut self,
        before: &Cpu,
        after: &Cpu,
        world: &mut dyn World,
    ) -> bool {
        let frames = self.chain.frames.len();

        // The planted word must be at rsp, in the frame in which it was written.
        let slot = after.rsp;
        let is_it = |p: &&mut Planted| p.frames == frames && p.slot == slot && p.left.is_none();
        let is_leaving = self.is_leaving_stack();
        let Some(planted) = self.planted.last_mut().filter(is_it) else {
            return false;
        };

        // Overwritten since, or of a stack that is being left.
        if is_leaving || world.word(slot) != Some(planted.pc) {
            return false;
        }
        let (pc, is_stored, is_entered) = (planted.pc, planted.is_stored, planted.is_entered);
        let site = (before.rip, after.rip);

        // A function that moved its own return address has planted nothing new.
        if self.move_own(slot, pc, world) {
            self.planted.pop();
            self.settle();
            return true;
        }

        // What this jump was the last time; otherwise by what the address looks like.
        let is_frame = self.learned(site).or_else(|| {
            let mut entered = self.chain.frames.iter().rev().take(ENTRIES);
            let word = world.word(pc);
            // Code that was called by a pointer still has the pointer in a register, and pushes it
            // to align rsp.
            let is_entry = is_entered
                || entered.any(|f| f.entry == pc)
                || word.is_some_and(|word| word as u32 == ENDBR64);
            if pc == after.rip || is_entry {
                Some(false)
            } else if is_behind(pc, before.rip) {
                Some(true)
            } else {
                let may_return = is_near(pc, before.rip) && !pc.is_multiple_of(16);
                (is_stored && !may_return && self.is_local(slot)).then_some(false)
            }
        });
        // Data: the word is kept, because a return that takes it proves the contrary.
        if is_frame == Some(false) {
            if let Some(planted) = self.planted.last_mut() {
                planted.left = Some(site);
            }
            self.settle();
            return false;
        }

        // It is a frame, perhaps in doubt: then the jump is remembered, to learn from what happens.
        self.planted.pop();
        self.stats.calls += 1;
        self.chain.last_mut().pending = None;
        self.push(slot, slot.wrapping_add(8), pc, after);
        self.note_planted(is_frame.is_none().then_some(site));
        true
    }

    /// Whether a word stored at `slot` may be a local variable: where functions are called as the
    /// psABI says (3.2.2), rsp is a multiple of 16 between their prologue and epilogue, and is not
    /// where a function is entered. Compilers align functions, too: glibc keeps those that clean up
    /// at rsp.
    fn is_local(&self, slot: u64) -> bool {
        let mut frames = self.chain.frames.iter().rev().take(ALIGNED_FRAMES);
        slot.is_multiple_of(16) && frames.all(|f| f.cfa.is_multiple_of(16))
    }

    /// Notes an address that is no return address, though code may have it in a register.
    pub(super) fn note_entered(&mut self, pc: u64) {
        if !self.entered.contains(&pc) {
            self.entered.rotate_right(1);
            self.entered[0] = pc;
        }
    }

    /// Whether rsp was loaded with an address that may be on another stack. After `alloca`, it is
    /// not.
    fn is_leaving_stack(&self) -> bool {
        let pending = self.chain.last().pending;
        pending.is_some_and(|pending| pending.far || pending.nested)
    }

    /// The innermost frame was made by a jump; doubtful, if that is `site`.
    fn note_planted(&mut self, site: Option<Site>) {
        if let Some(top) = self.top_mut() {
            top.planted = true;
        }
        if let Some(site) = site {
            self.doubt_top(site);
        }
        self.settle();
    }

    /// The innermost frame may be none.
    pub(super) fn doubt_top(&mut self, site: Site) {
        let frames = self.chain.frames.len();
        if frames != 0 && self.chain.hidden() < frames {
            self.chain.doubts.push(DoubtfulFrame { frames, site });
        }
        self.settle();
    }

    /// The doubt about the innermost frame has ended: whether it is a frame.
    pub(super) fn resolve(&mut self, is_frame: bool) {
        if self.chain.hidden() == self.chain.frames.len()
            && let Some(doubt) = self.chain.doubts.pop()
        {
            self.learn(doubt.site, is_frame);
        }
    }

    fn learn(&mut self, site: Site, is_frame: bool) {
        self.sites.retain(|(known, _)| *known != site);
        if self.sites.len() == SITES_MAX {
            self.sites.remove(0);
        }
        self.sites.push((site, is_frame));
    }

    /// What a jump was, if that is known.
    pub(super) fn learned(&self, site: Site) -> Option<bool> {
        let found = self.sites.iter().find(|(known, _)| *known == site);
        found.map(|(_, is_frame)| *is_frame)
    }

    /// A `ret` that takes the word at `slot`, which is in no frame. Returns whether it is a planted
    /// one: a jump, or the return to a function that was held for left.
    pub(super) fn return_by_planted(
        &mut self,
        slot: u64,
        before: &Cpu,
        after: &Cpu,
        world: &mut dyn World,
    ) -> bool {
        let frames = self.chain.frames.len();
        let is_it = |p: &&Planted| p.frames == frames && p.slot == slot;
        let Some(&planted) = self.planted.last().filter(is_it) else {
            return false;
        };

        if self.is_leaving_stack() {
            return false;
        }

        self.planted.pop();
        self.settle();
        // It was held for data, but it was a frame: the next time, this is known.
        if let Some(site) = planted.left {
            self.learn(site, true);
            self.stats.unheld += 1;
            return true;
        }

        if self.written_slot != slot && self.pushed.contains(&slot) {
            // Pushed, but not last: another word may be below its return address.
            return false;
        }

        let own = self.chain.top().copied();
        if own.is_some_and(|f| f.pc == after.rip && f.pc == planted.pc && has_left(&f, world)) {
            // The function's own return address, which it has moved.
            self.chain.frames.pop();
            self.settle();
            self.stats.returns += 1;
            self.doubt = false;
            return true;
        }

        self.stats.trampolines += 1;
        self.enter_planted(before, after, world);
        true
    }

    /// A jump after code that took the address behind it: a call of a function that returns by a
    /// register, or a jump over data that the register points to.
    pub(super) fn call_by_register(
        &mut self,
        pc: u64,
        before: &Cpu,
        after: &Cpu,
        world: &mut dyn World,
    ) {
        let site = (before.rip, after.rip);

        if !world.is_returned_to(pc) {
            return;
        }

        // It is already on the stack, below arguments.
        let frames = self.chain.frames.len();
        let mut own = self.planted.iter().rev().take_while(|p| p.frames == frames);
        if own.any(|p| p.pc == pc) {
            return;
        }

        if after.rip == pc || after.rsp != before.rsp || self.is_leaving_stack() {
            return;
        }

        let skips = after.rip.wrapping_sub(pc) < SKIP_MAX;
        if skips && runs_on(pc, after.rip, world) {
            // The label of `__builtin_setjmp`, at which the function goes on.
            return;
        }

        // A jump over a few bytes may skip data; a jump far away is a call.
        let is_frame = self.learned(site).or((!skips).then_some(true));
        self.link(pc, after, site, is_frame);
    }

    /// The same, by a jump through a register: nothing says that the address was taken for it.
    pub(super) fn call_by_registers(&mut self, before: &Cpu, after: &Cpu) {
        let own = self.chain.frames.last().map(|f| f.saved);
        let mut values = before.saved.into_iter();
        let pc = values
            .find(|&pc| is_behind(pc, before.rip) && own.is_none_or(|own| !own.contains(&pc)));
        let Some(pc) = pc.filter(|pc| after.rip.abs_diff(*pc) >= SKIP_MAX) else {
            return;
        };
        if after.rsp == before.rsp && !self.is_leaving_stack() {
            let site = (before.rip, after.rip);
            self.link(pc, after, site, self.learned(site));
        }
    }

    fn link(&mut self, pc: u64, after: &Cpu, site: Site, is_frame: Option<bool>) {
        if is_frame == Some(false) {
            return;
        }
        self.stats.calls += 1;
        self.chain.last_mut().pending = None;
        self.push(after.rsp, after.rsp, pc, after);
        if let Some(top) = self.top_mut() {
            top.in_register = true;
        }
        self.note_planted(is_frame.is_none().then_some(site));
    }

    /// rsp rose above the innermost return address, and no more, by an addition: the program may
    /// have read the address before, or copied it to where rsp is now. Returns whether the frame
    /// goes on in a register.
    pub(super) fn keep_read_address(&mut self, after: &Cpu, world: &mut dyn World) -> bool {
        let sp = after.rsp;
        let Some(top) = self.chain.top().filter(|f| f.slot < sp && f.cfa == sp) else {
            return false;
        };

        // A frame in a register can only be that of a plain call.
        let is_call = top.kind == TrueKind::Call && !top.thunk && !top.in_register;
        if !is_call || self.hides || is_trap(top.pc, world) {
            return false;
        }

        // A kernel's functions return by the word that a call has pushed: so the frame is skipped, as by a
        // trampoline of BPF that has already called the rest of the function.
        if !world.is_returned_to(top.pc) {
            return false;
        }

        // A site that has proved wrong before is believed, unless the copy is plain to see.
        let pc = top.pc;
        let is_copied = world.word(sp) == Some(pc);
        let site = (after.rip, if is_copied { COPIED } else { 0 });
        let known = self.learned(site).filter(|_| !is_copied);
        if known == Some(false) {
            return false;
        }

        // From here on, the return address has no slot of its own.
        if let Some(top) = self.top_mut() {
            top.slot = top.cfa;
            top.in_register = true;
        }
        // boost.context loads its return address into r8, and raises rsp.
        if known.is_none() && (is_copied || !world.is_in_register(pc)) {
            self.doubt_top(site);
        }
        self.settle();
        true
    }

    /// Whether the innermost frame is doubtful because its return address may have been copied to
    /// where rsp is now.
    pub(super) fn may_be_copied(&self) -> bool {
        let doubt = self.chain.doubts.last();
        doubt.is_some_and(|doubt| doubt.site.1 == COPIED)
    }

    /// The word at rsp was exchanged with a register. If it was the return address, the frame goes
    /// on in the register.
    pub(super) fn swap(&mut self, after: &Cpu, world: &mut dyn World) {
        let slot = after.rsp;
        self.written_slot = slot;
        if self.put_back(slot, world) {
            return;
        }
        let word = world.word(slot);
        match self.top_mut().filter(|f| f.slot == slot) {
            Some(top) if top.kind != TrueKind::Call || top.thunk => top.rewritten = true,
            Some(top) if word != Some(top.pc) => {
                top.slot = top.cfa;
                top.in_register = true;
                self.settle();
            }
            Some(_) => {}
            None => self.put_word((slot, slot), true, world),
        }
    }

    /// The number of frames that are not known, the outermost.
    #[inline]
    pub fn hidden(&self) -> usize {
        self.chain.hidden()
    }

    /// The frames that are known, outermost first: not those from a doubtful one outwards.
    #[inline]
    pub fn known(&self) -> &[ShadowFrame] {
        &self.chain.frames[self.chain.hidden().min(self.chain.frames.len())..]
    }

    /// Whether every instruction has to be seen: [`Tracker::step`] needs the registers before it,
    /// whatever it is.
    #[inline]
    pub const fn is_watching(&self) -> bool {
        self.watches
    }
}

/// Whether an instruction that is no jump by its class may have been a conditional one that was
/// taken.
pub(super) fn may_jump(insn: Insn, before: &Cpu, after: &Cpu) -> bool {
    match insn {
        Insn::Jump | Insn::JumpLinked { .. } => true,
        _ => after.rip.wrapping_sub(before.rip) > INSN_BYTES_MAX as u64,
    }
}
