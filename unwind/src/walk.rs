//! The walk: finds a rule, applies it, and continues with the caller.
//!
//! One loop serves every table; the differences (which table, which profile) are behind [`Finder`].
//! This module handles the bounds (sp must advance within a stack, no state twice, named limits),
//! skipping up to the mark, and the end. Rules other than the common ones are applied in `apply`;
//! scanning is in `guess`.

use crate::address::CodeAddress;
use crate::apply;
use crate::cache::{Cache, Hot, RowId, Sources};
use crate::chain::{End, How, ReadWords, RowRef, Sink, Step, Word};
use crate::event::Event;
use crate::finder::Finder;
use crate::frame::Frame;
use crate::image::{AddressSpace, Mapping};
use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::{Reg, RegMask};
use crate::row::{Row, RowSource};
use crate::rule::{Base, Rule, RuleKind, Shape, Value};
use crate::start::Start;
use arrayvec::ArrayVec;
use fallback::{FallbackFinder, in_process};

mod fallback;
mod glide;

/// Limits of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum number of frames found, including skipped ones.
    pub frames_max: u32,
}

/// The default limit: deeper than any usual 8 MiB stack with real work in its frames.
pub const FRAMES_MAX: u32 = 1 << 16;

/// How often a walk may change stacks. A signal handler on an alternate stack is one change.
pub const STACK_CHANGES_MAX: usize = 32;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            frames_max: FRAMES_MAX,
        }
    }
}

/// The code and memory of the sample that a walk runs on.
#[derive(Debug)]
pub struct WalkTarget<'a, M: Memory + ?Sized> {
    /// The executable mappings.
    pub space: &'a AddressSpace,
    /// The stacks.
    pub memory: &'a M,
}

/// How the current frame was found.
enum Origin {
    Start,
    /// By this row, which was looked up for this address. If it is the fallback's and the first
    /// table's rule failed, with the cause of that.
    Row(RowId, u64, Option<Reason>),
}

impl Origin {
    /// The origin as passed to the sink, unless the row is the fallback's.
    #[inline(always)]
    fn how<'a>(&self, words: &'a ReadWords, sources: &'a Sources<'a>) -> How<'a> {
        match *self {
            Origin::Start => How::Start,
            Origin::Row(row, _, _) => How::Rule {
                row: RowRef::cached(sources, row),
                words,
            },
        }
    }
}

struct Walk<'a, F: ?Sized, M: Memory + ?Sized, S> {
    finder: &'a F,
    place: &'a WalkTarget<'a, M>,
    sink: &'a mut S,
    frame: Frame,
    first_frame: Option<u64>,
    origin: Origin,
    words: ReadWords,
    /// (pc, sp) from where and to where sp did not advance, and how often it did not.
    seen: ArrayVec<(u64, u64), { 2 * STACK_CHANGES_MAX }>,
    changes: usize,
    second: FallbackFinder<'a>,
    /// The lookup address of the last frame whose caller was searched for.
    last: u64,
    /// The mapping that contained the last address resolved.
    mapping: Option<&'a Mapping>,
}

/// Walks from `start` to a root, an obstacle or a limit, and reports every frame to `sink`.
pub fn walk<F: Finder + ?Sized, M: Memory + ?Sized, S: Sink>(
    finder: &F,
    place: &WalkTarget<'_, M>,
    start: &Start,
    limits: &Limits,
    cache: &mut Cache,
    sink: &mut S,
) -> End {
    // Packed rules are looked up by address, which means something only in one space.
    cache.select(place.space);

    // Without these two there is not even a first frame.
    for reg in [Reg::Rip, Reg::Rsp] {
        if start.regs.get(reg).is_none() {
            return Reason::RegistersMissing { reg }.into();
        }
    }

    let mut walk = Walk {
        finder,
        place,
        sink,
        frame: Frame::top(start.regs),
        first_frame: start.first_frame,
        origin: Origin::Start,
        words: ReadWords::new(),
        seen: ArrayVec::new(),
        changes: 0,
        second: FallbackFinder::new(finder.fallback()),
        last: start.regs.rip(),
        mapping: None,
    };

    // Sinks without details compile to a loop without these events.
    if S::DETAIL {
        walk.sink.event(Event::Started {
            regs: start.regs,
            first_frame: start.first_frame,
        });
    }

    if let Some(ip) = start.sampled_ip {
        // Fake registers: the ip is that of the caller of the function that made them.
        let pc = CodeAddress::Return(ip);
        walk.sink.frame(Step {
            pc,
            sp: 0,
            slot: None,
            how: How::SampledIp,
        });
    }

    let mut end = walk.run(limits, cache);

    // A walk that reached a root has shown it; otherwise the last table is asked whether it could.
    let is_root = end.reason == Reason::RootReached;
    end.marks_roots = is_root || finder.marks_roots(place.space, walk.last, cache);

    end
}

impl<F: Finder + ?Sized, M: Memory + ?Sized, S: Sink> Walk<'_, F, M, S> {
    fn run(&mut self, limits: &Limits, cache: &mut Cache) -> End {
        let lookup = self.finder.lookup();
        let carries = self.finder.carries();
        let mut left = limits.frames_max;

        loop {
            // `glide` knows ip, sp and bp only, and nothing of fallbacks.
            if carries == RegMask::FRAME && self.second.finder.is_none() {
                self.glide(&mut left, lookup, cache);
            }

            // `glide` may have used up all frames.
            let Some(less) = left.checked_sub(1) else {
                break;
            };
            left = less;

            let pc = self.frame.pc;
            let address = pc.lookup(lookup);

            let hot = match cache.hot(address).copied() {
                Some(hot) => hot,
                None => match self.resolve(address, cache) {
                    Ok(hot) => hot,
                    // A return address outside text is not a frame: the step that led here was
                    // wrong.
                    Err(end) if matches!(end.reason, Reason::NotText { .. }) => {
                        match self.step_back(end.reason, cache) {
                            Ok(()) => continue,
                            Err(end) => return end,
                        }
                    }
                    // The frame exists, although nothing is known about its caller.
                    Err(end) => {
                        self.last = address;
                        self.report(cache);
                        return end;
                    }
                },
            };

            self.report(cache);
            self.last = address;

            if self.second.finder.is_some() {
                // If this frame's caller is not in text, the fallback starts here again.
                self.second.remember(&self.frame);
            }
            if S::DETAIL {
                self.words.clear();
                self.tell_fallback(address, cache);
                self.origin = Origin::Row(hot.row, address, None);
            }

            let next = match hot.packed.shape() {
                Shape::Generic => self.step_generic(address, hot.row, None, cache),
                Shape::Rsp => self.step_fast(hot, self.frame.regs.rsp(), carries),
                Shape::Rbp => match self.frame.regs.get(Reg::Rbp) {
                    // Programs mark the outermost frame with a zero rbp (psABI 3.4.1).
                    Some(0) if Self::ends_at_zero(hot, cache) => Err(Reason::RootReached),
                    Some(rbp) => self.step_fast(hot, rbp, carries),
                    None => Err(self.frame.why_unknown(Reg::Rbp)),
                },
            };

            if let Err(reason) = next
                && let Err(end) = self.fall_back(address, reason, cache)
            {
                return end;
            }
        }

        Reason::FrameLimit {
            limit: limits.frames_max,
        }
        .into()
    }

    /// Finds the rule for `address` in the tables and remembers it.
    #[cold]
    #[inline(never)]
    fn resolve(&mut self, address: u64, cache: &mut Cache) -> Result<Hot, End> {
        let pc = self.frame.pc;
        // Neighbouring frames are often in the same mapping.
        let same = self.mapping.filter(|m| m.range.contains(&address));
        self.mapping = same.or_else(|| self.place.space.find(address));

        let Some(mapping) = self.mapping else {
            // Some unwinders, such as libdw's, go on outside of text.
            if let Some(row) = self.finder.find_outside(cache) {
                return Ok(cache.insert_hot(address, row?, self.finder.fast(), None));
            }
            return Err(match pc {
                CodeAddress::Instruction(pc) => Reason::NoImage { pc },
                CodeAddress::Return(address) => Reason::NotText { address },
            }
            .into());
        };

        // Tables have addresses of the file, so the lookup is in these.
        let svma = mapping.svma(address);
        if mapping
            .image
            .as_ref()
            .is_some_and(|image| !image.is_text(svma))
        {
            if let Some(row) = self.finder.find_outside(cache) {
                return Ok(cache.insert_hot(address, row?, self.finder.fast(), None));
            }
            // A jump into data, or the code that a signal interrupted there: a frame without a row.
            return Err(match pc {
                CodeAddress::Instruction(pc) => Reason::NoRow { pc },
                CodeAddress::Return(address) => Reason::NotText { address },
            }
            .into());
        }

        // The first table's failure is kept even if the fallback succeeds: it is the cause of that
        // frame.
        let found = self.finder.find(mapping, svma, cache);
        let found = found.map_err(|cause| in_process(cause, address));

        match (found, self.second.finder) {
            (Ok(row), _) => Ok(cache.insert_hot(address, row, self.finder.fast(), None)),
            (Err(cause), None) => Err(cause.into()),
            (Err(cause), Some(second)) => match second.find(mapping, svma, cache) {
                Ok(row) => Ok(cache.insert_hot(address, row, false, Some(cause))),
                Err(second) => Err(End {
                    fallback: Some(in_process(second, address)),
                    ..cause.into()
                }),
            },
        }
    }

    /// Reports the fallback, if its row is used.
    #[inline]
    fn tell_fallback(&mut self, address: u64, cache: &Cache) {
        if let Some(cause) = cache.fallback_cause(address) {
            let pc = self.frame.pc;
            self.sink.event(Event::Fallback { pc, cause });
        }
    }

    /// Whether the rule says that a frame with an rbp of zero is the root.
    #[cold]
    fn ends_at_zero(hot: Hot, cache: &Cache) -> bool {
        cache.rule(hot.row).by_frame_pointer
    }

    /// Passes the frame to the sink, unless it is below the mark.
    #[inline(always)]
    fn report(&mut self, cache: &Cache) {
        let (rip, sp) = (self.frame.pc.value(), self.frame.regs.rsp());
        // Copied field by field: a copy in one piece would stall on the stores just made.
        let slot = self
            .frame
            .slot
            .is_some()
            .then(|| self.frame.slot.unwrap_or(0));

        let pc = if self.frame.pc.is_instruction() {
            CodeAddress::Instruction(rip)
        } else {
            CodeAddress::Return(rip)
        };

        // Frames of the functions that fetched the registers are walked, but not reported.
        if let Some(first_frame) = self.first_frame
            && self.finder.skips(sp, first_frame)
        {
            if S::DETAIL {
                self.sink.event(Event::Skipped {
                    pc,
                    sp,
                    first_frame,
                });
            }
            return;
        }

        // Found by the fallback: the frame also gets an event that says why.
        if let Origin::Row(row, address, cause) = self.origin
            && let Some(cause) = cause.or_else(|| cache.fallback_cause(address))
        {
            return self.report_fallback(row, cause, cache);
        }

        let sources = cache.sources();
        let how = self.origin.how(&self.words, &sources);
        self.sink.frame(Step { pc, sp, slot, how });
    }

    /// Like [`Walk::report`], for a frame found with the fallback's row.
    #[cold]
    #[inline(never)]
    fn report_fallback(&mut self, row: RowId, cause: Reason, cache: &Cache) {
        let row = Row {
            rule: *cache.rule(row),
            source: RowSource {
                fallback: Some(cause),
                ..cache.source(row)
            },
        };
        self.sink.frame(Step {
            pc: self.frame.pc,
            sp: self.frame.regs.rsp(),
            slot: self.frame.slot,
            how: How::Rule {
                row: RowRef::from(&row),
                words: &self.words,
            },
        });
    }

    #[inline]
    fn read(&mut self, address: u64) -> Result<u64, Reason> {
        let value = self.place.memory.read_u64(address)?;
        if S::DETAIL {
            self.words.push(Word { address, value });
        }
        Ok(value)
    }

    /// Applies cfa = `base` + offset, ra at cfa - 8, saved registers below: the rule of nearly
    /// every frame.
    #[inline]
    fn step_fast(&mut self, hot: Hot, base: u64, carries: RegMask) -> Result<(), Reason> {
        let sp = self.frame.regs.rsp();
        let cfa = base.wrapping_add(hot.packed.cfa_offset());
        if cfa <= sp {
            return Err(Reason::SpDidNotAdvance { from: sp, to: cfa });
        }
        let slot = cfa.wrapping_sub(8);
        let ra = self.read(slot)?;
        if ra == 0 {
            return Err(Reason::NotAtRoot);
        }
        self.frame.regs.keep(carries);
        if carries.0 == RegMask::FRAME.0 {
            self.restore(Reg::Rbp, hot.packed.slot(1), cfa);
        } else {
            // By index: a list of the slots in memory would be read before it is written.
            for (index, reg) in Reg::CALLEE_SAVED.iter().enumerate() {
                self.restore(*reg, hot.packed.slot(index), cfa);
            }
        }
        self.frame.enter(CodeAddress::Return(ra), cfa, Some(slot));
        Ok(())
    }

    #[inline]
    fn restore(&mut self, reg: Reg, words: u8, cfa: u64) {
        if words != 0 {
            match self.read(cfa.wrapping_sub(8 * u64::from(words))) {
                Ok(value) => self.frame.regs.set(reg, value),
                Err(cause) => self.lose(reg, cause),
            }
        }
    }

    /// The register is lost from here on. A loss that was reported, and happens again for the same
    /// reason, is not reported again.
    #[cold]
    fn lose(&mut self, reg: Reg, cause: Reason) {
        let is_known = self.frame.lost.contains(&(reg, cause));
        self.frame.lose(reg, cause);
        if S::DETAIL && !is_known {
            self.sink.event(Event::RegisterLost {
                pc: self.frame.pc,
                reg,
                cause,
            });
        }
    }

    /// Applies any rule, in its full form; `second` permits it if it is the fallback's.
    #[inline(never)]
    fn step_generic(
        &mut self,
        address: u64,
        row: RowId,
        second: Option<&dyn Finder>,
        cache: &Cache,
    ) -> Result<(), Reason> {
        let rule = cache.rule(row);

        // The rule must be permitted by the table that it comes from.
        match second {
            Some(second) => second.permits(rule, self.frame.topmost)?,
            None => self.finder.permits(rule, self.frame.topmost)?,
        }

        // As the fast path does: the CFA is checked before memory is read, so that both end alike.
        self.advances(rule)?;

        let mapping = self.place.space.find(address);
        let image = mapping.and_then(|m| m.image.as_deref());
        // Expressions of a rule are offsets into the section of its table.
        let section = cache.source(row).table.section();
        let bytes = section.and_then(|kind| image?.section(kind));

        let context = apply::Context {
            memory: self.place.memory,
            expressions: bytes.map_or(&[], |s| &s.data[..]),
            bias: mapping.map_or(0, |m| m.bias),
            carries: self.finder.carries(),
        };

        let caller = apply::apply(rule, &self.frame, &context, &mut self.words)?;
        let (from, to) = (self.frame.regs.rsp(), caller.regs.rsp());
        // If the return address is in a register, it is not on the stack, so sp stays the same.
        let popped = to == from && caller.slot.is_none();
        if popped {
            self.visit(caller.pc.value(), from, to)?;
        }

        // Only a signal frame or an unusual rule may lead to another stack (`apply.rs`).
        if to <= from && !popped {
            if !caller.may_change_stack {
                return Err(Reason::SpDidNotAdvance { from, to });
            }
            self.change_stack(caller.pc.value(), from, to)?;
        }

        if S::DETAIL {
            self.tell_lost(&caller);
        }

        self.frame = caller;
        Ok(())
    }

    /// Checks that an ordinary rule's CFA is above sp before the rule reads anything; the fast path
    /// has the same check.
    fn advances(&self, rule: &Rule) -> Result<(), Reason> {
        let Value::Offset {
            base: Base::Reg(reg),
            offset,
        } = rule.cfa
        else {
            return Ok(());
        };
        let ordinary = rule.kind == RuleKind::Call
            && !rule.is_root(&self.frame.regs)
            && rule.ra == Value::at_cfa(-8)
            && rule.sp_is_cfa();
        let (from, base) = (self.frame.regs.rsp(), self.frame.regs.get(reg));
        let to = base.map(|base| base.wrapping_add(i64::from(offset) as u64));
        match to {
            Some(to) if ordinary && reg != Reg::Rip && to <= from => {
                Err(Reason::SpDidNotAdvance { from, to })
            }
            _ => Ok(()),
        }
    }

    /// Reports the registers that are lost from here on.
    #[cold]
    fn tell_lost(&mut self, caller: &Frame) {
        for &(reg, cause) in caller.lost.iter().filter(|l| !self.frame.lost.contains(l)) {
            let pc = self.frame.pc;
            self.sink.event(Event::RegisterLost { pc, reg, cause });
        }
    }

    /// Notes that the walk goes from this frame to (`pc`, `to`), although sp does not advance. Both
    /// must not have been there before, so that no frame is listed twice.
    fn visit(&mut self, pc: u64, from: u64, to: u64) -> Result<(), Reason> {
        let own = (self.frame.pc.value(), from);
        if !self.seen.contains(&own) {
            // There is room for it: each change adds two at most.
            let _ = self.seen.try_push(own);
        }
        if self.changes == STACK_CHANGES_MAX
            || self.seen.contains(&(pc, to))
            || self.seen.try_push((pc, to)).is_err()
        {
            return Err(Reason::Cycle { pc, sp: to });
        }
        self.changes += 1;
        Ok(())
    }

    fn change_stack(&mut self, pc: u64, from: u64, to: u64) -> Result<(), Reason> {
        self.visit(pc, from, to)?;
        if S::DETAIL {
            self.sink.event(Event::StackChanged { from, to });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
