//! The program that the process of a [`super::Stepper`] starts with: one page of code.

use std::ops::Range;

/// Addresses of that page, where no program is loaded unless it asks for it.
pub(super) const PAGE: Range<u64> = 0x3333_0000_0000..0x3333_0000_1000;
/// `syscall; int3`, for our own system calls.
pub(super) const SYSCALL: u64 = PAGE.start;
/// `add $1, %rax; jmp SPIN`: an endless loop to step, which needs no memory.
pub(super) const SPIN: u64 = PAGE.start + 16;

const SYSCALL_CODE: [u8; 3] = [0x0f, 0x05, 0xcc];
const SPIN_CODE: [u8; 6] = [0x48, 0x83, 0xc0, 0x01, 0xeb, 0xfa];

/// Builds a static ELF executable of one segment. Its headers are not part of the segment.
pub(super) fn image() -> Vec<u8> {
    let size = PAGE.end - PAGE.start;
    let mut file = Vec::with_capacity(2 * size as usize);

    // The fields in the order of elf(5): ELF64, little-endian, ET_EXEC, EM_X86_64.
    file.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2_u16, 62].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    let header_size = 64_u16;
    let words = [PAGE.start, u64::from(header_size), 0];
    file.extend(words.into_iter().flat_map(u64::to_le_bytes));
    file.extend(0_u32.to_le_bytes());
    let counts = [header_size, 56, 2, 64, 0, 0];
    file.extend(counts.into_iter().flat_map(u16::to_le_bytes));

    let mut segment = |kind: u32, flags: u32, rest: [u64; 6]| {
        file.extend([kind, flags].into_iter().flat_map(u32::to_le_bytes));
        file.extend(rest.into_iter().flat_map(u64::to_le_bytes));
    };
    segment(1, 5, [size, PAGE.start, PAGE.start, size, size, size]); // PT_LOAD, R X
    segment(0x6474_e551, 6, [0, 0, 0, 0, 0, 16]); // PT_GNU_STACK, R W

    let code = size as usize;
    file.resize(2 * code, 0xcc);
    file[code..code + SYSCALL_CODE.len()].copy_from_slice(&SYSCALL_CODE);

    let spin = code + (SPIN - PAGE.start) as usize;
    file[spin..spin + SPIN_CODE.len()].copy_from_slice(&SPIN_CODE);
    file
}
