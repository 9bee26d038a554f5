//! Which handler is called at an overflow of an event.
//!
//! A task that inherits an event gets an event of its own. Its handler is the one that its maker's
//! event had at the fork (`perf_event_alloc`, `kernel/events/core.c`), and stays when that changes.

use std::collections::BTreeMap;

/// What is called at an overflow of an event: a handler and its context; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) handler: u16,
    pub(super) context: u16,
}

/// The handlers of all events.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    own: Vec<Slot>,
    /// The handlers of inherited events, by event and task.
    inherited: BTreeMap<(u16, i32), Slot>,
}

impl Slots {
    /// So many events without handlers.
    pub(super) fn new(events: usize) -> Self {
        Self {
            own: vec![Slot::default(); events],
            inherited: BTreeMap::new(),
        }
    }

    /// The event's own handler; `None` if there is no such event.
    pub(super) fn get(&self, event: u16) -> Option<Slot> {
        self.own.get(usize::from(event)).copied()
    }

    /// The handler of an event while task `tid` runs.
    pub(super) fn of(&self, event: u16, tid: i32) -> Slot {
        let inherited = self.inherited.get(&(event, tid)).copied();
        inherited.or(self.get(event)).unwrap_or_default()
    }

    /// Puts a handler in place, without its context.
    pub(super) fn set_handler(&mut self, event: u16, handler: u16) {
        if let Some(slot) = self.own.get_mut(usize::from(event)) {
            slot.handler = handler;
        }
    }

    /// Puts a handler's context in place.
    pub(super) fn set_context(&mut self, event: u16, context: u16) {
        if let Some(slot) = self.own.get_mut(usize::from(event)) {
            slot.context = context;
        }
    }

    /// A task inherits an event.
    pub(super) fn inherit(&mut self, event: u16, maker: i32, child: i32) {
        let slot = self.of(event, maker);
        self.inherited.insert((event, child), slot);
    }

    /// Closes an event and those inherited from it. Whether one of them had a handler.
    pub(super) fn close(&mut self, event: u16) -> bool {
        let inherited = self.inherited.keys();
        let gone: Vec<_> = inherited.filter(|key| key.0 == event).copied().collect();
        let mut had = false;
        for key in gone {
            had |= self.inherited.remove(&key) != Some(Slot::default());
        }
        if let Some(slot) = self.own.get_mut(usize::from(event)) {
            had |= std::mem::take(slot) != Slot::default();
        }
        had
    }
}
