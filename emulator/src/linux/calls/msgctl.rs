//! `msgctl`.
//!
//! Source: Linux 6.12 `ipc/msg.c`, `include/uapi/linux/msg.h`.

use super::msg::{QUEUE_BYTES, QUEUES_MAX};
use super::shm::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, set_owner};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::ipc::READ;

const MSG_STAT: u32 = 11;
const MSG_INFO: u32 = 12;
const MSG_STAT_ANY: u32 = 13;

impl Kernel {
    pub(super) fn sys_msgctl(&mut self, number: u64, command: u64, to: u64) -> Answer {
        let (number, command) = (number as u32, command as u32);
        // Before anything else (`ksys_msgctl`).
        if number.cast_signed() < 0 || command.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }

        let identity = self.files.own.identity.clone();
        match command {
            IPC_INFO | MSG_INFO => {
                let queues = &self.system.ipc.queues;
                // IPC_INFO has the limits, MSG_INFO what is in use (msgctl(2)).
                let [pool, map, total] = match command {
                    IPC_INFO => [512_000, 16384, 16384],
                    _ => {
                        let messages = queues.iter().map(|(_, _, queue)| queue.messages.len());
                        let bytes = queues.iter().map(|(_, _, queue)| queue.bytes());
                        [
                            queues.len() as u32,
                            messages.sum::<usize>() as u32,
                            bytes.sum::<u64>() as u32,
                        ]
                    }
                };

                // `struct msginfo`: msgpool, msgmap, msgmax, msgmnb, msgmni, msgssz, msgtql,
                // msgseg.
                let words = [pool, map, 8192, 16384, QUEUES_MAX as u32, 16, total, 0xffff];
                let bytes = words.map(u32::to_le_bytes);
                self.put(to, bytes.as_flattened())?;
                Ok(self.system.ipc.queues.index_max().into())
            }
            IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
                let queues = &self.system.ipc.queues;
                let (number, owner, queue) = queues.named(number, command != IPC_STAT)?;

                // `*_STAT_ANY` needs no permission (msgctl(2)).
                if command != MSG_STAT_ANY && !owner.allows(&identity, READ) {
                    return Err(Errno::EACCES);
                }

                let [sent, received, changed] = queue.times.map(i64::cast_unsigned);
                let [sender, receiver] = queue.processes.map(u64::from);
                let count = queue.messages.len() as u64;
                let both = sender | receiver << 32;
                // The fields of `struct msqid64_ds` after `msg_perm`.
                let words = [
                    sent,
                    received,
                    changed,
                    queue.bytes(),
                    count,
                    queue.bytes_max,
                    both,
                    0,
                    0,
                ];

                let owner = *owner;
                self.put(to, &owner.bytes())?;
                self.put_words(to.wrapping_add(48), &words)?;
                Ok(if command == IPC_STAT {
                    0
                } else {
                    number.into()
                })
            }
            IPC_SET | IPC_RMID => {
                let new = match command {
                    // `msg_qbytes` is at 88.
                    IPC_SET => Some((self.bytes::<48>(to)?, self.u64_at(to.wrapping_add(88))?)),
                    _ => None,
                };

                let seconds = self.seconds();
                let (owner, queue) = self.system.ipc.queues.get_mut(number)?;
                if !owner.may_control(&identity) {
                    return Err(Errno::EPERM);
                }

                match new {
                    // Only CAP_SYS_RESOURCE may raise a queue above `msgmnb` (`msgctl_down`).
                    Some((_, bytes)) if bytes > QUEUE_BYTES && !identity.is_capable() => {
                        return Err(Errno::EPERM);
                    }
                    Some((new, bytes)) => {
                        set_owner(owner, &new)?;
                        queue.bytes_max = bytes;
                        queue.times[2] = seconds;
                    }
                    None => {
                        self.system.ipc.queues.remove(number);
                    }
                }
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
