//! Pseudo-terminals among the files: `/dev/ptmx`, `/dev/pts`, `/dev/tty`. Not here: what they do
//! (`objects::terminal`, `calls::terminal`).
//!
//! Source: Linux 6.12 `fs/devpts/inode.c`; the group and the mode are those of the usual options of
//! the mount, `gid=5,mode=620`.

use super::attributes::{Attributes, S_IFCHR};
use super::special::{Device, Special};
use super::{Files, Node, ResolvedPath};

/// The folder of the terminals.
const FOLDER: &[u8] = b"/dev/pts";
/// The device number of the file system.
const DEVICE: u64 = 0x20;
/// The group `tty`.
const GROUP: u32 = 5;
const MODE: u32 = 0o620;
/// The major number of the terminals.
const MAJOR: u64 = 136;

/// What is opened for a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum TerminalFile {
    /// `/dev/ptmx`: a new one.
    New,
    /// `/dev/tty`: that which controls the process.
    Own,
    /// `/dev/pts/N`.
    Number(u32),
}

/// The path of a terminal.
pub(in crate::linux) fn terminal_path(number: u32) -> Vec<u8> {
    super::join(FOLDER, number.to_string().as_bytes())
}

/// The device number of a terminal.
pub(in crate::linux) fn terminal_device(number: u32) -> u64 {
    let number = u64::from(number);
    number & 0xff | MAJOR << 8 | (number & !0xff) << 12
}

impl Files {
    /// Adds the file of a terminal, which belongs to the process.
    pub(in crate::linux) fn add_terminal(&mut self, number: u32) {
        let inode = self.new_inode(S_IFCHR | MODE, FOLDER);
        {
            let mut inode = inode.borrow_mut();
            (inode.device, inode.number) = (DEVICE, u64::from(number) + 3);
            (inode.gid, inode.rdev) = (GROUP, terminal_device(number));
        }
        self.insert(terminal_path(number), inode);
    }

    pub(in crate::linux) fn remove_terminal(&mut self, number: u32) {
        self.drop_entry(&terminal_path(number));
    }

    /// Which terminal a path leads to.
    pub(in crate::linux) fn terminal_file(resolved: &ResolvedPath) -> Option<TerminalFile> {
        match &resolved.node {
            Node::Special(Special::Device(Device::Terminal)) => Some(TerminalFile::Own),
            Node::Special(Special::Device(Device::NewTerminal)) => Some(TerminalFile::New),
            Node::Memory(inode) => {
                let device = inode.borrow().rdev;
                let number = device & 0xff | device >> 12 & !0xff;
                let is_one = device >> 8 & 0xfff == MAJOR;
                is_one.then_some(TerminalFile::Number(number as u32))
            }
            _ => None,
        }
    }

    /// The attributes of an open terminal, whose file may be gone.
    pub(super) fn of_terminal(&self, path: &[u8]) -> Attributes {
        let name = path
            .strip_prefix(FOLDER)
            .and_then(|name| name.strip_prefix(b"/"));
        let number = name.and_then(|name| std::str::from_utf8(name).ok()?.parse().ok());
        match (self.node(path), number) {
            (Node::Missing, Some(number)) => Attributes {
                device: DEVICE,
                gid: GROUP,
                ..Attributes::made_up(S_IFCHR | MODE, path, terminal_device(number))
            },
            (node, _) => self.attributes(&ResolvedPath {
                path: path.to_vec(),
                node,
            }),
        }
    }
}
