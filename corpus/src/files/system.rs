//! Images that are in memory: this process's own vdso, and those that a caller read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, Elf, ElfError};
use unwind_sim_unwind::image::Owner;

/// Larger than any vdso, bytes.
const VDSO_SIZE_MAX: u64 = 1 << 20;
/// Size of the ELF header, bytes.
const HEADER: usize = 64;

/// The bytes of the vdso that the kernel gave to this process; `None` on other systems.
pub(super) fn own_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let size = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let mut bytes = vec![0; usize::try_from(size.min(VDSO_SIZE_MAX)).ok()?];
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(start)).ok()?;
    memory.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads an image that lies in memory as its segments were mapped.
///
/// The vdso lies there as its file would. Of another image only segments are to be had, each at
/// its address: program headers are rewritten so that file offsets are addresses, and section
/// headers, which are not mapped, are left out.
pub(super) fn read_memory_image(
    name: &str,
    memory: Owner,
    options: &elf::Options,
) -> Result<Elf, ElfError> {
    let as_file = elf::read(name, memory.clone(), options);
    match as_file {
        Ok(elf) if elf.problems.is_empty() => Ok(elf),
        as_file => match rewritten((*memory).as_ref()) {
            Some(bytes) => elf::read(name, Arc::new(bytes), options),
            None => as_file,
        },
    }
}

/// A copy whose program headers have `p_offset` = `p_vaddr` - the lowest address.
fn rewritten(memory: &[u8]) -> Option<Vec<u8>> {
    const PT_LOAD: u32 = 1;
    const PROGRAM_HEADER: usize = 56;
    let header = memory.get(..HEADER)?;
    let half = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let word = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if header.get(..5)? != b"\x7fELF\x02" || usize::from(half(54)?) != PROGRAM_HEADER {
        return None;
    }
    let start = usize::try_from(word(header, 32)?).ok()?;
    let end = start.checked_add(PROGRAM_HEADER.checked_mul(half(56)?.into())?)?;
    let table = memory.get(start..end)?;
    let loads = table
        .as_chunks::<PROGRAM_HEADER>()
        .0
        .iter()
        .filter(|p| p[..4] == PT_LOAD.to_le_bytes());
    let base = loads.filter_map(|p| word(p, 16)).min()? & !0xfff;
    let mut out = memory.to_vec();
    for p in out.get_mut(start..end)?.chunks_exact_mut(PROGRAM_HEADER) {
        let address = word(p, 16)?;
        p[8..16].copy_from_slice(&address.wrapping_sub(base).to_le_bytes());
    }
    // e_shoff, e_shnum, e_shstrndx
    out.get_mut(40..48)?.fill(0);
    out.get_mut(60..64)?.fill(0);
    Some(out)
}
