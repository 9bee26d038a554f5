//! Extended attributes: files have none and can have none, as on a file system without them.
//!
//! Source: Linux 6.12 `fs/xattr.c`.

use super::at::AT_FDCWD;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::numbers as nr;

/// Size of the longest name with its NUL (`XATTR_NAME_MAX` + 1).
const NAME_MAX: usize = 256;
/// Size of the largest value (`XATTR_SIZE_MAX`), bytes.
const SIZE_MAX: u64 = 65536;
/// `XATTR_CREATE` and `XATTR_REPLACE`.
const SET_FLAGS: u32 = 3;

impl Kernel {
    /// Answers all calls on extended attributes.
    pub(super) fn sys_xattr(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let [file, name, value, size, flags, _] = args;
        let lists = matches!(number, nr::listxattr..=nr::flistxattr);
        let sets = matches!(number, nr::setxattr..=nr::fsetxattr);

        if sets && flags as u32 & !SET_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }

        // A descriptor is checked first; a path only has to be readable.
        match number {
            nr::fsetxattr | nr::fgetxattr | nr::flistxattr | nr::fremovexattr => {
                self.files.own.table.get(file)?;
            }
            _ => {
                self.path_at(file)?;
            }
        }

        if !lists {
            let name = self.name_at(name, NAME_MAX)?;
            // A name has 1 to `XATTR_NAME_MAX` bytes.
            if name.is_empty() || name.len() >= NAME_MAX {
                return Err(Errno::ERANGE);
            }
        }

        if sets && size != 0 {
            if size > SIZE_MAX {
                return Err(Errno::E2BIG);
            }
            // The value must be readable even though it is not kept.
            self.get(value, &mut vec![0; size as usize])?;
        }

        match number {
            nr::setxattr | nr::getxattr | nr::listxattr | nr::removexattr => {
                self.find(AT_FDCWD, file, true)?;
            }
            nr::lsetxattr | nr::lgetxattr | nr::llistxattr | nr::lremovexattr => {
                self.find(AT_FDCWD, file, false)?;
            }
            _ => {}
        }

        // As a file system without them: no list has a name, and nothing can be set.
        if lists { Ok(0) } else { Err(Errno::EOPNOTSUPP) }
    }
}
