//! A kernel's ELF file: code, ORC sections and symbols, with or without section headers.

use super::error::KernelErrorKind;
use super::kallsyms;
use super::sections::CodeSection;
use super::symbols::KernelSymbols;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use std::ops::Range;
use unwind_sim_unwind::elf::{self as image_elf, Elf, ElfError};
use unwind_sim_unwind::image::{Bytes, Owner, Section, SectionKind};

/// Start of kernel addresses: above the canonical hole.
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Maximum number of code sections.
const CODE_SECTIONS_MAX: usize = 1024;
/// Maximum length of a symbol's name in `.symtab`, bytes.
const NAME_LEN_MAX: usize = 1024;

/// A kernel's ELF file.
pub(super) struct Vmlinux {
    /// The image's parts, initially without symbols.
    pub(super) elf: Elf,
    owner: Owner,
}

/// Is it the ELF file of a kernel, that is, does it have code at kernel addresses?
pub(super) fn is_kernel(elf: &Elf) -> bool {
    let code = elf.segments.iter().filter(|s| s.is_executable());
    let mut starts = code
        .map(|s| s.address)
        .chain(elf.parts.text.iter().map(|r| r.start));
    starts.any(|address| address >= KERNEL)
}

impl Vmlinux {
    /// Reads `file`.
    ///
    /// # Errors
    /// If it is not an x86-64 ELF file, or not a kernel.
    pub(super) fn read(name: &str, file: &Bytes) -> Result<Vmlinux, KernelErrorKind> {
        let owner: Owner = std::sync::Arc::new(Whole(file.clone()));
        // Symbols are read later, from one of several sources.
        let options = image_elf::ReadOptions {
            symbols: false,
            plt: false,
            producers: false,
        };

        let mut elf =
            image_elf::read(name, owner.clone(), &options).map_err(KernelErrorKind::Elf)?;
        if !is_kernel(&elf) {
            return Err(KernelErrorKind::NoKernelText);
        }

        let code = code_sections(&owner);
        if !code.is_empty() {
            // Segments cover more than code: that of .text includes .rodata, and that of .init.text
            // includes .init.data.
            elf.parts.text = code.iter().map(|(_, range, _)| range.clone()).collect();
            elf.parts.sections.retain(|s| s.kind != SectionKind::Text);
            for (_, range, file) in code {
                if let Some(data) = Bytes::new(owner.clone(), file) {
                    elf.parts.sections.push(Section {
                        kind: SectionKind::Text,
                        address: range.start,
                        data,
                    });
                }
            }
        }

        Ok(Vmlinux { elf, owner })
    }

    /// The bytes loaded at `range`, if one segment has all of them.
    pub(super) fn memory(&self, range: Range<u64>) -> Option<Bytes> {
        self.elf.segments.iter().find_map(|s| {
            let skip = range.start.checked_sub(s.address)?;
            let len = range.end.checked_sub(range.start)?;
            if skip.checked_add(len)? > s.file_size {
                return None;
            }
            let start = usize::try_from(s.offset.checked_add(skip)?).ok()?;
            let end = start.checked_add(usize::try_from(len).ok()?)?;
            Bytes::new(self.owner.clone(), start..end)
        })
    }

    /// The address and bytes of each segment.
    fn loaded(&self) -> impl Iterator<Item = (u64, Bytes)> {
        self.elf.segments.iter().filter_map(|s| {
            let start = usize::try_from(s.offset).ok()?;
            let end = usize::try_from(s.offset.checked_add(s.file_size)?).ok()?;
            let whole = (*self.owner).as_ref().len();
            let data = Bytes::new(self.owner.clone(), start..end.min(whole))?;
            Some((s.address, data))
        })
    }

    /// The kallsyms table in the image.
    pub(super) fn kallsyms(&self) -> Option<kallsyms::Found> {
        let text = &self.elf.parts.text;
        self.loaded()
            .find_map(|(address, data)| kallsyms::find(&data, address, text))
    }

    /// All symbols of `.symtab`.
    pub(super) fn symtab(&self) -> Option<KernelSymbols> {
        let data: &[u8] = (*self.owner).as_ref();
        let header = elf::FileHeader64::<LE>::parse(data).ok()?;
        let table = header.sections(LE, data).ok()?;
        let symbols = table.symbols(LE, data, elf::SHT_SYMTAB).ok()?;
        let strings = symbols.strings();
        let mut out = KernelSymbols::with_capacity(symbols.len(), 0);

        for symbol in symbols.iter() {
            let index = symbol.st_shndx(LE);
            let kind = symbol.st_type();
            // These name files and sections, not what is at an address.
            let is_file = kind == elf::STT_FILE || kind == elf::STT_SECTION;
            let name = symbol.name(LE, strings).ok().filter(|n| !n.is_empty());
            let name = name.filter(|n| n.len() <= NAME_LEN_MAX);
            let name = name.and_then(|n| std::str::from_utf8(n).ok());
            let Some(name) = name.filter(|_| index != elf::SHN_UNDEF && !is_file) else {
                continue;
            };

            // Letters as in System.map, which nm(1) writes: upper case is global.
            let section = table.section(object::SectionIndex(index.0.into())).ok();
            let code = section.is_some_and(|s| s.sh_flags(LE).0 & elf::SHF_EXECINSTR.0 != 0);
            let letter = if code { b't' } else { b'd' };
            let global = symbol.st_bind() != elf::STB_LOCAL;
            let letter = if global {
                letter.to_ascii_uppercase()
            } else {
                letter
            };

            if !out.push(symbol.st_value(LE), letter, name) {
                break;
            }
        }

        Some(out).filter(|symbols| !symbols.is_empty())
    }

    /// Adds ORC sections without a section header, from the symbols that mark their start and end.
    pub(super) fn add_orc(&mut self, symbols: &KernelSymbols) {
        // The symbols are defined by `include/asm-generic/vmlinux.lds.h`.
        let tables = [
            (
                SectionKind::OrcUnwind,
                "__start_orc_unwind",
                "__stop_orc_unwind",
            ),
            (
                SectionKind::OrcUnwindIp,
                "__start_orc_unwind_ip",
                "__stop_orc_unwind_ip",
            ),
            (
                SectionKind::OrcHeader,
                "__start_orc_header",
                "__stop_orc_header",
            ),
        ];

        for (kind, start, end) in tables {
            // What a section header says comes first.
            if self.elf.parts.sections.iter().any(|s| s.kind == kind) {
                continue;
            }
            let range = symbols.range(start, end);
            let found = range.and_then(|r| Some((r.start, self.memory(r)?)));
            if let Some((address, data)) = found {
                self.elf.parts.sections.push(Section {
                    kind,
                    address,
                    data,
                });
            }
        }
    }

    /// The `.BTF` section, from its section header or else from the symbols that mark its start and
    /// end.
    pub(super) fn btf(&self, symbols: &KernelSymbols) -> Option<Bytes> {
        let by_symbol = || self.memory(symbols.range("__start_BTF", "__stop_BTF")?);
        self.section(b".BTF").or_else(by_symbol)
    }

    fn section(&self, name: &[u8]) -> Option<Bytes> {
        let data: &[u8] = (*self.owner).as_ref();
        let header = elf::FileHeader64::<LE>::parse(data).ok()?;
        let table = header.sections(LE, data).ok()?;
        let (_, found) = table.section_by_name(LE, name)?;
        let (offset, size) = found.file_range(LE)?;
        let end = usize::try_from(offset.checked_add(size)?).ok()?;
        Bytes::new(self.owner.clone(), usize::try_from(offset).ok()?..end)
    }

    /// The sections with code that have headers. Linux 7.3 has `.data` among what is executable.
    pub(super) fn code_sections(&self) -> Vec<CodeSection> {
        let all = code_sections(&self.owner).into_iter();
        let all = all.filter(|(name, ..)| name != ".data");
        all.map(|(name, range, _)| CodeSection { name, range })
            .collect()
    }

    /// Sets the text ranges from `symbols`, unless section headers give them.
    pub(super) fn narrow_text(&mut self, symbols: &KernelSymbols) {
        if !code_sections(&self.owner).is_empty() {
            return;
        }
        let text = symbols.range("_stext", "_etext");
        let init = symbols.range("_sinittext", "_einittext");
        if let Some(text) = text {
            self.elf.parts.text = std::iter::once(text).chain(init).collect();
        }
    }
}

/// Adapts a file's bytes to an owner.
struct Whole(Bytes);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The sections with code: names, addresses and file offsets.
fn code_sections(owner: &Owner) -> Vec<(String, Range<u64>, Range<usize>)> {
    let data: &[u8] = (**owner).as_ref();
    let read = || -> Option<Vec<_>> {
        let header = elf::FileHeader64::<LE>::parse(data).ok()?;
        let table = header.sections(LE, data).ok()?;
        let wanted = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        let code = table.iter().filter(|s| s.sh_flags(LE).0 & wanted == wanted);
        let ranges = code.filter_map(|s| {
            let (offset, size) = s.file_range(LE).filter(|(_, size)| *size != 0)?;
            let start = s.sh_addr(LE);
            let from = usize::try_from(offset).ok()?;
            let to = usize::try_from(offset.checked_add(size)?).ok()?;
            let name = table.section_name(LE, s).ok()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some((name, start..start.checked_add(size)?, from..to))
        });
        Some(ranges.take(CODE_SECTIONS_MAX).collect())
    };
    read().unwrap_or_default()
}

/// The version in the kernel's banner, `Linux version 6.1.0-50-cloud-amd64 (...`.
pub(super) fn banner(bytes: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"Linux version ";
    const LEN_MAX: usize = 128;
    let rest = bytes.strip_prefix(BEFORE)?;
    let rest = &rest[..rest.len().min(LEN_MAX)];
    let end = rest.iter().position(|b| matches!(b, b' ' | 0))?;
    let word = std::str::from_utf8(&rest[..end]).ok()?;
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.to_owned())
}

impl Vmlinux {
    /// The kernel's version: from the banner's symbol, or else the first such text in the image.
    pub(super) fn version(&self, symbols: &KernelSymbols) -> Option<String> {
        const BANNER_LEN_MAX: u64 = 256;
        let by_symbol = symbols.address("linux_banner").and_then(|at| {
            let bytes = self.memory(at..at.checked_add(BANNER_LEN_MAX)?)?;
            banner(&bytes)
        });
        by_symbol.or_else(|| {
            self.loaded().find_map(|(_, data)| {
                let mut places = data.iter().enumerate().filter(|(_, b)| **b == b'L');
                places.find_map(|(at, _)| banner(&data[at..]))
            })
        })
    }
}

/// Takes the non-fatal problems of the ELF file.
pub(super) fn problems(elf: &mut Elf) -> Vec<ElfError> {
    std::mem::take(&mut elf.problems)
}
