//! A quick test of right rules: nearly every frame of nearly every sample needs no more.

use crate::address::{CodeAddress, Lookup};
use crate::cache::Cache;
use crate::finder::Finder;
use crate::memory::Memory;
use crate::regs::{Reg, Regs, SAVED_RBP};
use crate::rule::Shape;
use crate::truth::{TrueFrame, Truth};
use crate::walk::WalkTarget;
use core::ops::Range;

/// The first of the true frames `range` of which it is not certain that the rule, applied to the
/// frame's true registers, gives exactly the true registers of its caller. `live` are the registers
/// of the innermost frame. The root has no caller and is not tested.
///
/// [`step`](super::step) must tell about a doubtful frame: the rule may be an uncommon one, or no
/// walk with this cache has looked it up in this space before.
pub fn first_doubt<F: Finder + ?Sized, M: Memory + ?Sized>(
    finder: &F,
    place: &WalkTarget<'_, M>,
    (truth, live): (&Truth, &Regs),
    range: Range<usize>,
    cache: &mut Cache,
) -> Option<usize> {
    let frames = truth.frames();
    // What an unwinder finds outside of text is for its walk, not for `step`.
    if finder.find_outside(cache).is_some() {
        return range.into_iter().next();
    }

    cache.select(place.space);
    let doubt = RowCheck {
        lookup: finder.lookup(),
        carried: Reg::CALLEE_SAVED.map(|reg| finder.carries().contains(reg)),
        memory: place.memory,
        cache,
    };

    let is_doubtful = |&index: &usize| {
        // Behind the root there is nothing that the rule could give.
        let (Some(this), Some(next)) = (frames.get(index), frames.get(index + 1)) else {
            return false;
        };

        let confirmed = match (index.checked_sub(1), this.saved) {
            // Only of the innermost frame are registers recorded; of the others the truth has what
            // was saved.
            (None, _) => {
                let frame = TrueFrameState {
                    pc: CodeAddress::Instruction(live.rip()),
                    rsp: live.rsp(),
                    saved: Reg::CALLEE_SAVED.map(|reg| live.get_or_zero(reg)),
                    known: Reg::CALLEE_SAVED.map(|reg| live.get(reg).is_some()),
                };
                live.get(Reg::Rsp).is_some() && doubt.confirms(&frame, this.cfa, next)
            }
            (Some(inner), Some(saved)) => {
                // After a return, rsp is the CFA of the frame that returned.
                let frame = TrueFrameState {
                    pc: this.address(),
                    rsp: frames[inner].cfa,
                    saved,
                    known: doubt.carried,
                };
                doubt.confirms(&frame, this.cfa, next)
            }
            // Without its registers, a frame's rule cannot be tested.
            (Some(_), None) => false,
        };

        !confirmed
    };

    let mut range = range;
    range.find(is_doubtful)
}

/// What is known of a true frame.
struct TrueFrameState {
    pc: CodeAddress,
    rsp: u64,
    /// In the order of [`Reg::CALLEE_SAVED`].
    saved: [u64; 6],
    known: [bool; 6],
}

struct RowCheck<'a, M: ?Sized> {
    lookup: Lookup,
    /// Which of [`Reg::CALLEE_SAVED`] are carried to the caller.
    carried: [bool; 6],
    memory: &'a M,
    cache: &'a Cache,
}

impl<M: Memory + ?Sized> RowCheck<'_, M> {
    /// Whether the rule for `frame` gives the caller `next`, with this CFA.
    #[inline]
    fn confirms(&self, frame: &TrueFrameState, cfa: u64, next: &TrueFrame) -> bool {
        let Some(hot) = self.cache.hot(frame.pc.lookup(self.lookup)) else {
            return false;
        };

        let base = match hot.packed.shape() {
            Shape::Rsp => frame.rsp,
            // With an rbp of zero, the frame may be the root.
            Shape::Rbp if frame.known[SAVED_RBP] && frame.saved[SAVED_RBP] != 0 => {
                frame.saved[SAVED_RBP]
            }
            Shape::Rbp | Shape::Generic => return false,
        };

        // A walk takes it for a return address, whatever it is by the truth.
        let address = CodeAddress::Return(next.pc).lookup(self.lookup);
        let is_caller = base.wrapping_add(hot.packed.cfa_offset()) == cfa
            && next.pc != 0
            && self.word(cfa, 1) == Some(next.pc)
            && address == next.address().lookup(self.lookup);

        is_caller
            && next.saved.is_none_or(|truth| {
                (0..truth.len()).all(|i| match hot.packed.slot(i) {
                    _ if !self.carried[i] => true,
                    // A register that the walk does not know is not a claim.
                    0 => frame.saved[i] == truth[i] || !frame.known[i],
                    words => self.word(cfa, words) == Some(truth[i]),
                })
            })
    }

    /// The word this many words below the CFA.
    #[inline]
    fn word(&self, cfa: u64, words: u8) -> Option<u64> {
        let address = cfa.wrapping_sub(8 * u64::from(words));
        self.memory.read_u64(address).ok()
    }
}
