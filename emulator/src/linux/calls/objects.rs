//! `eventfd`, `timerfd`, `signalfd`: creating, reading and writing them.
//!
//! Source: Linux 6.12 `fs/eventfd.c`, `fs/timerfd.c`, `fs/signalfd.c`.

use super::transfer::Outgoing;
use crate::linux::Kernel;
use crate::linux::clock::{Base, Owner, SECOND, Timer};
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};
use crate::linux::handle::{HandleKind, ev};
use crate::linux::objects::Object;
use crate::linux::signals::{Info, SIGCHLD, UNBLOCKABLE};

/// Size of a `struct signalfd_siginfo`, bytes.
const SIGNAL: u64 = 128;
/// The process of a timer that belongs to an open file.
const NO_PROCESS: u32 = 0;

impl Kernel {
    pub(super) fn sys_eventfd(&mut self, initial: u64, flags: u64) -> Answer {
        const SEMAPHORE: u32 = 1;
        if flags as u32 & !(SEMAPHORE | o::CLOEXEC | o::NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }
        let counter = Object::Counter {
            count: u64::from(initial as u32),
            semaphore: flags as u32 & SEMAPHORE != 0,
        };
        self.add_object(counter, flags as u32 & o::NONBLOCK | o::RDWR, flags)
    }

    /// Waits for an object, unless the open file does not wait.
    pub(super) fn wait_for_object(&mut self, open: &Shared) -> Answer {
        match open.borrow().flags & o::NONBLOCK {
            0 => self.wait_or_restart(),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Writes bytes to vectors of memory, as far as there is room.
    pub(super) fn scatter(&mut self, vectors: &[(u64, u64)], bytes: &[u8]) -> Answer {
        let mut rest = bytes;
        for &(base, size) in vectors {
            let count = rest.len().min(usize::try_from(size).unwrap_or(usize::MAX));
            self.put(base, &rest[..count])?;
            rest = &rest[count..];
        }
        Ok((bytes.len() - rest.len()) as u64)
    }

    pub(super) fn read_object(&mut self, open: &Shared, vectors: &[(u64, u64)]) -> Answer {
        let (id, sort) = match &open.borrow().kind {
            Kind::Object(handle) => (handle.id, handle.sort),
            _ => return Err(Errno::EINVAL),
        };

        let total = vectors.iter().fold(0_u64, |sum, v| sum.saturating_add(v.1));
        match sort {
            // Both give eight bytes (eventfd(2), timerfd_create(2)).
            HandleKind::Counter | HandleKind::Timer if total < 8 => Err(Errno::EINVAL),
            HandleKind::Counter | HandleKind::Timer => match self.take_count(id) {
                Some(count) => self.scatter(vectors, &count.to_le_bytes()),
                None => self.wait_for_object(open),
            },
            HandleKind::Signals => self.read_signals(open, id, vectors, total / SIGNAL),
            HandleKind::Inotify => self.read_inotify(open, id, vectors, total),
            HandleKind::Terminal => {
                let end = self.objects.terminal_end(id).ok_or(Errno::EIO)?;
                self.read_terminal(open, end, vectors, total)
            }
            HandleKind::Socket if total == 0 => Ok(0),
            HandleKind::Socket => self
                .receive(open, vectors, 0)
                .map(|incoming| incoming.count),
            HandleKind::Queue => {
                self.not_modelled("reading the state of a message queue", Errno::EINVAL)
            }
            // None of these can be read.
            HandleKind::Process | HandleKind::Epoll | HandleKind::Pipe | HandleKind::Lock => {
                Err(Errno::EINVAL)
            }
        }
    }

    /// What a counter or a timer gives a reader.
    fn take_count(&mut self, id: u32) -> Option<u64> {
        match self.objects.get_mut(id)? {
            Object::Counter { count: 0, .. } | Object::Timer { expired: 0, .. } => None,
            Object::Counter { count, semaphore } => {
                let taken = if *semaphore { 1 } else { *count };
                *count -= taken;
                self.objects.wake(id, ev::OUT);
                Some(taken)
            }
            Object::Timer { expired, .. } => Some(std::mem::take(expired)),
            _ => None,
        }
    }

    pub(super) fn write_object(&mut self, open: &Shared, vectors: &[(u64, u64)]) -> Answer {
        let (id, sort) = match &open.borrow().kind {
            Kind::Object(handle) => (handle.id, handle.sort),
            _ => return Err(Errno::EINVAL),
        };

        match sort {
            // Only these three can be written.
            HandleKind::Counter => {}
            HandleKind::Socket => {
                let out = Outgoing {
                    vectors: vectors.to_vec(),
                    ..Outgoing::default()
                };
                return self.send(open, out);
            }
            HandleKind::Terminal => {
                let end = self.objects.terminal_end(id).ok_or(Errno::EIO)?;
                return self.write_terminal(open, end, vectors);
            }
            _ => return Err(Errno::EINVAL),
        }

        // Each vector is a write of its own.
        let mut done = 0;
        for &(base, size) in vectors {
            match self.add_count(open, id, base, size) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(written) => done += written,
            }
        }
        Ok(done)
    }

    fn add_count(&mut self, open: &Shared, id: u32, base: u64, size: u64) -> Answer {
        // Linux before 6.7 ignores more bytes.
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let added = self.u64_at(base)?;
        if added == u64::MAX {
            return Err(Errno::EINVAL);
        }
        let Some(Object::Counter { count, .. }) = self.objects.get_mut(id) else {
            return Err(Errno::EINVAL);
        };
        match count.checked_add(added).filter(|&sum| sum != u64::MAX) {
            Some(sum) => *count = sum,
            None => return self.wait_for_object(open),
        }
        self.objects.wake(id, ev::IN);
        Ok(8)
    }

    pub(super) fn sys_timerfd_create(&mut self, clock: u64, flags: u64) -> Answer {
        const CLOCKS: [u32; 5] = [0, 1, 7, 8, 9];
        /// `CLOCK_REALTIME_ALARM`: they wake a machine that sleeps, which needs a capability.
        const FIRST_ALARM: u32 = 8;
        let clock = clock as u32;
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK) != 0 || !CLOCKS.contains(&clock) {
            return Err(Errno::EINVAL);
        }
        if clock >= FIRST_ALARM && !self.files.own.identity.is_capable() {
            return Err(Errno::EPERM);
        }
        let timer = Object::Timer {
            clock: clock.into(),
            expired: 0,
        };
        self.add_object(timer, flags as u32 & o::NONBLOCK | o::RDWR, flags)
    }

    /// The number and the clock of an open timer.
    fn timer_at(&self, fd: u64) -> Answer<(u32, u64)> {
        let open = self.files.own.table.get(fd)?;
        let open = open.borrow();
        let Kind::Object(handle) = &open.kind else {
            return Err(Errno::EINVAL);
        };
        match self.objects.get(handle.id) {
            Some(Object::Timer { clock, .. }) => Ok((handle.id, *clock)),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sys_timerfd_settime(
        &mut self,
        fd: u64,
        flags: u64,
        new: u64,
        old: u64,
    ) -> Answer {
        const ABSOLUTE: u32 = 1;
        /// The time of day is never set.
        const CANCEL_ON_SET: u32 = 2;

        // Linux has copied the whole structure before it looks at the flags.
        self.bytes::<32>(new)?;
        // `struct itimerspec`: the interval comes first.
        let (interval, first) = (self.duration_at(new)?, self.duration_at(new + 16)?);
        if flags as u32 & !(ABSOLUTE | CANCEL_ON_SET) != 0 {
            return Err(Errno::EINVAL);
        }

        let (id, clock) = self.timer_at(fd)?;
        let now = self.clock.real();

        // A first time of 0 disarms the timer (timerfd_create(2)).
        let next = match flags as u32 & ABSOLUTE {
            _ if first == 0 => None,
            0 => Some(now.saturating_add(first)),
            _ => Some(self.time_at(clock, new + 16)?),
        };

        let before = self.timerfd_words(id);
        // What expired and was not read is forgotten (`timerfd_setup`).
        if let Some(Object::Timer { expired, .. }) = self.objects.get_mut(id) {
            *expired = 0;
        }

        // A descriptor has one timer; a new one replaces it.
        let owner = Owner::Object(id);
        self.clock.timers.retain(|timer| timer.owner != owner);
        self.clock.timers.push(Timer {
            process: NO_PROCESS,
            owner,
            base: Base::Real,
            clock,
            next,
            interval,
            signal: 0,
            thread: None,
            value: 0,
            overruns: 0,
        });

        if old != 0 {
            self.put_words(old, &before)?;
        }
        Ok(0)
    }

    /// A `struct itimerspec`: the interval, and the time left.
    fn timerfd_words(&mut self, id: u32) -> [u64; 4] {
        let now = self.clock.real();
        let timer = self.timer_of(NO_PROCESS, Owner::Object(id));
        let words = timer.map_or([0; 2], |timer| {
            let left = timer.next.map_or(0, |next| next.saturating_sub(now).max(1));
            [timer.interval, left]
        });
        let [[a, b], [c, d]] = words.map(|ns| [ns / SECOND, ns % SECOND]);
        [a, b, c, d]
    }

    pub(super) fn sys_timerfd_gettime(&mut self, fd: u64, to: u64) -> Answer {
        let (id, _) = self.timer_at(fd)?;
        let words = self.timerfd_words(id);
        self.put_words(to, &words)?;
        Ok(0)
    }

    /// A timer of an open file has expired.
    pub(super) fn expire_object(&mut self, id: u32, times: u64) {
        if let Some(Object::Timer { expired, .. }) = self.objects.get_mut(id) {
            *expired = expired.saturating_add(times);
            self.objects.wake(id, ev::IN);
        }
    }

    pub(super) fn sys_signalfd(&mut self, fd: u64, mask: u64, size: u64, flags: u64) -> Answer {
        // The kernel's `sigset_t` has 64 bits; that of glibc is larger.
        if size != 8 {
            return Err(Errno::EINVAL);
        }

        // SIGKILL and SIGSTOP are ignored here (signalfd(2)).
        let wanted = self.u64_at(mask)? & !UNBLOCKABLE;
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }

        if fd as i32 == -1 {
            let signals = Object::Signals {
                set: wanted,
                seen: 0,
            };
            return self.add_object(signals, flags as u32 & o::NONBLOCK | o::RDWR, flags);
        }

        let open = self.files.own.table.get(fd)?;
        let Kind::Object(handle) = &open.borrow().kind else {
            return Err(Errno::EINVAL);
        };
        match self.objects.get_mut(handle.id) {
            Some(Object::Signals { set, seen }) => (*set, *seen) = (wanted, 0),
            _ => return Err(Errno::EINVAL),
        }
        Ok(u64::from(fd as u32))
    }

    fn read_signals(
        &mut self,
        open: &Shared,
        id: u32,
        vectors: &[(u64, u64)],
        count: u64,
    ) -> Answer {
        let set = match self.objects.get(id) {
            Some(Object::Signals { set, .. }) if count > 0 => *set,
            _ => return Err(Errno::EINVAL),
        };
        let mut bytes = Vec::new();
        while bytes.len() as u64 / SIGNAL < count {
            let Some(info) = self.process.signals.take(set) else {
                break;
            };
            bytes.extend(signal_bytes(&info));
        }
        if bytes.is_empty() {
            self.wait_for_object(open)
        } else {
            self.scatter(vectors, &bytes)
        }
    }
}

/// A `struct signalfd_siginfo`.
fn signal_bytes(info: &Info) -> [u8; SIGNAL as usize] {
    const SI_TIMER: i32 = -2;
    const SI_TKILL: i32 = -6;
    let from = &info.bytes;
    let mut to = [0; SIGNAL as usize];
    // Each field's place in `siginfo_t` and here, and its size: signo, errno, code.
    let mut fields = vec![(0, 0, 12)];

    let code = i32::from_le_bytes([from[8], from[9], from[10], from[11]]);
    // SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV.
    let is_fault = matches!(info.signal, 4 | 5 | 7 | 8 | 11) && code > 0;

    match code {
        // tid, overrun; int and ptr.
        SI_TIMER => fields.extend([(16, 24, 4), (20, 32, 4), (24, 44, 4), (24, 48, 8)]),
        // addr
        _ if is_fault => fields.push((16, 72, 8)),
        // pid, uid; status, utime, stime.
        1.. if info.signal == SIGCHLD => {
            fields.extend([(16, 12, 8), (24, 40, 4), (32, 56, 16)]);
        }
        // pid, uid; int and ptr.
        _ if code < 0 && code != SI_TKILL => fields.extend([(16, 12, 8), (24, 44, 4), (24, 48, 8)]),
        _ => fields.push((16, 12, 8)),
    }

    for (from_at, to_at, size) in fields {
        to[to_at..to_at + size].copy_from_slice(&from[from_at..from_at + size]);
    }
    to
}
