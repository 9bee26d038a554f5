//! Why a kernel cannot be placed in memory.

/// Why a kernel cannot be placed: malformed input, or not enough memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{section} at {offset:#x}: {what}")]
#[non_exhaustive]
pub struct BootError {
    /// What is wrong.
    pub what: BootErrorKind,
    /// The part of the input.
    pub section: &'static str,
    /// Offset in the file, bytes; for fields of the setup header, in the bzImage; for memory, the
    /// guest physical address.
    pub offset: u64,
}

/// The kinds of [`BootError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootErrorKind {
    /// Not an ELF file, or its header cannot be read.
    #[error("not an ELF file; unpack a vmlinuz first")]
    NotElf,
    /// Not a 64-bit little-endian file for x86-64.
    #[error("not a kernel for x86-64")]
    NotX86_64,
    /// Not `ET_EXEC`: a core file, or a module.
    #[error("ELF type {0} is not a kernel's (2); give a vmlinux")]
    Type(u16),
    /// The program headers are not in the file, too many, or of another size.
    #[error("not within the file, too many, or of the wrong size; is the file complete?")]
    ProgramHeaders,
    /// No `PT_LOAD` with any memory.
    #[error("no segment to load; debug information alone cannot be booted")]
    NothingToLoad,
    /// The contents of a segment are not in the file, `p_filesz` is larger than `p_memsz`, or the
    /// addresses wrap.
    #[error("segment {0} is not within the file, or larger in it than in memory")]
    Segment(usize),
    /// A segment below 1 MiB, where the boot parameters go.
    #[error("segment {index} at {start:#x} is below 1 MiB")]
    SegmentTooLow {
        /// Index of the program header.
        index: usize,
        /// Its physical address.
        start: u64,
    },
    /// A segment is outside of memory.
    #[error(
        "segment {index} ends at {end:#x}, memory at {memory:#x}; give the machine more memory"
    )]
    SegmentOutside {
        /// Index of the program header.
        index: usize,
        /// The end of its physical addresses.
        end: u64,
        /// The end of memory.
        memory: u64,
    },
    /// The entry point is not the physical address of anything in a segment.
    #[error("the entry point {0:#x} is not a physical address in a segment")]
    Entry(u64),
    /// The setup header does not have its signature `HdrS`.
    #[error("no signature \"HdrS\"; give a bzImage's bytes from 0x1f1 on")]
    NotSetupHeader,
    /// The setup header is cut off.
    #[error("the header ends at {0:#x}, but fewer bytes were given")]
    SetupHeaderCut(u64),
    /// The setup header says that it ends before `init_size`.
    #[error("the header ends at {0:#x}, before init_size at 0x260; is it a kernel's?")]
    SetupHeaderShort(u64),
    /// The boot protocol is older than 2.12.
    #[error("boot protocol {:#06x} is older than 0x020c (Linux 3.8), the first with 64-bit entry", .0)]
    Protocol(u16),
    /// More memory than can be described.
    #[error("{0} bytes are more than 3 GiB; give the machine less memory")]
    TooMuchMemory(u64),
    /// Less memory than the boot parameters need.
    #[error("{0} bytes are not enough; give the machine more memory")]
    TooLittleMemory(u64),
    /// The kernel needs more memory than its file has.
    #[error("the kernel needs memory up to {end:#x}, but it ends at {memory:#x}; give it more")]
    KernelTooLarge {
        /// The end of what the kernel needs.
        end: u64,
        /// The end of memory.
        memory: u64,
    },
    /// The command line is longer than the kernel reads.
    #[error("{size} bytes, but the kernel reads at most {max}; shorten it")]
    CommandLineTooLong {
        /// Its size, bytes.
        size: u64,
        /// The maximum, bytes.
        max: u64,
    },
    /// A NUL would end the command line.
    #[error("a NUL ends the command line; remove it")]
    NulInCommandLine,
    /// The initial RAM disk does not fit between the kernel and the end of memory.
    #[error("{size} bytes, but there is room for {room}; give the machine more memory")]
    InitrdTooLarge {
        /// Its size, bytes.
        size: u64,
        /// The room above the kernel, bytes.
        room: u64,
    },
    /// The kernel cannot be moved so far.
    #[error("{slide:#x} is not a multiple of 0x200000 up to {most:#x}, as KASLR chooses one")]
    Slide {
        /// How far, bytes.
        slide: u64,
        /// The maximum for this kernel, bytes.
        most: u64,
    },
    /// The kernel cannot be moved, as nothing says what to change.
    #[error(
        "the kernel has none, so it cannot be moved; give the vmlinuz of one with KASLR, or leave the \
         offset out"
    )]
    NoRelocations,
    /// Not two or three lists of 32-bit words, each preceded by a zero.
    #[error(
        "not two or three lists of 32-bit words, each preceded by a zero; is the file complete?"
    )]
    RelocationTable,
    /// An entry outside of the kernel.
    #[error("{0:#x} is not an address in the kernel; is the file complete?")]
    Relocation(u32),
}

impl BootErrorKind {
    pub(super) const fn at(self, section: &'static str, offset: u64) -> BootError {
        BootError {
            what: self,
            section,
            offset,
        }
    }
}
