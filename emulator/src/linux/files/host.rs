//! The host's files below one folder, the root.
//!
//! Paths come here without `.`, `..` and symbolic links: whoever resolves them has followed those
//! itself. But other processes of the host may exchange a folder for a symbolic link, or a file for
//! a FIFO, at any time. So no access follows a link anywhere on its path, and none leaves the root:
//! each begins at a descriptor of the root. What is not a regular file is not opened, since opening
//! a FIFO can wait, and opening a device can do anything. Content is that of the file which was
//! looked up, or there is an error: a path alone may name another one by then. And all that is opened
//! goes through the `gate`, with no more than its name opened: only then is it known to be on a file
//! system that the program may see.

use super::attributes::identity;
#[cfg(target_os = "linux")]
use super::attributes::{S_IFIFO, S_IFSOCK};
use super::gate::Gate;
use nix::dir::{Dir, Type};
use nix::fcntl::{self, AtFlags, OFlag};
#[cfg(target_os = "linux")]
use nix::sys::stat::SFlag;
use nix::sys::stat::{self, Mode, UtimensatFlags};
use nix::sys::time::TimeSpec;
use nix::unistd::{self, Gid, Uid, UnlinkatFlags};
use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::fs::OpenOptions;
use std::fs::{File, Metadata};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

/// A folder that is only passed through.
const FOLDER: OFlag = named(OFlag::O_DIRECTORY);

/// Flags for a file that is named, not opened, where the host has such flags.
const fn named(flags: OFlag) -> OFlag {
    #[cfg(target_os = "linux")]
    let flags = flags.union(OFlag::O_PATH);
    flags.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC)
}

/// The host's files below a folder. A copy refers to the same folder.
#[derive(Clone, Debug)]
pub(super) struct Host {
    /// None if there was no such folder: then there are no files.
    root: Option<Rc<OwnedFd>>,
    pub(super) gate: Gate,
}

/// How a regular file is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenAccess {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) truncates: bool,
}

impl OpenAccess {
    pub(super) const READ: OpenAccess = OpenAccess {
        reads: true,
        writes: false,
        truncates: false,
    };
    pub(super) const WRITE: OpenAccess = OpenAccess {
        reads: false,
        writes: true,
        truncates: false,
    };
}

impl Host {
    pub(super) fn new(root: &Path, gate: Gate) -> Host {
        // The root itself may be a link.
        let flags = FOLDER.difference(OFlag::O_NOFOLLOW);
        let root = fcntl::open(root, flags, Mode::empty()).ok();
        #[cfg(target_os = "linux")]
        if let Some(status) = root.as_ref().and_then(|root| stat::fstat(root).ok()) {
            gate.trust(status.st_dev);
        }
        Host {
            root: root.map(Rc::new),
            gate,
        }
    }

    /// Opens what a path names, if the program may see it.
    fn at(&self, path: &[u8], flags: OFlag) -> io::Result<OwnedFd> {
        let file = self.look_up(path, flags)?;
        self.gate.check(&file)?;
        Ok(file)
    }

    /// Opens the file that a path names not only by its name, after the gate was asked. In between
    /// another one may have got the name, so the gate is asked again.
    fn at_for_use(&self, path: &[u8], flags: OFlag) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        drop(self.at(path, named(OFlag::empty()))?);
        self.at(path, flags)
    }

    fn look_up(&self, path: &[u8], flags: OFlag) -> io::Result<OwnedFd> {
        let root = self.root.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let path = match path.strip_prefix(b"/").unwrap_or(path) {
            b"" => &b"."[..],
            path => path,
        };
        #[cfg(target_os = "linux")]
        {
            let how = fcntl::OpenHow::new().flags(flags).resolve(
                fcntl::ResolveFlag::RESOLVE_BENEATH | fcntl::ResolveFlag::RESOLVE_NO_SYMLINKS,
            );
            match fcntl::openat2(root, OsStr::from_bytes(path), how) {
                // Linux before 5.6, or a filter of system calls.
                Err(nix::errno::Errno::ENOSYS | nix::errno::Errno::EPERM) => {}
                opened => return Ok(opened?),
            }
        }
        walk(root, path, flags)
    }

    /// The folder that a name is in, and the name.
    fn parent<'a>(&self, path: &'a [u8]) -> io::Result<(OwnedFd, &'a OsStr)> {
        let slash = path.iter().rposition(|&b| b == b'/');
        let (folder, name) = path.split_at(slash.map_or(0, |at| at + 1));
        if name.is_empty() || name == b"." || name == b".." {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        Ok((self.at(folder, FOLDER)?, OsStr::from_bytes(name)))
    }

    /// The attributes of a file, or of a link itself.
    #[cfg(target_os = "linux")]
    pub(super) fn metadata(&self, path: &[u8]) -> io::Result<Metadata> {
        File::from(self.at(path, named(OFlag::empty()))?).metadata()
    }

    /// The attributes of a file, or of a link itself. Such hosts cannot name a file without opening
    /// it.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn metadata(&self, path: &[u8]) -> io::Result<Metadata> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        File::from(self.at(path, flags)?).metadata()
    }

    /// The target of a symbolic link.
    #[cfg(target_os = "linux")]
    pub(super) fn target(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let link = self.at(path, named(OFlag::empty()))?;
        Ok(fcntl::readlinkat(&link, "")?.into_vec())
    }

    /// The target of a symbolic link, which such hosts cannot name without following it.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn target(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let (folder, name) = self.parent(path)?;
        Ok(fcntl::readlinkat(&folder, name)?.into_vec())
    }

    /// The names in a folder, `.` and `..` too, with their `getdents64` types, in the order of the
    /// file system.
    pub(super) fn list(&self, path: &[u8]) -> io::Result<Vec<(Vec<u8>, u8)>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Where a path is `.`, nothing can be mounted in between.
        let folder = self.at(path, FOLDER)?;
        let folder = fcntl::openat(&folder, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::from_fd(folder)?.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let kind = match entry.file_type() {
                Some(kind) => type_number(kind),
                // Some file systems do not say it there.
                None => {
                    let metadata = || self.metadata(&super::join(path, name));
                    let metadata = self.gate.quietly(metadata);
                    metadata.map_or(0, |m| super::attributes::host_type(&m.file_type()))
                }
            };
            names.push((name.to_vec(), kind));
        }
        Ok(names)
    }

    /// The target of the symbolic link that was `seen` at a path.
    ///
    /// # Errors
    /// `ESTALE` if another file is there now.
    pub(super) fn target_of(&self, path: &[u8], seen: &Metadata) -> io::Result<Vec<u8>> {
        #[cfg(target_os = "linux")]
        {
            let link = File::from(self.at(path, named(OFlag::empty()))?);
            check_same(&link.metadata()?, seen)?;
            Ok(fcntl::readlinkat(&link, "")?.into_vec())
        }
        // Such hosts cannot name a link without following it.
        #[cfg(not(target_os = "linux"))]
        {
            let target = self.target(path)?;
            let (folder, name) = self.parent(path)?;
            let now = stat::fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if (now.st_dev as u64, now.st_ino) == identity(seen) {
                Ok(target)
            } else {
                Err(nix::errno::Errno::ESTALE.into())
            }
        }
    }

    /// Opens the regular file that was `seen` at a path.
    ///
    /// # Errors
    /// `ESTALE` if another file is there now; `ENODEV` if it is no regular file.
    pub(super) fn open(
        &self,
        path: &[u8],
        seen: &Metadata,
        access: OpenAccess,
    ) -> io::Result<File> {
        let check = |file: &File| {
            let metadata = file.metadata()?;
            check_same(&metadata, seen)?;
            if metadata.is_file() {
                Ok(())
            } else {
                Err(io::Error::from(nix::errno::Errno::ENODEV))
            }
        };

        #[cfg(target_os = "linux")]
        {
            let name = File::from(self.at(path, named(OFlag::empty()))?);

            // The descriptor names the file without opening it: a FIFO or a device does nothing
            // yet.
            check(&name)?;
            let mut options = OpenOptions::new();
            options.read(access.reads).write(access.writes);
            match options.truncate(access.truncates).open(link_to(&name)) {
                // No /proc here.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened,
            }
        }

        // Without such a link it is opened by its path, and checked afterwards.
        let mode = match (access.reads, access.writes) {
            (true, true) => OFlag::O_RDWR,
            (false, true) => OFlag::O_WRONLY,
            _ => OFlag::O_RDONLY,
        };

        // None of these matters to a regular file, and a FIFO or a terminal does nothing then.
        let harmless = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let flags = mode | harmless | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;

        let file = File::from(self.at_for_use(path, flags)?);
        check(&file)?;

        // Only now is it certain which file loses its content.
        if access.truncates {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Creates a regular file.
    pub(super) fn create(&self, path: &[u8], reads: bool, mode: u32) -> io::Result<File> {
        let (folder, name) = self.parent(path)?;
        let access = if reads {
            OFlag::O_RDWR
        } else {
            OFlag::O_WRONLY
        };
        let flags = access | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(fcntl::openat(
            &folder,
            name,
            flags,
            permissions(mode),
        )?))
    }

    pub(super) fn make_folder(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        Ok(stat::mkdirat(&folder, name, permissions(mode))?)
    }

    /// Makes a FIFO or a socket, which nothing here ever opens.
    #[cfg(target_os = "linux")]
    pub(super) fn make_node(&self, path: &[u8], kind: u32, mode: u32) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        let kind = match kind {
            S_IFIFO => SFlag::S_IFIFO,
            S_IFSOCK => SFlag::S_IFSOCK,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(stat::mknodat(&folder, name, kind, permissions(mode), 0)?)
    }

    /// Makes a FIFO or a socket, for which such hosts have no call.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn make_node(&self, _: &[u8], _: u32, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn make_link(&self, target: &[u8], path: &[u8]) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        Ok(unistd::symlinkat(OsStr::from_bytes(target), &folder, name)?)
    }

    /// Gives a file another name.
    pub(super) fn link(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        Ok(unistd::linkat(&from, old, &to, new, AtFlags::empty())?)
    }

    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        Ok(fcntl::renameat(&from, old, &to, new)?)
    }

    /// Removes a name; that of an empty folder if `is_folder`.
    pub(super) fn remove(&self, path: &[u8], is_folder: bool) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        let flags = if is_folder {
            UnlinkatFlags::RemoveDir
        } else {
            UnlinkatFlags::NoRemoveDir
        };
        Ok(unistd::unlinkat(&folder, name, flags)?)
    }

    /// Sets the permissions of a file or folder.
    pub(super) fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(mode);
        #[cfg(target_os = "linux")]
        {
            let name = File::from(self.at(path, named(OFlag::empty()))?);
            if name.metadata()?.is_symlink() {
                return Err(nix::errno::Errno::ELOOP.into());
            }
            match std::fs::set_permissions(link_to(&name), permissions.clone()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => return done,
            }
        }
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        File::from(self.at_for_use(path, flags)?).set_permissions(permissions)
    }

    /// Sets the owner and the group of a file, or of a link itself; `None` leaves one unchanged.
    pub(super) fn set_owner(&self, path: &[u8], ids: [Option<u32>; 2]) -> io::Result<()> {
        let [user, group] = ids;
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        #[cfg(target_os = "linux")]
        {
            // The name alone may lead to a file that is mounted over it.
            let file = self.at(path, named(OFlag::empty()))?;
            Ok(unistd::fchownat(
                &file,
                "",
                user,
                group,
                AtFlags::AT_EMPTY_PATH,
            )?)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let (folder, name) = self.parent(path)?;
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            Ok(unistd::fchownat(&folder, name, user, group, flags)?)
        }
    }

    /// Sets the times of a file, seconds and nanoseconds since 1970; `None` leaves one unchanged.
    pub(super) fn set_times(&self, path: &[u8], times: [Option<(i64, i64)>; 2]) -> io::Result<()> {
        let [accessed, modified] = times.map(|time| match time {
            Some((seconds, nanoseconds)) => TimeSpec::new(seconds, nanoseconds),
            None => TimeSpec::UTIME_OMIT,
        });
        #[cfg(target_os = "linux")]
        {
            // The name alone may lead to a file that is mounted over it. A link of /proc leads to the
            // open file, even if that is a symbolic link.
            let file = File::from(self.at(path, named(OFlag::empty()))?);
            let flags = UtimensatFlags::FollowSymlink;
            let (link, here) = (link_to(&file), fcntl::AT_FDCWD);
            match stat::utimensat(here, &link[..], &accessed, &modified, flags) {
                Err(nix::errno::Errno::ENOENT) => {}
                done => return Ok(done?),
            }
        }
        let (folder, name) = self.parent(path)?;
        let flags = UtimensatFlags::NoFollowSymlink;
        Ok(stat::utimensat(&folder, name, &accessed, &modified, flags)?)
    }
}

/// Checks that a file is the one that was `seen`.
///
/// # Errors
/// `ESTALE`.
fn check_same(file: &Metadata, seen: &Metadata) -> io::Result<()> {
    if identity(file) == identity(seen) {
        Ok(())
    } else {
        Err(nix::errno::Errno::ESTALE.into())
    }
}

/// The link of Linux that leads to an open file, whatever has its name now.
#[cfg(target_os = "linux")]
fn link_to(open: &File) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

/// Opens what a path below a folder names, folder by folder.
fn walk(root: &OwnedFd, path: &[u8], flags: OFlag) -> io::Result<OwnedFd> {
    let mut folder = root.try_clone()?;
    let (folders, name) = match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    for name in folders
        .split(|&b| b == b'/')
        .filter(|name| !name.is_empty())
    {
        folder = fcntl::openat(
            folder.as_fd(),
            OsStr::from_bytes(name),
            FOLDER,
            Mode::empty(),
        )?;
    }
    Ok(fcntl::openat(
        folder.as_fd(),
        OsStr::from_bytes(name),
        flags,
        Mode::empty(),
    )?)
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode as _)
}

/// The type in `getdents64` (`DT_*`).
fn type_number(kind: Type) -> u8 {
    match kind {
        Type::Fifo => 1,
        Type::CharacterDevice => 2,
        Type::Directory => 4,
        Type::BlockDevice => 6,
        Type::File => 8,
        Type::Symlink => 10,
        Type::Socket => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Both ways of opening refuse links, the last component included, and find the same files.
    #[test]
    fn no_link_is_followed_whatever_the_kernel_offers() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("folder");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("file"), "text").expect("written");
        symlink("folder", root.path().join("link")).expect("linked");
        symlink("file", folder.join("link")).expect("linked");
        let host = Host::new(root.path(), Gate::default());
        let open = host.root.clone().expect("a folder");
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;

        let is_there = |path: &[u8]| {
            // `openat2` at once, and component by component for kernels that lack it.
            let ways = [walk(&open, path, flags), host.at(path, flags)];
            let [walked, at_once] = ways.map(|way| way.is_ok());
            assert_eq!(walked, at_once, "{}", String::from_utf8_lossy(path));
            walked
        };

        assert!(is_there(b"folder"));
        assert!(is_there(b"folder/file"));
        assert!(!is_there(b"link/file"));
        assert!(!is_there(b"folder/link"));
        assert!(!is_there(b"folder/file/more"));
        assert!(!is_there(b"missing"));

        // A link can be read and looked at, but nothing that it leads to.
        assert_eq!(host.target(b"/folder/link").ok(), Some(b"file".to_vec()));
        assert!(host.metadata(b"/link").is_ok_and(|m| m.is_symlink()));
        let folder = host.metadata(b"/folder").expect("it is there");
        assert!(host.open(b"/folder", &folder, OpenAccess::READ).is_err());
        assert!(host.set_mode(b"/link", 0o700).is_err());
    }
}
