//! The file systems of the host by what is behind their files, and which of them a program may see.
//!
//! A stored file is only its bytes. Behind a file of procfs, sysfs or a control group is the host's
//! kernel: `PID/mem` is the memory of a process of the host, wherever procfs is mounted. Behind one
//! of a network file system or of FUSE is a program that may do anything with what it is asked. So
//! the number that the kernel gives a file system decides, never a path. Not here: finding out the
//! number of an open file (`gate`).
//!
//! Source: Linux 6.12 `include/uapi/linux/magic.h`, and `*_MAGIC` of the file systems that are not
//! in it.

use std::fmt;
use std::str::FromStr;

/// What is behind the files of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileSystemBackend {
    /// Bytes in memory or on a disk.
    Storage,
    /// Another program, another machine, or what is not known here.
    Others,
    /// The host's kernel, or a service of it.
    Kernel,
}

/// Number, name and what is behind the files.
type FileSystemRow = (u32, &'static str, FileSystemBackend);

use FileSystemBackend::{Kernel, Others, Storage};

#[rustfmt::skip]
const ROWS: &[FileSystemRow] = &[
    (0xef53, "ext4", Storage), // Also ext2 and ext3.
    (0x5846_5342, "xfs", Storage),
    (0x9123_683e, "btrfs", Storage),
    (0x2fc1_2fc1, "zfs", Storage),
    (0xf2f5_2010, "f2fs", Storage),
    (0x0102_1994, "tmpfs", Storage),
    (0x8584_58f6, "ramfs", Storage),
    (0x794c_7630, "overlay", Storage),
    (0x7371_7368, "squashfs", Storage),
    (0x9660, "iso9660", Storage),
    (0x4d44, "vfat", Storage),

    (0x0102_1997, "9p", Others),
    (0x6573_5546, "fuse", Others), // Also virtiofs.
    (0x6969, "nfs", Others),
    (0x517b, "smb", Others),
    (0xff53_4d42, "cifs", Others),
    (0xfe53_4d42, "smb3", Others),
    (0x00c3_6400, "ceph", Others),
    (0x5346_414f, "afs", Others),
    (0x6b41_4653, "kafs", Others),
    (0x7375_7245, "coda", Others),
    (0x564c, "ncpfs", Others),
    (0x0187, "autofs", Others),
    (0x00c0_ffee, "hostfs", Others),
    (0x786f_4256, "vboxsf", Others),
    (0xbacb_acbc, "vmhgfs", Others),
    (0x0bd0_0bd0, "lustre", Others),
    (0x4750_4653, "gpfs", Others),
    (0x7461_636f, "ocfs2", Others),
    (0x0116_1970, "gfs2", Others),
    (0x2003_0528, "orangefs", Others),
    (0xf15f, "ecryptfs", Others),
    (0xca45_1a4e, "bcachefs", Others),
    (0xe0f5_e1e2, "erofs", Others),
    (0x2011_bab0, "exfat", Others),
    (0x7366_746e, "ntfs3", Others),
    (0x5346_544e, "ntfs", Others),
    (0x3153_464a, "jfs", Others),
    (0x3434, "nilfs2", Others),
    (0x1501_3346, "udf", Others),
    (0x5265_4973, "reiserfs", Others),
    (0x28cd_3d45, "cramfs", Others),
    (0x7275, "romfs", Others),
    (0x72b6, "jffs2", Others),
    (0x2405_1905, "ubifs", Others),
    (0x482b, "hfsplus", Others),
    (0x4d5a, "minix", Others),
    (0x5a4f_4653, "zonefs", Others),

    (0x9fa0, "proc", Kernel),
    (0x6265_6572, "sysfs", Kernel),
    (0x0027_e0eb, "cgroup", Kernel),
    (0x6367_7270, "cgroup2", Kernel),
    (0x6462_6720, "debugfs", Kernel),
    (0x7472_6163, "tracefs", Kernel),
    (0x7363_6673, "securityfs", Kernel),
    (0xcafe_4a11, "bpf", Kernel),
    (0x6265_6570, "configfs", Kernel),
    (0xf97c_ff8c, "selinuxfs", Kernel),
    (0x4341_5d53, "smackfs", Kernel),
    (0x5a3c_69f0, "apparmorfs", Kernel),
    (0xde5e_81e4, "efivarfs", Kernel),
    (0x6165_676c, "pstore", Kernel),
    (0x4249_4e4d, "binfmt_misc", Kernel),
    (0x0765_5821, "resctrl", Kernel),
    (0x1cd1, "devpts", Kernel),
    (0x1980_0202, "mqueue", Kernel),
    (0x6e73_6673, "nsfs", Kernel),
    (0x5049_4446, "pidfs", Kernel),
    (0x5049_5045, "pipefs", Kernel),
    (0x534f_434b, "sockfs", Kernel),
    (0x0904_1934, "anon_inodefs", Kernel),
    (0x9584_58f6, "hugetlbfs", Kernel),
    (0x6573_5543, "fusectl", Kernel),
    (0x6759_6969, "rpc_pipefs", Kernel),
    (0x6e66_7364, "nfsd", Kernel),
    (0x6c6f_6f70, "binder", Kernel),
    (0x6264_6576, "bdev", Kernel),
    (0x454d_444d, "devmem", Kernel),
    (0x444d_4142, "dmabuf", Kernel),
    (0x5345_434d, "secretmem", Kernel),
    (0x474d_454d, "guest_memfd", Kernel),
    (0x6464_6178, "daxfs", Kernel),
    (0xabba_1974, "xenfs", Kernel),
    (0x9fa2, "usbdevfs", Kernel),
    (0x9fa1, "openpromfs", Kernel),
    (0x0a64_7361, "functionfs", Kernel),
    (0xaee7_1ee7, "gadgetfs", Kernel),
    (0x76a9_f425, "ocfs2_dlmfs", Kernel),
    (0x6f70_726f, "oprofilefs", Kernel),
];

/// Other names of file systems that share the number of one in the table.
const ALIASES: [(&str, &str); 8] = [
    ("ext2", "ext4"),
    ("ext3", "ext4"),
    ("msdos", "vfat"),
    ("virtiofs", "fuse"),
    ("fuseblk", "fuse"),
    ("nfs4", "nfs"),
    ("cgroupfs", "cgroup"),
    ("procfs", "proc"),
];

/// A kind of file system of the host, by the number that `statfs` gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileSystem(u32);

impl FileSystem {
    /// The kind with this number (`f_type` of `statfs`).
    pub(super) fn of_magic(magic: u32) -> FileSystem {
        FileSystem(magic)
    }

    fn row(self) -> Option<&'static FileSystemRow> {
        ROWS.iter().find(|row| row.0 == self.0)
    }

    /// What is behind its files.
    pub(super) fn behind(self) -> FileSystemBackend {
        self.row().map_or(Others, |row| row.2)
    }
}

/// Its name, as [`FromStr`] reads it: that of the table, or the number.
impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => f.write_str(row.1),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Why a kind of file system cannot be allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileSystemError {
    /// There is no such name.
    #[error(
        "unknown file system `{0}`; known: {names}, or the number of another one, such as 0xef53 \
         (`stat -f -c 0x%t DIR` prints it)",
        names = names()
    )]
    Unknown(String),
    /// It shows the host's kernel.
    #[error(
        "`{0}` cannot be allowed: behind its files are the host's kernel and its processes, which a \
         program in the machine must never reach"
    )]
    Never(String),
}

fn names() -> String {
    let named = ROWS.iter().filter(|row| row.2 == Others);
    let named: Vec<&str> = named.map(|row| row.1).collect();
    named.join(", ")
}

/// A kind of file system that a program may be allowed to see, by its name or its number.
impl FromStr for FileSystem {
    type Err = FileSystemError;

    fn from_str(text: &str) -> Result<FileSystem, FileSystemError> {
        // `fuse.sshfs` is how mount tables write what the server of a FUSE mount is.
        let name = text.split_once('.').map_or(text, |(name, _)| match name {
            "fuse" | "fuseblk" => "fuse",
            _ => text,
        });
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name, |(_, of)| of);
        let number = name.strip_prefix("0x");
        let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let row = ROWS.iter().find(|row| row.1 == name).map(|row| row.0);
        let found = row.or(number).map(FileSystem);
        let found = found.ok_or_else(|| FileSystemError::Unknown(text.to_owned()))?;
        match found.behind() {
            Kernel => Err(FileSystemError::Never(text.to_owned())),
            Storage | Others => Ok(found),
        }
    }
}

/// A file system of the host that a program was refused.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Refusal {
    /// Where it is mounted on the host, if that is known.
    pub(super) mount_point: Option<String>,
    /// The name in the host's mount table, or else that of the number.
    pub(super) name: String,
    pub(super) kind: FileSystem,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host's file system {}", self.name)?;
        if let Some(mount_point) = &self.mount_point {
            write!(f, " at {mount_point}")?;
        }
        match self.kind.behind() {
            Kernel => f.write_str(
                ": behind it is the host's kernel, so no option allows it; the program has the \
                 machine's own /proc, /sys and /dev",
            ),
            Storage | Others => write!(f, "; to allow it: --allow-fs {}", self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number and name has one row, and a name that is printed can be given.
    #[test]
    fn names_and_numbers_are_those_of_one_file_system() {
        for (index, (number, name, behind)) in ROWS.iter().enumerate() {
            let others = &ROWS[..index];
            assert!(others.iter().all(|row| row.0 != *number), "{name}");
            assert!(others.iter().all(|row| row.1 != *name), "{name}");
            let kind = FileSystem::of_magic(*number);
            assert_eq!(kind.to_string(), *name);
            let number = format!("{number:#x}");
            for text in [*name, &number] {
                match behind {
                    Kernel => assert_eq!(
                        text.parse::<FileSystem>(),
                        Err(FileSystemError::Never(text.to_owned()))
                    ),
                    Storage | Others => assert_eq!(text.parse(), Ok(kind)),
                }
            }
        }
        for (alias, of) in ALIASES {
            assert!(ROWS.iter().any(|row| row.1 == of), "{alias}");
            assert!(ROWS.iter().all(|row| row.1 != alias), "{alias}");
        }
    }

    #[test]
    fn what_is_unknown_is_refused_and_can_be_named() {
        let unknown = FileSystem::of_magic(0x1234_5678);
        assert_eq!(unknown.behind(), Others);
        assert_eq!(unknown.to_string().parse(), Ok(unknown));
        let sshfs = "fuse.sshfs".parse::<FileSystem>();
        assert_eq!(sshfs, "virtiofs".parse());
        for text in [
            "",
            "0x",
            "0xg",
            "0x123456789",
            "nothing",
            "proc.x",
            "fuse-x",
        ] {
            let error = Err(FileSystemError::Unknown(text.to_owned()));
            assert_eq!(text.parse::<FileSystem>(), error);
        }
    }
}
