//! System V message queues. Not here: `msgctl` (`msgctl`).
//!
//! Source: Linux 6.12 `ipc/msg.c`, `include/uapi/linux/msg.h`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::ipc::{NOWAIT, Queue, READ, WRITE};
use std::collections::VecDeque;

/// `MSGMNI`.
pub(super) const QUEUES_MAX: usize = 32000;
/// `MSGMAX`, bytes.
const MESSAGE_MAX: u64 = 8192;
/// `MSGMNB`, bytes.
pub(super) const QUEUE_BYTES: u64 = 16384;

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
        // MSG_COPY needs IPC_NOWAIT, and excludes MSG_EXCEPT (`ipc/msg.c`).
        if copies && (flags & EXCEPT != 0 || flags & NOWAIT == 0) {
            return Err(Errno::EINVAL);
        }

        // It may have been removed while the call waited.
        self.check_queue(number, READ)?;
        let (_, queue) = self.system.ipc.queues.get(number)?;

        let mut all = queue.messages.iter().map(|(kind, _)| *kind);
        let found = match kind {
            // With MSG_COPY the type is the message's place in the queue.
            kind if copies => usize::try_from(kind)
                .ok()
                .filter(|&at| at < queue.messages.len()),
            0 => (!queue.messages.is_empty()).then_some(0),
            kind @ 1.. if flags & EXCEPT != 0 => all.position(|other| other != kind),
            kind @ 1.. => all.position(|other| other == kind),
            // A negative type asks for the lowest one up to its absolute value (msgop(2)).
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
        // Without MSG_NOERROR it stays in the queue (msgop(2)).
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
}
