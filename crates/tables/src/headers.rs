//! What only the headers of an ELF file know: its code, its imports and exports.

use crate::dynamic::Dynamic;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{
    Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
    SymbolTable,
};
use std::ops::Range;

/// The maximum number of imported names.
const IMPORTS_MAX: usize = 1 << 18;
/// The maximum length of a section's or an imported function's name, bytes.
const NAME_LEN_MAX: usize = 256;

type Symbols<'a> = SymbolTable<'a, elf::FileHeader64<LE>>;

/// A section with code.
#[derive(Clone, Debug)]
pub struct SectionRange {
    /// Its name, `.text`; empty for an executable segment of a file without section headers.
    pub name: String,
    /// Its addresses (svma).
    pub range: Range<u64>,
}

/// What only the headers know.
#[derive(Default)]
pub(crate) struct Headers {
    pub(crate) code: Vec<SectionRange>,
    pub(crate) entry: Option<u64>,
    pub(crate) is_program: bool,
    pub(crate) is_fixed: bool,
    pub(crate) imports: Vec<(u64, String)>,
    pub(crate) exports: Vec<u64>,
    pub(crate) sections: Vec<SectionRange>,
    pub(crate) untyped: Vec<Range<u64>>,
}

/// Whether the kernel or the loader starts the file at its entry, instead of only mapping it.
/// Libraries have an entry, too, which some linkers set to the start of `.text`.
fn is_program(header: &elf::FileHeader64<LE>, data: &[u8]) -> bool {
    let segments = header.program_headers(LE, data).unwrap_or(&[]);
    let is_pie = |segment: &elf::ProgramHeader64<LE>| {
        let entries = segment.dynamic(LE, data).ok().flatten().unwrap_or(&[]);
        let mut flags = entries.iter().filter(|e| e.tag(LE) == elf::DT_FLAGS_1);
        flags.any(|e| e.val(LE) & elf::DF_1_PIE.0 != 0)
    };
    header.e_type(LE) == elf::ET_EXEC
        || segments.iter().any(|s| s.p_type(LE) == elf::PT_INTERP)
        || segments.iter().any(is_pie)
}
/// The symbols around the table of static branches of a linked kernel (Linux
/// `include/asm-generic/vmlinux.lds.h`), and the name that its section has in objects.
const JUMP_TABLE: [&str; 3] = [
    "__start___jump_table",
    "__stop___jump_table",
    "__jump_table",
];

impl Headers {
    /// Reads as much as is readable: [`unwind_elf::read`] has reported what is not.
    pub(crate) fn read(data: &[u8]) -> Headers {
        let mut out = Headers::default();
        let Ok(header) = elf::FileHeader64::<LE>::parse(data) else {
            return out;
        };

        out.is_fixed = header.e_type(LE) == elf::ET_EXEC;
        out.entry = Some(header.e_entry(LE)).filter(|&entry| entry != 0);
        out.is_program = is_program(header, data);

        // Only a file without section headers: in others, sections say the same, below.
        if let Some(dynamic) = Dynamic::read(data) {
            out.read_imports(dynamic.relocations(), |rela| dynamic.symbol(rela));
            out.imports.sort_unstable();
        }

        let Ok(sections) = header.sections(LE, data) else {
            return out;
        };

        let code = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        // Stripping a file leaves `.dynsym`, with the functions that others may call.
        let dynamic = sections
            .symbols(LE, data, elf::SHT_DYNSYM)
            .unwrap_or_default();
        let defined = dynamic
            .iter()
            .filter(|s| s.st_type() == elf::STT_FUNC && s.st_shndx(LE) != elf::SHN_UNDEF);
        // A function without code has the address of what lies behind it.
        let defined = defined.filter(|s| s.st_size(LE) != 0);
        out.exports.extend(defined.map(|s| s.st_value(LE)));

        for section in sections.iter() {
            if section.sh_flags(LE).0 & elf::SHF_ALLOC.0 != 0 {
                let start = section.sh_addr(LE);
                let name = sections.section_name(LE, section).unwrap_or_default();
                // The name of a damaged file's section may be the rest of the file.
                let name = &name[..name.len().min(NAME_LEN_MAX)];
                let named = SectionRange {
                    name: String::from_utf8_lossy(name).into_owned(),
                    range: start..start.saturating_add(section.sh_size(LE)),
                };
                if section.sh_flags(LE).0 & code == code {
                    out.code.push(named.clone());
                }
                out.sections.push(named);
            }

            if section.sh_type(LE) == elf::SHT_RELA {
                let relocations = section.data_as_array(LE, data).unwrap_or(&[]);
                let name = |rela: &elf::Rela64<LE>| {
                    let symbol = dynamic.symbol(rela.symbol(LE, false)?).ok()?;
                    symbol.name(LE, dynamic.strings()).ok()
                };
                out.read_imports(relocations.iter(), name);
            }
        }

        for code in [&mut out.code, &mut out.sections] {
            code.retain(|code| !code.range.is_empty());
            code.sort_by_key(|code| code.range.start);
        }

        let all = sections.symbols(LE, data, elf::SHT_SYMTAB);
        out.read_symbols(&all.unwrap_or_default());
        out.imports.sort_unstable();
        out.imports.dedup_by_key(|i| i.0);
        out
    }

    /// Remembers code that is not a function, and where a kernel's static branches are.
    fn read_symbols(&mut self, symbols: &Symbols<'_>) {
        let [start, stop, name] = JUMP_TABLE;
        let mut bounds = [None; 2];
        for symbol in symbols.iter() {
            let (at, size) = (symbol.st_value(LE), symbol.st_size(LE));
            if symbol.st_type() != elf::STT_NOTYPE || symbol.st_shndx(LE) == elf::SHN_UNDEF {
                continue;
            }

            // `SYM_CODE_START` of the kernel's assembly: code that is not a function has a size,
            // but no type.
            if size > 0 && self.code.iter().any(|code| code.range.contains(&at)) {
                self.untyped.push(at..at.saturating_add(size));
            }
            let called = symbol.name(LE, symbols.strings()).unwrap_or_default();
            for (bound, wanted) in bounds.iter_mut().zip([start, stop]) {
                if called == wanted.as_bytes() {
                    *bound = Some(at);
                }
            }
        }
        self.untyped.sort_by_key(|range| (range.start, range.end));
        // A linked kernel has its static branches between these two symbols.
        if let [Some(start), Some(stop)] = bounds
            && start < stop
        {
            // Behind the others: it lies within one of them.
            self.sections.push(SectionRange {
                name: name.to_owned(),
                range: start..stop,
            });
        }
    }

    fn read_imports<'a>(
        &mut self,
        relocations: impl Iterator<Item = &'a elf::Rela64<LE>>,
        name: impl Fn(&elf::Rela64<LE>) -> Option<&'a [u8]>,
    ) {
        for rela in relocations {
            let kind = rela.r_type(LE, false);
            if kind != elf::R_X86_64_GLOB_DAT && kind != elf::R_X86_64_JUMP_SLOT {
                continue;
            }
            if let Some(name) = name(rela).filter(|n| !n.is_empty() && n.len() <= NAME_LEN_MAX)
                && self.imports.len() < IMPORTS_MAX
            {
                let name = String::from_utf8_lossy(name).into_owned();
                self.imports.push((rela.r_offset(LE), name));
            }
        }
    }
}
