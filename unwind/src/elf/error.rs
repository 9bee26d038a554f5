//! Errors in ELF files and their locations.

/// Why an ELF file or a part of it could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{section} at offset {offset:#x}: {what}")]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfErrorKind {
    /// The file does not start with `\x7fELF`.
    #[error("not an ELF file")]
    NotElf,
    /// `EI_CLASS` is not `ELFCLASS64`.
    #[error("ELF class {0}, not 64-bit (2); only x86-64 is supported")]
    Class(u8),
    /// `EI_DATA` is `ELFDATA2MSB`.
    #[error("a big-endian file; only x86-64 is supported")]
    BigEndian,
    /// `e_machine` is not `EM_X86_64`.
    #[error("machine {0}; only x86-64 (62) is supported")]
    Machine(u16),
    /// A relocatable object (`ET_REL`).
    #[error("a relocatable object has no addresses yet; link it, or give the program")]
    Relocatable,
    /// A core file (`ET_CORE`).
    #[error("a core file, not an image; import it as a recording")]
    Core,
    /// Another `e_type`.
    #[error("ELF type {0} is neither a program nor a library")]
    Type(u16),
    /// Neither program headers nor section headers.
    #[error("neither program headers nor section headers")]
    NoHeaders,
    /// A part lies outside the file, or its entries have the wrong size.
    #[error("lies outside the file of {file} bytes, or has entries of the wrong size")]
    OutOfFile {
        /// Length of the file, bytes.
        file: u64,
    },
    /// The sizes in a note do not fit its section.
    #[error("a note does not fit into its section")]
    Note,
    /// A symbol table or its strings cannot be read.
    #[error("the symbol table or its strings cannot be read")]
    Symbols,
    /// The names of the symbols are far longer in total than their string table.
    #[error("symbol names exceed {limit} bytes in total; the rest are left out")]
    SymbolNames {
        /// The limit, bytes.
        limit: u64,
    },
    /// `.eh_frame_hdr` has an unknown version.
    #[error("unknown version {0}")]
    HdrVersion(u8),
    /// `.eh_frame_hdr` has an unsupported pointer encoding.
    #[error("pointer encoding {0:#x} is not supported")]
    HdrEncoding(u8),
    /// A pointer leads outside all segments.
    #[error("address {0:#x} lies in no segment")]
    Pointer(u64),
    /// `ch_type` is neither zlib nor zstd.
    #[error("unknown compression {0}")]
    Compression(u32),
}

impl ElfErrorKind {
    /// Whether the file is valid for all that is known, but of another machine than x86-64.
    pub const fn is_foreign(&self) -> bool {
        matches!(self, Self::Class(_) | Self::BigEndian | Self::Machine(_))
    }
}
