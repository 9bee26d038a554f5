//! Errors in ELF files and their locations.

use core::fmt;

/// Why an ELF file or a part of it could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ElfError {
    /// What is wrong.
    pub what: ElfErrorKind,
    /// The section or header that is wrong.
    pub section: &'static str,
    /// Offset in the file, bytes.
    pub offset: u64,
}

impl ElfError {
    pub(super) const fn new(what: ElfErrorKind, section: &'static str, offset: u64) -> Self {
        ElfError {
            what,
            section,
            offset,
        }
    }
}

/// The error that `section` at `offset` lies outside the file.
pub(super) fn cut(data: &[u8], section: &'static str, offset: u64) -> ElfError {
    let file = data.len() as u64;
    ElfError::new(ElfErrorKind::OutOfFile { file }, section, offset)
}

/// The kinds of [`ElfError`], most with the invalid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ElfErrorKind {
    /// The file does not start with `\x7fELF`.
    NotElf,
    /// `EI_CLASS` is not `ELFCLASS64`.
    Class(u8),
    /// `EI_DATA` is `ELFDATA2MSB`.
    BigEndian,
    /// `e_machine` is not `EM_X86_64`.
    Machine(u16),
    /// A relocatable object (`ET_REL`).
    Relocatable,
    /// A core file (`ET_CORE`).
    Core,
    /// Another `e_type`.
    Type(u16),
    /// Neither program headers nor section headers.
    NoHeaders,
    /// A part lies outside the file, or its entries have the wrong size.
    OutOfFile {
        /// Length of the file, bytes.
        file: u64,
    },
    /// The sizes in a note do not fit its section.
    Note,
    /// A symbol table or its strings cannot be read.
    Symbols,
    /// The names of the symbols are far longer in total than their string table.
    SymbolNames {
        /// The limit, bytes.
        limit: u64,
    },
    /// `.eh_frame_hdr` has an unknown version.
    HdrVersion(u8),
    /// `.eh_frame_hdr` has an unsupported pointer encoding.
    HdrEncoding(u8),
    /// A pointer leads outside all segments.
    Pointer(u64),
    /// `ch_type` is neither zlib nor zstd.
    Compression(u32),
}

impl fmt::Display for ElfErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => write!(f, "not an ELF file"),
            Self::Class(1) => write!(f, "a 32-bit file; only x86-64 is supported"),
            Self::Class(class) => write!(f, "unknown ELF class {class}"),
            Self::BigEndian => write!(f, "a big-endian file; only x86-64 is supported"),
            Self::Machine(machine) => {
                write!(f, "machine {machine}; only x86-64 (62) is supported")
            }
            Self::Relocatable => write!(
                f,
                "a relocatable object has no addresses yet; link it, or give the program"
            ),
            Self::Core => write!(f, "a core file, not an image; import it as a recording"),
            Self::Type(kind) => write!(f, "ELF type {kind} is neither a program nor a library"),
            Self::NoHeaders => write!(f, "neither program headers nor section headers"),
            Self::OutOfFile { file } => write!(
                f,
                "does not lie inside the file of {file} bytes, or has entries of another size"
            ),
            Self::Note => write!(f, "a note does not fit into its section"),
            Self::Symbols => write!(f, "the symbol table or its strings cannot be read"),
            Self::SymbolNames { limit } => {
                write!(
                    f,
                    "symbol names of more than {limit} bytes; the rest is left out"
                )
            }
            Self::HdrVersion(version) => write!(f, "unknown version {version}"),
            Self::HdrEncoding(encoding) => {
                write!(f, "pointer encoding {encoding:#x} is not supported")
            }
            Self::Pointer(address) => write!(f, "address {address:#x} lies in no segment"),
            Self::Compression(kind) => write!(f, "unknown compression {kind}"),
        }
    }
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at offset {:#x}: {}",
            self.section, self.offset, self.what
        )
    }
}

impl core::error::Error for ElfError {}
