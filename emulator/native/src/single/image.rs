//! Turns the driver into a file that the kernel can execute.

use super::layout::{DRIVER, DRIVER_SIZE, PAGE};
use super::{driver, setup};

/// Builds a static ELF executable of one readable and executable segment: the driver's code and
/// data. The headers are not part of the segment.
pub(super) fn image() -> Vec<u8> {
    let page = PAGE as usize;
    let mut memory = driver::code();
    assert!(memory.len() <= page, "the driver is one page of code");
    memory.resize(page, 0xcc);
    memory.extend(setup::data());
    assert!(memory.len() as u64 <= DRIVER_SIZE, "the driver's data fits");

    let mut file = Vec::with_capacity(page + memory.len());
    // The fields in the order of elf(5): ELF64, little-endian, ET_EXEC, EM_X86_64.
    file.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2_u16, 62].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    let (entry, header_size, program_header_size) = (DRIVER, 64_u16, 56_u16);
    for word in [entry, u64::from(header_size), 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    let counts = [header_size, program_header_size, 2, 64, 0, 0];
    file.extend(counts.into_iter().flat_map(u16::to_le_bytes));
    let size = memory.len() as u64;
    let mut segment = |kind: u32, flags: u32, rest: [u64; 6]| {
        file.extend([kind, flags].into_iter().flat_map(u32::to_le_bytes));
        file.extend(rest.into_iter().flat_map(u64::to_le_bytes));
    };
    segment(1, 5, [PAGE, DRIVER, DRIVER, size, size, PAGE]); // PT_LOAD, R X
    segment(0x6474_e551, 6, [0, 0, 0, 0, 0, 16]); // PT_GNU_STACK, R W
    file.resize(page, 0);
    file.extend(memory);
    file
}
