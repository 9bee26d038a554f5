//! An ELF file, as far as its unwind tables and code need it.

use crate::pointers;
use crate::relocatable::{self, ObjectError};
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{
    Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _,
    SymbolTable,
};
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::elf::unpack::UnpackError;
use unwind_sim_unwind::elf::{self as unwind_elf, ElfError, ElfErrorKind, ReadOptions};
use unwind_sim_unwind::image::{Bytes, Image, Owner, SectionKind, Symbol};

/// The maximum number of imported names.
const IMPORTS_MAX: usize = 1 << 18;
/// The maximum length of a section's or an imported function's name, bytes.
const NAME_LEN_MAX: usize = 256;

/// The sections that are unwind tables.
const TABLES: [SectionKind; 4] = [
    SectionKind::EhFrame,
    SectionKind::DebugFrame,
    SectionKind::Sframe,
    SectionKind::OrcUnwind,
];

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not an ELF file that has code.
    #[error("{name}: {error}")]
    Elf {
        /// The file's name.
        name: String,
        /// What is wrong, and where.
        error: ElfError,
    },
    /// It is a damaged relocatable object.
    #[error("{name}: {error}")]
    Object {
        /// The file's name.
        name: String,
        /// What is wrong, and where.
        error: ObjectError,
    },
}

/// A part of the program's memory with bytes from the file.
#[derive(Clone, Debug)]
pub struct Area {
    /// Address (svma).
    pub address: u64,
    /// The bytes; memory that starts as zeros is left out.
    pub bytes: Bytes,
    /// Whether the program can write to it.
    pub is_writable: bool,
}

/// A section with code.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its name, `.text`; empty for an executable segment of a file without section headers.
    pub name: String,
    /// Its addresses (svma).
    pub range: Range<u64>,
}

/// An open ELF file.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    image: Arc<Image>,
    areas: Vec<Area>,
    code: Vec<Code>,
    entry: Option<u64>,
    is_program: bool,
    /// The words that the loader fills with addresses of this file: where, and with what.
    pointers: Vec<(u64, u64)>,
    /// Whether the loader puts it where its headers say.
    is_fixed: bool,
    /// The words that the loader fills with addresses of functions of other files, and their names;
    /// in a relocatable object, the words of code that the linker fills.
    imports: Vec<(u64, String)>,
    /// The functions that other files can call.
    exports: Vec<u64>,
    /// The sections in memory, by address.
    sections: Vec<Code>,
    /// Whether it is a relocatable object, whose addresses are made up.
    is_relocatable: bool,
    /// Sized symbols without a type in sections with code.
    untyped: Vec<Range<u64>>,
    /// The words of `.discard` sections of a relocatable object, and what they refer to.
    notes: Vec<(u64, u64)>,
    /// Compressed tables that could not be unpacked, and are not in the image.
    unpack_errors: Vec<UnpackError>,
    /// Tables whose section has no bytes.
    empty: Vec<SectionKind>,
    /// Whether it is an ELF file with all its data, and not an image's parts.
    is_whole: bool,
}

impl File {
    /// Reads the file in `owner`, which errors call `name`. The sections of a relocatable object
    /// get addresses (see [`File::place`]), and its relocations are applied.
    ///
    /// # Errors
    /// If it is not an x86-64 executable, shared object or relocatable object, or is damaged where
    /// that matters.
    pub fn read(name: &str, owner: Owner) -> Result<File, FileError> {
        let wrong = |error| FileError::Elf {
            name: name.to_owned(),
            error,
        };
        let options = ReadOptions {
            producers: true,
            ..ReadOptions::default()
        };
        let mut read = match unwind_elf::read(name, owner.clone(), &options) {
            Err(error) if error.what == ElfErrorKind::Relocatable => {
                return File::read_object(name, &owner);
            }
            read => read.map_err(wrong)?,
        };
        let unpack_errors = read.unpack();
        let mut areas = Vec::new();
        for segment in &read.segments {
            let start = usize::try_from(segment.offset).ok();
            let size = segment.file_size.min(segment.memory_size);
            let end = start.and_then(|s| s.checked_add(usize::try_from(size).ok()?));
            let Some((start, end)) = start.zip(end) else {
                continue;
            };
            let end = end.min((*owner).as_ref().len());
            if let Some(bytes) = Bytes::new(owner.clone(), start..end.max(start)) {
                areas.push(Area {
                    address: segment.address,
                    bytes,
                    is_writable: segment.flags & elf::PF_W.0 != 0,
                });
            }
        }
        areas.sort_by_key(|area| area.address);
        let data: &[u8] = (*owner).as_ref();
        let headers = Headers::read(data);
        let mut code = headers.code;
        if code.is_empty() {
            let texts = read.parts.text.iter();
            code.extend(texts.map(|range| Code {
                name: String::new(),
                range: range.clone(),
            }));
        }
        let word = |at| Some(u64::from_le_bytes(*bytes_at(&areas, at).first_chunk()?));
        let is_code = |at| code.iter().any(|c| c.range.contains(&at));
        let pointers = pointers::read(data, word, is_code);
        Ok(File {
            name: name.to_owned(),
            unpack_errors,
            empty: std::mem::take(&mut read.empty),
            image: Arc::new(read.into_image()),
            areas,
            code,
            entry: headers.entry,
            is_program: headers.is_program,
            pointers,
            is_fixed: headers.is_fixed,
            imports: headers.imports,
            exports: headers.exports,
            sections: headers.sections,
            is_relocatable: false,
            untyped: headers.untyped,
            notes: Vec::new(),
            is_whole: true,
        })
    }

    /// The file of an image: if the image was made from an ELF file in memory, all of that, or else
    /// only what the image has, which may be parts of the code and none of its data.
    pub fn of_image(image: &Arc<Image>) -> File {
        let texts = image.sections().iter();
        let mut texts = texts.filter(|s| s.kind == SectionKind::Text);
        let owner = texts.find_map(|section| {
            let owner = section.data.owner();
            let is_elf = (**owner).as_ref().starts_with(&elf::ELFMAG);
            is_elf.then(|| owner.clone())
        });
        let whole = owner.and_then(|owner| File::read(image.name(), owner).ok());
        // The image may have symbols and tables of a separate debug file.
        let whole = whole
            .filter(|file| !file.is_relocatable() && file.image.build_id() == image.build_id());
        if let Some(file) = whole {
            let image = image.clone();
            return File { image, ..file };
        }
        let sections = image.sections().iter().filter(|s| !s.data.is_empty());
        let mut areas: Vec<Area> = sections
            .map(|section| Area {
                address: section.address,
                bytes: section.data.clone(),
                is_writable: false,
            })
            .collect();
        areas.sort_by_key(|area| area.address);
        let texts = image.text().iter().filter(|range| !range.is_empty());
        let code = texts.map(|range| Code {
            name: String::new(),
            range: range.clone(),
        });
        File {
            name: image.name().to_owned(),
            image: image.clone(),
            areas,
            code: code.collect(),
            entry: None,
            pointers: Vec::new(),
            imports: Vec::new(),
            exports: Vec::new(),
            is_program: false,
            is_fixed: false,
            sections: Vec::new(),
            is_relocatable: false,
            untyped: Vec::new(),
            notes: Vec::new(),
            unpack_errors: Vec::new(),
            empty: Vec::new(),
            is_whole: false,
        }
    }

    fn read_object(name: &str, owner: &Owner) -> Result<File, FileError> {
        let object = relocatable::read(name, owner).map_err(|error| FileError::Object {
            name: name.to_owned(),
            error,
        })?;
        let image = Image::new(object.parts);
        let kinds = TABLES.into_iter();
        let is_empty = |kind: &SectionKind| {
            let section = image.section(*kind);
            section.is_some_and(|section| section.data.is_empty())
        };
        Ok(File {
            name: name.to_owned(),
            empty: kinds.filter(is_empty).collect(),
            image: Arc::new(image),
            areas: object.areas,
            code: object.code,
            entry: None,
            is_program: false,
            pointers: object.pointers,
            is_fixed: false,
            exports: Vec::new(),
            imports: object.imports,
            sections: object.sections,
            is_relocatable: true,
            untyped: object.untyped,
            notes: object.notes,
            unpack_errors: Vec::new(),
            is_whole: true,
        })
    }

    /// Whether it has all the data of its ELF file: see [`File::of_image`].
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether it is a relocatable object, whose addresses are made up.
    pub fn is_relocatable(&self) -> bool {
        self.is_relocatable
    }

    /// The section of a relocatable object that has `address`, and the offset in it. `None` in a
    /// program, and for addresses between two sections. The end of a section belongs to it.
    pub fn place(&self, address: u64) -> Option<(&str, u64)> {
        if !self.is_relocatable {
            return None;
        }
        let after = self.sections.partition_point(|s| s.range.start <= address);
        let section = self.sections.get(after.checked_sub(1)?)?;
        let offset = address.checked_sub(section.range.start)?;
        (address <= section.range.end).then_some((section.name.as_str(), offset))
    }

    /// Compressed tables that could not be unpacked, and are not in the image.
    pub fn unpack_errors(&self) -> &[UnpackError] {
        &self.unpack_errors
    }

    /// Tables whose section has no bytes: they describe no function, and are not malformed.
    pub fn empty_tables(&self) -> &[SectionKind] {
        &self.empty
    }

    /// The name that it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tables, text and symbols.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Its sections with code, by address.
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// The section with the code at `address`.
    pub fn code_at(&self, address: u64) -> Option<&Code> {
        let after = self.code.partition_point(|c| c.range.start <= address);
        let code = self.code.get(after.checked_sub(1)?)?;
        code.range.contains(&address).then_some(code)
    }

    /// Where the program starts (svma); `None` for a shared object without an entry point.
    pub fn entry(&self) -> Option<u64> {
        self.entry
    }

    /// The entry point (svma) of a program: nothing calls the code there, so it has no return
    /// address. `None` for a library.
    pub fn start(&self) -> Option<u64> {
        self.entry.filter(|_| self.is_program)
    }

    /// The bytes from `address` (svma) to the end of its area; empty if the file has none there.
    pub fn bytes(&self, address: u64) -> &[u8] {
        bytes_at(&self.areas, address)
    }

    /// The ends (svma) of its areas and sections.
    pub fn area_ends(&self) -> impl Iterator<Item = u64> {
        let areas = self
            .areas
            .iter()
            .map(|a| a.address.saturating_add(a.bytes.len() as u64));
        areas.chain(self.sections.iter().map(|section| section.range.end))
    }

    /// The bytes from every `align`th byte of its areas to their ends.
    pub fn places(&self, align: usize) -> impl Iterator<Item = &[u8]> {
        let areas = self.areas.iter().map(|area| &area.bytes[..]);
        areas.flat_map(move |bytes| (0..bytes.len()).step_by(align).map(|at| &bytes[at..]))
    }

    /// Whether the program can change the word at `address` (svma).
    pub fn is_writable(&self, address: u64) -> bool {
        let after = self.areas.partition_point(|a| a.address <= address);
        after
            .checked_sub(1)
            .is_some_and(|i| self.areas[i].is_writable)
    }

    /// The address (svma) that the loader puts into the word at `address`, or the word in the file
    /// if it leaves it alone.
    pub fn pointer(&self, address: u64) -> Option<u64> {
        match self.pointers.binary_search_by_key(&address, |p| p.0) {
            Ok(i) => Some(self.pointers[i].1),
            Err(_) => {
                let word = self.bytes(address).first_chunk()?;
                Some(u64::from_le_bytes(*word))
            }
        }
    }

    /// All words that the loader fills with addresses of this file: where, and with what (svma).
    pub fn pointers(&self) -> &[(u64, u64)] {
        &self.pointers
    }

    /// Whether the program is linked to fixed addresses. Then no relocation says which words hold
    /// addresses: one in [`File::pointers`] may be a number or text as well.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The names of the function that starts at `address` (svma).
    pub fn names_at(&self, address: u64) -> impl Iterator<Item = &str> {
        let symbols = self.image.symbols();
        let first = symbols.partition_point(|s| s.address < address);
        let here = symbols[first..].iter();
        here.take_while(move |s| s.address == address)
            .map(|s| s.name.as_str())
    }

    /// The name of the function of another file whose address the loader puts into the word at
    /// `address` (svma). In a relocatable object: the name of the symbol of another object whose
    /// address or distance the linker puts into the word of code at `address`.
    pub fn import(&self, address: u64) -> Option<&str> {
        let found = self.imports.binary_search_by_key(&address, |i| i.0);
        found.ok().map(|i| self.imports[i].1.as_str())
    }

    /// The addresses (svma) of the functions that other files can call.
    pub fn exports(&self) -> &[u64] {
        &self.exports
    }

    /// The addresses (svma) of the section `name`. A linked kernel has its `__jump_table` within
    /// another section, between two symbols.
    pub fn section_range(&self, name: &str) -> Option<Range<u64>> {
        let mut sections = self.sections.iter();
        let found = sections.find(|section| section.name == name);
        found.map(|section| section.range.clone())
    }

    /// The addresses (svma) of the symbols in sections with code that have a size, but no type:
    /// assembly that is not a function, by address.
    pub fn untyped(&self) -> &[Range<u64>] {
        &self.untyped
    }

    /// The words between these addresses (svma) of a `.discard` section of a relocatable object, and
    /// what each refers to (svma). Such sections tell objtool about the code; linking drops them.
    pub fn notes(&self, range: &Range<u64>) -> &[(u64, u64)] {
        let place = |address| self.notes.partition_point(|note| note.0 < address);
        let notes = self.notes.get(place(range.start)..place(range.end));
        notes.unwrap_or(&[])
    }

    /// The symbol for `address`, if it starts there.
    pub fn symbol_at(&self, address: u64) -> Option<&Symbol> {
        let symbols = self.image.symbols();
        let first = symbols.partition_point(|s| s.address < address);
        symbols.get(first).filter(|s| s.address == address)
    }
}

type Symbols<'a> = SymbolTable<'a, elf::FileHeader64<LE>>;

/// The bytes from `address` (svma) to the end of its area.
fn bytes_at(areas: &[Area], address: u64) -> &[u8] {
    let after = areas.partition_point(|a| a.address <= address);
    let area = after.checked_sub(1).map(|i| &areas[i]);
    let bytes = area.and_then(|area| {
        let skip = usize::try_from(address - area.address).ok()?;
        area.bytes.get(skip..)
    });
    bytes.unwrap_or(&[])
}

/// What only the headers know.
#[derive(Default)]
struct Headers {
    code: Vec<Code>,
    entry: Option<u64>,
    is_program: bool,
    is_fixed: bool,
    imports: Vec<(u64, String)>,
    exports: Vec<u64>,
    sections: Vec<Code>,
    untyped: Vec<Range<u64>>,
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
    fn read(data: &[u8]) -> Headers {
        let mut out = Headers::default();
        let Ok(header) = elf::FileHeader64::<LE>::parse(data) else {
            return out;
        };
        out.is_fixed = header.e_type(LE) == elf::ET_EXEC;
        out.entry = Some(header.e_entry(LE)).filter(|&entry| entry != 0);
        out.is_program = is_program(header, data);
        let Ok(sections) = header.sections(LE, data) else {
            return out;
        };
        let code = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
        let dynamic = sections
            .symbols(LE, data, elf::SHT_DYNSYM)
            .unwrap_or_default();
        let defined = dynamic
            .iter()
            .filter(|s| s.st_type() == elf::STT_FUNC && s.st_shndx(LE) != elf::SHN_UNDEF);
        out.exports.extend(defined.map(|s| s.st_value(LE)));
        for section in sections.iter() {
            if section.sh_flags(LE).0 & elf::SHF_ALLOC.0 != 0 {
                let start = section.sh_addr(LE);
                let name = sections.section_name(LE, section).unwrap_or_default();
                let name = &name[..name.len().min(NAME_LEN_MAX)];
                let named = Code {
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
                out.read_imports(relocations, &dynamic);
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
        if let [Some(start), Some(stop)] = bounds
            && start < stop
        {
            // Behind the others: it lies within one of them.
            self.sections.push(Code {
                name: name.to_owned(),
                range: start..stop,
            });
        }
    }

    fn read_imports(&mut self, relocations: &[elf::Rela64<LE>], symbols: &Symbols<'_>) {
        for rela in relocations.iter() {
            let kind = rela.r_type(LE, false);
            if kind != elf::R_X86_64_GLOB_DAT && kind != elf::R_X86_64_JUMP_SLOT {
                continue;
            }
            let symbol = rela.symbol(LE, false).and_then(|i| symbols.symbol(i).ok());
            let name = symbol.and_then(|s| s.name(LE, symbols.strings()).ok());
            if let Some(name) = name.filter(|n| !n.is_empty() && n.len() <= NAME_LEN_MAX)
                && self.imports.len() < IMPORTS_MAX
            {
                let name = String::from_utf8_lossy(name).into_owned();
                self.imports.push((rela.r_offset(LE), name));
            }
        }
    }
}
