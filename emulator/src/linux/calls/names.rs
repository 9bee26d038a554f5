//! Files by name: opening, making, removing, renaming.

use super::AT_FDCWD;
use super::stat::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::linux::Process;
use crate::linux::clock::SECOND;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Node, Place, Special, Time};
use crate::linux::outcome::Notice;

pub(super) const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;

impl Process {
    /// The directory that a relative path begins in.
    fn base(&self, fd: u64, path: &[u8]) -> Answer<Vec<u8>> {
        if path.starts_with(b"/") {
            return Ok(b"/".to_vec());
        }
        if fd as u32 == AT_FDCWD as u32 {
            return Ok(self.files.cwd.clone());
        }
        let open = self.files.table.get(fd)?;
        let open = open.borrow();
        match open.kind {
            Kind::Directory(_) | Kind::Path => Ok(open.path.clone()),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The path at an address, and the directory that it begins in.
    pub(super) fn path_and_base(&self, fd: u64, path: u64) -> Answer<(Vec<u8>, Vec<u8>)> {
        let path = self.path_at(path)?;
        let base = self.base(fd, &path)?;
        Ok((path, base))
    }

    /// What is at the path at an address.
    pub(super) fn find(&self, fd: u64, path: u64, follow: bool) -> Answer<Place> {
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.find(&base, &path, follow)
    }

    /// What an open file with a name is.
    fn place_of_open(&self, fd: u64) -> Answer<Place> {
        let open = self.files.table.get(fd)?;
        let open = open.borrow();
        let path = open.path.clone();
        let node = match &open.kind {
            Kind::Memory(inode) => Node::Memory(inode.clone()),
            _ => self.files.node(&path),
        };
        match node {
            Node::Missing => Err(Errno::EPERM),
            node => Ok(Place { path, node }),
        }
    }

    pub(super) fn sys_open(&mut self, fd: u64, path: u64, flags: u64, mode: u64) -> Answer {
        let (path, base) = self.path_and_base(fd, path)?;
        if let Some(open) = self.files.opened_already(&path) {
            return self.add_open(open?, flags);
        }
        let place = self.files.place_to_open(&base, &path, flags as u32)?;
        let text = match place.node {
            Node::Special(Special::Text(text)) => self.text(text),
            _ => Vec::new(),
        };
        let open = self.files.open(place, flags as u32, mode as u32, text)?;
        self.add_open(open, flags)
    }

    pub(super) fn sys_readlink(&mut self, fd: u64, path: u64, to: u64, size: u64) -> Answer {
        let place = self.find(fd, path, false)?;
        let target = place.node.link(&self.files, &place.path);
        let target = target.ok_or(Errno::EINVAL)??;
        if size as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        let count = target.len().min(size as usize);
        self.put(to, &target[..count])?;
        Ok(count as u64)
    }

    pub(super) fn sys_getcwd(&mut self, to: u64, size: u64) -> Answer {
        let mut path = self.files.cwd.clone();
        path.push(0);
        if path.len() as u64 > size {
            return Err(Errno::ERANGE);
        }
        self.put(to, &path)?;
        Ok(path.len() as u64)
    }

    pub(super) fn sys_chdir(&mut self, path: u64) -> Answer {
        let place = self.find(AT_FDCWD, path, true)?;
        self.change_directory(place)
    }

    pub(super) fn sys_fchdir(&mut self, fd: u64) -> Answer {
        let place = self.place_of_open(fd)?;
        self.change_directory(place)
    }

    fn change_directory(&mut self, place: Place) -> Answer {
        if !place.node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !self.files.allows(&self.files.attributes(&place), 1) {
            return Err(Errno::EACCES);
        }
        self.files.cwd = place.path;
        Ok(0)
    }

    pub(super) fn sys_mkdir(&mut self, fd: u64, path: u64, mode: u64) -> Answer {
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.mkdir(&base, &path, mode as u32)
    }

    pub(super) fn sys_unlink(&mut self, fd: u64, path: u64, flags: u64) -> Answer {
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.unlink(&base, &path, flags & AT_REMOVEDIR != 0)
    }

    pub(super) fn sys_rename(
        &mut self,
        from_fd: u64,
        from: u64,
        to_fd: u64,
        to: u64,
        flags: u64,
    ) -> Answer {
        const NO_REPLACE: u64 = 1;
        if flags & !NO_REPLACE != 0 {
            self.notice(Notice::Part("renameat2 that exchanges"));
            return Err(Errno::EINVAL);
        }
        let (from, from_base) = self.path_and_base(from_fd, from)?;
        let (to, to_base) = self.path_and_base(to_fd, to)?;
        let (from, to) = ((&from_base[..], &from[..]), (&to_base[..], &to[..]));
        self.files.rename(from, to, flags & NO_REPLACE != 0)
    }

    pub(super) fn sys_link(
        &mut self,
        from_fd: u64,
        from: u64,
        to_fd: u64,
        to: u64,
        flags: u64,
    ) -> Answer {
        let from = match self.path_at(from)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.place_of_open(from_fd)?,
            _ => self.find(from_fd, from, flags & AT_SYMLINK_FOLLOW != 0)?,
        };
        let (to, base) = self.path_and_base(to_fd, to)?;
        self.files.link(from, &base, &to)
    }

    pub(super) fn sys_symlink(&mut self, target: u64, fd: u64, path: u64) -> Answer {
        let target = self.path_at(target)?;
        let (path, base) = self.path_and_base(fd, path)?;
        self.files.symlink(&target, &base, &path)
    }

    pub(super) fn sys_truncate(&mut self, path: u64, size: u64) -> Answer {
        if size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let place = self.find(AT_FDCWD, path, true)?;
        self.files.truncate(place, size)
    }

    pub(super) fn sys_chmod(&mut self, fd: u64, path: u64, mode: u64) -> Answer {
        let place = self.find(fd, path, true)?;
        self.files.chmod(place, mode as u32)
    }

    pub(super) fn sys_fchmod(&mut self, fd: u64, mode: u64) -> Answer {
        let place = self.place_of_open(fd)?;
        self.files.chmod(place, mode as u32)
    }

    pub(super) fn sys_chown(
        &mut self,
        fd: u64,
        path: u64,
        uid: u64,
        gid: u64,
        flags: u64,
    ) -> Answer {
        let place = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => self.place_of_open(fd)?,
            _ => self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        self.files.chown(place, uid as u32, gid as u32)
    }

    pub(super) fn sys_fchown(&mut self, fd: u64, uid: u64, gid: u64) -> Answer {
        let place = self.place_of_open(fd)?;
        self.files.chown(place, uid as u32, gid as u32)
    }

    pub(super) fn sys_utimens(&mut self, fd: u64, path: u64, times: u64, flags: u64) -> Answer {
        const NOW: u64 = 0x3fff_ffff;
        const OMIT: u64 = 0x3fff_fffe;
        let place = match path {
            0 => self.place_of_open(fd)?,
            path => self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?,
        };
        let mut set = [Some(self.files.now); 2];
        if times != 0 {
            for (index, set) in set.iter_mut().enumerate() {
                let at = times.wrapping_add(16 * index as u64);
                let (seconds, nanoseconds) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
                match nanoseconds {
                    NOW => {}
                    OMIT => *set = None,
                    nanoseconds if nanoseconds < SECOND => {
                        *set = Some(Time {
                            seconds: seconds.cast_signed(),
                            nanoseconds: nanoseconds as u32,
                        });
                    }
                    _ => return Err(Errno::EINVAL),
                }
            }
        }
        if set == [None, None] {
            return Ok(0);
        }
        self.files.set_times(place, set[0], set[1])
    }

    /// There are no attributes.
    pub(super) fn sys_getxattr(&mut self, path: u64, follow: bool) -> Answer {
        self.find(AT_FDCWD, path, follow)?;
        Err(Errno::ENODATA)
    }

    pub(super) fn sys_access(&mut self, fd: u64, path: u64, mode: u64, flags: u64) -> Answer {
        if mode & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        let attributes = match self.path_at(path)?.is_empty() {
            true if flags & AT_EMPTY_PATH != 0 => {
                let open = self.files.table.get(fd)?;
                self.files.attributes_of_open(&open.borrow())
            }
            _ => {
                let place = self.find(fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
                self.files.attributes(&place)
            }
        };
        match self.files.allows(&attributes, mode as u32) {
            true => Ok(0),
            false => Err(Errno::EACCES),
        }
    }
}
