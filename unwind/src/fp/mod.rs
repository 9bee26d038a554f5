//! The frame-pointer unwinder. It uses no table, only the convention `push rbp; mov rbp, rsp`.
//!
//! It is right only where the convention holds: between the end of the prologue and the start of
//! the epilogue, in functions that keep a frame pointer.

use crate::cache::{Cache, NewRow, RowId, UnitKey};
use crate::finder::Finder;
use crate::image::Mapping;
use crate::reason::Reason;
use crate::regs::RegMask;
use crate::row::TableKind;
use crate::rule::Rule;

/// A finder that follows rbp until it is zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramePointer;

impl FramePointer {
    /// The only row, which covers every address.
    ///
    /// # Errors
    /// If the cache cannot store it.
    pub fn row(self, cache: &mut Cache) -> Result<RowId, Reason> {
        let key = UnitKey {
            table: TableKind::FramePointer,
            image: None,
            offset: 0,
            block: 0,
        };
        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            None => {
                let row = NewRow {
                    start: 0,
                    offset: 0,
                    rule: Rule::FRAME_POINTER,
                };
                cache.add_unit(key, 0..u64::MAX, [row], None)
            }
        };
        cache.find_row(unit, 0)
    }
}

impl Finder for FramePointer {
    fn name(&self) -> &str {
        "fp"
    }

    fn carries(&self) -> RegMask {
        RegMask::FRAME
    }

    fn find(&self, _: &Mapping, _: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.row(cache)
    }

    /// Skips by `bp < first_frame` (Linux `arch/x86/kernel/unwind_frame.c`, `__unwind_start`),
    /// where bp is the frame that the pc was read from: sp - 16.
    fn skips(&self, sp: u64, first_frame: u64) -> bool {
        sp.wrapping_sub(16) < first_frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use crate::image::AddressSpace;
    use crate::memory::MemoryCopy;
    use crate::regs::Regs;
    use crate::start::Start;
    use crate::walk::{Limits, WalkTarget, walk};
    use alloc::vec::Vec;

    #[test]
    fn frames_are_followed_by_rbp_to_a_zero_one() {
        // Two frames, each a saved rbp and a return address.
        let words = [0x7010u64, 0x1200, 0, 0x1300];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut space = AddressSpace::new();
        space.map(Mapping {
            range: 0x1000..0x2000,
            bias: 0,
            image: None,
            name: "text".into(),
        });

        let place = WalkTarget {
            space: &space,
            memory: &MemoryCopy::new(0x7000, &bytes),
        };
        let start = Start::from_regs(Regs::frame(0x1100, 0x7000, 0x7000));
        let (limits, mut cache, mut chain) = (Limits::default(), Cache::new(), Chain::default());

        let end = walk(
            &FramePointer,
            &place,
            &start,
            &limits,
            &mut cache,
            &mut chain,
        );

        // The last frame has a zero rbp, which marks the root.
        let pcs: Vec<_> = chain.frames.iter().map(|f| f.pc.value()).collect();
        assert_eq!(pcs, [0x1100, 0x1200, 0x1300]);
        assert_eq!(end.reason, Reason::RootReached);

        assert_eq!(FramePointer.carries(), RegMask::FRAME);
        assert_eq!(FramePointer.name(), "fp");
    }

    #[test]
    fn the_frame_at_the_mark_is_kept() {
        // The pc was read from the frame at sp - 16.
        assert!(FramePointer.skips(0x1000 + 15, 0x1000));
        assert!(!FramePointer.skips(0x1000 + 16, 0x1000));
    }
}
