//! The end of a process, and what its parent learns of it.
//!
//! Source: Linux 6.12 `kernel/exit.c`, `kernel/signal.c` (`do_notify_parent`).

use super::errno::{Answer, Errno};
use super::kernel::Kernel;
use super::locks::Holder;
use super::observer::Event;
use super::outcome::Outcome;
use super::process::Ended;
use super::signals::{Info, SA_NOCLDSTOP, SA_NOCLDWAIT, SIG_IGN, SIGCHLD, SIGCONT, SIGNALS};
use super::task::Task;
use super::threads::For;
use super::usage::Usage;
use super::{INIT, PID};

/// Flags of `wait4` and `waitid`.
pub(super) const WNOHANG: u32 = 1;
pub(super) const WUNTRACED: u32 = 2;
pub(super) const WCONTINUED: u32 = 8;
pub(super) const WNOWAIT: u32 = 0x100_0000;
/// `__WALL` and `__WCLONE`.
const WALL: u32 = 0x4000_0000;
const WCLONE: u32 = 0x8000_0000;

/// The code of a signal that a process sent.
const SI_USER: i32 = 0;
/// The codes of `SIGCHLD`.
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_STOPPED: i32 = 5;
const CLD_CONTINUED: i32 = 6;

/// Which children a parent waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Any of them.
    Any,
    /// The one with this number.
    Number(u32),
    /// One of this process group.
    Group(u32),
}

/// What a parent learns of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct News {
    pub(super) number: u32,
    /// As `wait4` returns it.
    pub(super) status: u32,
    /// What it and its children have used.
    pub(super) usage: Usage,
}

impl News {
    /// `si_code` and `si_status` of `SIGCHLD`.
    pub(super) fn code(&self) -> (i32, u32) {
        match (self.status & 0x7f, self.status >> 8 & 0xff) {
            _ if self.status == CONTINUED => (CLD_CONTINUED, SIGCONT.into()),
            (0, status) => (CLD_EXITED, status),
            (0x7f, signal) => (CLD_STOPPED, signal),
            (signal, _) => (CLD_KILLED, signal),
        }
    }
}

/// The status of a process that was continued.
const CONTINUED: u32 = 0xffff;

impl Kernel {
    /// Ends the running process. The run ends with the last one.
    pub(super) fn end_process(&mut self, outcome: Outcome) {
        let status = match outcome {
            Outcome::Exited(status) => (status as u32 & 0xff) << 8,
            Outcome::Killed { signal, .. } => signal.into(),
            _ => 0,
        };
        let number = self.process.number;
        self.undo_semaphores();
        if number == PID {
            self.system.first_outcome = Some(outcome);
        }
        if self.processes.is_empty() {
            self.outcome = self.system.first_outcome.take();
            return;
        }
        // Of the first thread, which may be one of the others.
        let first = Task {
            process: number,
            thread: number,
        };
        let scheduling = *self.scheduling(first);
        self.release_futexes();
        for (thread, _) in std::mem::take(&mut self.process.others) {
            self.system.events.push(Event::ThreadEnded(Task {
                process: number,
                thread,
            }));
        }
        self.system.futexes.retain(|waiter| !waiter.is_of(number));
        self.clock.timers.retain(|timer| timer.process != number);
        let mut usage = self.usage(&self.process);
        usage.add(self.process.children);
        self.files.own.table.close_all();
        self.files.own.opening.clear();
        self.system.locks.release(Holder::Process(number), None);
        self.system.locks.forget_waiting(number);
        self.wake_pidfds(number);
        self.settle_objects();
        self.leave_terminal(true);
        self.orphan_groups();
        self.process.has_ended = true;
        self.process.thread.has_ended = true;
        self.process.borrows = false;
        self.adopt_children();
        self.system.changes += 1;
        let (parent, group) = (self.process.parent, self.process.group);
        let ended = Ended {
            number,
            parent,
            group,
            session: self.process.session,
            exit_signal: self.process.exit_signal,
            name: self.process.thread.name.clone(),
            begun: self.process.begun,
            status,
            usage,
            identity: self.files.own.identity.clone(),
            scheduling,
            resources: self.process.resources,
        };
        let news = News {
            number,
            status,
            usage,
        };
        if self.tell_parent(news) {
            self.system.ended.push(ended);
            self.files.ended.insert(number);
        }
        self.system.events.push(Event::ProcessEnded(number));
    }

    /// Gives the children of the running process to `init`, which waits for those that have ended.
    fn adopt_children(&mut self) {
        let number = self.process.number;
        let mut told = Vec::new();
        for other in self.processes.values_mut() {
            if other.process.parent == number {
                other.process.parent = INIT;
                if other.process.settings.death_signal != 0 {
                    told.push((other.process.number, other.process.settings.death_signal));
                }
            }
        }
        let uid = self.files.own.identity.user.real;
        for (child, signal) in told {
            let info = Info::from_process(signal, SI_USER, number, uid);
            self.send_to(child, None, info);
        }
        let is_known = |ended: &Ended| ended.parent != number;
        for gone in self.system.ended.iter().filter(|ended| !is_known(ended)) {
            self.files.ended.remove(&gone.number);
        }
        self.system.ended.retain(is_known);
    }

    /// Sends the parent of the running process `SIGCHLD`. False if it does not want to wait for an
    /// ended child.
    fn tell_parent(&mut self, news: News) -> bool {
        let exit_signal = self.process.exit_signal;
        self.tell_process(self.process.parent, news, exit_signal)
    }

    /// Sends a parent the signal of a child, which is `SIGCHLD` unless it has ended.
    fn tell_process(&mut self, parent: u32, news: News, exit_signal: u8) -> bool {
        let uid = self.files.own.identity.user.real;
        let Some(signals) = self.signals_of(parent) else {
            return false;
        };
        let action = *signals.action(SIGCHLD);
        let (code, status) = news.code();
        let has_ended = matches!(code, CLD_EXITED | CLD_KILLED);
        // `clone` takes any number up to 255; one that is no signal is not sent
        // (`do_notify_parent` in Linux 6.12).
        let signal = if has_ended { exit_signal } else { SIGCHLD };
        if (1..=SIGNALS).contains(&signal) && (has_ended || action.flags & SA_NOCLDSTOP == 0) {
            signals.send(Info::of_child(signal, code, news.number, uid, status));
        }
        has_ended && exit_signal != SIGCHLD
            || action.handler != SIG_IGN && action.flags & SA_NOCLDWAIT == 0
    }

    /// Stops the running process.
    pub(super) fn stop_process(&mut self, signal: u8) {
        self.process.stopped = Some(signal);
        self.process.untold = true;
        self.system.changes += 1;
        let status = u32::from(signal) << 8 | 0x7f;
        let (number, usage) = (self.process.number, Usage::default());
        self.tell_parent(News {
            number,
            status,
            usage,
        });
    }

    /// Continues a process that was stopped.
    pub(super) fn continue_process(&mut self, number: u32) {
        let process = match self.processes.get_mut(&number) {
            Some(other) => &mut other.process,
            None => &mut self.process,
        };
        if process.stopped.take().is_none() {
            return;
        }
        process.untold = true;
        let parent = process.parent;
        self.system.changes += 1;
        let news = News {
            number,
            status: CONTINUED,
            usage: Usage::default(),
        };
        self.tell_process(parent, news, SIGCHLD);
    }

    /// The next news of a child of the running process; `WNOHANG` is not looked at.
    ///
    /// # Errors
    /// `ECHILD` if there is no such child.
    pub(super) fn news(&mut self, which: Which, options: u32) -> Answer<Option<News>> {
        let parent = self.process.number;
        let is_it = |number, group| match which {
            Which::Any => true,
            Which::Number(wanted) => wanted == number,
            Which::Group(wanted) => wanted == group,
        };
        let mut ended = self.system.ended.iter();
        // Children that do not end with `SIGCHLD` are others'.
        let is_asked = |exit_signal: u8| {
            let is_clone = options & WCLONE != 0;
            options & WALL != 0 || is_clone == (exit_signal != SIGCHLD)
        };
        let found = ended.position(|e| {
            e.parent == parent && is_it(e.number, e.group) && is_asked(e.exit_signal)
        });
        if let Some(index) = found {
            let Ended {
                number,
                status,
                usage,
                ..
            } = self.system.ended[index];
            if options & WNOWAIT == 0 {
                self.process.children.add(usage);
                self.system.ended.remove(index);
                self.files.ended.remove(&number);
            }
            return Ok(Some(News {
                number,
                status,
                usage,
            }));
        }
        let mut has_any = false;
        for other in self.processes.values_mut() {
            let child = &mut other.process;
            let is_its = child.parent == parent && is_asked(child.exit_signal);
            if !is_its || !is_it(child.number, child.group) {
                continue;
            }
            has_any = true;
            let status = match child.stopped {
                Some(signal) if options & WUNTRACED != 0 => u32::from(signal) << 8 | 0x7f,
                None if options & WCONTINUED != 0 => CONTINUED,
                _ => continue,
            };
            if child.untold {
                child.untold = options & WNOWAIT != 0;
                let number = child.number;
                let child = &self.processes[&number].process;
                let mut usage = self.usage(child);
                usage.add(child.children);
                return Ok(Some(News {
                    number,
                    status,
                    usage,
                }));
            }
        }
        match has_any {
            true => Ok(None),
            false => Err(Errno::ECHILD),
        }
    }

    /// Waits for news of a child; `None` if there are none and it must not wait.
    pub(super) fn wait_for_child(&mut self, which: Which, options: u32) -> Answer<Option<News>> {
        if let Some(news) = self.news(which, options)? {
            return Ok(Some(news));
        }
        if options & WNOHANG != 0 {
            return Ok(None);
        }
        self.wait_until(None, For::Change)?;
        Err(Errno::ERESTARTSYS)
    }
}
