//! The loop for the common frames, which is all that a warm walk needs.

use super::{Origin, Walk};
use crate::address::{CodeAddress, Lookup};
use crate::cache::Cache;
use crate::chain::{How, Sink, Step, Word};
use crate::finder::Finder;
use crate::memory::Memory;
use crate::regs::{Reg, RegMask};
use crate::rule::Shape;

impl<F: Finder + ?Sized, M: Memory + ?Sized, S: Sink> Walk<'_, F, M, S> {
    /// Handles most frames of most walks: ip, sp and bp are carried, the rule is hot and common.
    /// Stops before any other frame, without having changed anything for it. `left` is the number
    /// of frames that may still be found.
    #[inline(never)]
    pub(super) fn glide(&mut self, left: &mut u32, lookup: Lookup, cache: &mut Cache) {
        let (Some(sp), Some(bp)) = (self.frame.regs.get(Reg::Rsp), self.frame.regs.get(Reg::Rbp))
        else {
            return;
        };
        let memory = self.place.memory;
        let before = *left;
        let (mut pc, mut sp, mut bp, mut slot) = (self.frame.pc, sp, bp, self.frame.slot);
        let (mut callers, sources) = cache.split();
        while *left > 0 {
            let address = pc.lookup(lookup);
            let Some((row, packed)) = callers.next(address) else {
                break;
            };
            let base = match packed.shape() {
                Shape::Rsp => sp,
                Shape::Rbp if bp != 0 => bp,
                _ => break,
            };
            let cfa = base.wrapping_add(packed.cfa_offset());
            let ra_slot = cfa.wrapping_sub(8);
            let bp_slot = cfa.wrapping_sub(8 * u64::from(packed.slot(1)));
            let saves_bp = bp_slot != cfa;
            let next_bp = match saves_bp {
                true => memory.read_u64(bp_slot),
                false => Ok(bp),
            };
            let (Ok(ra @ 1..), Ok(next_bp)) = (memory.read_u64(ra_slot), next_bp) else {
                break;
            };
            let skip = self
                .first_frame
                .is_some_and(|mark| self.finder.skips(sp, mark));
            if cfa <= sp || (S::DETAIL && skip) {
                break;
            }
            if !skip {
                let how = match S::DETAIL {
                    true => self.origin.how(&self.words, sources),
                    false => How::Start,
                };
                self.sink.frame(Step { pc, sp, slot, how });
            }
            if S::DETAIL {
                self.origin = Origin::Row(row, address, None);
                self.words.clear();
                self.words.push(Word {
                    address: ra_slot,
                    value: ra,
                });
                if saves_bp {
                    self.words.push(Word {
                        address: bp_slot,
                        value: next_bp,
                    });
                }
            }
            slot = Some(ra_slot);
            (pc, sp, bp) = (CodeAddress::Return(ra), cfa, next_bp);
            self.last = address;
            *left -= 1;
        }
        if *left < before {
            self.frame.regs.keep(RegMask::FRAME);
            self.frame.regs.set(Reg::Rbp, bp);
            self.frame.enter(pc, sp, slot);
        }
    }
}
