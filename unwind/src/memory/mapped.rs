//! The memory of a process in mapped files: what a core holds, and pages of files that it omits.
//!
//! Nothing is copied. Which bytes lie where is decided by whoever builds it.

use super::{Memory, MemoryError};
use crate::image::Bytes;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Consecutive bytes of a process's memory.
#[derive(Clone, Debug)]
struct Extent {
    address: u64,
    bytes: Bytes,
}

impl Extent {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// Memory of a process, read in place; a word is found by binary search.
///
/// A core has it in its `PT_LOAD` segments, and each thread's registers in a note `NT_PRSTATUS`. The
/// package `unwind-sim-recordings` finds both in the file; a thread is then walked so:
///
/// ```
/// use unwind_sim_unwind::chain::Chain;
/// use unwind_sim_unwind::image::Bytes;
/// use unwind_sim_unwind::memory::MappedMemory;
/// use unwind_sim_unwind::pt_regs::regs_from;
/// use unwind_sim_unwind::{AddressSpace, Cache, FramePointer, Mapping, Stack, Start, Unwinder};
///
/// /// Offset of `pr_reg` in `struct elf_prstatus` (Linux `include/linux/elfcore.h`), bytes.
/// const PR_REG: usize = 112;
///
/// fn thread(prstatus: &[u8], memory: &MappedMemory, space: &AddressSpace) -> Chain {
///     let start = Start::from_regs(regs_from(&prstatus[PR_REG..]));
///     // Any other unwinder finds its tables in the images of the mappings.
///     FramePointer.walk(&Stack::new(&start, space, memory), &mut Cache::new())
/// }
///
/// let words: [u64; 4] = [0x7010, 0x401200, 0, 0x401300];
/// let stack = words.iter().flat_map(|word| word.to_le_bytes()).collect();
/// // The stack, and a segment that the walk does not touch.
/// let segments = [(0x7000, Bytes::from_vec(stack)), (0x60_0000, Bytes::from_vec(vec![0; 64]))];
/// let memory = MappedMemory::new(segments);
/// let mut space = AddressSpace::new();
/// space.map(Mapping { range: 0x400000..0x500000, bias: 0, image: None, name: "program".into() });
///
/// # use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, offset_of};
/// # use unwind_sim_unwind::Reg;
/// # let mut prstatus = vec![0; PR_REG + PT_REGS_LEN as usize];
/// # for (reg, value) in [(Reg::Rip, 0x401100u64), (Reg::Rsp, 0x7000), (Reg::Rbp, 0x7000)] {
/// #     let at = PR_REG + offset_of(reg) as usize;
/// #     prstatus[at..at + 8].copy_from_slice(&value.to_le_bytes());
/// # }
/// let chain = thread(&prstatus, &memory, &space);
/// let pcs: Vec<u64> = chain.frames.iter().map(|frame| frame.pc.value()).collect();
/// assert_eq!(pcs, [0x401100, 0x401200, 0x401300]);
/// ```
#[derive(Clone, Default)]
pub struct MappedMemory {
    /// Sorted by address, without overlaps, none empty.
    extents: Vec<Extent>,
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory in {} extents", self.extents.len())
    }
}

impl MappedMemory {
    /// Memory that consists of these bytes, each from an address on. Where two overlap, the one
    /// that starts lower is kept, and of two that start at the same address the first.
    pub fn new(extents: impl IntoIterator<Item = (u64, Bytes)>) -> MappedMemory {
        let extents = extents.into_iter();
        let mut extents: Vec<Extent> = extents
            .map(|(address, bytes)| Extent { address, bytes })
            .collect();
        extents.retain(|e| !e.bytes.is_empty());
        extents.sort_by_key(|e| e.address);
        let mut end = 0;
        extents.retain(|e| {
            let apart = e.address >= end;
            if apart {
                end = e.end();
            }
            apart
        });
        MappedMemory { extents }
    }

    /// The bytes from `address` to the end of the extent that holds it; empty if none does.
    #[inline]
    pub fn bytes_from(&self, address: u64) -> &[u8] {
        let at = self.extents.partition_point(|e| e.address <= address);
        let Some(extent) = at.checked_sub(1).and_then(|at| self.extents.get(at)) else {
            return &[];
        };
        let start = usize::try_from(address - extent.address).unwrap_or(usize::MAX);
        extent.bytes.get(start..).unwrap_or(&[])
    }

    /// The addresses of each extent, in ascending order.
    pub fn extents(&self) -> impl Iterator<Item = Range<u64>> {
        self.extents.iter().map(|e| e.address..e.end())
    }
}

impl Memory for MappedMemory {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        if let Some(word) = self.bytes_from(address).first_chunk::<8>() {
            return Ok(u64::from_le_bytes(*word));
        }
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// A read may cross from one extent into the next, if they adjoin.
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let (mut at, mut done) = (address, 0);
        while done < buf.len() {
            let bytes = self.bytes_from(at);
            let size = bytes.len().min(buf.len() - done);
            if size == 0 {
                return Err(MemoryError::Unmapped { address });
            }
            buf[done..done + size].copy_from_slice(&bytes[..size]);
            done += size;
            at = at.wrapping_add(size as u64);
        }
        Ok(())
    }

    fn stack_bounds(&self, sp: u64) -> Option<Range<u64>> {
        let at = self.extents.partition_point(|e| e.address <= sp);
        let extent = self.extents.get(at.checked_sub(1)?)?;
        (sp <= extent.end()).then(|| extent.address..extent.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn memory() -> MappedMemory {
        let filled = |byte: u8, len: usize| Bytes::from_vec(vec![byte; len]);
        MappedMemory::new([
            (0x3000, filled(3, 0x1000)),
            (0x1000, filled(1, 0x1000)),
            (0x2000, filled(2, 0x1000)),
            (0x2800, filled(9, 0x1000)),
            (0x7000, filled(7, 0)),
            (u64::MAX - 15, filled(8, 15)),
        ])
    }

    #[test]
    fn words_are_found_in_their_extent_and_across_adjoining_ones() {
        let memory = memory();
        let word = |address| memory.read_u64(address).ok();
        assert_eq!(word(0x1000), Some(0x0101_0101_0101_0101));
        assert_eq!(word(0x2ff8), Some(0x0202_0202_0202_0202));
        assert_eq!(word(0x1ffc), Some(0x0202_0202_0101_0101));
        assert_eq!(word(0x3ff8), Some(0x0303_0303_0303_0303));
        let mut long = [0; 0x1002];
        assert_eq!(memory.read(0x1fff, &mut long), Ok(()));
        assert_eq!((long[0], long[1], long[0x1001]), (1, 2, 3));
    }

    #[test]
    fn what_no_extent_holds_is_unmapped() {
        let memory = memory();
        for address in [0, 0xfff, 0x3ff9, 0x4000, 0x7000, u64::MAX - 7, u64::MAX] {
            let error = MemoryError::Unmapped { address };
            assert_eq!(memory.read_u64(address), Err(error), "{address:#x}");
        }
        assert!(memory.read_u64(u64::MAX - 15).is_ok());
        assert_eq!(MappedMemory::default().bytes_from(0x1000), b"");
    }

    #[test]
    fn an_extent_that_overlaps_a_lower_one_is_left_out() {
        let starts: Vec<u64> = memory().extents().map(|e| e.start).collect();
        assert_eq!(starts, [0x1000, 0x2000, 0x3000, u64::MAX - 15]);
        assert_eq!(memory().stack_bounds(0x1800), Some(0x1000..0x2000));
        assert_eq!(memory().stack_bounds(0x4001), None);
    }
}
