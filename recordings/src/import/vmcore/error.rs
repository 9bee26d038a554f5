//! What can be wrong with a dump of a whole machine, and where.

use std::fmt;

/// Why a dump, or a part of it, cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Problem {
    /// A format that is not supported.
    Format {
        /// Its name.
        name: &'static str,
    },
    /// No kernel image was given.
    NoKernel {
        /// The release that the dump names, if it does.
        release: Option<String>,
    },
    /// The dump is of another kernel.
    OtherKernel {
        /// The release in the dump.
        dump: String,
        /// That of the image.
        image: String,
    },
    /// No page table was found under which the kernel's banner is where the image says.
    NoPageTable,
    /// The image has no BTF, and the offset is not given.
    NoBtf {
        /// The struct.
        of: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// The BTF has no such member, and the offset is not given.
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
    /// Memory that is needed cannot be read.
    Fault(Fault),
    /// A list that does not end: it comes back to an element that is not its head, or has more
    /// elements than a kernel can have.
    Endless {
        /// Which list.
        list: &'static str,
        /// The address of the element, or of the last one taken.
        address: u64,
    },
    /// A module's ORC table is larger than any, or has no code.
    Module {
        /// The address of its `struct module`.
        address: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why an address of the kernel cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No page is there.
    NotMapped {
        /// The address.
        address: u64,
        /// The level of the page table whose entry is empty: 1 to 5.
        level: u8,
    },
    /// An entry of a page table sets bits that must not be set.
    BadEntry {
        /// The address.
        address: u64,
        /// The entry.
        entry: u64,
    },
    /// The dump does not hold that memory: a hole, or it was cut short.
    NotInDump {
        /// The address; of a page table that cannot be read, the one that it was read for.
        address: u64,
        /// Physical address.
        physical: u64,
    },
    /// Whoever was asked does not give it.
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
