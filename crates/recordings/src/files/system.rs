//! Images in memory: this process's own vdso, and memory read by a caller.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, Elf, ElfError};
use unwind_sim_unwind::image::Owner;

/// Maximum size of a vdso, bytes; real ones are smaller.
const VDSO_SIZE_MAX: u64 = 1 << 20;
/// Size of the ELF header, bytes.
const HEADER: usize = 64;

/// The bytes of this process's vdso; `None` on other systems.
pub fn own_vdso() -> Option<Vec<u8>> {
    const AT_SYSINFO_EHDR: u64 = 33;
    // Read at once: it has about 20 entries of 16 bytes.
    let mut vector = [0; 1024];
    let length = File::open("/proc/self/auxv").ok()?.read(&mut vector).ok()?;
    let word = |word: &[u8; 8]| u64::from_le_bytes(*word);
    let words: Vec<u64> = vector[..length].as_chunks().0.iter().map(word).collect();
    let mut entries = words.as_chunks().0.iter();
    let [_, start] = *entries.find(|[kind, _]| *kind == AT_SYSINFO_EHDR)?;
    let memory = File::open("/proc/self/mem").ok()?;
    let mut header = [0; HEADER];
    memory.read_exact_at(&mut header, start).ok()?;
    // The section headers are at its end.
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let sections = u64::from_le_bytes(*header[40..].first_chunk()?);
    let size = sections.checked_add(u16_at(58) * u16_at(60))?;
    let mut bytes = vec![0; usize::try_from(size.min(VDSO_SIZE_MAX)).ok()?];
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// Reads an image from memory, laid out as its segments were mapped.
///
/// A vdso is laid out like its file. Of other images, memory has only the segments, at their
/// addresses: program headers are rewritten so that file offsets equal addresses, and section
/// headers, which are not mapped, are dropped. Offsets alone mislead: linkers before binutils 2.31 put
/// the data segment 2 MiB further on, so that a file of less than that fits into its gap.
pub(super) fn read_memory_image(
    name: &str,
    memory: Owner,
    options: &elf::ReadOptions,
) -> Result<Elf, ElfError> {
    let as_file = elf::read(name, memory.clone(), options);
    match as_file {
        Ok(elf) if elf.problems.is_empty() && is_laid_out_like_file(&elf) => Ok(elf),
        as_file => match rewritten((*memory).as_ref()) {
            Some(bytes) => elf::read(name, Arc::new(bytes), options),
            None => as_file,
        },
    }
}

/// Whether all segments are as far from each other in memory as in the file.
fn is_laid_out_like_file(elf: &Elf) -> bool {
    let mut distances = elf
        .segments
        .iter()
        .map(|s| s.address.wrapping_sub(s.offset));
    let first = distances.next();
    distances.all(|distance| Some(distance) == first)
}

/// A copy whose program headers have `p_offset` = `p_vaddr` - the lowest address.
fn rewritten(memory: &[u8]) -> Option<Vec<u8>> {
    const PT_LOAD: u32 = 1;
    const PROGRAM_HEADER: usize = 56;

    let header = memory.get(..HEADER)?;
    let half = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let word = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));

    // A file of 64 bits. In its header, e_phoff is at 32, e_phentsize at 54 and e_phnum at 56.
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
    // In memory, a segment is at its address and not at its place in the file.
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
