//! POSIX message queues: `mq_open`, `mq_timedsend`, `mq_timedreceive`, `mq_notify` and the like.
//!
//! Source: Linux 6.12 `ipc/mqueue.c`, `ipc/mq_sysctl.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};
use crate::linux::handle::ev;
use crate::linux::limit::Limit;
use crate::linux::message_queues::{MessageQueue, Notify};
use crate::linux::numbers as nr;
use crate::linux::objects::Object;
use crate::linux::resources::RLIMIT_MSGQUEUE;
use crate::linux::signals::{Info, SIGNALS};
use crate::linux::threads::WaitCondition;

/// Maximum number of queues (`fs.mqueue.queues_max`).
const QUEUES_MAX: usize = 256;
/// Messages in a queue, and their size, without and with a capability.
const COUNT_MAX: [u64; 2] = [10, 65536];
const SIZE_MAX: [u64; 2] = [8192, 16 << 20];
/// Priorities are lower (`MQ_PRIO_MAX`).
const PRIORITY_END: u32 = 32768;
/// Linux `NAME_MAX`.
const NAME_MAX: usize = 255;
/// What all queues may need together, bytes: the machine's limit.
const ALL_MAX: u64 = 64 << 20;

impl Kernel {
    pub(super) fn sys_mq_open(&mut self, name: u64, flags: u64, mode: u64, attr: u64) -> Answer {
        let flags = flags as u32;
        let sizes = match attr {
            0 => None,
            // `struct mq_attr`: `mq_maxmsg` and `mq_msgsize` follow `mq_flags`.
            at => Some((
                self.u64_at(at.wrapping_add(8))?,
                self.u64_at(at.wrapping_add(16))?,
            )),
        };
        let name = self.queue_name(name)?;
        self.forget_queues();

        // Linux reserves the number first (`do_mq_open`).
        let limit = self.descriptors_max();
        self.files.own.table.needs_free(limit)?;

        let found = self.system.message_queues.named(&name);
        let queue = match found {
            Some(_) if flags & o::CREAT != 0 && flags & o::EXCL != 0 => return Err(Errno::EEXIST),
            Some(number) => {
                self.may_open_queue(number, flags)?;
                number
            }
            None if flags & o::CREAT == 0 => return Err(Errno::ENOENT),
            None => self.create_queue(name, mode as u32, sizes)?,
        };

        let kept = flags & (o::ACCMODE | o::NONBLOCK);
        self.add_object(Object::Queue { queue }, kept, o::CLOEXEC.into())
    }

    /// The name of a queue, which has no slash: the C library removes the first one.
    fn queue_name(&self, at: u64) -> Answer<Vec<u8>> {
        let name = self.path_at(at)?;
        match &name[..] {
            b"" => Err(Errno::ENOENT),
            b"." | b".." => Err(Errno::EACCES),
            name if name.contains(&b'/') => Err(Errno::EACCES),
            name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            _ => Ok(name),
        }
    }

    fn may_open_queue(&self, number: u64, flags: u32) -> Answer<()> {
        let wanted = match flags & o::ACCMODE {
            o::RDONLY => 4,
            o::WRONLY => 2,
            o::RDWR => 6,
            _ => return Err(Errno::EINVAL),
        };
        let queue = self.system.message_queues.all.get(&number);
        if queue.is_some_and(|queue| queue.allows(&self.files.own.identity, wanted)) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    fn create_queue(&mut self, name: Vec<u8>, mode: u32, sizes: Option<(u64, u64)>) -> Answer {
        let identity = &self.files.own.identity;
        let capable = usize::from(identity.is_capable());
        let (uid, gid) = (identity.user.file, identity.group.file);

        let queues = &self.system.message_queues;
        let named = queues.all.values().filter(|queue| queue.name.is_some());
        // Only CAP_SYS_RESOURCE may exceed `queues_max` (`ipc/mqueue.c`).
        if named.count() >= QUEUES_MAX && capable == 0 {
            return Err(Errno::ENOSPC);
        }

        // The second of two limits is that with CAP_SYS_RESOURCE (`mq_attr_ok`: HARD_MSGMAX,
        // HARD_MSGSIZEMAX).
        let (count_max, size_max) = sizes.unwrap_or((COUNT_MAX[0], SIZE_MAX[0]));
        let is_valid = |value, most: [u64; 2]| (1..=most[capable]).contains(&value);
        if !is_valid(count_max, COUNT_MAX) || !is_valid(size_max, SIZE_MAX) {
            return Err(Errno::EINVAL);
        }

        let bytes = MessageQueue::bytes(count_max, size_max);
        let needs = |queue: &MessageQueue| MessageQueue::bytes(queue.count_max, queue.size_max);
        let own = queues.all.values().filter(|queue| queue.uid == uid);
        let own: u64 = own.map(needs).sum();
        // A queue counts with all that it can hold, even while it is empty.
        if own + bytes > self.process.resources[RLIMIT_MSGQUEUE][0] {
            return Err(Errno::EMFILE);
        }

        let all: u64 = queues.all.values().map(needs).sum();
        if all + bytes > ALL_MAX {
            return self.refuse(Limit::Objects, Errno::ENOSPC);
        }

        Ok(self.system.message_queues.add(MessageQueue {
            name: Some(name),
            uid,
            gid,
            mode: mode & 0o777 & !self.files.own.umask,
            count_max,
            size_max,
            messages: Vec::new(),
            notify: None,
        }))
    }

    pub(super) fn sys_mq_unlink(&mut self, name: u64) -> Answer {
        let name = self.queue_name(name)?;
        let number = self
            .system
            .message_queues
            .named(&name)
            .ok_or(Errno::ENOENT)?;
        let queue = self.system.message_queues.all.get_mut(&number);
        let queue = queue.ok_or(Errno::ENOENT)?;
        // The folder of all queues is sticky.
        let identity = &self.files.own.identity;
        if identity.user.file != queue.uid && !identity.is_capable() {
            return Err(Errno::EPERM);
        }
        queue.name = None;
        self.forget_queues();
        Ok(0)
    }

    /// Drops the queues that have no name and that nobody has open.
    fn forget_queues(&mut self) {
        let objects = &self.objects;
        let is_open = |number: u64| {
            let its =
                |object: &Object| matches!(object, Object::Queue { queue } if *queue == number);
            !objects.find(its).is_empty()
        };
        let all = &mut self.system.message_queues.all;
        all.retain(|number, queue| queue.name.is_some() || is_open(*number));
    }

    /// The queue of a descriptor, and its open file.
    fn queue_at(&self, fd: u64) -> Answer<(u64, Shared)> {
        let open = self.files.own.table.get(fd)?;
        let number = self.queue_of(&open).ok_or(Errno::EBADF)?;
        Ok((number, open))
    }

    fn queue_of(&self, open: &Shared) -> Option<u64> {
        match &open.borrow().kind {
            Kind::Object(handle) => match self.objects.get(handle.id)? {
                Object::Queue { queue } => Some(*queue),
                _ => None,
            },
            _ => None,
        }
    }

    fn queue_mut(&mut self, number: u64) -> Answer<&mut MessageQueue> {
        let queue = self.system.message_queues.all.get_mut(&number);
        queue.ok_or(Errno::EBADF)
    }

    fn wake_queue(&mut self, number: u64, events: u32) {
        let its = |object: &Object| matches!(object, Object::Queue { queue } if *queue == number);
        for id in self.objects.find(its) {
            self.objects.wake(id, events);
        }
        self.system.changes += 1;
    }

    /// When the wait of a call ends.
    fn queue_end(&self, timeout: u64) -> Answer<Option<u64>> {
        match timeout {
            0 => Ok(None),
            at => self.time_at(0, at).map(Some),
        }
    }

    /// Waits for a queue, unless the open file does not wait.
    fn wait_for_queue(&mut self, open: &Shared, until: Option<u64>) -> Answer {
        if open.borrow().flags & o::NONBLOCK != 0 {
            return Err(Errno::EAGAIN);
        }
        if self.wait_until(until, WaitCondition::Change)? {
            Err(Errno::ERESTARTSYS)
        } else {
            Err(Errno::ETIMEDOUT)
        }
    }

    pub(super) fn sys_mq_send(&mut self, args: [u64; 6]) -> Answer {
        let [fd, at, size, priority, timeout, _] = args;
        let until = self.queue_end(timeout)?;

        // Before the descriptor is looked at (`do_mq_timedsend`).
        if priority as u32 >= PRIORITY_END {
            return Err(Errno::EINVAL);
        }

        let (number, open) = self.queue_at(fd)?;
        if !open.borrow().can_write() {
            return Err(Errno::EBADF);
        }

        // Before the bytes are read: their number is bounded by the queue's own limit.
        if size > self.queue_mut(number)?.size_max {
            return Err(Errno::EMSGSIZE);
        }

        let mut bytes = vec![0; size as usize];
        self.get(at, &mut bytes)?;

        let queue = self.queue_mut(number)?;
        if queue.is_full() {
            return self.wait_for_queue(&open, until);
        }

        let was_empty = queue.messages.is_empty();
        queue.send(priority as u32, bytes);
        // mq_notify(3): only for a message to an empty queue that nobody waits for.
        if was_empty && !self.has_receiver(number) {
            self.tell_of_message(number);
        }
        self.wake_queue(number, ev::READABLE);
        Ok(0)
    }

    /// Whether a thread waits for a message.
    fn has_receiver(&self, number: u64) -> bool {
        self.all_processes().any(|process| {
            let others = process.others.values().map(|other| &other.thread);
            let mut waits = others.chain([&process.thread]).filter_map(|thread| {
                let made = &thread.wait.as_ref()?.made;
                (made.number == nr::mq_timedreceive).then_some(made.args[0])
            });
            waits.any(|fd| {
                let files = self.files.of_process(process.number);
                let open = files.and_then(|files| files.table.get(fd).ok());
                open.and_then(|open| self.queue_of(&open)) == Some(number)
            })
        })
    }

    /// The process that has asked to be told, if it still has the queue open.
    fn notified(&self, number: u64) -> Option<Notify> {
        let notify = self.system.message_queues.all.get(&number)?.notify?;
        let files = self.files.of_process(notify.process)?;
        let mut its = files.table.open();
        its.any(|(_, open)| self.queue_of(open) == Some(number))
            .then_some(notify)
    }

    /// Who closes a descriptor of a queue is not told of messages any longer, although it may have
    /// others (`mqueue_flush_file`). Called before objects without descriptors are removed.
    pub(in crate::linux) fn forget_closed_queues(&mut self) {
        let closed = std::mem::take(&mut self.files.own.table.closed_objects);
        let own = self.process.number;
        for id in closed {
            let Some(Object::Queue { queue }) = self.objects.get(id) else {
                continue;
            };
            let queue = self.system.message_queues.all.get_mut(queue);
            if let Some(queue) = queue
                && queue.notify.is_some_and(|notify| notify.process == own)
            {
                queue.notify = None;
            }
        }
    }

    /// A message has come: sends the signal of `mq_notify`, which that process has to ask for again.
    fn tell_of_message(&mut self, number: u64) {
        let Some(notify) = self.notified(number) else {
            return;
        };
        if let Ok(queue) = self.queue_mut(number) {
            queue.notify = None;
        }
        if let Some(signal) = notify.signal {
            let uid = self.files.own.identity.user.real;
            let info = Info::of_message(signal, self.process.number, uid, notify.value);
            self.send_to(notify.process, None, info);
        }
    }

    pub(super) fn sys_mq_receive(&mut self, args: [u64; 6]) -> Answer {
        let [fd, to, size, priority, timeout, _] = args;
        let until = self.queue_end(timeout)?;
        let (number, open) = self.queue_at(fd)?;
        if !open.borrow().can_read() {
            return Err(Errno::EBADF);
        }
        let queue = self.queue_mut(number)?;
        if size < queue.size_max {
            return Err(Errno::EMSGSIZE);
        }
        if queue.messages.is_empty() {
            return self.wait_for_queue(&open, until);
        }

        // What cannot be stored is lost.
        let (its, bytes) = queue.messages.remove(0);
        self.wake_queue(number, ev::WRITABLE);
        if priority != 0 {
            self.put_u32(priority, its)?;
        }
        self.put(to, &bytes)?;
        Ok(bytes.len() as u64)
    }

    pub(super) fn sys_mq_notify(&mut self, fd: u64, event: u64) -> Answer {
        /// `SIGEV_SIGNAL`, `SIGEV_NONE`, `SIGEV_THREAD`.
        const SIGNAL: u32 = 0;
        const NONE: u32 = 1;
        const THREAD: u32 = 2;

        let wanted = match event {
            0 => None,
            at => {
                let bytes = self.bytes::<64>(at)?;
                // `struct sigevent`: value, signal, way of notification.
                let half =
                    |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
                let value = u64::from(half(0)) | u64::from(half(4)) << 32;

                let signal = match (half(12), half(8)) {
                    (SIGNAL, signal) if signal > u32::from(SIGNALS) => return Err(Errno::EINVAL),
                    // Signal 0 is none, but the process is registered.
                    (SIGNAL, signal) => Some(signal as u8).filter(|&signal| signal != 0),
                    (NONE, _) => None,
                    (THREAD, _) => {
                        return self.not_modelled("mq_notify by a thread", Errno::EINVAL);
                    }
                    _ => return Err(Errno::EINVAL),
                };
                Some((signal, value))
            }
        };

        let (number, _) = self.queue_at(fd)?;
        let (own, now) = (self.process.number, self.notified(number));
        let queue = self.queue_mut(number)?;

        match wanted {
            None if now.is_some_and(|notify| notify.process == own) => queue.notify = None,
            // Nothing to give up, or another process's: no error.
            None => {}
            // Only one process can ask to be notified by a queue (mq_notify(3)).
            Some(_) if now.is_some() => return Err(Errno::EBUSY),
            Some((signal, value)) => {
                queue.notify = Some(Notify {
                    process: own,
                    signal,
                    value,
                });
                self.files.own.table.asks_queues = true;
            }
        }
        Ok(0)
    }

    /// `mq_getsetattr`: a `struct mq_attr` has flags, the two limits and the number of messages.
    pub(super) fn sys_mq_attributes(&mut self, fd: u64, new: u64, old: u64) -> Answer {
        let flags = match new {
            0 => None,
            at => Some(
                self.bytes::<64>(at)
                    .map(|bytes| u64::from_le_bytes(std::array::from_fn(|index| bytes[index])))?,
            ),
        };

        // Only O_NONBLOCK can be changed (mq_getattr(3)).
        if flags.is_some_and(|flags| flags & !u64::from(o::NONBLOCK) != 0) {
            return Err(Errno::EINVAL);
        }

        let (number, open) = self.queue_at(fd)?;
        let now = open.borrow().flags & o::NONBLOCK;
        let queue = self.queue_mut(number)?;
        let (limits, count) = ([queue.count_max, queue.size_max], queue.messages.len());

        if let Some(flags) = flags {
            let open = &mut open.borrow_mut().flags;
            *open = *open & !o::NONBLOCK | flags as u32;
        }

        if old != 0 {
            let [most, size] = limits;
            self.put_words(old, &[now.into(), most, size, count as u64, 0, 0, 0, 0])?;
        }
        Ok(0)
    }

    /// What `poll` finds of a queue.
    pub(super) fn queue_events(&self, number: u64) -> u32 {
        let Some(queue) = self.system.message_queues.all.get(&number) else {
            return 0;
        };
        let readable = if queue.messages.is_empty() {
            0
        } else {
            ev::READABLE
        };
        readable | if queue.is_full() { 0 } else { ev::WRITABLE }
    }
}
