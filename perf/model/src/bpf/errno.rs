//! The error numbers of helpers, maps and attaching.

use std::fmt;

/// An error number of `include/uapi/asm-generic/errno*.h`; helpers return its negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Errno {
    /// No such entry.
    Enoent,
    /// Argument list too long: an index or a number of entries beyond the limit.
    E2big,
    /// Try again: a ring buffer has no room.
    Eagain,
    /// Out of memory: no free bucket.
    Enomem,
    /// Bad address.
    Efault,
    /// Device or resource busy.
    Ebusy,
    /// It exists: a bucket holds another stack, an event has a program.
    Eexist,
    /// Invalid argument.
    Einval,
    /// No space left: the ring buffer is full.
    Enospc,
    /// Protocol error: the event cannot give what the program needs.
    Eproto,
    /// Not supported.
    Eopnotsupp,
}

impl Errno {
    /// The number, positive.
    pub const fn number(self) -> i32 {
        match self {
            Self::Enoent => 2,
            Self::E2big => 7,
            Self::Eagain => 11,
            Self::Enomem => 12,
            Self::Efault => 14,
            Self::Ebusy => 16,
            Self::Eexist => 17,
            Self::Einval => 22,
            Self::Enospc => 28,
            Self::Eproto => 71,
            Self::Eopnotsupp => 95,
        }
    }

    /// Its name in C.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enoent => "ENOENT",
            Self::E2big => "E2BIG",
            Self::Eagain => "EAGAIN",
            Self::Enomem => "ENOMEM",
            Self::Efault => "EFAULT",
            Self::Ebusy => "EBUSY",
            Self::Eexist => "EEXIST",
            Self::Einval => "EINVAL",
            Self::Enospc => "ENOSPC",
            Self::Eproto => "EPROTO",
            Self::Eopnotsupp => "EOPNOTSUPP",
        }
    }

    /// What a helper returns: the negative number, as 64 bits.
    pub(crate) const fn as_result(self) -> u64 {
        (self.number() as i64).wrapping_neg() as u64
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
