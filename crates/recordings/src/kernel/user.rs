//! The user-space memory that a callchain needs: the stack from sp, and frames elsewhere. The
//! caller provides the function that reads it.

use crate::model::{Region, RegionRole};
use std::borrow::Cow;
use unwind_sim_unwind::kernel::{UserEnd, UserSpace, perf_callchain_user};
use unwind_sim_unwind::memory::{MemoryCopy, Regions};
use unwind_sim_unwind::regs::Reg;

/// Maximum bytes of the stack.
const STACK_MAX: u64 = 32 << 10;
/// Bytes per read; a read does not cross a page boundary.
const PAGE: u64 = 4096;
/// Maximum number of pieces besides the stack, and their size in bytes.
const PIECES_MAX: usize = 127;
const PIECE: u64 = 16;

/// The memory that walks of `space` read, as far as `read` provides it; bounded.
pub fn user_memory(
    space: &UserSpace,
    read: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Region<'static>> {
    let mut regions: Vec<Region<'static>> = Vec::new();
    let Some(regs) = &space.regs else {
        return regions;
    };

    // rsp may be anything, but words are read.
    let start = regs.get_or_zero(Reg::Rsp) & !7;
    let mut stack = Vec::with_capacity((STACK_MAX + PAGE) as usize);
    // Page by page, because any of them may be missing.
    while (stack.len() as u64) < STACK_MAX {
        let at = start.wrapping_add(stack.len() as u64);
        let Some(bytes) = read(at, (PAGE - at % PAGE) as usize) else {
            break;
        };
        stack.extend(bytes);
    }

    let region = |address, bytes| Region {
        role: RegionRole::User,
        bounds: 0..0,
        next_sp: 0,
        address,
        bytes: Cow::Owned(bytes),
    };

    if !stack.is_empty() {
        regions.push(region(start, stack));
    }

    // Each walk ends where memory is missing; that piece is read for the next one.
    for _ in 0..PIECES_MAX {
        let copies = regions.iter().map(|r| MemoryCopy::new(r.address, &r.bytes));
        let memory = Regions::new(copies.collect());
        let chain = perf_callchain_user(regs, space.uprobe, &memory, PIECES_MAX);
        let UserEnd::Fault(error) = chain.end else {
            break;
        };

        let at = error.address();
        let len = PIECE.min(PAGE - at % PAGE) as usize;
        let Some(bytes) = read(at, len).filter(|_| regions.len() <= PIECES_MAX) else {
            break;
        };
        regions.push(region(at, bytes));
    }

    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_unwind::regs::Regs;

    #[test]
    fn the_stack_is_taken_and_every_frame_elsewhere() {
        const SP: u64 = 0x7000_0ff0;
        // The frame at sp, a frame far away, and there the chain breaks.
        let words: [(u64, u64); 4] = [(SP, 0x9000), (SP + 8, 1), (0x9000, 0xa000), (0x9008, 2)];
        let byte = |at: u64| {
            let (_, word) = words.iter().find(|(a, _)| *a == at & !7)?;
            Some(word.to_le_bytes()[(at % 8) as usize])
        };
        let mut read = |at: u64, len: usize| (at..at + len as u64).map(byte).collect();
        let space = UserSpace {
            regs: Some(Regs::frame(0x40_0000, SP, SP)),
            ..UserSpace::default()
        };
        let regions = user_memory(&space, &mut read);
        let places: Vec<_> = regions.iter().map(|r| (r.address, r.bytes.len())).collect();
        assert_eq!(places, [(SP, 16), (0x9000, 16)]);
        assert!(regions.iter().all(|r| r.role == RegionRole::User));
        let nothing = UserSpace::default();
        assert!(user_memory(&nothing, &mut read).is_empty());
        // A frame that is its own caller ends the callchain.
        let mut same =
            |at: u64, len: usize| Some(at.to_le_bytes().repeat(len / 8 + 1)[..len].to_vec());
        let regions = user_memory(&space, &mut same);
        let bytes: usize = regions.iter().map(|r| r.bytes.len()).sum();
        assert!(bytes < 40 << 10, "{bytes}");
    }
}
