//! The folders where the paths of a process begin: its working directory and its root.
//!
//! Source: Linux 6.12 `fs/open.c`, `fs/d_path.c`.

use super::AT_FDCWD;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, ResolvedPath, is_removed};

impl Kernel {
    pub(super) fn sys_getcwd(&mut self, to: u64, size: u64) -> Answer {
        if is_removed(&self.files.own.cwd) {
            return Err(Errno::ENOENT);
        }
        let mut path = self.files.own.seen(&self.files.own.cwd);
        path.push(0);
        if path.len() as u64 > size {
            return Err(Errno::ERANGE);
        }
        self.put(to, &path)?;
        Ok(path.len() as u64)
    }

    pub(super) fn sys_chdir(&mut self, path: u64) -> Answer {
        let resolved = self.find(AT_FDCWD, path, true)?;
        self.change_directory(resolved)
    }

    /// `chroot`, for which the process needs a capability.
    pub(super) fn sys_chroot(&mut self, path: u64) -> Answer {
        let resolved = self.find(AT_FDCWD, path, true)?;
        if !resolved.node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !self.files.allows(&self.files.attributes(&resolved), 1) {
            return Err(Errno::EACCES);
        }
        if !self.files.own.identity.is_capable() {
            return Err(Errno::EPERM);
        }
        self.files.own.root = resolved.path;
        Ok(0)
    }

    pub(super) fn sys_fchdir(&mut self, fd: u64) -> Answer {
        let open = self.files.own.table.get_named(fd)?;
        let is_directory = matches!(open.borrow().kind, Kind::Directory(_) | Kind::Path);
        if !is_directory {
            return Err(Errno::ENOTDIR);
        }
        self.change_directory(self.path_of(&open)?)
    }

    fn change_directory(&mut self, resolved: ResolvedPath) -> Answer {
        if !resolved.node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !self.files.allows(&self.files.attributes(&resolved), 1) {
            return Err(Errno::EACCES);
        }
        self.files.own.cwd = resolved.path;
        Ok(0)
    }
}
