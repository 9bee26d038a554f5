//! Signals: pending ones, the mask, and actions. Not here: delivering them (`delivery`), the calls
//! (`calls::signal`).
//!
//! Source: Linux 6.12 `kernel/signal.c`.

mod info;

pub(super) use info::{Info, SI_KERNEL};

use super::errno::Errno;
use super::outcome::Why;
use std::collections::VecDeque;

/// Number of signals.
pub(super) const SIGNALS: u8 = 64;
pub(super) const SIGILL: u8 = 4;
pub(super) const SIGTRAP: u8 = 5;
pub(super) const SIGBUS: u8 = 7;
pub(super) const SIGFPE: u8 = 8;
pub(super) const SIGKILL: u8 = 9;
pub(super) const SIGSEGV: u8 = 11;
pub(super) const SIGPIPE: u8 = 13;
pub(super) const SIGALRM: u8 = 14;
const SIGCHLD: u8 = 17;
const SIGCONT: u8 = 18;
pub(super) const SIGSTOP: u8 = 19;
pub(super) const SIGTTOU: u8 = 22;
const SIGURG: u8 = 23;
pub(super) const SIGVTALRM: u8 = 26;
pub(super) const SIGPROF: u8 = 27;
const SIGWINCH: u8 = 28;
/// The first real-time signal: several may be pending.
const SIGRTMIN: u8 = 32;
/// Maximum number of pending signals.
const PENDING_MAX: usize = 1024;

pub(super) const SIG_DFL: u64 = 0;
pub(super) const SIG_IGN: u64 = 1;
pub(super) const SA_SIGINFO: u64 = 4;
pub(super) const SA_RESTORER: u64 = 0x0400_0000;
pub(super) const SA_ONSTACK: u64 = 0x0800_0000;
pub(super) const SA_RESTART: u64 = 0x1000_0000;
pub(super) const SA_NODEFER: u64 = 0x4000_0000;
pub(super) const SA_RESETHAND: u64 = 0x8000_0000;

/// Signals that cannot be blocked.
pub(super) const UNBLOCKABLE: u64 = bit(SIGKILL) | bit(SIGSTOP);

/// The bit of a signal in a set.
pub(super) const fn bit(signal: u8) -> u64 {
    1 << (signal - 1)
}

/// The action for a signal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

/// The alternate stack for handlers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlternateStack {
    pub(super) start: u64,
    pub(super) size: u64,
    /// As given by the program.
    pub(super) flags: u32,
}

pub(super) const SS_ONSTACK: u32 = 1;
pub(super) const SS_DISABLE: u32 = 2;
pub(super) const SS_AUTODISARM: u32 = 1 << 31;

impl AlternateStack {
    /// No alternate stack: its size is 0.
    pub(super) const fn none(flags: u32) -> AlternateStack {
        AlternateStack {
            start: 0,
            size: 0,
            flags,
        }
    }

    /// Whether it is the stack in use.
    pub(super) fn holds(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.contains(sp)
    }

    /// Whether rsp points into it.
    pub(super) fn contains(&self, sp: u64) -> bool {
        sp > self.start && sp - self.start <= self.size
    }

    /// `ss_flags` as `sigaltstack` reports them.
    pub(super) fn told(&self, sp: u64) -> u32 {
        let now = match self.size {
            0 => SS_DISABLE,
            _ if self.holds(sp) => SS_ONSTACK,
            _ => 0,
        };
        now | self.flags & SS_AUTODISARM
    }
}

/// All signal state of the process.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    actions: [Action; SIGNALS as usize],
    pub(super) blocked: u64,
    /// The mask to restore after a handler, if a call changed it temporarily.
    saved: Option<u64>,
    pending: VecDeque<Info>,
    pub(super) alternate: AlternateStack,
    /// The interrupted call, and how to restart it.
    pub(super) restart: Option<(u64, Errno)>,
    /// Number, error code and address of the last exception.
    pub(super) trap: [u64; 3],
}

impl Default for Signals {
    fn default() -> Self {
        Signals {
            actions: [Action::default(); SIGNALS as usize],
            blocked: 0,
            saved: None,
            pending: VecDeque::new(),
            alternate: AlternateStack::none(0),
            restart: None,
            trap: [0; 3],
        }
    }
}

impl Signals {
    pub(super) fn action(&self, signal: u8) -> &Action {
        &self.actions[usize::from(signal - 1)]
    }

    pub(super) fn action_mut(&mut self, signal: u8) -> &mut Action {
        &mut self.actions[usize::from(signal - 1)]
    }

    /// Applies `execve`: handlers are removed; ignored signals stay ignored.
    pub(super) fn exec(&mut self) {
        for action in &mut self.actions {
            let handler = if action.handler == SIG_IGN {
                SIG_IGN
            } else {
                SIG_DFL
            };
            *action = Action {
                handler,
                ..Action::default()
            };
        }
        self.alternate = AlternateStack::none(0);
        self.trap = [0; 3];
    }

    pub(super) fn set_blocked(&mut self, set: u64) {
        self.blocked = set & !UNBLOCKABLE;
    }

    /// Replaces the mask until a handler has run.
    pub(super) fn suspend(&mut self, set: u64) {
        self.saved = Some(self.blocked);
        self.set_blocked(set);
    }

    /// Restores the mask that [`Signals::suspend`] replaced.
    pub(super) fn resume(&mut self) {
        if let Some(saved) = self.saved.take() {
            self.blocked = saved;
        }
    }

    /// Takes the mask that a handler's return restores.
    pub(super) fn take_old_mask(&mut self) -> u64 {
        self.saved.take().unwrap_or(self.blocked)
    }

    /// The set of pending signals.
    pub(super) fn pending(&self) -> u64 {
        self.pending
            .iter()
            .fold(0, |set, info| set | bit(info.signal))
    }

    pub(super) fn is_ignored(&self, signal: u8) -> bool {
        match self.action(signal).handler {
            SIG_IGN => true,
            SIG_DFL => matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH),
            _ => false,
        }
    }

    /// Makes a signal pending, unless it is ignored or already pending.
    pub(super) fn send(&mut self, info: Info) {
        let is_blocked = self.blocked & bit(info.signal) != 0;
        let is_known = info.signal < SIGRTMIN && self.pending() & bit(info.signal) != 0;
        let is_dropped = !is_blocked && self.is_ignored(info.signal);
        if !is_known && !is_dropped && self.pending.len() < PENDING_MAX {
            self.pending.push_back(info);
        }
    }

    /// Whether a signal that arrives would be delivered.
    pub(super) fn would_wake(&self, signal: u8) -> bool {
        self.blocked & bit(signal) == 0 && !self.is_ignored(signal)
    }

    /// Whether the signal of a timer is pending.
    pub(super) fn pending_of_timer(&self, number: u32) -> bool {
        self.pending.iter().any(|info| info.is_of_timer(number))
    }

    pub(super) fn set_overruns(&mut self, number: u32, overruns: u32) {
        let of_timer = self.pending.iter_mut().filter(|i| i.is_of_timer(number));
        of_timer.for_each(|info| info.set_overruns(overruns));
    }

    /// Whether a pending signal is not blocked.
    pub(super) fn is_deliverable(&self) -> bool {
        self.pending() & !self.blocked != 0
    }

    /// The index of the first signal in this set: exceptions, then the lowest number.
    fn first(&self, set: u64) -> Option<usize> {
        let pending = self.pending.iter().enumerate();
        let wanted = pending.filter(|(_, info)| set & bit(info.signal) != 0);
        let first = wanted.min_by_key(|(_, info)| (info.why == Why::Sent, info.signal));
        first.map(|(index, _)| index)
    }

    /// Takes the first signal in this set.
    pub(super) fn take(&mut self, set: u64) -> Option<Info> {
        self.pending.remove(self.first(set)?)
    }

    /// Whether the next delivered signal ends the process before any handler runs.
    pub(super) fn kill_next(&self) -> bool {
        let ignored = (1..=SIGNALS).filter(|&signal| self.is_ignored(signal));
        let ignored = ignored.fold(0, |set, signal| set | bit(signal));
        let next = self.first(!self.blocked & !ignored);
        let info = next.and_then(|index| self.pending.get(index));
        info.is_some_and(|info| self.action(info.signal).handler == SIG_DFL)
    }

    /// Drops pending signals of this number.
    pub(super) fn drop_pending(&mut self, signal: u8) {
        self.pending.retain(|info| info.signal != signal);
    }

    /// Sends a signal that the process cannot ignore or block.
    pub(super) fn force(&mut self, info: Info) {
        let signal = info.signal;
        if self.action(signal).handler == SIG_IGN || self.blocked & bit(signal) != 0 {
            self.action_mut(signal).handler = SIG_DFL;
            self.blocked &= !bit(signal);
        }
        self.drop_pending(signal);
        self.pending.push_back(info);
    }
}
