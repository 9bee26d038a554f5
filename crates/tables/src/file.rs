//! An ELF file, as far as its unwind tables and code need it.

use crate::facts::Facts;
use crate::headers::Headers;
pub use crate::headers::SectionRange;
use crate::pointers;
use crate::relocatable::{self, ObjectError};
use object::elf;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::elf::unpack::UnpackError;
use unwind_sim_unwind::elf::{self as unwind_elf, ElfError, ElfErrorKind, ReadOptions};
use unwind_sim_unwind::image::{Bytes, Image, Owner, SectionKind, Symbol};

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

/// An open ELF file.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    image: Arc<Image>,
    areas: Vec<Area>,
    code: Vec<SectionRange>,
    entry: Option<u64>,
    is_program: bool,
    /// The words that the loader fills with addresses of this file: where, and with what.
    pointers: Vec<(u64, u64)>,
    /// Whether the loader puts it where its headers say.
    is_fixed: bool,
    /// The words that the loader fills with addresses of functions of other files, and their names;
    /// in a relocatable object, the words of code that the linker fills.
    imports: Vec<(u64, String)>,
    /// The functions that other files can call, and whose symbols have a size.
    exports: Vec<u64>,
    /// The sections in memory, by address.
    sections: Vec<SectionRange>,
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
    /// The ELF file, if it is one.
    elf: Option<Bytes>,
    /// Where the sections of a relocatable object are in the file, bytes.
    offsets: Vec<u64>,
    facts: Facts,
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

        // An object has no addresses yet and is laid out first.
        let mut read = match unwind_elf::read(name, owner.clone(), &options) {
            Err(error) if error.what == ElfErrorKind::Relocatable => {
                return File::read_object(name, &owner);
            }
            read => read.map_err(wrong)?,
        };

        // Sections that are stored compressed are unpacked first; what fails is reported with the
        // file.
        let unpack_errors = read.unpack();
        let facts = Facts::read((*owner).as_ref());

        let mut areas = Vec::new();
        // A debug file has its program's program headers, but other bytes at their offsets.
        let segments = read.segments.iter().filter(|_| !facts.is_debug_file);
        for segment in segments {
            let start = usize::try_from(segment.offset).ok();
            let size = segment.file_size.min(segment.memory_size);

            // Offsets and sizes are the file's claims, and may not fit into this machine's numbers.
            let end = start.and_then(|s| s.checked_add(usize::try_from(size).ok()?));
            let Some((start, end)) = start.zip(end) else {
                continue;
            };
            // A file that is cut short may end within a segment.
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

        // What the ELF reader leaves out: the names of sections, imports and exports.
        let data: &[u8] = (*owner).as_ref();
        let headers = Headers::read(data);
        let mut code = headers.code;
        // It has headers of the code, but not the code.
        if facts.is_debug_file {
            code.clear();
        } else if code.is_empty() {
            let texts = read.parts.text.iter();
            code.extend(texts.map(|range| SectionRange {
                name: String::new(),
                range: range.clone(),
            }));
        }

        // Pointers are words of the file's data that lead to its code.
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
            elf: whole(owner),
            offsets: Vec::new(),
            facts,
        })
    }

    /// The file of an image: if the image was made from an ELF file in memory, all of that, or else
    /// only what the image has, which may be parts of the code and none of its data.
    pub fn of_image(image: &Arc<Image>) -> File {
        // An image keeps only parts of its file, but may share the bytes of all of it.
        let texts = image.sections().iter();
        let mut texts = texts.filter(|s| s.kind == SectionKind::Text);
        let owner = texts.find_map(|section| {
            // The bytes of a section belong to the whole file, if the image was made from one.
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

        // Else there is only what the image has: the sections that unwinders need.
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
        let code = texts.map(|range| SectionRange {
            name: String::new(),
            range: range.clone(),
        });

        File {
            // Without the file nothing is known of its entry, its imports and its data.
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
            elf: None,
            offsets: Vec::new(),
            facts: Facts::default(),
        }
    }

    fn read_object(name: &str, owner: &Owner) -> Result<File, FileError> {
        let object = relocatable::read(name, owner).map_err(|error| FileError::Object {
            name: name.to_owned(),
            error,
        })?;

        // Unwind tables of no bytes are tables without functions, which is worth knowing.
        let image = Image::new(object.parts);
        let kinds = TABLES.into_iter();
        let is_empty = |kind: &SectionKind| {
            let section = image.section(*kind);
            section.is_some_and(|section| section.data.is_empty())
        };

        // An object is not linked: it has neither an entry nor exports.
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
            elf: whole(owner.clone()),
            offsets: object.offsets,
            facts: Facts::read((**owner).as_ref()),
        })
    }

    /// What its headers say of its indexes.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether it holds debug information that was split off, and no code.
    pub fn is_debug_file(&self) -> bool {
        self.facts.is_debug_file
    }

    /// The unwind tables that have no bytes in this file (`SHT_NOBITS`): they are in the program that it
    /// was split off.
    pub fn absent_tables(&self) -> &[&'static str] {
        &self.facts.absent
    }

    /// Whether it has all the data of its ELF file: see [`File::of_image`].
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The bytes of the ELF file that it was read from. `None` if it was made of an image's parts.
    pub fn elf(&self) -> Option<&[u8]> {
        self.elf.as_deref()
    }

    /// What holds these bytes.
    pub fn owner(&self) -> Option<&Owner> {
        self.elf.as_ref().map(Bytes::owner)
    }

    /// The sections with debugging information of a relocatable object whose name fulfils `wanted`: unpacked,
    /// and with this file's addresses in them. `None` for other files, whose sections can be read as they
    /// are, and for a damaged object.
    pub fn debug_sections(
        &self,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<String, Vec<u8>>> {
        let elf = self.elf.as_ref().filter(|_| self.is_relocatable)?;
        relocatable::debug_sections(elf.owner(), wanted).ok()
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

    /// Where the byte at `address` (svma) is in the file. `None` if it is not in it.
    pub fn offset(&self, address: u64) -> Option<u64> {
        if self.is_relocatable {
            let after = self.sections.partition_point(|s| s.range.start <= address);
            let index = after.checked_sub(1)?;
            let range = &self.sections[index].range;
            let offset = self.offsets.get(index)?;
            return (range.contains(&address)).then(|| offset + (address - range.start));
        }
        let (file, bytes) = (self.elf()?, self.bytes(address));
        let start = (bytes.as_ptr() as usize).checked_sub(file.as_ptr() as usize)?;
        (!bytes.is_empty() && start < file.len()).then_some(start as u64)
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
    pub fn code(&self) -> &[SectionRange] {
        &self.code
    }

    /// The section with the code at `address`.
    pub fn code_at(&self, address: u64) -> Option<&SectionRange> {
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

    /// The addresses (svma) of the functions that other files can call, and whose symbols have a size.
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

/// All bytes of a file.
fn whole(owner: Owner) -> Option<Bytes> {
    let len = (*owner).as_ref().len();
    Bytes::new(owner, 0..len)
}

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
