//! The fallback within a walk, used where the first table's rule fails.
//!
//! Addresses for which the first table has no rule are not handled here; the hot table remembers
//! those.

use super::{Origin, Walk};
use crate::cache::Cache;
use crate::chain::{End, Sink};
use crate::event::Event;
use crate::finder::Finder;
use crate::frame::Frame;
use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::Reg;

/// Replaces the table's own address in `reason` with the address in the process.
pub(super) fn in_process(reason: Reason, address: u64) -> Reason {
    match reason {
        Reason::NoRow { .. } => Reason::NoRow { pc: address },
        Reason::NoTable { .. } => Reason::NoTable { pc: address },
        Reason::NoImage { .. } => Reason::NoImage { pc: address },
        other => other,
    }
}

/// The fallback and its state.
pub(super) struct FallbackFinder<'a> {
    pub(super) finder: Option<&'a dyn Finder>,
    /// The callee of the current frame.
    inside: Option<Frame>,
    /// The first table's failure, if the current frame was found by the fallback.
    cause: Option<Reason>,
}

impl<'a> FallbackFinder<'a> {
    pub(super) fn new(finder: Option<&'a dyn Finder>) -> Self {
        FallbackFinder {
            finder,
            inside: None,
            cause: None,
        }
    }

    /// Remembers `frame`, whose caller is searched for next.
    pub(super) fn remember(&mut self, frame: &Frame) {
        self.inside = Some(frame.clone());
        self.cause = None;
    }
}

/// Whether another rule can help. It cannot at the end of the walk or at a limit.
const fn serves(cause: Reason) -> bool {
    !matches!(
        cause,
        Reason::RootReached | Reason::FrameLimit { .. } | Reason::Cycle { .. }
    )
}

impl<F: Finder + ?Sized, M: Memory + ?Sized, S: Sink> Walk<'_, F, M, S> {
    /// The current frame is not in text. If the first table found it, finds another caller of its
    /// callee with the fallback's rule.
    #[cold]
    #[inline(never)]
    pub(super) fn step_back(&mut self, not_text: Reason, cache: &mut Cache) -> Result<(), End> {
        if let Some(cause) = self.second.cause {
            return Err(End {
                fallback: Some(not_text),
                ..cause.into()
            });
        }
        let Some(inside) = self.second.inside.take() else {
            return Err(not_text.into());
        };
        let address = inside.pc.lookup(self.finder.lookup());
        self.frame = inside;
        self.fall_back(address, not_text, cache)
    }

    /// The first table's rule for `address` failed with `cause`: uses the fallback's rule.
    #[cold]
    #[inline(never)]
    pub(super) fn fall_back(
        &mut self,
        address: u64,
        cause: Reason,
        cache: &mut Cache,
    ) -> Result<(), End> {
        let is_first = cache.fallback_cause(address).is_none();
        let can_help = |f: &&dyn Finder| is_first && serves(cause) && f.serves_failures();
        let Some(second) = self.second.finder.filter(can_help) else {
            return Err(cause.into());
        };
        match self.step_by(second, address, cause, cache) {
            Ok(()) => Ok(()),
            Err(Reason::RootReached) => Err(Reason::RootReached.into()),
            Err(fallback) => Err(End {
                fallback: Some(in_process(fallback, address)),
                ..cause.into()
            }),
        }
    }

    fn step_by(
        &mut self,
        second: &dyn Finder,
        address: u64,
        cause: Reason,
        cache: &mut Cache,
    ) -> Result<(), Reason> {
        let mapping = self.place.space.find(address).ok_or(cause)?;
        let row = second.find(mapping, mapping.svma(address), cache)?;
        if let (None, Some(rbp)) = (self.frame.regs.get(Reg::Rbp), self.frame.popped_rbp) {
            self.frame.regs.set(Reg::Rbp, rbp);
        }
        if S::DETAIL {
            self.words.clear();
            let pc = self.frame.pc;
            self.sink.event(Event::Fallback { pc, cause });
            self.origin = Origin::Row(row, address, Some(cause));
        }
        self.step_generic(address, row, Some(second), cache)?;
        self.second.cause = Some(cause);
        Ok(())
    }
}
