//! Signals: pending ones, the mask, and actions. Not here: delivering them (`delivery`), the calls
//! (`calls::signal`).
//!
//! Source: Linux 6.12 `kernel/signal.c`.

mod info;

pub(super) use info::{Info, SI_KERNEL};

use super::errno::Errno;
use super::outcome::SignalOrigin;
use std::collections::VecDeque;

/// Number of signals.
pub(super) const SIGNALS: u8 = 64;
pub(super) const SIGHUP: u8 = 1;
pub(super) const SIGINT: u8 = 2;
pub(super) const SIGQUIT: u8 = 3;
pub(super) const SIGILL: u8 = 4;
pub(super) const SIGTRAP: u8 = 5;
pub(super) const SIGBUS: u8 = 7;
pub(super) const SIGFPE: u8 = 8;
pub(super) const SIGKILL: u8 = 9;
pub(super) const SIGSEGV: u8 = 11;
pub(super) const SIGPIPE: u8 = 13;
pub(super) const SIGALRM: u8 = 14;
pub(super) const SIGCHLD: u8 = 17;
pub(super) const SIGCONT: u8 = 18;
pub(super) const SIGSTOP: u8 = 19;
pub(super) const SIGTSTP: u8 = 20;
pub(super) const SIGTTIN: u8 = 21;
pub(super) const SIGTTOU: u8 = 22;
pub(super) const SIGXCPU: u8 = 24;
const SIGURG: u8 = 23;
pub(super) const SIGXFSZ: u8 = 25;
pub(super) const SIGVTALRM: u8 = 26;
pub(super) const SIGPROF: u8 = 27;
pub(super) const SIGWINCH: u8 = 28;
/// The first real-time signal: several may be pending.
pub(super) const SIGRTMIN: u8 = 32;
/// Maximum number of pending signals.
pub(super) const PENDING_MAX: usize = 1024;

pub(super) const SIG_DFL: u64 = 0;
pub(super) const SIG_IGN: u64 = 1;
pub(super) const SA_NOCLDSTOP: u64 = 1;
pub(super) const SA_NOCLDWAIT: u64 = 2;
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

/// The signal state of a thread.
#[derive(Clone, Debug)]
pub(super) struct OwnSignals {
    pub(super) blocked: u64,
    /// The mask to restore after a handler, if a call changed it temporarily.
    saved: Option<u64>,
    /// Sent to this thread.
    pending: VecDeque<Info>,
    pub(super) alternate: AlternateStack,
    /// The interrupted call, and how to restart it.
    pub(super) restart: Option<(u64, Errno)>,
    /// The thread is traced: its tracer sees all signals, also those that are ignored.
    pub(super) is_traced: bool,
    /// The thread has to stop for its tracer, also if it waits.
    pub(super) notified: bool,
    /// Number, error code and address of the last exception.
    pub(super) trap: [u64; 3],
}

impl Default for OwnSignals {
    fn default() -> Self {
        OwnSignals {
            blocked: 0,
            saved: None,
            pending: VecDeque::new(),
            alternate: AlternateStack::none(0),
            restart: None,
            is_traced: false,
            notified: false,
            trap: [0; 3],
        }
    }
}

impl OwnSignals {
    /// The number of pending signals.
    pub(super) fn queued(&self) -> usize {
        self.pending.len()
    }

    /// Whether a signal is blocked.
    pub(super) fn blocks(&self, signal: u8) -> bool {
        self.blocked & bit(signal) != 0
    }

    /// The mask, or the one that replaces it after a handler.
    pub(super) fn kept_mask(&self) -> u64 {
        self.saved.unwrap_or(self.blocked)
    }

    /// Sets the mask for good.
    pub(super) fn set_mask(&mut self, mask: u64) {
        self.saved = None;
        self.blocked = mask & !UNBLOCKABLE;
    }

    /// Makes a signal pending for the thread, also if it is ignored.
    pub(super) fn put_back(&mut self, info: Info) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(info);
        }
    }

    /// The signals that are pending for the thread, the oldest first.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Info> {
        self.pending.iter()
    }

    /// That of a new thread: it inherits the mask.
    pub(super) fn child(&self) -> OwnSignals {
        OwnSignals {
            blocked: self.blocked,
            ..OwnSignals::default()
        }
    }
}

/// The signal state of a process, with that of its running thread.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    actions: [Action; SIGNALS as usize],
    /// Sent to the process.
    shared: VecDeque<Info>,
    /// Signals of the process that another thread takes: Linux prefers the first thread.
    pub(super) left_to_first: u64,
    pub(super) own: OwnSignals,
}

impl Default for Signals {
    fn default() -> Self {
        Signals {
            actions: [Action::default(); SIGNALS as usize],
            shared: VecDeque::new(),
            left_to_first: 0,
            own: OwnSignals::default(),
        }
    }
}

/// The signals in a queue.
fn set_of(queue: &VecDeque<Info>) -> u64 {
    queue.iter().fold(0, |set, info| set | bit(info.signal))
}

/// The index of the first signal of this set in a queue: exceptions, then the lowest number.
fn first(queue: &VecDeque<Info>, set: u64) -> Option<usize> {
    let wanted = queue.iter().enumerate();
    let wanted = wanted.filter(|(_, info)| set & bit(info.signal) != 0);
    let first = wanted.min_by_key(|(_, info)| (info.why == SignalOrigin::Sent, info.signal));
    first.map(|(index, _)| index)
}

impl Signals {
    /// Those of a new process: it inherits the actions, the mask and the alternate stack.
    pub(super) fn child(&self) -> Signals {
        Signals {
            actions: self.actions,
            own: OwnSignals {
                alternate: self.own.alternate,
                ..self.own.child()
            },
            ..Signals::default()
        }
    }

    /// The number of signals pending for the process and its running thread.
    pub(super) fn queued(&self) -> usize {
        self.shared.len() + self.own.queued()
    }

    pub(super) fn action(&self, signal: u8) -> &Action {
        &self.actions[usize::from(signal - 1)]
    }

    pub(super) fn action_mut(&mut self, signal: u8) -> &mut Action {
        &mut self.actions[usize::from(signal - 1)]
    }

    /// Applies `execve`: handlers are removed; ignored signals stay ignored.
    pub(super) fn exec(&mut self) {
        self.clear_handlers();
        self.own.alternate = AlternateStack::none(0);
        self.own.trap = [0; 3];
    }

    /// Removes handlers.
    pub(super) fn clear_handlers(&mut self) {
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
    }

    pub(super) fn set_blocked(&mut self, set: u64) {
        self.own.blocked = set & !UNBLOCKABLE;
    }

    /// Replaces the mask until a handler has run.
    pub(super) fn suspend(&mut self, set: u64) {
        self.own.saved = Some(self.own.blocked);
        self.set_blocked(set);
    }

    /// Restores the mask that [`Signals::suspend`] replaced.
    pub(super) fn resume(&mut self) {
        if let Some(saved) = self.own.saved.take() {
            self.own.blocked = saved;
        }
    }

    /// Takes the mask that a handler's return restores.
    pub(super) fn take_old_mask(&mut self) -> u64 {
        self.own.saved.take().unwrap_or(self.own.blocked)
    }

    /// The set of signals pending for the running thread.
    pub(super) fn pending(&self) -> u64 {
        set_of(&self.shared) | set_of(&self.own.pending)
    }

    /// The signals pending for a thread, and for the process.
    pub(super) fn pending_sets(&self, thread: &OwnSignals) -> (u64, u64) {
        (set_of(&thread.pending), set_of(&self.shared))
    }

    pub(super) fn is_ignored(&self, signal: u8) -> bool {
        match self.action(signal).handler {
            SIG_IGN => true,
            SIG_DFL => matches!(signal, SIGCHLD | SIGCONT | SIGURG | SIGWINCH),
            _ => false,
        }
    }

    /// Makes a signal pending for the process, unless it is ignored or already pending.
    pub(super) fn send(&mut self, info: Info) {
        if self.is_wanted(&info, &self.own, &self.shared) {
            self.shared.push_back(info);
        }
    }

    /// Makes a signal pending for the running thread.
    pub(super) fn send_to_thread(&mut self, info: Info) {
        if self.is_wanted(&info, &self.own, &self.own.pending) {
            self.own.pending.push_back(info);
        }
    }

    /// Makes a signal pending for another thread.
    pub(super) fn send_to_other(&self, info: Info, other: &mut OwnSignals) {
        if self.is_wanted(&info, other, &other.pending) {
            other.pending.push_back(info);
        }
    }

    fn is_wanted(&self, info: &Info, thread: &OwnSignals, queue: &VecDeque<Info>) -> bool {
        let is_kept = thread.blocks(info.signal) || thread.is_traced;
        let is_known = info.signal < SIGRTMIN && set_of(queue) & bit(info.signal) != 0;
        let is_dropped = !is_kept && self.is_ignored(info.signal);
        !is_known && !is_dropped && queue.len() < PENDING_MAX
    }

    /// Whether the signal of a timer is pending.
    pub(super) fn pending_of_timer(&self, number: u32) -> bool {
        let mut all = self.shared.iter().chain(&self.own.pending);
        all.any(|info| info.is_of_timer(number))
    }

    pub(super) fn set_overruns(&mut self, number: u32, overruns: u32) {
        let all = self.shared.iter_mut().chain(&mut self.own.pending);
        let of_timer = all.filter(|info| info.is_of_timer(number));
        of_timer.for_each(|info| info.set_overruns(overruns));
    }

    /// Whether a pending signal is not blocked by the running thread.
    pub(super) fn is_deliverable(&self) -> bool {
        self.is_deliverable_to(&self.own, self.left_to_first)
    }

    /// Whether a pending signal is not blocked by a thread; those in `left` it leaves to the first
    /// thread.
    pub(super) fn is_deliverable_to(&self, own: &OwnSignals, left: u64) -> bool {
        let pending = set_of(&own.pending) | set_of(&self.shared) & !left;
        pending & !own.blocked != 0 || own.notified
    }

    /// Takes the first signal in this set: those of the thread come before those of the process.
    pub(super) fn take(&mut self, set: u64) -> Option<Info> {
        if let Some(index) = first(&self.own.pending, set) {
            return self.own.pending.remove(index);
        }
        self.shared.remove(first(&self.shared, set)?)
    }

    /// Whether `SIGKILL` is pending.
    pub(super) fn has_kill(&self) -> bool {
        self.pending() & bit(SIGKILL) != 0
    }

    /// Takes a pending `SIGKILL`.
    pub(super) fn take_kill(&mut self) -> Option<Info> {
        self.take(bit(SIGKILL))
    }

    /// The signals that are pending for the process, the oldest first.
    pub(super) fn shared(&self) -> impl Iterator<Item = &Info> {
        self.shared.iter()
    }

    /// Takes the signal to deliver next.
    pub(super) fn take_deliverable(&mut self) -> Option<Info> {
        let set = !self.own.blocked;
        match first(&self.own.pending, set) {
            Some(index) => self.own.pending.remove(index),
            None => {
                let index = first(&self.shared, set & !self.left_to_first)?;
                self.shared.remove(index)
            }
        }
    }

    /// Whether the next delivered signal ends the process before any handler runs.
    pub(super) fn kill_next(&self) -> bool {
        let ignored = (1..=SIGNALS).filter(|&signal| self.is_ignored(signal));
        let ignored = ignored.fold(0, |set, signal| set | bit(signal));
        let set = !self.own.blocked & !ignored;
        let of = |queue: &VecDeque<Info>, set| {
            first(queue, set).and_then(|index| queue.get(index).map(|info| info.signal))
        };
        let next = of(&self.own.pending, set);
        let next = next.or_else(|| of(&self.shared, set & !self.left_to_first));
        let decides = !self.own.is_traced || self.has_kill();
        decides && next.is_some_and(|signal| self.action(signal).handler == SIG_DFL)
    }

    /// Drops pending signals of this number.
    pub(super) fn drop_pending(&mut self, signal: u8) {
        self.own.pending.retain(|info| info.signal != signal);
        self.shared.retain(|info| info.signal != signal);
    }

    /// Sends a signal that the thread cannot ignore or block.
    pub(super) fn force(&mut self, info: Info) {
        let signal = info.signal;
        if self.action(signal).handler == SIG_IGN || self.own.blocked & bit(signal) != 0 {
            self.action_mut(signal).handler = SIG_DFL;
            self.own.blocked &= !bit(signal);
        }
        self.own.pending.retain(|info| info.signal != signal);
        self.own.pending.push_back(info);
    }
}
