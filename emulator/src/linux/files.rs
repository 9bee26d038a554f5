//! The files that a process sees: those of a directory of the host, and on top of them what the
//! process made, changed or removed, which is kept in memory unless it may write.
//!
//! Paths are resolved here, component by component, so that neither `..` nor a symbolic link
//! leads out of the root. Not here: descriptors and what is read and written (`description`),
//! system calls.

mod attributes;
mod change;
mod description;
mod inode;
mod names;
mod open;
mod saved;
mod special;
mod table;

use attributes::Owners;
pub(super) use attributes::{Attributes, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Time};
pub(super) use description::{Description, Kind, PIPE_SIZE, PipeEnd, Shared};
pub(super) use inode::{Budget, Inode, InodeRef};
pub(super) use names::{Existing, is_removed};
pub(super) use open::{Opened, o};
pub(super) use saved::Saved;
pub(super) use special::{Device, Special, Text, is_not_modelled};
pub(super) use table::Table;

use super::errno::{Answer, Errno};
use super::identity::{Identity, KEEP};
use super::random::Random;
use super::streams::Streams;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Linux `PATH_MAX`, with the NUL.
const PATH_MAX: usize = 4096;
/// Linux `NAME_MAX`.
const NAME_MAX: usize = 255;
/// Linux `MAXSYMLINKS`.
const SYMLINKS_MAX: usize = 40;

/// What the process did to a path.
#[derive(Debug)]
enum Entry {
    /// It is gone, whatever the host has there.
    Removed,
    /// It is this. A directory hides that of the host.
    Node(InodeRef),
}

/// What is at a path.
#[derive(Debug)]
pub(super) enum Node {
    /// A file of the host.
    Host(Box<Metadata>),
    /// One in memory.
    Memory(InodeRef),
    /// One that the kernel makes up.
    Special(Special),
    /// Nothing, in a directory that is there.
    Missing,
}

/// A path without `.`, `..` and symbolic links, and what is there.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    pub(super) path: Vec<u8>,
    pub(super) node: Node,
}

/// All that is known about files.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    allow_write: bool,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Files of the host that were copied, by device and number: all their names mean the copy.
    copied: BTreeMap<(u64, u64), InodeRef>,
    pub(super) budget: Budget,
    inodes: u64,
    /// Descriptors.
    pub(super) table: Table,
    /// The working directory.
    pub(super) cwd: Vec<u8>,
    /// The program's path.
    pub(super) program: Vec<u8>,
    pub(super) umask: u32,
    pub(super) identity: Identity,
    owners: Owners,
    /// What a file is stamped with that changes now.
    pub(super) now: Time,
    /// Standard input and output.
    pub(super) streams: Streams,
    pub(super) random: Random,
}

/// What [`Files`] begin with.
#[derive(Debug)]
pub(super) struct FilesOptions {
    pub(super) root: PathBuf,
    pub(super) allow_write: bool,
    pub(super) identity: Identity,
    /// Most bytes of all files in memory.
    pub(super) bytes_max: u64,
    pub(super) now: Time,
    pub(super) streams: Streams,
    pub(super) random: Random,
}

impl Files {
    pub(super) fn new(options: FilesOptions) -> Files {
        let mut files = Files {
            root: options.root,
            allow_write: options.allow_write,
            entries: BTreeMap::new(),
            copied: BTreeMap::new(),
            budget: Budget::new(options.bytes_max),
            inodes: 0,
            table: Table::default(),
            cwd: b"/".to_vec(),
            program: Vec::new(),
            umask: 0o022,
            owners: Owners::new(options.identity.user.real, options.identity.group.real),
            identity: options.identity,
            now: options.now,
            streams: options.streams,
            random: options.random,
        };
        for (fd, kind, flags) in [
            (0, Kind::Stdin, o::RDONLY),
            (1, Kind::Stdout, o::WRONLY),
            (2, Kind::Stderr, o::WRONLY),
        ] {
            let open = Description::new(kind, flags, &[b"pipe:", &[b'0' + fd][..]].concat());
            files.table.set(fd.into(), open.shared(), false);
        }
        let shared_memory = files.new_inode(S_IFDIR | 0o1777, b"/dev");
        shared_memory.borrow_mut().device = attributes::DEVICE;
        files.insert(b"/dev/shm".to_vec(), shared_memory);
        files
    }

    /// Where the host has a file.
    fn host(&self, path: &[u8]) -> PathBuf {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        self.root.join(OsStr::from_bytes(relative))
    }

    fn insert(&mut self, path: Vec<u8>, inode: InodeRef) {
        self.entries.insert(path, Entry::Node(inode));
    }

    /// What is at a path that was resolved.
    pub(super) fn node(&self, path: &[u8]) -> Node {
        match self.entries.get(path) {
            Some(Entry::Removed) => return Node::Missing,
            Some(Entry::Node(inode)) => return Node::Memory(inode.clone()),
            None if is_removed(path) => return Node::Missing,
            None => {}
        }
        if special::is_special(path) {
            return match special::find(self, path) {
                Some(special) => Node::Special(special),
                None => Node::Missing,
            };
        }
        if !self.is_of_host(path) {
            return Node::Missing;
        }
        match std::fs::symlink_metadata(self.host(path)) {
            Ok(metadata) => match self.copied.get(&attributes::identity(&metadata)) {
                Some(inode) => Node::Memory(inode.clone()),
                None => Node::Host(Box::new(metadata)),
            },
            Err(_) => Node::Missing,
        }
    }

    /// Is nothing on the way to it gone or in memory?
    fn is_of_host(&self, path: &[u8]) -> bool {
        let mut path = path;
        while let Some(slash) = path.iter().rposition(|&b| b == b'/').filter(|&at| at > 0) {
            path = &path[..slash];
            if self.entries.contains_key(path) {
                return false;
            }
        }
        true
    }

    /// Resolves a path that begins in the directory `base`. The last component need not be
    /// there, and is not followed if it is a symbolic link unless `follow`.
    ///
    /// # Errors
    /// As Linux' `path_lookupat`.
    pub(super) fn resolve(&self, base: &[u8], path: &[u8], follow: bool) -> Answer<ResolvedPath> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut at = match path.first() {
            Some(b'/') => b"/".to_vec(),
            _ => base.to_vec(),
        };
        let mut node = self.node(&at);
        let mut todo: Vec<Vec<u8>> = components(path);
        let wants_directory = path.ends_with(b"/");
        let mut links = 0;
        while let Some(name) = todo.pop() {
            match &node {
                Node::Missing => return Err(Errno::ENOENT),
                node if !node.is_directory() => return Err(Errno::ENOTDIR),
                node if !self.may_search(&at, node) => return Err(Errno::EACCES),
                _ => {}
            }
            match &name[..] {
                b"." => continue,
                b".." => {
                    at = parent(&at).to_vec();
                    node = self.node(&at);
                    continue;
                }
                name if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                _ => {}
            }
            let next = join(&at, &name);
            let found = self.node(&next);
            let last = todo.is_empty() && !wants_directory;
            match found.link(self, &next) {
                Some(target) if !last || follow => {
                    links += 1;
                    if links > SYMLINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    let target = target?;
                    if target.starts_with(b"/") {
                        at = b"/".to_vec();
                    }
                    node = self.node(&at);
                    todo.extend(components(&target));
                    if todo.len() > PATH_MAX {
                        return Err(Errno::ENAMETOOLONG);
                    }
                }
                _ => (at, node) = (next, found),
            }
        }
        let is_missing = matches!(node, Node::Missing);
        if wants_directory && !is_missing && !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        Ok(ResolvedPath { path: at, node })
    }

    fn may_search(&self, path: &[u8], node: &Node) -> bool {
        let attributes = match node {
            Node::Special(_) => return true,
            Node::Host(metadata) => Attributes::of_host(metadata, self.owners),
            Node::Memory(inode) => Attributes::of_inode(&inode.borrow()),
            Node::Missing => return false,
        };
        debug_assert!(path.starts_with(b"/"));
        self.allows(&attributes, 1)
    }

    /// As [`Files::resolve`], of a file that must be there.
    pub(super) fn find(&self, base: &[u8], path: &[u8], follow: bool) -> Answer<ResolvedPath> {
        let resolved = self.resolve(base, path, follow)?;
        match resolved.node {
            Node::Missing => Err(Errno::ENOENT),
            _ => Ok(resolved),
        }
    }

    fn list_host(&self, path: &[u8], names: &mut BTreeMap<Vec<u8>, u8>) -> Answer<()> {
        for entry in std::fs::read_dir(self.host(path))? {
            let entry = entry?;
            let kind = entry.file_type().map_or(0, |t| attributes::host_type(&t));
            names.insert(entry.file_name().as_bytes().to_vec(), kind);
        }
        Ok(())
    }

    /// The names in a directory with the types that `getdents64` gives, in order.
    pub(super) fn list(&self, path: &[u8]) -> Answer<Vec<(Vec<u8>, u8)>> {
        let mut names: BTreeMap<Vec<u8>, u8> = BTreeMap::new();
        match self.node(path) {
            Node::Missing => return Err(Errno::ENOENT),
            Node::Special(Special::Directory(inside)) => names.extend(inside),
            Node::Host(metadata) if metadata.is_dir() => {
                self.list_host(path, &mut names)?;
            }
            Node::Memory(inode) if inode.borrow().is_directory() => {
                let host = std::fs::symlink_metadata(self.host(path));
                if host.is_ok_and(|m| self.copied.contains_key(&attributes::identity(&m))) {
                    self.list_host(path, &mut names)?;
                }
            }
            _ => return Err(Errno::ENOTDIR),
        }
        let prefix = join(path, b"");
        let inside = self.entries.range(prefix.clone()..);
        for (path, entry) in inside.take_while(|(path, _)| path.starts_with(&prefix)) {
            let name = &path[prefix.len()..];
            match entry {
                // Farther down, or gone and still used.
                _ if name.contains(&b'/') || is_removed(name) => {}
                Entry::Removed => {
                    names.remove(name);
                }
                Entry::Node(inode) => {
                    let kind = (inode.borrow().mode & S_IFMT) >> 12;
                    names.insert(name.to_vec(), kind as u8);
                }
            }
        }
        Ok(names.into_iter().collect())
    }
}

impl Node {
    pub(super) fn is_directory(&self) -> bool {
        match self {
            Node::Host(metadata) => metadata.is_dir(),
            Node::Memory(inode) => inode.borrow().is_directory(),
            Node::Special(special) => matches!(special, Special::Directory(_)),
            Node::Missing => false,
        }
    }

    /// Where a symbolic link leads; `None` if it is none.
    pub(super) fn link(&self, files: &Files, path: &[u8]) -> Option<Answer<Vec<u8>>> {
        match self {
            Node::Host(metadata) if metadata.is_symlink() => {
                let target = std::fs::read_link(files.host(path));
                let target = target.map(|target| target.as_os_str().as_bytes().to_vec());
                Some(target.map_err(Errno::from))
            }
            Node::Memory(inode) => {
                let inode = inode.borrow();
                (inode.mode & S_IFMT == S_IFLNK).then(|| Ok(inode.data().to_vec()))
            }
            Node::Special(Special::Link(target)) => Some(Ok(target.clone())),
            _ => None,
        }
    }
}

/// What the last component of a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// There is none: `/`.
    Root,
}

/// What the last component of a path is, and the path without slashes behind it.
pub(super) fn last(path: &[u8]) -> (Last, &[u8]) {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let trimmed = &path[..end];
    let last = match trimmed.rsplit(|&b| b == b'/').next() {
        Some(b"") | None => return (Last::Root, path),
        Some(b".") => Last::Dot,
        Some(b"..") => Last::DotDot,
        Some(_) => Last::Name,
    };
    (last, trimmed)
}

/// The components of a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&b| b == b'/').rev();
    parts
        .filter(|p| !p.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// A name in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    [directory, b"/", name].concat()
}

/// The directory of a resolved path.
fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) if slash > 0 => &path[..slash],
        _ => b"/",
    }
}
