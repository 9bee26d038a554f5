//! Information about files: `stat`, `statx`, `statfs`, `getdents64`.

use super::at::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Attributes, Kind, Time};

/// `STATX_BASIC_STATS`.
const STATX_BASIC_STATS: u32 = 0x7ff;
/// `AT_STATX_SYNC_TYPE`: one of two flags, or none.
const SYNC: u32 = 0x6000;
/// Size of the smallest `struct linux_dirent64`, bytes.
const ENTRY_MIN: usize = 24;
/// Size of `struct statx`, bytes.
const STATX_SIZE: usize = 256;

impl Kernel {
    /// The attributes of a path, or of an open file if the path is empty and may be.
    fn attributes(&self, fd: u64, path: u64, flags: u64) -> Answer<Attributes> {
        const AT_NO_AUTOMOUNT: u32 = 0x800;
        let known = (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) as u32 | AT_NO_AUTOMOUNT | SYNC;
        if flags as u32 & !known != 0 || flags as u32 & SYNC == SYNC {
            return Err(Errno::EINVAL);
        }
        if flags & AT_EMPTY_PATH != 0 && (path == 0 || self.path_at(path)?.is_empty()) {
            if fd as u32 == AT_FDCWD as u32 {
                let resolved = self.files.find(&self.files.own.cwd, b".", true)?;
                return Ok(self.files.attributes(&resolved));
            }
            let open = self.files.own.table.get_named(fd)?;
            return Ok(self.files.attributes_of_open(&open.borrow()));
        }
        let resolved = self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
        Ok(self.files.attributes(&resolved))
    }

    pub(super) fn sys_stat(&mut self, fd: u64, path: u64, to: u64, flags: u64) -> Answer {
        let attributes = self.attributes(fd, path, flags)?;
        self.put(to, &stat(&attributes))?;
        Ok(0)
    }

    pub(super) fn sys_fstat(&mut self, fd: u64, to: u64) -> Answer {
        let open = self.files.own.table.get_named(fd)?;
        let attributes = self.files.attributes_of_open(&open.borrow());
        self.put(to, &stat(&attributes))?;
        Ok(0)
    }

    pub(super) fn sys_statx(
        &mut self,
        fd: u64,
        path: u64,
        flags: u64,
        mask: u64,
        to: u64,
    ) -> Answer {
        const RESERVED: u32 = 1 << 31;
        if mask as u32 & RESERVED != 0 {
            return Err(Errno::EINVAL);
        }
        let attributes = self.attributes(fd, path, flags)?;
        self.put(to, &statx(&attributes))?;
        Ok(0)
    }

    pub(super) fn sys_statfs(&mut self, path: u64, to: u64) -> Answer {
        let path = self.find(AT_FDCWD, path, true)?.path;
        self.put_statfs(&path, to)
    }

    pub(super) fn sys_fstatfs(&mut self, fd: u64, to: u64) -> Answer {
        let path = self.files.own.table.get_named(fd)?.borrow().path.clone();
        self.put_statfs(&path, to)
    }

    /// `struct statfs` of a file system that is the same everywhere.
    fn put_statfs(&mut self, path: &[u8], to: u64) -> Answer {
        const EXT4: u64 = 0xef53;
        const PROC: u64 = 0x9fa0;
        const DEVPTS: u64 = 0x1cd1;
        const BLOCKS: u64 = 1 << 22;
        let kind = match path {
            path if path.starts_with(b"/proc") => PROC,
            path if path.starts_with(b"/dev/pts") => DEVPTS,
            _ => EXT4,
        };
        let mut words = [0; 15];
        words[..7].copy_from_slice(&[kind, 4096, BLOCKS, BLOCKS / 2, BLOCKS / 2, 1 << 20, 1 << 19]);
        // f_fsid, f_namelen, f_frsize, f_flags (ST_VALID, ST_RELATIME).
        words[7..11].copy_from_slice(&[1, 255, 4096, 0x1020]);
        self.put_words(to, &words)?;
        Ok(0)
    }

    pub(super) fn sys_getdents64(&mut self, fd: u64, to: u64, size: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        let path = open.borrow().path.clone();

        // The names are read once, so that changes in between move none of them.
        let is_unread = matches!(open.borrow().kind, Kind::Directory(None));
        if is_unread {
            let all = self.files.entries(&path)?;
            open.borrow_mut().kind = Kind::Directory(Some(all));
        }

        let position = open.borrow().position;
        // The descriptor itself may be among the listed ones: no borrow may be held.
        let rest: Vec<(Vec<u8>, u8)> = match &open.borrow().kind {
            Kind::Directory(Some(names)) => {
                let start = usize::try_from(position).ok();
                let rest = start.and_then(|start| names.get(start..));
                // No more names than can fit: a long list would be copied again in every call.
                let room = usize::try_from(size as u32).unwrap_or(0) / ENTRY_MIN + 1;
                rest.unwrap_or_default()
                    .iter()
                    .take(room)
                    .cloned()
                    .collect()
            }
            _ => return Err(Errno::ENOTDIR),
        };

        let size = u64::from(size as u32);
        let mut out: Vec<u8> = Vec::new();
        let mut next = position;
        for (name, kind) in &rest {
            // `struct linux_dirent64` has 19 bytes before the name, and starts at multiples of 8.
            let length = (19 + name.len() + 1).next_multiple_of(8);
            if (out.len() + length) as u64 > size {
                if out.is_empty() {
                    return Err(Errno::EINVAL);
                }
                break;
            }

            // `d_off` is the position of the next entry.
            next += 1;
            let inode = self.files.inode_of_entry(&path, name);
            let end = out.len() + length;
            // `d_ino`, `d_off`, `d_reclen`, `d_type`, `d_name`.
            out.extend_from_slice(&inode.max(1).to_le_bytes());
            out.extend_from_slice(&next.to_le_bytes());
            out.extend_from_slice(&(length as u16).to_le_bytes());
            out.push(*kind);
            out.extend_from_slice(name);
            out.resize(end, 0);
        }

        self.put(to, &out)?;
        open.borrow_mut().position = next;
        Ok(out.len() as u64)
    }
}

/// `struct stat` (Linux 6.12 `arch/x86/include/uapi/asm/stat.h`).
fn stat(a: &Attributes) -> Vec<u8> {
    let mut out = Vec::with_capacity(144);
    for word in [a.device, a.inode, a.links] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for half in [a.mode, a.uid, a.gid, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    for word in [a.rdev, a.size, a.block_size, a.blocks] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for time in [a.accessed, a.modified, a.changed] {
        out.extend_from_slice(&time.seconds.to_le_bytes());
        out.extend_from_slice(&u64::from(time.nanoseconds).to_le_bytes());
    }
    out.extend_from_slice(&[0; 24]);
    out
}

/// `struct statx` (Linux 6.12 `include/uapi/linux/stat.h`).
fn statx(a: &Attributes) -> Vec<u8> {
    fn time(out: &mut Vec<u8>, time: Time) {
        out.extend_from_slice(&time.seconds.to_le_bytes());
        out.extend_from_slice(&u64::from(time.nanoseconds).to_le_bytes());
    }

    let mut out = Vec::with_capacity(STATX_SIZE);
    // `stx_mask`, `stx_blksize`, `stx_attributes`.
    out.extend_from_slice(&STATX_BASIC_STATS.to_le_bytes());
    out.extend_from_slice(&(a.block_size as u32).to_le_bytes());
    out.extend_from_slice(&0_u64.to_le_bytes());
    // `stx_nlink`, `stx_uid`, `stx_gid`, `stx_mode`.
    for half in [a.links as u32, a.uid, a.gid, a.mode & 0xffff] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    // `stx_ino`, `stx_size`, `stx_blocks`, `stx_attributes_mask`.
    for word in [a.inode, a.size, a.blocks, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }

    // `stx_atime`, `stx_btime`, `stx_ctime`, `stx_mtime`; the second one is not kept.
    time(&mut out, a.accessed);
    time(&mut out, Time::default());
    time(&mut out, a.changed);
    time(&mut out, a.modified);

    // `stx_rdev_major` and `_minor`, then `stx_dev_major` and `_minor`.
    for device in [a.rdev, a.device] {
        let (major, minor) = (
            device >> 8 & 0xfff,
            device & 0xff | device >> 12 & 0xfff_ff00,
        );
        out.extend_from_slice(&(major as u32).to_le_bytes());
        out.extend_from_slice(&(minor as u32).to_le_bytes());
    }

    out.resize(STATX_SIZE, 0);
    out
}
