//! Images (an ELF file's tables, text ranges and symbols) and their mappings.
//!
//! An image is immutable and uses only its own (stated) addresses, `svma`. A [`Mapping`] places it
//! at a bias, and [`AddressSpace`] finds the mapping of a pc. ELF files are read in `elf`, and each
//! kind of table in its own module.

use crate::convention::{self, Convention, Conventions, Evidence, Named};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The owner of some bytes: a mapped file, a block of a trace, a vector.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A range of an owner's bytes.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

impl Bytes {
    /// The part `range` of `owner`, or `None` if it lies outside.
    pub fn new(owner: Owner, range: Range<usize>) -> Option<Bytes> {
        (*owner).as_ref().get(range.clone())?;
        Some(Bytes { owner, range })
    }

    /// The part `range` of these bytes, with the same owner, or `None` if it lies outside.
    pub fn part(&self, range: Range<usize>) -> Option<Bytes> {
        self.get(range.clone())?;
        let range = self.range.start + range.start..self.range.start + range.end;
        Some(Bytes {
            owner: self.owner.clone(),
            range,
        })
    }

    /// The owner: for a section of an ELF file, all of the file.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// All bytes of a vector.
    pub fn from_vec(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes {
            owner: Arc::new(bytes),
            range,
        }
    }
}

impl core::ops::Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.range.len())
    }
}

/// The sections that unwinders and explanations need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SectionKind {
    /// `.eh_frame`
    EhFrame = 0,
    /// `.eh_frame_hdr`
    EhFrameHdr = 1,
    /// `.debug_frame`
    DebugFrame = 2,
    /// `.sframe`
    Sframe = 3,
    /// `.orc_unwind`
    OrcUnwind = 4,
    /// `.orc_unwind_ip`
    OrcUnwindIp = 5,
    /// `.orc_header`
    OrcHeader = 6,
    /// Executable bytes; an image may hold several such sections, and only parts of its text.
    Text = 7,
    /// `.got` or `.got.plt`, only for its address.
    Got = 8,
    /// The entry point of a program or of an interpreter, only for its address. A library has none,
    /// whatever its header says.
    Entry = 9,
    /// A mark: the file may be another one than was mapped ([`Image::doubt`]).
    Doubt = 10,
    /// What the file says of its code's conventions, but for its symbols
    /// ([`Conventions::encode`]). No section of an ELF file.
    Conventions = 11,
}

impl SectionKind {
    /// All kinds.
    pub const ALL: [SectionKind; 12] = [
        SectionKind::EhFrame,
        SectionKind::EhFrameHdr,
        SectionKind::DebugFrame,
        SectionKind::Sframe,
        SectionKind::OrcUnwind,
        SectionKind::OrcUnwindIp,
        SectionKind::OrcHeader,
        SectionKind::Text,
        SectionKind::Got,
        SectionKind::Entry,
        SectionKind::Doubt,
        SectionKind::Conventions,
    ];

    /// Whether such sections have contents: some are only places or marks.
    pub const fn has_contents(self) -> bool {
        !matches!(
            self,
            SectionKind::Got | SectionKind::Entry | SectionKind::Doubt
        )
    }

    /// The section's name in an ELF file.
    pub const fn as_str(self) -> &'static str {
        match self {
            SectionKind::EhFrame => ".eh_frame",
            SectionKind::EhFrameHdr => ".eh_frame_hdr",
            SectionKind::DebugFrame => ".debug_frame",
            SectionKind::Sframe => ".sframe",
            SectionKind::OrcUnwind => ".orc_unwind",
            SectionKind::OrcUnwindIp => ".orc_unwind_ip",
            SectionKind::OrcHeader => ".orc_header",
            SectionKind::Text => ".text",
            SectionKind::Got => ".got",
            SectionKind::Entry => "the entry point",
            SectionKind::Doubt => "a mark of doubt",
            SectionKind::Conventions => "the conventions",
        }
    }
}

/// One section of an image.
#[derive(Clone, Debug)]
pub struct Section {
    /// The kind of section.
    pub kind: SectionKind,
    /// Address (svma).
    pub address: u64,
    /// Contents; empty for kinds that have none ([`SectionKind::has_contents`]).
    pub data: Bytes,
}

/// Why an image may not be that of the file which was mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Doubt {
    /// Nothing identifies the file, and something speaks against it: its age, its size.
    Likely,
    /// It is another one: its bytes differ from those in memory.
    Certain,
}

/// A function or other code symbol.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Symbol {
    /// Address (svma).
    pub address: u64,
    /// Size, bytes; 0 if the file does not state it.
    pub size: u64,
    /// The name as in the file, mangled.
    pub name: String,
}

impl Symbol {
    /// Whether the name says that it is a part of a function, which a compiler put elsewhere: nobody
    /// calls it. GCC names it `NAME.cold`; LLVM so, `NAME.eh` if landing pads are in it, or
    /// `NAME.__part.N` (`MachineBasicBlock::getSymbol`).
    #[must_use]
    pub fn is_named_as_part(name: &str) -> bool {
        name.contains(".cold") || name.contains(".__part.") || name.ends_with(".eh")
    }

    /// What conventions are found by.
    pub(crate) fn named(&self) -> Named<'_> {
        (self.address, self.size, &self.name)
    }
}

/// The parts of an [`Image`].
#[derive(Clone, Debug, Default)]
pub struct ImageParts {
    /// The path of the mapped file, or a name such as `[vdso]`.
    pub name: String,
    /// The GNU build id, empty if there is none.
    pub build_id: Vec<u8>,
    /// Executable ranges (svma).
    pub text: Vec<Range<u64>>,
    /// Sections, in any order.
    pub sections: Vec<Section>,
    /// Symbols, in any order. Of those at one address, the first one with a size names it.
    pub symbols: Vec<Symbol>,
}

/// The identity of an [`Image`] within this process, for caches; never displayed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageId(NonZeroUsize);

impl ImageId {
    /// The number, which is never 0.
    #[inline]
    pub(crate) const fn number(self) -> usize {
        self.0.get()
    }
}

/// Not 64 bits wide, because some targets have no such atomics.
static NEXT_ID: AtomicUsize = AtomicUsize::new(1);

/// An immutable ELF image in terms of its own addresses.
#[derive(Debug)]
pub struct Image {
    id: ImageId,
    parts: ImageParts,
    /// The index of the first section of each kind; `usize::MAX` if there is none.
    first: [usize; SectionKind::ALL.len()],
    /// Indices of the symbols that have a size.
    sized: Vec<u32>,
    /// For each of these, the highest end of it and of those before it.
    ends: Vec<u64>,
    conventions: Conventions,
    debug_file: Option<DebugFile>,
}

/// A separate debug file, whole.
#[derive(Clone)]
struct DebugFile(Owner);

impl core::fmt::Debug for DebugFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", (*self.0).as_ref().len())
    }
}

impl Image {
    /// Sorts the parts and assigns an identity.
    pub fn new(mut parts: ImageParts) -> Image {
        parts.text.sort_by_key(|r| (r.start, r.end));
        parts.sections.sort_by_key(|s| (s.kind, s.address));
        // At the same address, symbols with a size come first, then in the order that they have:
        // readers put the preferred ones first.
        parts.symbols.sort_by_key(|s| (s.address, s.size == 0));

        let place = |kind| parts.sections.iter().position(|s| s.kind == kind);
        let first = SectionKind::ALL.map(|kind| place(kind).unwrap_or(usize::MAX));

        let mut conventions = convention::by_symbols(parts.symbols.iter().map(Symbol::named));
        if let Some(said) = parts.sections.get(first[SectionKind::Conventions as usize]) {
            let said = Conventions::decode(&said.data);
            conventions.overlay(said.spans().to_vec());
        }

        let symbols = (0..).zip(&parts.symbols);
        let sized = symbols.filter(|(_, s)| s.size > 0);
        // Running maxima: `symbol` sees from one of them that no range before it reaches farther.
        let mut highest = 0;
        let (sized, ends) = sized
            .map(|(i, s)| {
                highest = s.address.saturating_add(s.size).max(highest);
                (i, highest)
            })
            .unzip();

        Image {
            id: ImageId(NonZeroUsize::MIN.saturating_add(NEXT_ID.fetch_add(1, Ordering::Relaxed))),
            parts,
            first,
            sized,
            ends,
            conventions,
            debug_file: None,
        }
    }

    /// The image with the separate debug file that belongs to its file. Only what reads source lines
    /// needs it: its symbols and tables are among the parts.
    #[must_use]
    pub fn with_debug_file(mut self, file: Option<Owner>) -> Image {
        self.debug_file = file.map(DebugFile);
        self
    }

    /// The bytes of the separate debug file that belongs to the file; `None` if none was found or
    /// looked for.
    pub fn debug_file(&self) -> Option<&[u8]> {
        let file = self.debug_file.as_ref()?;
        Some((*file.0).as_ref())
    }

    /// The image's identity in this process.
    #[inline]
    pub fn id(&self) -> ImageId {
        self.id
    }

    /// The path of the mapped file, or a name such as `[vdso]`.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The GNU build id, empty if there is none.
    pub fn build_id(&self) -> &[u8] {
        &self.parts.build_id
    }

    /// Executable ranges (svma), sorted.
    pub fn text(&self) -> &[Range<u64>] {
        &self.parts.text
    }

    /// Whether `svma` is executable.
    pub fn is_text(&self, svma: u64) -> bool {
        self.parts.text.iter().any(|r| r.contains(&svma))
    }

    /// All sections, sorted by kind and address.
    pub fn sections(&self) -> &[Section] {
        &self.parts.sections
    }

    /// The first section of this kind.
    pub fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.parts.sections.get(self.first[kind as usize])
    }

    /// Up to `len` bytes of text from `svma`, as far as the image contains them.
    pub fn text_bytes(&self, svma: u64, len: usize) -> &[u8] {
        let mut texts = self
            .parts
            .sections
            .iter()
            .filter(|s| s.kind == SectionKind::Text);
        let found = texts.find_map(|s| {
            let start = usize::try_from(svma.checked_sub(s.address)?).ok()?;
            let bytes = s.data.get(start..)?;
            (!bytes.is_empty()).then(|| &bytes[..len.min(bytes.len())])
        });
        found.unwrap_or(&[])
    }

    /// Why the image may not be that of the file which was mapped; `None` if nothing says so.
    pub fn doubt(&self) -> Option<Doubt> {
        let mark = self.section(SectionKind::Doubt)?;
        Some(match mark.address {
            0 => Doubt::Likely,
            _ => Doubt::Certain,
        })
    }

    /// The same image, marked with a doubt. It has an identity of its own.
    pub fn with_doubt(&self, doubt: Doubt) -> Image {
        let mut parts = self.parts.clone();
        parts.sections.retain(|s| s.kind != SectionKind::Doubt);
        parts.sections.push(Section {
            kind: SectionKind::Doubt,
            address: match doubt {
                Doubt::Likely => 0,
                Doubt::Certain => 1,
            },
            data: Bytes::from_vec(Vec::new()),
        });
        let debug_file = self.debug_file.as_ref().map(|file| file.0.clone());
        Image::new(parts).with_debug_file(debug_file)
    }

    /// The convention of the code at `svma`, and what says so.
    pub fn convention(&self, svma: u64) -> (Convention, Evidence) {
        self.conventions.at(svma)
    }

    /// The conventions of its code.
    pub fn conventions(&self) -> &Conventions {
        &self.conventions
    }

    /// All symbols, sorted by address.
    pub fn symbols(&self) -> &[Symbol] {
        &self.parts.symbols
    }

    /// The symbol for the code at `svma`: the innermost one whose range contains it, otherwise the
    /// nearest preceding one without a size. Labels inside a function are ignored.
    pub fn symbol(&self, svma: u64) -> Option<&Symbol> {
        // Functions nest at most a few levels deep: a hot part with aliases, a handful of entry
        // points.
        const LOOK_BACK: usize = 64;

        let symbols = &self.parts.symbols;
        let after = self
            .sized
            .partition_point(|&i| symbols[i as usize].address <= svma);
        let is_inside = after > 0 && self.ends[after - 1] >= svma;

        let near = self.sized[..after].iter().rev();
        let near = near.take(if is_inside { LOOK_BACK } else { 0 });
        let mut near = near.map(|&i| &symbols[i as usize]);
        let inside = near.find(|s| svma - s.address < s.size);

        // Of several symbols at one address, the preferred one is the first.
        let first = inside.map(|s| symbols.partition_point(|t| t.address < s.address));
        let named = first.and_then(|i| symbols.get(i));

        named
            .filter(|s| svma - s.address < s.size)
            .or(inside)
            .or_else(|| {
                let after = symbols.partition_point(|s| s.address <= svma);
                let last = symbols.get(after.checked_sub(1)?)?;
                let first = symbols[..after].partition_point(|s| s.address < last.address);
                symbols.get(first).filter(|s| s.size == 0)
            })
    }
}

/// An image, or executable memory without one, mapped at a bias.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The range of addresses in the process (avma).
    pub range: Range<u64>,
    /// avma - svma, modulo 2^64.
    pub bias: u64,
    /// The image; `None` if the file is unavailable, and for generated code.
    pub image: Option<Arc<Image>>,
    /// The path, or the kernel's name for the mapping.
    pub name: String,
}

impl Mapping {
    /// The image's own address for `avma`.
    #[inline]
    pub fn svma(&self, avma: u64) -> u64 {
        avma.wrapping_sub(self.bias)
    }
}

/// Identifies an address space and its state ([`AddressSpace::stamp`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp {
    id: usize,
    generation: u32,
}

/// Identifies what an address space has mapped ([`AddressSpace::contents`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Contents {
    stamp: Stamp,
    mappings: usize,
}

/// The executable mappings of a process.
#[derive(Debug)]
pub struct AddressSpace {
    stamp: Stamp,
    mappings: Vec<Mapping>,
}

impl Default for AddressSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for AddressSpace {
    /// A copy is a different address space, so that caches do not mix them up.
    fn clone(&self) -> Self {
        let mut out = AddressSpace::new();
        out.mappings.clone_from(&self.mappings);
        out
    }
}

impl AddressSpace {
    /// An empty address space.
    pub fn new() -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        AddressSpace {
            stamp: Stamp { id, generation: 0 },
            mappings: Vec::new(),
        }
    }

    /// Changes whenever something is unmapped, so that what was found at an address is still there.
    /// What was not found may be there now: see [`AddressSpace::contents`].
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Changes whenever something is mapped or unmapped.
    #[inline]
    pub fn contents(&self) -> Contents {
        Contents {
            stamp: self.stamp,
            mappings: self.mappings.len(),
        }
    }

    /// Adds `mapping`, after unmapping what it overlaps. An empty range is ignored.
    pub fn map(&mut self, mapping: Mapping) {
        if mapping.range.is_empty() {
            return;
        }
        self.unmap(mapping.range.clone());
        let at = self
            .mappings
            .partition_point(|m| m.range.end <= mapping.range.start);
        self.mappings.insert(at, mapping);
    }

    /// Unmaps `range`, cutting mappings that extend beyond it.
    pub fn unmap(&mut self, range: Range<u64>) {
        // Mappings are sorted and free of overlaps, so those that are hit are neighbours.
        let first = self
            .mappings
            .partition_point(|m| m.range.end <= range.start);
        let last = first + self.mappings[first..].partition_point(|m| m.range.start < range.end);
        if first == last || range.is_empty() {
            return;
        }

        // Makes caches forget the addresses of this space.
        self.stamp.generation = self.stamp.generation.wrapping_add(1);

        // A mapping that extends on both sides leaves two parts, which share its image.
        let mut kept = Vec::new();
        for m in &self.mappings[first..last] {
            if m.range.start < range.start {
                kept.push(Mapping {
                    range: m.range.start..range.start,
                    ..m.clone()
                });
            }
            if m.range.end > range.end {
                kept.push(Mapping {
                    range: range.end..m.range.end,
                    ..m.clone()
                });
            }
        }

        self.mappings.splice(first..last, kept);
    }

    /// Unmaps everything (exec).
    pub fn clear(&mut self) {
        self.stamp.generation = self.stamp.generation.wrapping_add(1);
        self.mappings.clear();
    }

    /// The mapping that contains `avma`.
    pub fn find(&self, avma: u64) -> Option<&Mapping> {
        let at = self.mappings.partition_point(|m| m.range.end <= avma);
        self.mappings.get(at).filter(|m| m.range.contains(&avma))
    }

    /// Whether `avma` is executable, as far as is known.
    pub fn is_text(&self, avma: u64) -> bool {
        self.find(avma).is_some_and(|m| match &m.image {
            Some(image) => image.is_text(m.svma(avma)),
            None => true,
        })
    }

    /// The convention of the code at `avma`: System V, where nothing is known.
    pub fn convention(&self, avma: u64) -> Convention {
        let mapping = self.find(avma);
        let image = mapping.and_then(|m| Some((m, m.image.as_ref()?)));
        image.map_or(Convention::SystemV, |(mapping, image)| {
            image.convention(mapping.svma(avma)).0
        })
    }

    /// All mappings, sorted by address.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

#[cfg(test)]
mod tests;
