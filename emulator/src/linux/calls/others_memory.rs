//! `process_vm_readv` and `process_vm_writev`: the memory of other processes.
//!
//! Source: Linux 6.12 `mm/process_vm_access.c`.

use crate::linux::errno::{Answer, Errno};
use crate::linux::{INIT, Kernel};

/// Maximum size of one call, bytes (Linux `MAX_RW_COUNT`).
const COUNT_MAX: u64 = 0x7fff_f000;

impl Kernel {
    /// `process_vm_readv`, or `process_vm_writev` if it `writes`.
    pub(super) fn sys_process_vm(&mut self, args: [u64; 6], writes: bool) -> Answer {
        let [number, local, local_count, remote, remote_count, flags] = args;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }

        let local = self.vectors(local, local_count)?;
        // Addresses of the other process are not checked.
        let mut others = Vec::new();
        for index in 0..remote_count {
            // `UIO_MAXIOV`.
            if remote_count > 1024 {
                return Err(Errno::EINVAL);
            }
            let at = remote.wrapping_add(16 * index);
            let size = self.u64_at(at.wrapping_add(8))?;
            // As `import_iovec`: sizes are signed.
            if size > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            others.push((self.u64_at(at)?, size));
        }

        let total: u64 = local.iter().fold(0, |sum, v| sum.saturating_add(v.1));
        if total == 0 || others.iter().all(|&(_, size)| size == 0) {
            return Ok(0);
        }

        // 0 is not the caller here.
        if number as u32 == 0 {
            return Err(Errno::ESRCH);
        }
        let process = self.task_of(number)?.process;
        if process == INIT || self.process(process).is_some() {
            self.may_access(process)?;
        }

        let mut all = self.all_processes();
        let space = all.find(|other| other.number == process).map(|p| p.space);
        drop(all);
        let space = space.ok_or(Errno::ESRCH)?;

        // `MAX_RW_COUNT`: no call transfers more.
        let total = total.min(COUNT_MAX);
        let mut done = 0;
        'copying: for (base, size) in others {
            let mut at = base;
            let end = base.saturating_add(size);
            while at < end && done < total {
                let (own, room) = place_in(&local, done);
                // At most a page at a time: what is before a bad address is copied.
                let page = 4096 - at.max(1) % 4096;
                let want = (end - at).min(total - done).min(room).min(page).min(4096) as usize;
                let mut bytes = vec![0; want];

                let memory = &mut self.machine.core.memory;
                let copied = if writes {
                    memory.read(own, &mut bytes).is_ok()
                        && memory
                            .with_space(space, |memory| memory.write(at, &bytes).is_ok())
                            .unwrap_or(false)
                } else {
                    memory
                        .with_space(space, |memory| memory.read(at, &mut bytes).is_ok())
                        .unwrap_or(false)
                        && memory.write(own, &bytes).is_ok()
                };

                // What was copied before counts (process_vm_readv(2)).
                if !copied {
                    break 'copying;
                }
                if writes {
                    self.disturbed_memory(space, at..at + want as u64);
                }

                done += want as u64;
                at += want as u64;
            }
        }

        match done {
            0 => Err(Errno::EFAULT),
            done => Ok(done),
        }
    }
}

/// The address at which a position in vectors is, and the bytes from there to the vector's end.
fn place_in(vectors: &[(u64, u64)], position: u64) -> (u64, u64) {
    let mut left = position;
    for &(base, size) in vectors {
        if left < size {
            return (base + left, size - left);
        }
        left -= size;
    }
    (0, 0)
}
