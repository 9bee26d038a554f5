//! The handlers of a run, and which of them is called at an overflow of an event.
//!
//! A task that inherits an event gets its own copy of the event. The copy keeps the handler that
//! the parent's event had at the fork (`perf_event_alloc`, `kernel/events/core.c`).

use super::Slot;
use crate::programs::Program;
use crate::sampling::{Handler, Overflown};
use crate::setup::EventSetup;
use std::collections::BTreeMap;

enum Attached {
    /// Code of the model.
    Plain(Box<dyn Handler>),
    Program(Box<Program>),
}

/// The handlers, by numbers from 1, and the slots of all events.
pub(super) struct Handlers {
    /// `None` while a program runs.
    attached: Vec<Option<Attached>>,
    slots: Vec<Slot>,
    /// The handlers of inherited events, by event and task.
    inherited: BTreeMap<(u16, i32), Slot>,
}

impl Handlers {
    /// No handlers, for this number of events.
    pub(super) fn new(events: usize) -> Self {
        Self {
            attached: Vec::new(),
            slots: vec![Slot::default(); events],
            inherited: BTreeMap::new(),
        }
    }

    /// Adds a handler. Returns its number.
    pub(super) fn add(&mut self, handler: Box<dyn Handler>) -> u16 {
        self.attached.push(Some(Attached::Plain(handler)));
        self.attached.len() as u16
    }

    /// Adds a program as a handler. Returns its number.
    pub(super) fn add_program(&mut self, program: Program) -> u16 {
        let program = Attached::Program(Box::new(program));
        self.attached.push(Some(program));
        self.attached.len() as u16
    }

    /// The handler, if it is a program that does not run now.
    pub(super) fn program(&self, handler: u16) -> Option<&Program> {
        let at = usize::from(handler).checked_sub(1)?;
        match self.attached.get(at)?.as_ref()? {
            Attached::Program(program) => Some(program),
            Attached::Plain(_) => None,
        }
    }

    /// The place of a handler, if there is one.
    fn place(&mut self, handler: u16) -> Option<&mut Option<Attached>> {
        let at = usize::from(handler).checked_sub(1)?;
        self.attached.get_mut(at)
    }

    /// All programs that do not run now.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        (1..=self.attached.len() as u16).filter_map(|handler| self.program(handler))
    }

    /// Whether the handler can be attached to the event; `None` if it does not exist.
    pub(super) fn fits(&self, handler: u16, event: &EventSetup) -> Option<bool> {
        let exists = (1..=self.attached.len()).contains(&usize::from(handler));
        let fits = |program: &Program| program.attachment(event).is_ok();
        exists.then(|| self.program(handler).is_none_or(fits))
    }

    /// Calls a handler that is not a program. Returns whether it keeps the sample.
    pub(super) fn call(&mut self, handler: u16, sample: &Overflown) -> Option<bool> {
        match self.place(handler)? {
            Some(Attached::Plain(plain)) => Some(plain.overflow(sample)),
            _ => None,
        }
    }

    /// Takes a program out while it runs in the world.
    pub(super) fn take(&mut self, handler: u16) -> Option<Box<Program>> {
        match self.place(handler)?.take()? {
            Attached::Program(program) => Some(program),
            Attached::Plain(_) => None,
        }
    }

    /// Puts a program back after its run.
    pub(super) fn put(&mut self, handler: u16, program: Box<Program>) {
        if let Some(place) = self.place(handler) {
            *place = Some(Attached::Program(program));
        }
    }

    /// The event's own handler; `None` if there is no such event.
    pub(super) fn slot(&self, event: u16) -> Option<Slot> {
        self.slots.get(usize::from(event)).copied()
    }

    /// The handler of an event while task `tid` runs.
    pub(super) fn slot_of(&self, event: u16, tid: i32) -> Slot {
        let inherited = self.inherited.get(&(event, tid)).copied();
        inherited.or(self.slot(event)).unwrap_or_default()
    }

    /// Installs a handler.
    pub(super) fn set(&mut self, event: u16, slot: Slot) {
        if let Some(old) = self.slots.get_mut(usize::from(event)) {
            *old = slot;
        }
    }

    /// A task inherits an event.
    pub(super) fn inherit(&mut self, event: u16, maker: i32, child: i32) {
        let slot = self.slot_of(event, maker);
        self.inherited.insert((event, child), slot);
    }

    /// Closes an event and those inherited from it. Returns whether one of them had a handler.
    pub(super) fn close(&mut self, event: u16) -> bool {
        let inherited = self.inherited.keys();
        let gone: Vec<_> = inherited.filter(|key| key.0 == event).copied().collect();
        let mut had = false;
        for key in gone {
            had |= self.inherited.remove(&key) != Some(Slot::default());
        }
        if let Some(slot) = self.slots.get_mut(usize::from(event)) {
            had |= std::mem::take(slot) != Slot::default();
        }
        had
    }
}
