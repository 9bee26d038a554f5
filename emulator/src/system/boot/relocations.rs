//! The relocations of a kernel that is moved: what its decompressor does to it.
//!
//! Source: `arch/x86/boot/compressed/misc.c` (`handle_relocations`) and `arch/x86/tools/relocs.c`
//! (`emit_relocs`), Linux 6.12. Behind the ELF file in the payload of a bzImage are lists of 32-bit
//! words, each preceded by a zero: words of 64 bits to which the slide is added, words of 32 bits from
//! which it is subtracted, and words of 32 bits to which it is added. The second list ended with Linux
//! 6.15. A word is the linked address of what is changed, without its upper half, which is all ones.

use super::error::{BootError, BootErrorKind};
use super::part;
use std::ops::Range;

/// `__START_KERNEL_map`: the virtual address at which the kernel has physical address 0.
const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// `CONFIG_PHYSICAL_ALIGN` of 64-bit kernels is at least this, bytes.
const ALIGN: u64 = 2 << 20;
/// `KERNEL_IMAGE_SIZE` with `CONFIG_RANDOMIZE_BASE`: the addresses that a kernel can have, bytes.
const RANGE: u64 = 1 << 30;
/// Size of an entry, bytes.
const ENTRY: usize = 4;

/// How a word changes when the kernel moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// The slide is added to 64 bits.
    Add64,
    /// The slide is subtracted from 32 bits.
    Subtract32,
    /// The slide is added to 32 bits.
    Add32,
}

/// The lists of a table, in their order.
const WITH_INVERSE: &[Change] = &[Change::Add64, Change::Subtract32, Change::Add32];
const WITHOUT_INVERSE: &[Change] = &[Change::Add64, Change::Add32];

/// Moves the kernel that is in `ram` at the physical addresses `kernel` by `slide`, bytes. Only its
/// virtual addresses change: a decompressor chooses both independently.
///
/// # Errors
/// If it cannot be moved so far, or `table` is malformed or absent.
pub(super) fn apply(
    table: Option<&[u8]>,
    slide: u64,
    kernel: &Range<u64>,
    ram: &mut [u8],
) -> Result<(), BootError> {
    if slide == 0 {
        return Ok(());
    }
    let end = kernel.end.checked_add(slide);
    if !slide.is_multiple_of(ALIGN) || end.is_none_or(|end| end > RANGE) {
        let most = RANGE.saturating_sub(kernel.end) / ALIGN * ALIGN;
        return Err(BootErrorKind::Slide { slide, most }.at("KASLR offset", slide));
    }
    let Some(table) = table else {
        return Err(BootErrorKind::NoRelocations.at("relocations", 0));
    };

    let malformed = |offset: usize| BootErrorKind::RelocationTable.at("relocations", offset as u64);
    let (entries, rest) = table.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return Err(malformed(table.len()));
    }

    // How many lists there are, the zeros say.
    let zeros = entries.iter().filter(|entry| **entry == [0; ENTRY]).count();
    let lists = match zeros {
        3 => WITH_INVERSE,
        2 => WITHOUT_INVERSE,
        _ => return Err(malformed(0)),
    };
    let mut lists = lists.iter();
    let mut change = None;

    for (index, entry) in entries.iter().enumerate() {
        let offset = index * ENTRY;
        let entry = u32::from_le_bytes(*entry);
        if entry == 0 {
            change = lists.next();
            continue;
        }
        let change = change.ok_or_else(|| malformed(offset))?;

        // Sign extended, less the start of the kernel's mapping.
        let address = (i64::from(entry as i32) as u64).wrapping_sub(START_KERNEL_MAP);
        if moved(*change, address, slide, kernel, ram).is_none() {
            return Err(BootErrorKind::Relocation(entry).at("relocations", offset as u64));
        }
    }
    Ok(())
}

/// Changes the word at a physical address. `None` if it is not in the kernel.
fn moved(
    change: Change,
    address: u64,
    slide: u64,
    kernel: &Range<u64>,
    ram: &mut [u8],
) -> Option<()> {
    let size = match change {
        Change::Add64 => 8,
        Change::Subtract32 | Change::Add32 => 4,
    };
    if address < kernel.start || address.checked_add(size)? > kernel.end {
        return None;
    }

    let target = part(ram, address, size)?;
    match change {
        Change::Add64 => {
            let word = u64::from_le_bytes(target.try_into().ok()?);
            target.copy_from_slice(&word.wrapping_add(slide).to_le_bytes());
        }
        // The slide is below 1 GiB.
        Change::Subtract32 => {
            let word = u32::from_le_bytes(target.try_into().ok()?);
            target.copy_from_slice(&word.wrapping_sub(slide as u32).to_le_bytes());
        }
        Change::Add32 => {
            let word = u32::from_le_bytes(target.try_into().ok()?);
            target.copy_from_slice(&word.wrapping_add(slide as u32).to_le_bytes());
        }
    }
    Some(())
}
