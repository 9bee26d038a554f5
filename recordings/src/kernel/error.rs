//! Errors in kernel images, modules and System.map files, with their locations.

use super::payload::Compression;
use std::fmt;
use std::io;
use unwind_sim_unwind::elf::ElfError;
use unwind_sim_unwind::orc::Malformed;

/// Why a kernel image could not be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelError {
    /// The file.
    pub file: String,
    /// What is wrong, and where.
    pub what: KernelErrorKind,
}

/// The kinds of [`KernelError`]. Offsets are bytes in the file, or in its unpacked payload.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KernelErrorKind {
    /// The file cannot be opened or mapped.
    Io(io::ErrorKind),
    /// The file is neither a bzImage nor an ELF file.
    NotKernel,
    /// The boot header of a bzImage is invalid.
    Boot {
        /// Offset of the invalid field.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The payload starts with no known compression magic.
    UnknownCompression {
        /// Offset of the payload.
        offset: u64,
        /// Its first bytes.
        magic: [u8; 4],
    },
    /// The payload cannot be unpacked.
    Unpack {
        /// How it is compressed.
        compression: Compression,
        /// Offset of the payload, or of the invalid block in it.
        offset: u64,
        /// The decompressor's error.
        why: io::ErrorKind,
    },
    /// The unpacked payload exceeds the limit.
    UnpackLimit {
        /// The limit, bytes.
        limit: u64,
    },
    /// The ELF file is invalid.
    Elf(ElfError),
    /// The ELF file has no kernel code: no executable range above the canonical hole.
    NoKernelText,
    /// The ORC sections are inconsistent.
    Orc(Malformed),
    /// A line of System.map is not `ADDRESS TYPE NAME`.
    MapLine {
        /// The line number, from 1.
        line: u64,
    },
    /// System.map has no symbol in the kernel's text: it belongs to another kernel or is a stub.
    MapForeign,
    /// System.map does not tell where the kernel's code is.
    MapWithoutText,
    /// The file is not an x86-64 relocatable object.
    NotModule,
    /// A section of a module cannot be read.
    Section {
        /// The section's name.
        section: &'static str,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// No load address was given for any code of a module.
    NotLoaded,
}

impl KernelErrorKind {
    pub(super) fn of(self, file: &str) -> KernelError {
        KernelError {
            file: file.to_owned(),
            what: self,
        }
    }
}

impl From<io::Error> for KernelErrorKind {
    fn from(error: io::Error) -> Self {
        KernelErrorKind::Io(error.kind())
    }
}

impl fmt::Display for KernelErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(kind) => write!(f, "cannot be read: {kind}"),
            Self::NotKernel => write!(f, "neither a bzImage (vmlinuz) nor an ELF file (vmlinux)"),
            Self::Boot { offset, what } => write!(f, "boot header at offset {offset:#x}: {what}"),
            Self::UnknownCompression { offset, magic } => write!(
                f,
                "payload at offset {offset:#x}: begins with {magic:02x?}, no known compression"
            ),
            Self::Unpack {
                compression,
                offset,
                why,
            } => write!(
                f,
                "payload at offset {offset:#x}: {} cannot be unpacked: {why}",
                compression.as_str()
            ),
            Self::UnpackLimit { limit } => write!(f, "unpacks to more than {limit} bytes"),
            Self::Elf(error) => error.fmt(f),
            Self::NoKernelText => write!(f, "no executable range at a kernel's addresses"),
            Self::Orc(error) => error.fmt(f),
            Self::MapLine { line } => write!(f, "line {line} is not ADDRESS TYPE NAME"),
            Self::MapForeign => write!(
                f,
                "no symbol lies in the kernel's text; is it this kernel's?"
            ),
            Self::MapWithoutText => write!(f, "no symbols _stext and _etext: not a kernel's"),
            Self::NotModule => write!(f, "not a module: no relocatable ELF object for x86-64"),
            Self::Section {
                section,
                offset,
                what,
            } => write!(f, "{section} at offset {offset:#x}: {what}"),
            Self::NotLoaded => write!(f, "no address is given for any section with code"),
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

impl std::error::Error for KernelError {}
