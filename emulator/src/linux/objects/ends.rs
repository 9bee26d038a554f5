//! The open files of pseudo-terminals among the objects.

use super::terminal::Terminal;
use super::{ALL, Object, Objects};
use crate::linux::handle::{Handle, ev};

/// An open file of a pseudo-terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) struct TerminalEnd {
    /// The number of the terminal.
    pub(in crate::linux) number: u32,
    pub(in crate::linux) is_master: bool,
}

impl Objects {
    /// Adds a pseudo-terminal: its number, and the open master.
    pub(in crate::linux) fn add_terminal(&mut self) -> (u32, Handle) {
        let free = (0..).find(|number| !self.terminals.contains_key(number));
        let number = free.unwrap_or(u32::MAX);
        let mut terminal = Terminal::new();
        let is_master = true;
        let handle = self.add(Object::Terminal(TerminalEnd { number, is_master }));
        terminal.master = Some(handle.id);
        self.terminals.insert(number, terminal);
        (number, handle)
    }

    /// Opens a terminal once more.
    pub(in crate::linux) fn open_terminal(&mut self, number: u32) -> Handle {
        let is_master = false;
        let handle = self.add(Object::Terminal(TerminalEnd { number, is_master }));
        if let Some(terminal) = self.terminals.get_mut(&number) {
            terminal.open.insert(handle.id);
            terminal.was_closed = false;
        }
        handle
    }

    pub(in crate::linux) fn terminal(&self, number: u32) -> Option<&Terminal> {
        self.terminals.get(&number)
    }

    pub(in crate::linux) fn terminal_mut(&mut self, number: u32) -> Option<&mut Terminal> {
        self.terminals.get_mut(&number)
    }

    /// What an object is of a terminal, if it is one.
    pub(in crate::linux) fn terminal_end(&self, id: u32) -> Option<TerminalEnd> {
        match self.get(id) {
            Some(Object::Terminal(end)) => Some(*end),
            _ => None,
        }
    }

    /// These events became possible for the master, or for those who have the terminal open.
    pub(in crate::linux) fn wake_terminal(&mut self, number: u32, master: bool, events: u32) {
        let Some(terminal) = self.terminals.get(&number) else {
            return;
        };
        let ids: Vec<u32> = if master {
            terminal.master.into_iter().collect()
        } else {
            terminal.open.iter().copied().collect()
        };
        ids.into_iter().for_each(|id| self.wake(id, events));
    }

    /// The masters that were closed since this was last asked.
    pub(in crate::linux) fn take_hung_up(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.hung_up)
    }

    /// An open file of a terminal was closed.
    pub(super) fn close_end(&mut self, id: u32, end: TerminalEnd) {
        let TerminalEnd { number, is_master } = end;
        let Some(terminal) = self.terminals.get_mut(&number) else {
            return;
        };
        if is_master {
            terminal.master = None;
            self.hung_up.push(number);
            self.wake_terminal(number, false, ALL);
        } else {
            terminal.open.remove(&id);
            if terminal.open.is_empty() {
                terminal.was_closed = true;
                self.wake_terminal(number, true, ev::READABLE | ev::HUP);
            }
        }
        if !is_master {
            self.forget_terminal(number);
        }
    }

    /// Removes a terminal that nobody has open.
    pub(in crate::linux) fn forget_terminal(&mut self, number: u32) {
        let is_used = |terminal: &Terminal| terminal.master.is_some() || !terminal.open.is_empty();
        if !self.terminals.get(&number).is_some_and(is_used) {
            self.terminals.remove(&number);
        }
    }
}
