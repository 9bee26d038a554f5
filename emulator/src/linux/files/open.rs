//! Opening files.

use super::attributes::{S_IFMT, S_IFREG};
use super::description::{Description, Kind, Shared};
use super::special::{Special, of_descriptor};
use super::{Answer, Errno, Files, Node, Place, parent};
use std::fs::{File, OpenOptions};
use std::rc::Rc;

/// Flags of `open` (Linux 6.12 `include/uapi/asm-generic/fcntl.h`).
pub(in crate::linux) mod o {
    pub(in crate::linux) const ACCMODE: u32 = 3;
    pub(in crate::linux) const RDONLY: u32 = 0;
    pub(in crate::linux) const WRONLY: u32 = 1;
    pub(in crate::linux) const RDWR: u32 = 2;
    pub(in crate::linux) const CREAT: u32 = 0o100;
    pub(in crate::linux) const EXCL: u32 = 0o200;
    pub(in crate::linux) const TRUNC: u32 = 0o1000;
    pub(in crate::linux) const APPEND: u32 = 0o2000;
    pub(in crate::linux) const NONBLOCK: u32 = 0o4000;
    pub(in crate::linux) const LARGEFILE: u32 = 0o10_0000;
    pub(in crate::linux) const DIRECTORY: u32 = 0o20_0000;
    pub(in crate::linux) const NOFOLLOW: u32 = 0o40_0000;
    pub(in crate::linux) const CLOEXEC: u32 = 0o200_0000;
    pub(in crate::linux) const PATH: u32 = 0o1000_0000;
    pub(in crate::linux) const TMPFILE: u32 = 0o2000_0000;
}

impl Files {
    /// An open file that a path stands for, if it is one of `/proc/self/fd`.
    pub(in crate::linux) fn opened_already(&self, path: &[u8]) -> Option<Answer<Shared>> {
        of_descriptor(path).map(|fd| match self.table.get(fd) {
            Ok(open) => Ok(open),
            Err(_) => Err(Errno::ENOENT),
        })
    }

    /// Where an `open` with these flags goes.
    pub(in crate::linux) fn place_to_open(
        &self,
        base: &[u8],
        path: &[u8],
        flags: u32,
    ) -> Answer<Place> {
        let exclusive = flags & o::CREAT != 0 && flags & o::EXCL != 0;
        let follow = flags & o::NOFOLLOW == 0 && !exclusive;
        let place = self.resolve(base, path, follow)?;
        let is_link = place.node.link(self, &place.path).is_some();
        match &place.node {
            Node::Missing if flags & o::CREAT == 0 => Err(Errno::ENOENT),
            Node::Missing if path.ends_with(b"/") => Err(Errno::EISDIR),
            Node::Missing => Ok(place),
            _ if exclusive => Err(Errno::EEXIST),
            _ if is_link && flags & o::PATH == 0 => Err(Errno::ELOOP),
            node if flags & o::DIRECTORY != 0 && !node.is_directory() => Err(Errno::ENOTDIR),
            _ => Ok(place),
        }
    }

    /// Opens what is there, or makes it. `text` is what it says, if it is a text of the kernel.
    pub(in crate::linux) fn open(
        &mut self,
        place: Place,
        flags: u32,
        mode: u32,
        text: Vec<u8>,
    ) -> Answer<Shared> {
        let kept = flags & !(o::CREAT | o::EXCL | o::TRUNC | o::CLOEXEC);
        let opened = |kind, path: &[u8]| Ok(Description::new(kind, kept, path).shared());
        let writes = flags & o::ACCMODE != o::RDONLY;
        let path = place.path.clone();
        if flags & o::PATH != 0 {
            return opened(Kind::Path, &path);
        }
        if place.node.is_directory() {
            if flags & o::TMPFILE == o::TMPFILE && writes {
                let inode = self.new_inode(S_IFREG | mode & 0o7777 & !self.umask);
                inode.borrow_mut().links = 0;
                return opened(Kind::Memory(inode), b"/ (deleted)");
            }
            if writes || flags & o::CREAT != 0 {
                return Err(Errno::EISDIR);
            }
            return opened(Kind::Directory(None), &path);
        }
        if !matches!(place.node, Node::Missing) {
            let attributes = self.attributes(&place);
            let wanted = match flags & o::ACCMODE {
                o::RDONLY => 4,
                o::WRONLY => 2,
                _ => 6,
            };
            if !self.allows(&attributes, wanted) {
                return Err(Errno::EACCES);
            }
        }
        match place.node {
            Node::Missing => {
                let kind = self.create(&path, mode, flags)?;
                opened(kind, &path)
            }
            Node::Special(Special::Device(device)) => opened(Kind::Device(device), &path),
            Node::Special(_) if writes => Err(Errno::EACCES),
            Node::Special(_) => opened(Kind::Text(text), &path),
            Node::Memory(inode) => {
                if inode.borrow().mode & S_IFMT != S_IFREG {
                    return Err(Errno::ENXIO);
                }
                if flags & o::TRUNC != 0 && writes {
                    let mut inode = inode.borrow_mut();
                    inode.resize(0)?;
                    (inode.modified, inode.changed) = (self.now, self.now);
                }
                opened(Kind::Memory(inode), &path)
            }
            // A device or a pipe of the host is no business of the program.
            Node::Host(metadata) if !metadata.is_file() => Err(Errno::ENXIO),
            Node::Host(_) if writes && self.allow_write => {
                let mut options = OpenOptions::new();
                options.read(flags & o::ACCMODE == o::RDWR).write(true);
                options.truncate(flags & o::TRUNC != 0);
                opened(Kind::Host(Rc::new(options.open(self.host(&path))?)), &path)
            }
            Node::Host(_) if writes => {
                let inode = self.copy_up(&path, flags & o::TRUNC == 0)?;
                opened(Kind::Memory(inode), &path)
            }
            Node::Host(_) => opened(Kind::Host(Rc::new(File::open(self.host(&path))?)), &path),
        }
    }

    /// All of a file of the host that is not too large for memory.
    pub(in crate::linux) fn read_whole(&self, path: &[u8]) -> Answer<Vec<u8>> {
        Ok(std::fs::read(self.host(path))?)
    }

    /// Makes a regular file.
    fn create(&mut self, path: &[u8], mode: u32, flags: u32) -> Answer<Kind> {
        self.check_may_change(parent(path))?;
        let mode = mode & 0o7777 & !self.umask;
        if self.on_host(path) {
            let mut options = OpenOptions::new();
            options.read(flags & o::ACCMODE != o::WRONLY).write(true);
            options.create_new(true);
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
            return Ok(Kind::Host(Rc::new(options.open(self.host(path))?)));
        }
        let inode = self.new_inode(S_IFREG | mode);
        self.insert(path.to_vec(), inode.clone());
        Ok(Kind::Memory(inode))
    }
}
