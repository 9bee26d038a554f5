//! The gate to the host's files: which file system an open file is on, and whether the program may
//! see it.
//!
//! Every access to a file of the host asks here with the descriptor that it has just opened, so that
//! nothing depends on names: neither a mount at another path nor one that another process makes in
//! between changes the answer. Not here: what is behind which file system (`file_systems`).

#[cfg(target_os = "linux")]
use super::file_systems::FileSystemBackend;
use super::file_systems::{FileSystem, Refusal};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Most bytes that are read of the host's mount table.
#[cfg(target_os = "linux")]
const MOUNTS_MAX: u64 = 16 << 20;

/// What the program may see. A copy is the same gate.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    /// File systems that are allowed by name.
    allowed: Rc<[FileSystem]>,
    state: Rc<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The devices of the file systems on which the root and the program are.
    trusted: BTreeSet<u64>,
    /// What was refused since it was last asked.
    refused: Vec<Refusal>,
    /// Whether everything that can be trusted is.
    is_trusting: bool,
}

impl Gate {
    pub(super) fn new(allowed: &[FileSystem]) -> Gate {
        Gate {
            allowed: allowed.into(),
            state: Rc::default(),
        }
    }

    /// Trusts what is on the file system of an open file, unless it shows the host's kernel. The
    /// user chose that file system when choosing the root or the program.
    pub(super) fn trust(&self, device: u64) {
        self.state.borrow_mut().trusted.insert(device);
    }

    /// Does `work` as if all file systems were trusted.
    pub(super) fn trusting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state.borrow_mut().is_trusting = true;
        let done = self.quietly(work);
        self.state.borrow_mut().is_trusting = false;
        done
    }

    /// What was refused since the last call.
    pub(super) fn take_refused(&self) -> Vec<Refusal> {
        std::mem::take(&mut self.state.borrow_mut().refused)
    }

    /// The last one of them, which remains among them.
    pub(super) fn last_refused(&self) -> Option<Refusal> {
        self.state.borrow().refused.last().cloned()
    }

    /// Does `work` without keeping what is refused in it.
    pub(super) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.state.borrow().refused.len();
        let done = work();
        self.state.borrow_mut().refused.truncate(before);
        done
    }

    /// Checks that the program may see an open file.
    ///
    /// # Errors
    /// `EACCES` if not, which is what FUSE answers to users whom it does not serve.
    #[cfg(target_os = "linux")]
    pub(super) fn check(&self, file: &OwnedFd) -> io::Result<()> {
        let magic = nix::sys::statfs::fstatfs(file)?.filesystem_type().0;
        // The type of this field differs between C libraries; the number has 32 bits.
        let kind = FileSystem::of_magic(magic as u32);
        let may = match kind.behind() {
            FileSystemBackend::Storage => true,
            FileSystemBackend::Others => self.allowed.contains(&kind) || self.trusts(file)?,
            FileSystemBackend::Kernel => false,
        };
        if may {
            return Ok(());
        }

        let (mount_point, name) = mount(file).unzip();
        self.state.borrow_mut().refused.push(Refusal {
            mount_point,
            name: name.unwrap_or_else(|| kind.to_string()),
            kind,
        });
        Err(nix::errno::Errno::EACCES.into())
    }

    /// Other systems have no file systems like Linux' procfs.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn check(&self, _: &OwnedFd) -> io::Result<()> {
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn trusts(&self, file: &OwnedFd) -> io::Result<bool> {
        let device = nix::sys::stat::fstat(file)?.st_dev;
        let state = self.state.borrow();
        Ok(state.is_trusting || state.trusted.contains(&device))
    }
}

/// Mount point and file system type of the mount through which a file was opened, for a message; none
/// without a /proc.
#[cfg(target_os = "linux")]
fn mount(file: &OwnedFd) -> Option<(String, String)> {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let id = id?.trim();
    let mut mounts = Vec::new();
    let table = std::fs::File::open("/proc/self/mountinfo").ok()?;
    table.take(MOUNTS_MAX).read_to_end(&mut mounts).ok()?;
    let mounts = String::from_utf8_lossy(&mounts);
    mounts.lines().find_map(|line| of_line(line, id))
}

/// Mount point and type in the line of `mountinfo` for a mount: ID, parent, device, root, mount
/// point, options, optional fields up to `-`, type (Linux 6.12
/// Documentation/filesystems/proc.rst, section 3.5).
fn of_line(line: &str, id: &str) -> Option<(String, String)> {
    let mut words = line.split(' ');
    if words.next() != Some(id) {
        return None;
    }
    let mount_point = words.nth(3)?;
    let kind = words.skip_while(|word| *word != "-").nth(1)?;
    // Spaces and what else would disturb stay octal escapes.
    Some((mount_point.to_owned(), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_tables_say_where_a_mount_is() {
        let line = "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - fuse.x server rw";
        let found = ("/mnt/a\\040b".to_owned(), "fuse.x".to_owned());
        assert_eq!(of_line(line, "36"), Some(found));
        assert_eq!(of_line(line, "3"), None);
        assert_eq!(of_line("36 35", "36"), None);
        assert_eq!(of_line("", ""), None);
    }
}
