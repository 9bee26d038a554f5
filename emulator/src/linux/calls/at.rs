//! Constants of system calls that name a file relative to a directory (Linux
//! `include/uapi/linux/fcntl.h`).

/// The working directory instead of a descriptor.
pub(in crate::linux) const AT_FDCWD: u64 = -100i64 as u64;
pub(super) const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
pub(super) const AT_REMOVEDIR: u64 = 0x200;
pub(super) const AT_SYMLINK_FOLLOW: u64 = 0x400;
pub(super) const AT_EMPTY_PATH: u64 = 0x1000;
