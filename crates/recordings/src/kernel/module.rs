//! Kernel modules: relocatable objects (`.ko`), at their load addresses.
//!
//! In the file, the addresses of ORC entries are relocations (`R_X86_64_PC32`, one for each slot of
//! `.orc_unwind_ip`). They are applied here as the kernel's loader does. The loader then sorts the
//! table (`unwind_module_init`); here the table's reader does. Code is not relocated. `.init`
//! sections are freed after loading, so they and their ORC entries are omitted.

mod load;

pub use load::ModuleLoad;

use super::error::{KernelError, KernelErrorKind};
use super::orc::{EncodingSource, encoding};
use super::payload::{Compression, UNPACKED_MAX, unpack};
use super::whole;
use crate::input_file::InputFile;
use crate::printable::PrintableName as _;
use object::SectionIndex;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader, Rela as _, SectionHeader as _, SectionTable, Sym as _};
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::elf::symbol_rank;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::orc::{ENTRY_LEN, Encoding};

type Header = elf::FileHeader64<LE>;

/// Maximum length of a symbol's name, bytes.
const NAME_LEN_MAX: usize = 1024;

/// A loaded module.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its code, its symbols, and its ORC table in stored order.
    pub image: Arc<Image>,
    /// The addresses of its code, as loaded.
    pub range: Range<u64>,
    /// Load addresses minus addresses in `image`.
    pub bias: u64,
    /// The kernel version that it was built for (`vermagic` in `.modinfo`).
    pub version: Option<String>,
    /// The encoding of its ORC entries, and how it was determined. `None` without a table or if no
    /// encoding fits.
    pub encoding: Option<(Encoding, EncodingSource)>,
}

/// Reads a module: a `.ko`, optionally compressed with gzip, xz or zstd.
///
/// # Errors
/// If it cannot be read, is not a module, is damaged, or if `load` has no address for its code.
pub fn open_module(file: &InputFile, load: &ModuleLoad) -> Result<Module, KernelError> {
    module_from_bytes(&file.path().to_text(), whole(file)?, load)
}

/// Opens a module in memory. `name` is used for the image and in errors.
///
/// # Errors
/// See [`open_module`].
pub fn module_from_bytes(
    name: &str,
    bytes: Bytes,
    load: &ModuleLoad,
) -> Result<Module, KernelError> {
    let of = |what: KernelErrorKind| what.of(name);
    let compression = Compression::from_magic(&bytes).ok_or(KernelErrorKind::NotModule);
    let bytes = match compression.map_err(of)? {
        Compression::None => bytes,
        packed => unpack(&bytes, packed, 0, 0, UNPACKED_MAX).map_err(of)?,
    };
    read(name, &bytes, load).map_err(of)
}

/// Is it a module: an object with `.modinfo`, or a compressed file?
pub fn is_module(bytes: &[u8]) -> bool {
    match Compression::from_magic(bytes) {
        Some(Compression::None) => Header::parse(bytes).is_ok_and(|header| {
            let sections = header.sections(LE, bytes);
            header.e_type(LE) == elf::ET_REL
                && sections.is_ok_and(|s| s.section_by_name(LE, b".modinfo").is_some())
        }),
        // Only opening it shows what a compressed file contains.
        Some(Compression::Gzip | Compression::Xz | Compression::Zstd) => true,
        _ => false,
    }
}

/// A module's file, and the load addresses of its sections.
struct File<'a> {
    bytes: &'a Bytes,
    table: SectionTable<'a, Header>,
    /// Load address by section number.
    addresses: Vec<Option<u64>>,
}

fn read(name: &str, bytes: &Bytes, load: &ModuleLoad) -> Result<Module, KernelErrorKind> {
    let data: &[u8] = bytes;
    let header = Header::parse(data).map_err(|_| KernelErrorKind::NotModule)?;
    // A module is relocatable: it is linked when it is loaded.
    let is_module = header.e_type(LE) == elf::ET_REL && header.e_machine(LE) == elf::EM_X86_64;
    if !is_module || !header.is_little_endian() {
        return Err(KernelErrorKind::NotModule);
    }

    let cut = |section, offset| KernelErrorKind::Section {
        section,
        offset,
        what: "lies outside the file",
    };
    let table = header.sections(LE, data);
    let table = table.map_err(|_| cut("section headers", header.e_shoff(LE)))?;

    // In the file, all sections are at 0; they get the addresses at which they were loaded.
    let addresses = load::addresses(&table, load);
    let file = File {
        bytes,
        table,
        addresses,
    };

    let code = file.code();
    let start = code.iter().map(|(r, _)| r.start).min();
    let end = code.iter().map(|(r, _)| r.end).max();
    let range = start.zip(end).map(|(a, b)| a..b);
    // A few modules have only data.
    let range = range.ok_or(KernelErrorKind::NotLoaded)?;

    // Addresses in the image count from the start of the code.
    let bias = range.start;
    let mut parts = ImageParts {
        name: name.to_owned(),
        text: code
            .iter()
            .map(|(r, _)| r.start - bias..r.end - bias)
            .collect(),
        ..ImageParts::default()
    };

    for (range, data) in code {
        parts.sections.push(Section {
            kind: SectionKind::Text,
            address: range.start - bias,
            data,
        });
    }
    parts.sections.extend(file.orc(&range)?);
    parts.symbols = file.symbols(bias)?;

    // The layout of the entries depends on the version, which is in `vermagic`.
    let version = file.version();
    let encoding = encoding(&parts, version.as_deref(), None)?;

    Ok(Module {
        image: Arc::new(Image::new(parts)),
        range,
        bias,
        version,
        encoding,
    })
}

impl<'a> File<'a> {
    fn address(&self, section: SectionIndex) -> Option<u64> {
        self.addresses.get(section.0).copied().flatten()
    }

    /// The bytes of a section.
    fn bytes(
        &self,
        section: &elf::SectionHeader64<LE>,
        name: &'static str,
    ) -> Result<Bytes, KernelErrorKind> {
        let range = section.file_range(LE).and_then(|(offset, size)| {
            let start = usize::try_from(offset).ok()?;
            self.bytes
                .part(start..start.checked_add(usize::try_from(size).ok()?)?)
        });
        range.ok_or(KernelErrorKind::Section {
            section: name,
            offset: section.sh_offset(LE),
            what: "lies outside the file",
        })
    }

    /// The code with its load addresses.
    fn code(&self) -> Vec<(Range<u64>, Bytes)> {
        let sections = self.table.enumerate().filter_map(|(index, section)| {
            let start = self.address(index)?;
            let data = self.bytes(section, ".text").ok()?;
            let end = start.checked_add(data.len() as u64)?;
            Some((start..end, data))
        });
        sections.collect()
    }

    fn named(&self, name: &str) -> Option<(SectionIndex, &'a elf::SectionHeader64<LE>)> {
        self.table.section_by_name(LE, name.as_bytes())
    }

    /// The first word of `vermagic`.
    fn version(&self) -> Option<String> {
        let (_, section) = self.named(".modinfo")?;
        let data = self.bytes(section, ".modinfo").ok()?;
        let mut strings = data.split(|b| *b == 0);
        let magic = strings.find_map(|s| s.strip_prefix(b"vermagic="))?;
        let word = magic.split(|b| *b == b' ').next()?;
        Some(std::str::from_utf8(word).ok()?.to_owned())
    }

    /// The relocated ORC sections, without entries of code that is not loaded. They are placed
    /// after the code at `text`: their real address is unknown.
    fn orc(&self, text: &Range<u64>) -> Result<Vec<Section>, KernelErrorKind> {
        const IPS: &str = ".orc_unwind_ip";
        let (Some((ips_index, ips)), Some((_, entries))) =
            (self.named(IPS), self.named(".orc_unwind"))
        else {
            return Ok(Vec::new());
        };

        let wrong = |offset, what| KernelErrorKind::Section {
            section: IPS,
            offset,
            what,
        };

        let entries = self.bytes(entries, ".orc_unwind")?;
        let (entries, _) = entries.as_chunks::<ENTRY_LEN>();
        let count = self.bytes(ips, IPS)?.len() / 4;
        // Entry n of one section belongs to entry n of the other.
        if count != entries.len() {
            return Err(wrong(
                ips.sh_offset(LE),
                "number of addresses differs from number of entries",
            ));
        }

        let targets = self.targets(ips_index, count)?;
        let place = text.end.checked_next_multiple_of(4096).unwrap_or(text.end);
        let mut kept_ips = Vec::with_capacity(count * 4);
        let mut kept = Vec::with_capacity(count * ENTRY_LEN);

        for (target, entry) in targets.iter().zip(entries) {
            // Code that is not loaded, such as that of `.init.text`.
            let Some(target) = target else { continue };
            let slot = place.wrapping_add(kept_ips.len() as u64);
            // An entry is relative to its own address (`arch/x86/kernel/unwind_orc.c`, `orc_ip`).
            let relative = target.wrapping_sub(slot).cast_signed();
            let relative = i32::try_from(relative)
                .map_err(|_| wrong(ips.sh_offset(LE), "an address beyond 2 GiB"))?;
            kept_ips.extend_from_slice(&relative.to_le_bytes());
            kept.extend_from_slice(entry);
        }

        let address = place.wrapping_sub(text.start);
        let mut out = vec![
            section(SectionKind::OrcUnwindIp, address, Bytes::from_vec(kept_ips)),
            section(SectionKind::OrcUnwind, address, Bytes::from_vec(kept)),
        ];
        // Only newer kernels have it.
        if let Some((_, header)) = self.named(".orc_header") {
            let data = self.bytes(header, ".orc_header")?;
            out.push(section(SectionKind::OrcHeader, address, data));
        }

        Ok(out)
    }

    /// The load address that each slot of `.orc_unwind_ip` refers to; `None` if it is not loaded.
    fn targets(
        &self,
        ips: SectionIndex,
        count: usize,
    ) -> Result<Vec<Option<u64>>, KernelErrorKind> {
        let data: &[u8] = self.bytes;
        let symbols = self.table.symbols(LE, data, elf::SHT_SYMTAB);
        let symbols = symbols.map_err(|_| KernelErrorKind::Section {
            section: ".symtab",
            offset: 0,
            what: "cannot be read",
        })?;

        let mut out = vec![None; count];
        for section in self.table.iter() {
            let Ok(Some((relocations, _))) = section.rela(LE, data) else {
                continue;
            };
            // sh_info is the section that the relocations apply to (gABI, "Section Header").
            if section.info_link(LE) != ips {
                continue;
            }
            for rela in relocations {
                let wrong = |what| KernelErrorKind::Section {
                    section: ".rela.orc_unwind_ip",
                    offset: rela.r_offset(LE),
                    what,
                };

                if rela.r_type(LE, false) != elf::R_X86_64_PC32 {
                    return Err(wrong("a relocation that is not R_X86_64_PC32"));
                }

                let slot = usize::try_from(rela.r_offset(LE) / 4).ok();
                // A slot has four bytes.
                let slot = slot.filter(|_| rela.r_offset(LE) % 4 == 0);
                let slot = slot.and_then(|slot| out.get_mut(slot));
                let slot = slot.ok_or_else(|| wrong("a relocation that applies to no slot"))?;

                let symbol = rela.symbol(LE, false);
                let symbol = symbol.and_then(|index| symbols.symbol(index).ok());
                let symbol = symbol.ok_or_else(|| wrong("a relocation without a symbol"))?;
                let section = SectionIndex(symbol.st_shndx(LE).0.into());

                // S + A of the relocation. P is left out: the slots get their places later.
                *slot = self.address(section).map(|address| {
                    let offset = symbol.st_value(LE).wrapping_add(rela.r_addend(LE) as u64);
                    address.wrapping_add(offset)
                });
            }
        }
        Ok(out)
    }

    /// The code symbols.
    fn symbols(&self, bias: u64) -> Result<Vec<Symbol>, KernelErrorKind> {
        let data: &[u8] = self.bytes;
        let Ok(symbols) = self.table.symbols(LE, data, elf::SHT_SYMTAB) else {
            return Ok(Vec::new());
        };
        let strings = symbols.strings();
        let mut out = Vec::new();

        for symbol in symbols.iter() {
            // Labels in assembly code often have no type.
            let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_NOTYPE);
            let section = SectionIndex(symbol.st_shndx(LE).0.into());
            let Some(start) = self.address(section).filter(|_| is_code) else {
                continue;
            };

            let name = symbol.name(LE, strings).unwrap_or_default();
            if name.is_empty() || name.len() > NAME_LEN_MAX {
                continue;
            }

            // In a relocatable file, `st_value` is an offset in the section (gABI, "Symbol Table").
            let symbol_of = Symbol {
                address: start.wrapping_add(symbol.st_value(LE)).wrapping_sub(bias),
                size: symbol.st_size(LE),
                name: String::from_utf8_lossy(name).into_owned(),
            };
            out.push((symbol_rank(symbol), symbol_of));
        }

        // Of several names of an address, the first is the one that is shown.
        out.sort_by(|(a, one), (b, other)| {
            (one.address, a, &one.name).cmp(&(other.address, b, &other.name))
        });
        Ok(out.into_iter().map(|(_, symbol)| symbol).collect())
    }
}

fn section(kind: SectionKind, address: u64, data: Bytes) -> Section {
    Section {
        kind,
        address,
        data,
    }
}
