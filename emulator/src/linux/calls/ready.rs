//! What can be done with an open file without waiting, and what happens to objects.
//!
//! Source: Linux 6.12 `fs/pipe.c` (`pipe_poll`), `fs/eventfd.c`, `fs/timerfd.c`, `fs/signalfd.c`,
//! `fs/pidfs.c`, `fs/eventpoll.c` (`ep_eventpoll_poll`).

use crate::linux::Kernel;
use crate::linux::clock::Owner;
use crate::linux::files::{Device, Kind, Shared};
use crate::linux::handle::ev;
use crate::linux::locks::Holder;
use crate::linux::objects::Object;

/// Linux `EP_MAX_NESTS`.
const NESTS_MAX: u32 = 4;

impl Kernel {
    /// The events of an open file.
    pub(super) fn ready(&self, open: &Shared) -> u32 {
        self.ready_below(open, NESTS_MAX + 1)
    }

    fn ready_below(&self, open: &Shared, depth: u32) -> u32 {
        match &open.borrow().kind {
            Kind::Pipe(end) => end.events(),
            Kind::Stdin => ev::READABLE,
            Kind::Stdout | Kind::Stderr => ev::WRITABLE,
            Kind::Object(handle) => self.object_events(handle.id, depth),
            Kind::Path => ev::NVAL,
            _ => ev::READABLE | ev::WRITABLE,
        }
    }

    fn object_events(&self, id: u32, depth: u32) -> u32 {
        let Some(object) = self.objects.get(id) else {
            return 0;
        };

        match object {
            Object::Counter { count, .. } => {
                // `eventfd_poll`: writable while 1 can be added; the largest count is `u64::MAX -
                // 1`.
                let writable = if *count < u64::MAX - 1 { ev::OUT } else { 0 };
                writable | if *count > 0 { ev::IN } else { 0 }
            }
            Object::Timer { expired, .. } if *expired > 0 => ev::IN,
            Object::Signals { set, .. } if self.process.signals.pending() & set != 0 => ev::IN,
            // HUP comes only when it has been waited for (`pidfd_poll`).
            Object::Process { number } => match self.has_ended(*number) {
                None => ev::READABLE | ev::HUP,
                Some(true) => ev::READABLE,
                Some(false) => 0,
            },
            Object::Socket(socket) => self.socket_events(socket),
            Object::Inotify(inotify) if inotify.is_empty() => 0,
            Object::Inotify(_) => ev::READABLE,
            Object::Queue { queue } => self.queue_events(*queue),
            Object::Terminal(end) => self.terminal_events(*end),
            Object::Epoll(epoll) => {
                let is_ready = depth > 0
                    && epoll.candidates().any(|item| {
                        let open = item.open.upgrade();
                        open.is_some_and(|open| {
                            self.ready_below(&open, depth - 1) & item.events != 0
                        })
                    });
                if is_ready { ev::READABLE } else { 0 }
            }
            Object::Pipe | Object::Timer { .. } | Object::Signals { .. } | Object::Lock => 0,
        }
    }

    /// Whether `poll` waits for anything on this file: others are always ready.
    pub(super) fn can_poll(open: &Shared) -> bool {
        match &open.borrow().kind {
            Kind::Host(_) | Kind::Memory(_) | Kind::Directory(_) | Kind::Path => false,
            Kind::Text(_) | Kind::ThreadName(..) | Kind::ProcessMemory(_) => false,
            Kind::Device(device) => *device == Device::Random,
            _ => true,
        }
    }

    /// Acts on what happened to objects during a call.
    pub(in crate::linux) fn settle_objects(&mut self) {
        if self.objects.read_signals() {
            let all = self.all_processes();
            let pending = all.fold(0, |set, process| set | process.signals.pending());
            self.objects.see_signals(pending);
        }
        for id in self.objects.settle() {
            let is_its = |owner| matches!(owner, Owner::Object(other) if other == id);
            self.clock.timers.retain(|timer| !is_its(timer.owner));
            self.closed_event(id);
            if self.system.locks.release(Holder::Open(id), None) {
                self.system.changes += 1;
            }
        }
        self.hang_up();
        self.send_sigio();
    }
}
