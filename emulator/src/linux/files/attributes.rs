//! Attributes of files, as `stat` reports them. Not here: their layout in the program's memory.

use super::description::{Description, Kind};
use super::inode::Inode;
use super::special::{Special, namespace};
use super::{Files, Identity, Node, ResolvedPath};
use crate::linux::handle::HandleKind;
use crate::linux::identity::Ids;
use std::fs::{FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

pub(in crate::linux) const S_IFMT: u32 = 0o170_000;
pub(in crate::linux) const S_IFDIR: u32 = 0o040_000;
pub(in crate::linux) const S_IFREG: u32 = 0o100_000;
pub(in crate::linux) const S_IFLNK: u32 = 0o120_000;
pub(super) const S_IFCHR: u32 = 0o020_000;
/// A socket.
pub(super) const S_IFSOCK: u32 = 0o140_000;
pub(super) const S_IFIFO: u32 = 0o010_000;

/// The device number of `/dev/shm`. Other files in memory are on their directory's device.
pub(in crate::linux) const DEVICE: u64 = 0x1f;

/// A time: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::linux) struct Time {
    pub(in crate::linux) seconds: i64,
    pub(in crate::linux) nanoseconds: u32,
}

/// The attributes that `stat` reports.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Attributes {
    pub(in crate::linux) device: u64,
    pub(in crate::linux) inode: u64,
    pub(in crate::linux) links: u64,
    pub(in crate::linux) mode: u32,
    pub(in crate::linux) uid: u32,
    pub(in crate::linux) gid: u32,
    pub(in crate::linux) rdev: u64,
    pub(in crate::linux) size: u64,
    pub(in crate::linux) block_size: u64,
    /// Number of blocks of 512 bytes.
    pub(in crate::linux) blocks: u64,
    pub(in crate::linux) accessed: Time,
    pub(in crate::linux) modified: Time,
    pub(in crate::linux) changed: Time,
}

/// The owners of the host's files in the machine: files of the user who runs the emulator belong to
/// the process, as with `unshare --map-user`; all others keep their owner.
///
/// So a process may do what this user may, and sees the same whoever the user is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    /// The user outside and inside the machine.
    users: [u32; 2],
    groups: [u32; 2],
}

impl Owners {
    pub(super) fn new(uid: u32, gid: u32) -> Owners {
        let here = std::fs::metadata("/proc/self");
        let (here_uid, here_gid) = here.map_or((uid, gid), |m| (m.uid(), m.gid()));
        Owners {
            users: [here_uid, uid],
            groups: [here_gid, gid],
        }
    }

    fn of(self, m: &Metadata) -> (u32, u32) {
        let map = |[from, to]: [u32; 2], id| if id == from { to } else { id };
        (map(self.users, m.uid()), map(self.groups, m.gid()))
    }
}

impl Owners {
    /// The user and the group outside of the machine.
    pub(super) fn outside(self, ids: [Option<u32>; 2]) -> [Option<u32>; 2] {
        let map = |[from, to]: [u32; 2], id| if id == to { from } else { id };
        let [user, group] = ids;
        [
            user.map(|id| map(self.users, id)),
            group.map(|id| map(self.groups, id)),
        ]
    }
}

impl Attributes {
    pub(super) fn of_host(m: &Metadata, owners: Owners) -> Attributes {
        let time = |seconds, nanoseconds| Time {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        let (uid, gid) = owners.of(m);
        Attributes {
            device: m.dev(),
            inode: m.ino(),
            links: m.nlink(),
            mode: m.mode(),
            uid,
            gid,
            rdev: m.rdev(),
            size: m.size(),
            block_size: m.blksize(),
            blocks: m.blocks(),
            accessed: time(m.atime(), m.atime_nsec()),
            modified: time(m.mtime(), m.mtime_nsec()),
            changed: time(m.ctime(), m.ctime_nsec()),
        }
    }

    /// Gives a file in memory these attributes.
    pub(super) fn set(&self, inode: &mut Inode) {
        (inode.device, inode.number) = (self.device, self.inode);
        inode.links = u32::try_from(self.links).unwrap_or(1);
        (inode.mode, inode.uid, inode.gid) = (self.mode, self.uid, self.gid);
        (inode.accessed, inode.modified) = (self.accessed, self.modified);
        inode.changed = self.changed;
    }

    pub(super) fn of_inode(inode: &Inode) -> Attributes {
        // The target of a short link is in the inode itself.
        let is_link = inode.mode & S_IFMT == S_IFLNK;
        let blocks = if is_link { 0 } else { inode.data().blocks() };
        Attributes {
            device: inode.device,
            inode: inode.number,
            links: inode.links.into(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.data().size(),
            block_size: 4096,
            blocks,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
        }
    }

    /// The attributes of something without content; its name determines the inode number.
    pub(super) fn made_up(mode: u32, name: &[u8], rdev: u64) -> Attributes {
        let number = name.iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33) ^ u32::from(byte)
        });
        Attributes {
            device: DEVICE - 1,
            inode: number.into(),
            links: 1,
            mode,
            rdev,
            block_size: 4096,
            ..Attributes::default()
        }
    }

    fn of_special(files: &Files, path: &[u8], special: &Special) -> Attributes {
        let of = super::special::of_process(path);
        let of = of.and_then(|(task, _)| files.of_process(task.process));
        let mut made = Attributes::of_kind(path, special);
        if let Some(of) = of {
            let Ids { effective, .. } = of.identity.user;
            (made.uid, made.gid) = (effective, of.identity.group.effective);
        }
        made
    }

    fn of_kind(path: &[u8], special: &Special) -> Attributes {
        match special {
            Special::Directory(_) => Attributes::made_up(S_IFDIR | 0o555, path, 0),
            Special::Link(_) => Attributes::made_up(S_IFLNK | 0o777, path, 0),
            Special::Text(super::Text::Comm, _) => Attributes::made_up(S_IFREG | 0o644, path, 0),
            Special::Text(..) => Attributes::made_up(S_IFREG | 0o444, path, 0),
            Special::Memory(_) => Attributes::made_up(S_IFREG | 0o600, path, 0),
            Special::Namespace(number) => Attributes {
                inode: *number,
                ..Attributes::made_up(S_IFREG | 0o444, path, 0)
            },
            Special::Device(device) => {
                let (major, minor) = device.numbers();
                Attributes::made_up(S_IFCHR | 0o666, path, major << 8 | minor)
            }
        }
    }
}

impl Files {
    /// The attributes of a resolved path; all zero if nothing exists there.
    pub(in crate::linux) fn attributes(&self, resolved: &ResolvedPath) -> Attributes {
        match &resolved.node {
            Node::Host(metadata) => {
                let mut attributes = Attributes::of_host(metadata, self.owners);
                if metadata.is_dir() && self.has_changes_in(&resolved.path) {
                    // "Not counted", as on some file systems.
                    attributes.links = 1;
                }
                attributes
            }
            Node::Memory(inode) => Attributes::of_inode(&inode.borrow()),
            Node::Special(special) => Attributes::of_special(self, &resolved.path, special),
            Node::Open(open) => self.attributes_of_open(&open.borrow()),
            Node::Missing | Node::Refused => Attributes::default(),
        }
    }

    /// The attributes of an open file.
    pub(in crate::linux) fn attributes_of_open(&self, open: &Description) -> Attributes {
        let identity = &self.own.identity;
        let attributes = self.attributes_of_kind(open);
        match &open.kind {
            // What has no name belongs to the process.
            Kind::Stdin | Kind::Stdout | Kind::Stderr => {}
            _ if open.has_name() => return attributes,
            Kind::Pipe(_) | Kind::Object(_) => {}
            _ => return attributes,
        }
        Attributes {
            uid: identity.user.file,
            gid: identity.group.file,
            mode: match open.mode {
                Some(mode) => attributes.mode & S_IFMT | mode,
                None => attributes.mode,
            },
            ..attributes
        }
    }

    fn attributes_of_kind(&self, open: &Description) -> Attributes {
        match &open.kind {
            Kind::Host(file) => match file.metadata() {
                Ok(metadata) => Attributes::of_host(&metadata, self.owners),
                Err(_) => Attributes::default(),
            },
            Kind::Memory(inode) => Attributes::of_inode(&inode.borrow()),
            Kind::Device(device) => {
                let (major, minor) = device.numbers();
                Attributes::made_up(S_IFCHR | 0o666, &open.path, major << 8 | minor)
            }
            Kind::Text(_) => {
                let made = Attributes::made_up(S_IFREG | 0o444, &open.path, 0);

                // Texts of namespaces have the namespace's number.
                let inode = namespace(&open.path).unwrap_or(made.inode);
                Attributes { inode, ..made }
            }
            Kind::ProcessMemory(_) => Attributes::made_up(S_IFREG | 0o600, &open.path, 0),
            Kind::ThreadName(..) => Attributes::made_up(S_IFREG | 0o644, &open.path, 0),
            Kind::Object(handle) if handle.sort == HandleKind::Socket => {
                Attributes::made_up(S_IFSOCK | 0o777, handle.sort.name().as_bytes(), 0)
            }
            Kind::Object(handle) if handle.sort == HandleKind::Terminal => {
                self.of_terminal(&open.path)
            }
            // Anonymous inodes have no type (`alloc_anon_inode`).
            Kind::Object(handle) => Attributes::made_up(0o600, handle.sort.name().as_bytes(), 0),
            // Both ends are one file; programs compare the numbers of two pipes.
            Kind::Pipe(end) => match &end.fifo {
                None => Attributes {
                    inode: end.pipe.borrow().number.into(),
                    mode: S_IFIFO | end.pipe.borrow().mode.unwrap_or(0o600),
                    ..Attributes::made_up(0, b"pipe", 0)
                },
                Some(inode) => Attributes::of_inode(&inode.borrow()),
            },
            // Always pipes, so that a run does not depend on where its output goes.
            Kind::Stdin | Kind::Stdout | Kind::Stderr => {
                Attributes::made_up(S_IFIFO | 0o600, &open.path, 0)
            }
            Kind::Directory(_) | Kind::Path => {
                let path = open.path.clone();
                let node = self.node(&path);
                self.attributes(&ResolvedPath { path, node })
            }
        }
    }

    /// Whether the process has these permissions: 4 read, 2 write, 1 execute or search.
    pub(in crate::linux) fn allows(&self, attributes: &Attributes, wanted: u32) -> bool {
        allows(&self.own.identity, attributes, wanted)
    }

    /// Whether the process owns the file, or is privileged.
    pub(in crate::linux) fn owns(&self, attributes: &Attributes) -> bool {
        let identity = &self.own.identity;
        identity.user.file == attributes.uid || identity.is_capable_with_files()
    }

    /// Whether anything in a directory, or below, was created or removed in memory.
    pub(super) fn has_changes_in(&self, directory: &[u8]) -> bool {
        let prefix = super::join(directory, b"");
        let mut inside = self.entries.range(prefix.clone()..);
        inside
            .next()
            .is_some_and(|(path, _)| path.starts_with(&prefix))
    }
}

/// Whether a user has these permissions: 4 read, 2 write, 1 execute or search.
fn allows(identity: &Identity, attributes: &Attributes, wanted: u32) -> bool {
    let Attributes { mode, uid, gid, .. } = *attributes;
    if identity.is_capable_with_files() {
        let is_directory = mode & S_IFMT == S_IFDIR;
        return wanted & 1 == 0 || is_directory || mode & 0o111 != 0;
    }
    let shift = if uid == identity.user.file {
        6
    } else if identity.is_in(gid) {
        3
    } else {
        0
    };
    (mode >> shift) & wanted == wanted
}

/// Device and inode number of a file of the host.
pub(super) fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The type in `getdents64` (`DT_*`).
pub(super) fn host_type(kind: &FileType) -> u8 {
    if kind.is_file() {
        8
    } else if kind.is_dir() {
        4
    } else if kind.is_symlink() {
        10
    } else if kind.is_fifo() {
        1
    } else if kind.is_char_device() {
        2
    } else if kind.is_block_device() {
        6
    } else if kind.is_socket() {
        12
    } else {
        0
    }
}
