//! Problems with a dump of a whole machine, with their locations.

use std::fmt;

/// Why a dump, or a part of it, cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The format is not supported.
    Format {
        /// Its name.
        name: &'static str,
    },
    /// No kernel image was given.
    NoKernel {
        /// The release stated in the dump, if any.
        release: Option<String>,
    },
    /// The dump belongs to another kernel.
    OtherKernel {
        /// The release in the dump.
        dump: String,
        /// The release of the image.
        image: String,
    },
    /// With no page table found is the kernel's banner where the image says.
    NoPageTable,
    /// The image has no BTF, and the offset was not given.
    NoBtf {
        /// The struct.
        of: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// The BTF has no such member, and the offset was not given.
    NoMember {
        /// The struct.
        of: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// The image has no such symbol.
    NoSymbol {
        /// Its name.
        name: &'static str,
    },
    /// Required memory cannot be read.
    Fault(Fault),
    /// A list does not end: it returns to an element other than its head, or has more elements than
    /// a kernel can have.
    Endless {
        /// The list's name.
        list: &'static str,
        /// The address of that element, or of the last one read.
        address: u64,
    },
    /// A module's ORC table is too large, or the module has no code.
    Module {
        /// The address of its `struct module`.
        address: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why a kernel address cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The address is not mapped.
    NotMapped {
        /// The address.
        address: u64,
        /// The level of the page table with the empty entry: 1 to 5.
        level: u8,
    },
    /// A page table entry has reserved bits set.
    BadEntry {
        /// The address.
        address: u64,
        /// The entry.
        entry: u64,
    },
    /// The dump lacks this memory: a hole, or it was truncated.
    NotInDump {
        /// The address; for an unreadable page table, the address that was being translated.
        address: u64,
        /// The physical address.
        physical: u64,
    },
    /// The source of the memory does not provide it.
    Refused {
        /// The address.
        address: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotMapped { address, level } => {
                write!(f, "{address:#x} is not mapped (page table level {level})")
            }
            Self::BadEntry { address, entry } => {
                write!(f, "{address:#x}: {entry:#x} is no entry of a page table")
            }
            Self::NotInDump { address, physical } => write!(
                f,
                "{address:#x} is at physical {physical:#x}, which the dump does not hold"
            ),
            Self::Refused { address } => write!(f, "{address:#x} cannot be read"),
        }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Problem::Fault(fault)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { name } => write!(
                f,
                "{name} is not supported; make an ELF dump (QEMU: dump-guest-memory without -z; \
                 kdump: copy /proc/vmcore; makedumpfile -E)"
            ),
            Self::NoKernel { release } => match release {
                Some(release) => write!(f, "give the image of kernel {release} with --kernel"),
                None => write!(f, "give the kernel's image with --kernel"),
            },
            Self::OtherKernel { dump, image } => {
                write!(f, "a dump of {dump}, but the image is of {image}")
            }
            Self::NoPageTable => write!(
                f,
                "no page table maps the kernel's banner to where this image has it; is it this \
                 kernel's?"
            ),
            Self::NoBtf { of, member } => {
                write!(
                    f,
                    "the image has no BTF that can be read: give --offset {of}.{member}=BYTES"
                )
            }
            Self::NoMember { of, member } => write!(
                f,
                "BTF has no {of}.{member}: give --offset {of}.{member}=BYTES"
            ),
            Self::NoSymbol { name } => write!(f, "the image has no symbol {name}"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Endless { list, address } => {
                write!(f, "the list of {list} does not end, at {address:#x}")
            }
            Self::Module { address, what } => write!(f, "module at {address:#x}: {what}"),
        }
    }
}
