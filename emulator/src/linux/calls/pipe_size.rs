//! The capacity of a pipe: `F_SETPIPE_SZ` and `F_GETPIPE_SZ`.
//!
//! Source: Linux 6.12 `fs/pipe.c` (`pipe_set_size`, `round_pipe_size`).

use crate::address_space::PAGE_SIZE;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared};
use std::collections::BTreeMap;

pub(super) const SET_PIPE_SIZE: u32 = 1031;
pub(super) const GET_PIPE_SIZE: u32 = 1032;
/// The largest size without a capability, bytes (`fs.pipe-max-size`). With one, a pipe has no larger
/// size here.
const SIZE_MAX: u64 = 1 << 20;
/// The largest size that is a number of pages, bytes.
const ROUNDED_MAX: u64 = 1 << 31;
/// The sum of the sizes of all pipes from which on none can be made larger, bytes
/// (`fs.pipe-user-pages-soft`).
const ALL_MAX: usize = 64 << 20;

impl Kernel {
    pub(super) fn fcntl_pipe(&mut self, open: &Shared, command: u32, size: u64) -> Answer {
        let pipe = match &open.borrow().kind {
            Kind::Pipe(end) => end.pipe.clone(),
            // EBADF, though the descriptor is open (`pipe_fcntl`).
            _ => return Err(Errno::EBADF),
        };
        let (now, used) = (pipe.borrow().capacity, pipe.borrow().bytes.len());
        if command == GET_PIPE_SIZE {
            return Ok(now as u64);
        }

        let size = u64::from(size as u32);
        if size > ROUNDED_MAX {
            return Err(Errno::EINVAL);
        }
        // Whole pages, a power of two of them (`round_pipe_size`).
        let size = size.max(PAGE_SIZE).next_power_of_two();
        let is_larger = size > now as u64;
        let all = self.capacities() - now + size as usize;
        if is_larger && (size > SIZE_MAX || all > ALL_MAX) {
            return if self.files.own.identity.is_capable() {
                self.not_modelled("pipes that only the superuser may have", Errno::EPERM)
            } else {
                Err(Errno::EPERM)
            };
        }

        // What the pipe holds must still fit.
        if used > size as usize {
            return Err(Errno::EBUSY);
        }

        pipe.borrow_mut().capacity = size as usize;
        self.system.changes += 1;
        Ok(size)
    }

    /// The sum of the capacities of all open pipes, bytes.
    fn capacities(&self) -> usize {
        let mut all = BTreeMap::new();
        for open in self.files.all_open() {
            // The one that is asked for is not changed meanwhile.
            if let Kind::Pipe(end) = &open.borrow().kind {
                let pipe = end.pipe.as_ptr() as usize;
                all.insert(pipe, end.pipe.borrow().capacity);
            }
        }
        all.values().sum()
    }
}
