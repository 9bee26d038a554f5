//! Errors in kernel images, modules and System.map files, with their locations.

use super::payload::Compression;
use std::io;
use unwind_sim_unwind::elf::ElfError;
use unwind_sim_unwind::orc::{Layout, Malformed};

/// Why a kernel image could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {what}")]
pub struct KernelError {
    /// The file.
    pub file: String,
    /// What is wrong, and where.
    pub what: KernelErrorKind,
}

/// The kinds of [`KernelError`]. Offsets are bytes in the file, or in its unpacked payload.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelErrorKind {
    /// The file cannot be opened or mapped.
    #[error("cannot be read: {0}")]
    Io(io::ErrorKind),
    /// The file is neither a bzImage nor an ELF file.
    #[error("neither a bzImage (vmlinuz) nor an ELF file (vmlinux)")]
    NotKernel,
    /// The boot header of a bzImage is invalid.
    #[error("boot header at offset {offset:#x}: {what}")]
    Boot {
        /// Offset of the invalid field.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The payload starts with no known compression magic.
    #[error(
        "payload at offset {offset:#x}: starts with {magic:02x?}, which is not a known compression \
         format"
    )]
    UnknownCompression {
        /// Offset of the payload.
        offset: u64,
        /// Its first bytes.
        magic: [u8; 4],
    },
    /// The payload cannot be unpacked.
    #[error("payload at offset {offset:#x}: {} cannot be unpacked: {why}", compression.as_str())]
    Unpack {
        /// How it is compressed.
        compression: Compression,
        /// Offset of the payload, or of the invalid block in it.
        offset: u64,
        /// The decompressor's error.
        why: io::ErrorKind,
    },
    /// The unpacked payload exceeds the limit.
    #[error("unpacks to more than {limit} bytes")]
    UnpackLimit {
        /// The limit, bytes.
        limit: u64,
    },
    /// The ELF file is invalid.
    #[error(transparent)]
    Elf(ElfError),
    /// The ELF file has no kernel code: no executable range above the canonical hole.
    #[error("no executable range at kernel addresses")]
    NoKernelText,
    /// The ORC sections are inconsistent.
    #[error(transparent)]
    Orc(Malformed),
    /// The ORC entries are not those of the layout that the user named.
    #[error(
        "the ORC entries have the layout of Linux {}, not of {told}; leave --orc-layout out, or name that \
         one",
        fits.as_str()
    )]
    OrcLayout {
        /// The layout that the user named.
        told: &'static str,
        /// The layout that fits.
        fits: Layout,
    },
    /// A line of System.map is not `ADDRESS TYPE NAME`.
    #[error("line {line} is not ADDRESS TYPE NAME")]
    MapLine {
        /// The line number, from 1.
        line: u64,
    },
    /// System.map has no symbol in the kernel's text: it belongs to another kernel or is a stub.
    #[error("no symbol lies in the kernel's text; is this the System.map of that kernel?")]
    MapForeign,
    /// System.map does not tell where the kernel's code is.
    #[error("no symbols _stext and _etext; not a kernel's System.map")]
    MapWithoutText,
    /// The file is not an x86-64 relocatable object.
    #[error("not a module: not a relocatable ELF object for x86-64")]
    NotModule,
    /// A section of a module cannot be read.
    #[error("{section} at offset {offset:#x}: {what}")]
    Section {
        /// The section's name.
        section: &'static str,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// No load address was given for any code of a module.
    #[error("no load address given for any section with code")]
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
