//! Problems with a dump of a whole machine, with their locations.

/// Why a dump, or a part of it, cannot be imported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The format is not supported.
    #[error(
        "{name} is not supported; make an ELF dump (QEMU: dump-guest-memory without -z; kdump: copy \
         /proc/vmcore; makedumpfile -E)"
    )]
    Format {
        /// Its name.
        name: &'static str,
    },
    /// No kernel image was given.
    #[error("give the image of the dumped kernel ({}) with --kernel",
        release.as_deref().unwrap_or("release unknown"))]
    NoKernel {
        /// The release stated in the dump, if any.
        release: Option<String>,
    },
    /// The dump belongs to another kernel.
    #[error("a dump of {dump}, but the image is of {image}")]
    OtherKernel {
        /// The release in the dump.
        dump: String,
        /// The release of the image.
        image: String,
    },
    /// With no page table found is the kernel's banner where the image says.
    #[error(
        "no page table maps the kernel's banner to its address in this image; is this the image of \
         the dumped kernel?"
    )]
    NoPageTable,
    /// The image has no BTF, and the offset was not given.
    #[error("the image has no readable BTF; give --offset {of}.{member}=BYTES")]
    NoBtf {
        /// The struct.
        of: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// The BTF has no such member, and the offset was not given.
    #[error("BTF has no {of}.{member}; give --offset {of}.{member}=BYTES")]
    NoMember {
        /// The struct.
        of: &'static str,
        /// Its member.
        member: &'static str,
    },
    /// The image has no such symbol.
    #[error("the image has no symbol {name}")]
    NoSymbol {
        /// Its name.
        name: &'static str,
    },
    /// Required memory cannot be read.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A list does not end: it returns to an element other than its head, or has more elements than
    /// a kernel can have.
    #[error("the list of {list} does not end (at {address:#x})")]
    Endless {
        /// The list's name.
        list: &'static str,
        /// The address of that element, or of the last one read.
        address: u64,
    },
    /// A module's ORC table is too large, or the module has no code.
    #[error("module at {address:#x}: {what}")]
    Module {
        /// The address of its `struct module`.
        address: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why a kernel address cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The address is not mapped.
    #[error("{address:#x} is not mapped (page table level {level})")]
    NotMapped {
        /// The address.
        address: u64,
        /// The level of the page table with the empty entry: 1 to 5.
        level: u8,
    },
    /// A page table entry has reserved bits set.
    #[error("{address:#x}: {entry:#x} is not a page table entry")]
    BadEntry {
        /// The address.
        address: u64,
        /// The entry.
        entry: u64,
    },
    /// The dump lacks this memory: a hole, or it was truncated.
    #[error("{address:#x} is at physical {physical:#x}, which the dump does not contain")]
    NotInDump {
        /// The address; for an unreadable page table, the address that was being translated.
        address: u64,
        /// The physical address.
        physical: u64,
    },
    /// The source of the memory does not provide it.
    #[error("{address:#x} cannot be read")]
    Refused {
        /// The address.
        address: u64,
    },
}
