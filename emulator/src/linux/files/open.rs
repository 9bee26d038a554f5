//! Opening files.

use super::attributes::{S_IFMT, S_IFREG};
use super::description::{Description, Kind, Shared};
use super::special::{Device, Special, of_descriptor};
use super::{Answer, Errno, Files, Node, ResolvedPath, last, parent};
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
    pub(in crate::linux) const ASYNC: u32 = 0o2_0000;
    pub(in crate::linux) const DIRECT: u32 = 0o4_0000;
    pub(in crate::linux) const LARGEFILE: u32 = 0o10_0000;
    pub(in crate::linux) const DIRECTORY: u32 = 0o20_0000;
    pub(in crate::linux) const NOFOLLOW: u32 = 0o40_0000;
    pub(in crate::linux) const NOATIME: u32 = 0o100_0000;
    /// `O_SYNC` and `O_DSYNC`.
    pub(in crate::linux) const SYNC: u32 = 0o401_0000;
    pub(in crate::linux) const CLOEXEC: u32 = 0o200_0000;
    pub(in crate::linux) const PATH: u32 = 0o1000_0000;
    pub(in crate::linux) const TMPFILE: u32 = 0o2000_0000;
}

/// What a path of `/proc/self/fd` stands for.
pub(in crate::linux) enum Opened {
    Stream(Shared),
    File(ResolvedPath),
}

/// The flags that `fcntl` gives back: the kernel does not keep others.
const KNOWN: u32 = o::ACCMODE
    | o::APPEND
    | o::NONBLOCK
    | o::ASYNC
    | o::DIRECT
    | o::LARGEFILE
    | o::DIRECTORY
    | o::NOFOLLOW
    | o::SYNC
    | o::NOATIME
    | o::TMPFILE;

impl Files {
    /// What a path of `/proc/self/fd` stands for: an open stream, or the file to be opened anew.
    pub(in crate::linux) fn opened_already(&self, path: &[u8]) -> Option<Answer<Opened>> {
        let fd = of_descriptor(path)?;
        let Ok(open) = self.table.get_named(fd) else {
            return Some(Err(Errno::ENOENT));
        };
        let path = open.borrow().path.clone();
        let node = match &open.borrow().kind {
            Kind::Memory(inode) => Node::Memory(inode.clone()),
            Kind::Host(_) | Kind::Directory(_) | Kind::Path => self.node(&path),
            _ => return Some(Ok(Opened::Stream(open.clone()))),
        };
        Some(Ok(Opened::File(ResolvedPath { path, node })))
    }

    /// Where an `open` with these flags goes.
    pub(in crate::linux) fn path_to_open(
        &self,
        base: &[u8],
        path: &[u8],
        flags: u32,
    ) -> Answer<ResolvedPath> {
        let exclusive = flags & o::CREAT != 0 && flags & o::EXCL != 0;
        let follow = flags & o::NOFOLLOW == 0 && !exclusive;
        if flags & o::CREAT != 0 && path.ends_with(b"/") {
            // The way there counts first.
            self.resolve(base, last(path).1, true)?;
            return Err(Errno::EISDIR);
        }
        let resolved = self.resolve(base, path, follow)?;
        let is_link = resolved.node.link(self, &resolved.path).is_some();
        match &resolved.node {
            Node::Missing if flags & o::CREAT == 0 => Err(Errno::ENOENT),
            Node::Missing => Ok(resolved),
            _ if exclusive => Err(Errno::EEXIST),
            _ if is_link && flags & o::PATH == 0 => Err(Errno::ELOOP),
            node if flags & o::DIRECTORY != 0 && !node.is_directory() => Err(Errno::ENOTDIR),
            _ => Ok(resolved),
        }
    }

    /// Opens what is there, or makes it. `text` is what it says, if it is a text of the kernel.
    pub(in crate::linux) fn open(
        &mut self,
        resolved: ResolvedPath,
        flags: u32,
        mode: u32,
        text: Vec<u8>,
    ) -> Answer<Shared> {
        let path = resolved.path.clone();
        if flags & o::PATH != 0 {
            let kept = flags & (o::PATH | o::DIRECTORY | o::NOFOLLOW);
            return Ok(Description::new(Kind::Path, kept, &path).shared());
        }
        let kept = flags & KNOWN & !(o::CREAT | o::EXCL | o::TRUNC | o::CLOEXEC) | o::LARGEFILE;
        let opened = |kind, path: &[u8]| Ok(Description::new(kind, kept, path).shared());
        let truncates = flags & o::TRUNC != 0;
        let writes = flags & o::ACCMODE != o::RDONLY || truncates;
        if resolved.node.is_directory() {
            if flags & o::TMPFILE == o::TMPFILE && writes {
                self.check_may_change(&path)?;
                let inode = self.new_inode(S_IFREG | mode & 0o7777 & !self.umask, &path);
                inode.borrow_mut().links = 0;
                return opened(Kind::Memory(inode), b"/ (deleted)");
            }
            if writes || flags & o::CREAT != 0 {
                return Err(Errno::EISDIR);
            }
            return opened(Kind::Directory(None), &path);
        }
        if !matches!(resolved.node, Node::Missing) {
            let attributes = self.attributes(&resolved);
            let access = match flags & o::ACCMODE {
                o::RDONLY => 4,
                o::WRONLY => 2,
                _ => 6,
            };
            let wanted = access | if truncates { 2 } else { 0 };
            if !self.allows(&attributes, wanted) {
                return Err(Errno::EACCES);
            }
        }
        match resolved.node {
            Node::Missing => {
                let kind = self.create(&path, mode, flags)?;
                opened(kind, &path)
            }
            Node::Special(Special::Device(Device::Terminal)) => Err(Errno::ENXIO),
            Node::Special(Special::Device(device)) => opened(Kind::Device(device), &path),
            Node::Special(_) if writes => Err(Errno::EACCES),
            Node::Special(_) => opened(Kind::Text(text), &path),
            Node::Memory(inode) => {
                if inode.borrow().mode & S_IFMT != S_IFREG {
                    return Err(Errno::ENXIO);
                }
                if truncates {
                    let mut inode = inode.borrow_mut();
                    inode.resize(0)?;
                    (inode.modified, inode.changed) = (self.now, self.now);
                }
                opened(Kind::Memory(inode), &path)
            }
            // A device or a pipe of the host is no business of the program.
            Node::Host(metadata) if !metadata.is_file() => Err(Errno::ENODEV),
            Node::Host(_) if writes && self.allow_write => {
                let mut options = OpenOptions::new();
                options.read(flags & o::ACCMODE != o::WRONLY).write(true);
                options.truncate(truncates);
                opened(Kind::Host(Rc::new(options.open(self.host(&path))?)), &path)
            }
            Node::Host(_) if writes => {
                let inode = self.copy_up(&path, !truncates)?;
                opened(Kind::Memory(inode), &path)
            }
            Node::Host(_) => opened(Kind::Host(Rc::new(File::open(self.host(&path))?)), &path),
        }
    }

    /// A file by the path that it had and by its number, if it is still there.
    pub(in crate::linux) fn open_object(
        &mut self,
        path: &[u8],
        object: Option<(u64, u64)>,
    ) -> Option<Shared> {
        let node = self.node(path);
        let path = path.to_vec();
        let resolved = ResolvedPath { path, node };
        let attributes = self.attributes(&resolved);
        if object != Some((attributes.device, attributes.inode)) {
            return None;
        }
        self.open(resolved, o::RDONLY, 0, Vec::new()).ok()
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
        let inode = self.new_inode(S_IFREG | mode, parent(path));
        self.insert(path.to_vec(), inode.clone());
        Ok(Kind::Memory(inode))
    }
}
