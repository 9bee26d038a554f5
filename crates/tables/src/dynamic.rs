//! What the dynamic section says of a file that has no section headers: relocations, and the names of
//! symbols.
//!
//! Sources: System V gABI, "Dynamic Section" and "Relocation"; x86-64 psABI, "Relocation Types".

use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, Sym as _};
use object::{ReadRef as _, pod};

/// The size of a word, bytes.
const WORD: u64 = 8;
/// The number of words that a bitmap of `DT_RELR` is for.
const BITMAP: u64 = 63;

/// A dynamic section.
pub(crate) struct Dynamic<'a> {
    data: &'a [u8],
    segments: &'a [elf::ProgramHeader64<LE>],
    entries: &'a [elf::Dyn64<LE>],
}

impl<'a> Dynamic<'a> {
    /// That of the file in `data`, if it has one and no section headers.
    pub(crate) fn read(data: &'a [u8]) -> Option<Dynamic<'a>> {
        let header = elf::FileHeader64::<LE>::parse(data).ok()?;
        if header.e_shoff(LE) != 0 {
            return None;
        }
        let segments = header.program_headers(LE, data).ok()?;
        let mut dynamic = segments.iter();
        let dynamic = dynamic.find(|s| s.p_type(LE) == elf::PT_DYNAMIC)?;
        Some(Dynamic {
            data,
            segments,
            entries: dynamic.data_as_array(LE, data).ok()?,
        })
    }

    fn value(&self, tag: elf::DynamicTag) -> Option<u64> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.tag(LE) == tag)?;
        Some(entry.val(LE))
    }

    /// The bytes from `address` (svma) to the end of its segment.
    fn bytes(&self, address: u64) -> Option<&'a [u8]> {
        let loads = self.segments.iter();
        let mut loads = loads.filter(|s| s.p_type(LE) == elf::PT_LOAD);
        loads.find_map(|segment| {
            let skip = address.checked_sub(segment.p_vaddr(LE))?;
            let left = segment.p_filesz(LE).checked_sub(skip).filter(|&n| n > 0)?;
            let start = segment.p_offset(LE).checked_add(skip)?;
            let end = start.checked_add(left)?.min(self.data.len() as u64);
            self.data
                .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        })
    }

    fn array<T: pod::Pod>(&self, start: elf::DynamicTag, size: elf::DynamicTag) -> &'a [T] {
        let read = || {
            let (start, size) = (self.value(start)?, self.value(size)?);
            let count = size / size_of::<T>() as u64;
            let bytes = self.bytes(start)?;
            bytes.read_slice_at(0, usize::try_from(count).ok()?).ok()
        };
        read().unwrap_or(&[])
    }

    /// All relocations with addends.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = &'a elf::Rela64<LE>> {
        let all: &[elf::Rela64<LE>] = self.array(elf::DT_RELA, elf::DT_RELASZ);
        let of_plt: &[elf::Rela64<LE>] = self.array(elf::DT_JMPREL, elf::DT_PLTRELSZ);
        all.iter().chain(of_plt)
    }

    /// The words (svma) that packed relocations adjust.
    pub(crate) fn relr(&self) -> Vec<u64> {
        let packed: &[[u8; 8]] = self.array(elf::DT_RELR, elf::DT_RELRSZ);
        let mut out = Vec::new();
        let mut next: u64 = 0;
        for word in packed {
            let word = u64::from_le_bytes(*word);
            if word & 1 == 0 {
                out.push(word);
                next = word.wrapping_add(WORD);
                continue;
            }
            let set = (0..BITMAP).filter(|bit| word >> (bit + 1) & 1 != 0);
            out.extend(set.map(|bit| next.wrapping_add(bit * WORD)));
            next = next.wrapping_add(BITMAP * WORD);
        }
        out
    }

    /// The name of the symbol that a relocation is for.
    pub(crate) fn symbol(&self, relocation: &elf::Rela64<LE>) -> Option<&'a [u8]> {
        let index = relocation.symbol(LE, false)?;
        let size = size_of::<elf::Sym64<LE>>() as u64;
        let skip = (index.0 as u64).checked_mul(size)?;
        let at = self.value(elf::DT_SYMTAB)?.checked_add(skip)?;
        let symbol: &elf::Sym64<LE> = self.bytes(at)?.read_at(0).ok()?;
        let strings = self.value(elf::DT_STRTAB)?;
        let name = self.bytes(strings.checked_add(symbol.st_name(LE).into())?)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        Some(&name[..end])
    }
}
