//! System V message queues.
//!
//! Source: Linux 6.12 `ipc/msg.c`, `include/uapi/linux/msg.h`.

use super::shm::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, set_owner};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::ipc::{NOWAIT, Queue, READ, WRITE};
use std::collections::VecDeque;

const MSG_STAT: u32 = 11;
const MSG_INFO: u32 = 12;
const MSG_STAT_ANY: u32 = 13;
/// `MSGMNI`.
const QUEUES_MAX: usize = 32000;
/// `MSGMAX`, bytes.
const MESSAGE_MAX: u64 = 8192;
/// `MSGMNB`, bytes.
const QUEUE_BYTES: u64 = 16384;

impl Kernel {
    pub(super) fn sys_msgget(&mut self, key: u64, flags: u64) -> Answer {
        let (key, flags) = (key as u32, flags as u32);
        let identity = self.files.own.identity.clone();
        let seconds = self.seconds();
        let queues = &mut self.system.ipc.queues;
        if let Some(number) = queues.find(key, flags, &identity, |_| Ok(()))? {
            return Ok(number.into());
        }
        let queue = Queue {
            messages: VecDeque::new(),
            bytes_max: QUEUE_BYTES,
            times: [0, 0, seconds],
            processes: [0; 2],
        };
        Ok(queues.add(key, flags, &identity, QUEUES_MAX, queue)?.into())
    }

    /// The number of a queue, which may have been removed while the call waited.
    fn check_queue(&self, number: u32, wanted: u32) -> Answer<()> {
        let identity = &self.files.own.identity;
        match self.system.ipc.queues.usable(number, identity, wanted) {
            Err(Errno::EINVAL) if self.has_waited() => Err(Errno::EIDRM),
            found => found.map(drop),
        }
    }

    pub(super) fn sys_msgsnd(&mut self, number: u64, at: u64, size: u64, flags: u64) -> Answer {
        let kind = self.u64_at(at)?.cast_signed();
        if size > MESSAGE_MAX || (number as i32) < 0 || kind < 1 {
            return Err(Errno::EINVAL);
        }
        let mut text = vec![0; size as usize];
        self.get(at.wrapping_add(8), &mut text)?;
        let number = number as u32;
        self.check_queue(number, WRITE)?;
        let (seconds, process) = (self.seconds(), self.process.number);
        let (_, queue) = self.system.ipc.queues.get_mut(number)?;
        let has_room = queue.bytes() + size <= queue.bytes_max
            && (queue.messages.len() as u64) < queue.bytes_max;
        if has_room {
            queue.messages.push_back((kind, text));
            queue.times[0] = seconds;
            queue.processes[0] = process;
            return Ok(0);
        }
        match flags as u32 & NOWAIT {
            0 => self.wait_for_signal(Errno::ERESTARTNOHAND),
            _ => Err(Errno::EAGAIN),
        }
    }

    pub(super) fn sys_msgrcv(&mut self, args: [u64; 6]) -> Answer {
        const NOERROR: u32 = 0o1_0000;
        const EXCEPT: u32 = 0o2_0000;
        const COPY: u32 = 0o4_0000;
        let [number, to, size, kind, flags, _] = args;
        let (number, kind, flags) = (number as u32, kind.cast_signed(), flags as u32);
        if number.cast_signed() < 0 || size > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let copies = flags & COPY != 0;
        if copies && (flags & EXCEPT != 0 || flags & NOWAIT == 0) {
            return Err(Errno::EINVAL);
        }
        self.check_queue(number, READ)?;
        let (_, queue) = self.system.ipc.queues.get(number)?;
        let mut all = queue.messages.iter().map(|(kind, _)| *kind);
        let found = match kind {
            kind if copies => usize::try_from(kind)
                .ok()
                .filter(|&at| at < queue.messages.len()),
            0 => (!queue.messages.is_empty()).then_some(0),
            kind @ 1.. if flags & EXCEPT != 0 => all.position(|other| other != kind),
            kind @ 1.. => all.position(|other| other == kind),
            kind => {
                let most = kind.checked_neg().unwrap_or(i64::MAX);
                let lowest = all.enumerate().filter(|(_, other)| *other <= most);
                lowest.min_by_key(|(_, other)| *other).map(|(at, _)| at)
            }
        };
        let Some(index) = found else {
            return match flags & NOWAIT {
                0 => self.wait_for_signal(Errno::ERESTARTNOHAND),
                _ => Err(Errno::ENOMSG),
            };
        };
        let (kind, text) = queue.messages[index].clone();
        if text.len() as u64 > size && flags & NOERROR == 0 {
            return Err(Errno::E2BIG);
        }
        if !copies {
            let (seconds, process) = (self.seconds(), self.process.number);
            let (_, queue) = self.system.ipc.queues.get_mut(number)?;
            queue.messages.remove(index);
            queue.times[1] = seconds;
            queue.processes[1] = process;
        }
        // What cannot be stored is lost.
        let count = (text.len() as u64).min(size);
        self.put_u64(to, kind.cast_unsigned())?;
        self.put(to.wrapping_add(8), &text[..count as usize])?;
        Ok(count)
    }

    pub(super) fn sys_msgctl(&mut self, number: u64, command: u64, to: u64) -> Answer {
        let (number, command) = (number as u32, command as u32);
        if number.cast_signed() < 0 || command.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        let identity = self.files.own.identity.clone();
        match command {
            IPC_INFO | MSG_INFO => {
                let queues = &self.system.ipc.queues;
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
                let words = [pool, map, 8192, 16384, QUEUES_MAX as u32, 16, total, 0xffff];
                let bytes = words.map(u32::to_le_bytes);
                self.put(to, bytes.as_flattened())?;
                Ok(self.system.ipc.queues.index_max().into())
            }
            IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
                let queues = &self.system.ipc.queues;
                let (number, owner, queue) = match command {
                    IPC_STAT => {
                        let (owner, queue) = queues.get(number)?;
                        (number, owner, queue)
                    }
                    _ => queues.at(number)?,
                };
                if command != MSG_STAT_ANY && !owner.allows(&identity, READ) {
                    return Err(Errno::EACCES);
                }
                let [sent, received, changed] = queue.times.map(i64::cast_unsigned);
                let [sender, receiver] = queue.processes.map(u64::from);
                let count = queue.messages.len() as u64;
                let both = sender | receiver << 32;
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
                    IPC_SET => Some((self.bytes::<48>(to)?, self.u64_at(to.wrapping_add(88))?)),
                    _ => None,
                };
                let seconds = self.seconds();
                let (owner, queue) = self.system.ipc.queues.get_mut(number)?;
                if !owner.may_control(&identity) {
                    return Err(Errno::EPERM);
                }
                match new {
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
