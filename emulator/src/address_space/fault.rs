//! Permissions, and the errors when permissions or addresses forbid an access.

use super::limits::{AREAS_MAX, MMAP_MIN_ADDR, TASK_SIZE};
use std::fmt;

/// What memory may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Permissions(u8);

impl Permissions {
    /// No access.
    pub const NONE: Permissions = Permissions(0);
    /// Reading. On x86-64, memory that can be written or executed can also be read.
    pub const READ: Permissions = Permissions(1);
    /// Reading and writing.
    pub const READ_WRITE: Permissions = Permissions(3);
    /// Reading and executing.
    pub const READ_EXECUTE: Permissions = Permissions(5);
    /// Everything.
    pub const ALL: Permissions = Permissions(7);

    /// The permissions in the `PF_*` bits of a program header.
    pub const fn from_elf(flags: u32) -> Permissions {
        let (x, w, r) = (flags & 1, flags & 2, flags & 4);
        Permissions::new(r != 0, w != 0, x != 0)
    }

    /// Combines single permissions; writing and executing imply reading.
    pub const fn new(read: bool, write: bool, execute: bool) -> Permissions {
        let bits = (read || write || execute) as u8;
        Permissions(bits | (write as u8) << 1 | (execute as u8) << 2)
    }

    /// Whether `access` is allowed.
    pub const fn allow(self, access: Access) -> bool {
        let bit = match access {
            Access::Read => 1,
            Access::Write => 2,
            Access::Execute => 4,
        };
        self.0 & bit != 0
    }
}

/// Written as in `/proc/PID/maps`.
impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |access, letter| if self.allow(access) { letter } else { '-' };
        let (r, w) = (letter(Access::Read, 'r'), letter(Access::Write, 'w'));
        write!(f, "{r}{w}{}", letter(Access::Execute, 'x'))
    }
}

/// A kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Access {
    const fn participle(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "written",
            Access::Execute => "executed",
        }
    }
}

/// A forbidden memory access: an error of the emulated program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error("{address:#x} cannot be {}: {kind}", .access.participle())]
pub struct Fault {
    /// The first byte that could not be used.
    pub address: u64,
    /// The access that was tried.
    pub access: Access,
    /// Why it failed.
    pub kind: FaultKind,
}

impl Fault {
    pub(super) const fn new(address: u64, access: Access, kind: FaultKind) -> Fault {
        Fault {
            address,
            access,
            kind,
        }
    }
}

/// Why memory could not be accessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum FaultKind {
    /// Nothing is mapped (`SEGV_MAPERR`).
    #[error("nothing is mapped there")]
    Unmapped,
    /// The permissions forbid it (`SEGV_ACCERR`).
    #[error("its permissions forbid it")]
    Protected,
    /// An entry of a page table has a reserved bit: only in system mode.
    #[error("an entry of its page tables has a reserved bit")]
    Reserved,
    /// Bits 63 to 47 differ: not a canonical address (a general protection fault).
    #[error("it is not a canonical address")]
    NonCanonical,
    /// The file that is mapped there has no such page any longer (`SIGBUS`).
    #[error("its file has no such page any longer")]
    Gone,
    /// The emulated machine is out of pages; hardware has no such fault.
    #[error("the emulated machine has no pages left")]
    OutOfPages,
}

/// Why a range cannot be mapped, unmapped or protected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum MapError {
    /// Not whole pages, empty, or not in user space (`EINVAL`, or `ENOMEM` beyond the end).
    #[error(
        "{start:#x}..{end:#x} is not a range of pages between {MMAP_MIN_ADDR:#x} and {TASK_SIZE:#x}"
    )]
    Range {
        /// The first address.
        start: u64,
        /// The first address past the range.
        end: u64,
    },
    /// A part of the range is not mapped (`ENOMEM`).
    #[error("nothing is mapped at {address:#x}")]
    Hole {
        /// The first address that is not mapped.
        address: u64,
    },
    /// More than [`AREAS_MAX`] areas (`ENOMEM`).
    #[error("more than {AREAS_MAX} mapped areas")]
    Areas,
    /// There is no such object, or its offset is not whole pages or too large (`EINVAL`).
    #[error("no such object, or not whole pages of it")]
    Object,
}
