//! `epoll_create`, `epoll_ctl`, `epoll_wait`.
//!
//! Source: Linux 6.12 `fs/eventpoll.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Description, Kind, Shared, o};
use crate::linux::handle::{HandleKind, ev};
use crate::linux::numbers as nr;
use crate::linux::objects::{Epoll, Item, ItemKey, Object, PRIVATE};
use crate::linux::threads::WaitCondition;
use std::rc::Rc;

const ADD: u32 = 1;
const DEL: u32 = 2;
const MOD: u32 = 3;
/// How an item is reported.
const EXCLUSIVE: u32 = 1 << 28;
const WAKEUP: u32 = 1 << 29;
const ONESHOT: u32 = 1 << 30;
const EDGE: u32 = 1 << 31;
/// What can be combined with [`EXCLUSIVE`].
const WITH_EXCLUSIVE: u32 = ev::IN | ev::OUT | ev::ERR | ev::HUP | WAKEUP | EDGE | EXCLUSIVE;
/// Size of a `struct epoll_event`, bytes.
const EVENT: u64 = 12;
/// Linux `EP_MAX_NESTS`.
const NESTS_MAX: usize = 4;

impl Kernel {
    pub(super) fn sys_epoll_create(&mut self, size: u64) -> Answer {
        match size as i32 {
            ..=0 => Err(Errno::EINVAL),
            _ => self.sys_epoll_create1(0),
        }
    }

    pub(super) fn sys_epoll_create1(&mut self, flags: u64) -> Answer {
        if flags as u32 & !o::CLOEXEC != 0 {
            return Err(Errno::EINVAL);
        }
        self.add_object(Object::Epoll(Epoll::default()), o::RDWR, flags)
    }

    /// The number of an open epoll.
    fn epoll_of(open: &Shared) -> Answer<u32> {
        match &open.borrow().kind {
            Kind::Object(handle) if handle.sort == HandleKind::Epoll => Ok(handle.id),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sys_epoll_ctl(&mut self, epoll: u64, op: u64, fd: u64, event: u64) -> Answer {
        let op = op as u32;

        let (mut events, mut data) = (0, 0);
        if op != DEL {
            events = self.u32_at(event)?;
            // `struct epoll_event` is packed on x86-64.
            data = self.u64_at(event.wrapping_add(4))?;
        }

        // Linux has copied the event before it looks at the descriptors.
        let open = self.files.own.table.get(epoll)?;
        let target = self.files.own.table.get(fd)?;
        if !Kernel::can_poll(&target) {
            return Err(Errno::EPERM);
        }

        let id = Kernel::epoll_of(&open)?;
        if Rc::ptr_eq(&open, &target) {
            return Err(Errno::EINVAL);
        }

        // `EPOLLEXCLUSIVE` is for `EPOLL_CTL_ADD`, with few other bits (`EPOLLEXCLUSIVE_OK_BITS`).
        if events & EXCLUSIVE != 0 {
            let is_epoll = Kernel::epoll_of(&target).is_ok();
            if op == MOD || op == ADD && (is_epoll || events & !WITH_EXCLUSIVE != 0) {
                return Err(Errno::EINVAL);
            }
        }

        let key = (fd as u32, number_of(&target));
        let item = Item {
            // Errors and hang-ups are always reported, whether asked for or not.
            events: events & !WAKEUP | ev::ERR | ev::HUP,
            data,
            open: Rc::downgrade(&target),
        };

        let known = self.objects.epoll(id).and_then(|epoll| epoll.item(key));
        match (op, known) {
            (ADD, Some(_)) => Err(Errno::EEXIST),
            (ADD, None) => {
                // `ep_loop_check`: no circles, and a bounded depth.
                if Kernel::epoll_of(&target).is_ok() {
                    self.check_nesting(id, key.1)?;
                }
                self.objects.watch(id, key);
                self.set_item(id, key, item, &target);
                Ok(0)
            }
            // What was added with EPOLLEXCLUSIVE stays as it is (epoll_ctl(2)).
            (MOD, Some(known)) if known.events & EXCLUSIVE != 0 => Err(Errno::EINVAL),
            (MOD, Some(_)) => {
                self.set_item(id, key, item, &target);
                Ok(0)
            }
            (DEL, Some(_)) => {
                self.objects.unwatch(id, key);
                if let Some(epoll) = self.objects.epoll(id) {
                    epoll.remove(key);
                }
                Ok(0)
            }
            (DEL | MOD, None) => Err(Errno::ENOENT),
            _ => Err(Errno::EINVAL),
        }
    }

    fn set_item(&mut self, id: u32, key: ItemKey, item: Item, target: &Shared) {
        let is_ready = self.ready(target) & item.events != 0;
        if let Some(epoll) = self.objects.epoll(id) {
            epoll.add(key, item);
            if is_ready {
                epoll.queue(key);
                self.objects.wake(id, ev::READABLE);
            }
        }
    }

    /// Checks that an epoll can watch another one: not itself, and not too deep a chain.
    fn check_nesting(&self, watcher: u32, watched: u32) -> Answer<()> {
        let mut level = vec![watched];
        for _ in 0..NESTS_MAX {
            if level.contains(&watcher) {
                return Err(Errno::ELOOP);
            }
            let below = level.iter().filter_map(|&id| match self.objects.get(id) {
                Some(Object::Epoll(epoll)) => Some(epoll),
                _ => None,
            });
            let opens = below.flat_map(|epoll| epoll.items()).filter_map(|item| {
                let open = item.open.upgrade()?;
                Kernel::epoll_of(&open).ok()
            });
            level = opens.collect();
            if level.is_empty() {
                return Ok(());
            }
        }
        Err(Errno::ELOOP)
    }

    pub(super) fn sys_epoll_wait(&mut self, number: u64, args: [u64; 6]) -> Answer {
        const MILLISECOND: u64 = 1_000_000;
        const EVENTS_MAX: i32 = i32::MAX / EVENT as i32;

        let [epoll, to, count, timeout, mask, size] = args;
        let timeout = match number {
            nr::epoll_pwait2 => self.interval_at(timeout, 1)?,
            _ => match timeout as i32 {
                ..0 => None,
                time => Some(time as u64 * MILLISECOND),
            },
        };

        let mask = match number {
            nr::epoll_wait => None,
            _ => self.mask_at(mask, size)?,
        };

        // `EP_MAX_EVENTS`: the size in bytes must be an `int`.
        let max = count as i32;
        if max <= 0 || max > EVENTS_MAX {
            return Err(Errno::EINVAL);
        }
        self.accessible(to, max as u64 * EVENT)?;

        let id = Kernel::epoll_of(&self.files.own.table.get(epoll)?)?;

        // The mask changes once, not every time that the call is answered again.
        if let Some(mask) = mask.filter(|_| !self.has_waited()) {
            self.process.signals.suspend(mask);
        }

        let answer = self.epoll_wait(id, to, max as u64, timeout);

        // After EINTR the handler's frame holds the old mask (`restore_saved_sigmask_unless`).
        if mask.is_some() && !matches!(answer, Err(Errno::WAITS | Errno::EINTR)) {
            self.process.signals.resume();
        }
        answer
    }

    fn epoll_wait(&mut self, id: u32, to: u64, max: u64, timeout: Option<u64>) -> Answer {
        match self.take_events(id, to, max)? {
            0 if timeout != Some(0) => {}
            found => return Ok(found),
        }
        let until = timeout.map(|t| self.clock.real().saturating_add(t));
        if self.wait_until(until, WaitCondition::Change)? {
            Err(Errno::EINTR)
        } else {
            Ok(0)
        }
    }

    /// Reports what is ready (`ep_send_events`).
    fn take_events(&mut self, id: u32, to: u64, max: u64) -> Answer {
        let Some(epoll) = self.objects.epoll(id) else {
            return Ok(0);
        };

        let mut todo = epoll.take_ready();
        let (mut found, mut again) = (0, Vec::new());
        let mut failed = None;

        while found < max {
            let Some(key) = todo.pop_front() else {
                break;
            };
            let item = self.objects.epoll(id).and_then(|epoll| epoll.item(key));
            let Some(item) = item.cloned() else {
                continue;
            };

            // What is in the list was ready once, and need not be any more.
            let open = item.open.upgrade();
            let events = open.map_or(0, |open| self.ready(&open)) & item.events;
            if events == 0 {
                continue;
            }

            let mut bytes = [0; EVENT as usize];
            bytes[..4].copy_from_slice(&events.to_le_bytes());
            bytes[4..].copy_from_slice(&item.data.to_le_bytes());
            if let Err(error) = self.put(to.wrapping_add(EVENT * found), &bytes) {
                // Not reported, so it stays in the list.
                todo.push_front(key);
                failed = Some(error);
                break;
            }

            found += 1;
            // A level-triggered item is queued again: the next call asks whether it is still ready.
            let epoll = self.objects.epoll(id);
            if let Some(item) = epoll.and_then(|epoll| epoll.item(key)) {
                if item.events & ONESHOT != 0 {
                    item.events &= PRIVATE;
                } else if item.events & EDGE == 0 {
                    again.push(key);
                }
            }
        }

        // What was not looked at is first in the next call.
        if let Some(epoll) = self.objects.epoll(id) {
            again.into_iter().for_each(|key| epoll.queue(key));
            epoll.put_back(todo);
        }

        match failed {
            Some(error) if found == 0 => Err(error),
            _ => Ok(found),
        }
    }

    /// Opens a new object.
    pub(super) fn add_object(&mut self, object: Object, flags: u32, close: u64) -> Answer {
        let limit = self.descriptors_max();
        self.files.own.table.needs_free(limit)?;
        self.may_add_objects(1)?;
        let handle = self.objects.add(object);
        let name = handle.sort.name().as_bytes();
        let open = Description::new(Kind::Object(handle), flags, name);
        self.add_open(open.shared(), close)
    }
}

/// The number by which an epoll knows an open file. The standard streams have no objects; their
/// numbers are those of their descriptors.
fn number_of(open: &Shared) -> u32 {
    match &open.borrow().kind {
        Kind::Object(handle) => handle.id,
        Kind::Pipe(end) => end.handle.id,
        Kind::Stdout => 1,
        Kind::Stderr => 2,
        _ => 0,
    }
}
