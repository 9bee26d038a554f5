//! The end of a process, and what its parent learns of it.
//!
//! Source: Linux 6.12 `kernel/exit.c`, `kernel/signal.c` (`do_notify_parent`).

use super::errno::{Answer, Errno};
use super::kernel::Kernel;
use super::locks::Holder;
use super::observer::Event;
use super::outcome::Outcome;
use super::process::Zombie;
use super::signals::{Info, SA_NOCLDSTOP, SA_NOCLDWAIT, SIG_IGN, SIGCHLD, SIGCONT, SIGNALS};
use super::task::Task;
use super::threads::WaitCondition;
use super::usage::Usage;
use super::{INIT, PID};

/// Flags of `wait4` and `waitid`.
pub(super) const WNOHANG: u32 = 1;
pub(super) const WUNTRACED: u32 = 2;
pub(super) const WCONTINUED: u32 = 8;
pub(super) const WEXITED: u32 = 4;
pub(super) const WNOWAIT: u32 = 0x100_0000;
const WNOTHREAD: u32 = 0x2000_0000;
/// `__WALL` and `__WCLONE`.
const WALL: u32 = 0x4000_0000;
const WCLONE: u32 = 0x8000_0000;

/// The code of a signal that a process sent.
const SI_USER: i32 = 0;
/// The codes of `SIGCHLD`.
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_TRAPPED: i32 = 4;
const CLD_STOPPED: i32 = 5;
const CLD_CONTINUED: i32 = 6;

/// Which children a parent waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitTarget {
    /// Any of them.
    Any,
    /// The one with this number.
    Number(u32),
    /// One of this process group.
    Group(u32),
}

impl WaitTarget {
    /// Whether it is this process, or traced thread.
    pub(super) fn is(self, number: u32, group: u32) -> bool {
        match self {
            WaitTarget::Any => true,
            WaitTarget::Number(wanted) => wanted == number,
            WaitTarget::Group(wanted) => wanted == group,
        }
    }
}

/// How a parent or a tracer waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitOptions {
    /// For what has ended.
    pub(super) for_ends: bool,
    /// The news stay for another wait.
    pub(super) keeps: bool,
    /// Only for those that the calling thread traces.
    pub(super) only_thread: bool,
}

/// What a parent learns of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChildStatus {
    pub(super) number: u32,
    /// As `wait4` returns it.
    pub(super) status: u32,
    /// What it and its children have used.
    pub(super) usage: Usage,
    /// It has stopped for its tracer.
    pub(super) is_traced: bool,
}

impl ChildStatus {
    /// `si_code` and `si_status` of `SIGCHLD`.
    pub(super) fn code(&self) -> (i32, u32) {
        match (self.status & 0x7f, self.status >> 8 & 0xff) {
            _ if self.is_traced => (CLD_TRAPPED, self.status >> 8),
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
        // `exit_sem` applies what SEM_UNDO has collected.
        self.undo_semaphores();
        if number == PID {
            // The outcome of the run is that of its first process.
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
        for (thread, other) in std::mem::take(&mut self.process.others) {
            self.note_missed_event(&other.thread);
            self.tell_end_of_thread(&other.thread, status);
            self.system.events.push(Event::ThreadEnded(Task {
                process: number,
                thread,
            }));
        }

        // No wake may count threads that are gone.
        self.system.futexes.retain(|waiter| !waiter.is_of(number));
        self.clock.timers.retain(|timer| timer.process != number);

        // Its parent counts what its children used, too (getrusage(2), RUSAGE_CHILDREN).
        let mut usage = self.usage(&self.process);
        usage.add(self.process.children);

        // Others may wait for the ends of pipes and sockets that close here.
        self.files.own.table.close_all();
        self.files.own.opening.clear();
        self.system.locks.release(Holder::Process(number), None);
        self.system.locks.forget_waiting(number);

        // A pidfd is readable when its process has ended (pidfd_open(2)).
        self.wake_pidfds(number);
        self.settle_objects();
        self.leave_terminal(true);
        // `kill_orphaned_pgrp` (`kernel/exit.c`).
        self.orphan_groups();
        // Its tracees must not wait for a tracer that is gone.
        self.end_tracing(None);

        let tracer = self.process.tracer();
        if self.process.thread.number != number {
            let thread = self.process.thread.clone();
            self.tell_end_of_thread(&thread, status);
        }

        self.process.has_ended = true;
        self.process.thread.has_ended = true;
        self.process.borrows = false;
        self.adopt_children();
        self.system.changes += 1;

        // What `wait4` and /proc still show of it.
        let (parent, group) = (self.process.parent, self.process.group);
        let ended = Zombie {
            number,
            parent,
            group,
            session: self.process.session,
            exit_signal: self.process.exit_signal,
            tracer: None,
            name: self.process.thread.name.clone(),
            begun: self.process.begun,
            status,
            usage,
            identity: self.files.own.identity.clone(),
            scheduling,
            resources: self.process.resources,
        };

        let news = ChildStatus {
            number,
            status,
            usage,
            is_traced: false,
        };

        let (is_told, tracer) = self.tell_of_end(news, tracer);
        // No zombie stays if the parent ignores SIGCHLD (`do_notify_parent`).
        if is_told {
            self.system.ended.push(Zombie { tracer, ..ended });
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
                other.process.creator = INIT;
                // PR_SET_PDEATHSIG.
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

        // What a tracer has not waited for yet is kept; `init` waits for all others at once.
        for ended in &mut self.system.ended {
            if ended.parent == number && ended.tracer.is_some_and(|tracer| tracer.process != number)
            {
                ended.parent = INIT;
            }
        }

        let is_known = |ended: &Zombie| ended.parent != number;
        for gone in self.system.ended.iter().filter(|ended| !is_known(ended)) {
            self.files.ended.remove(&gone.number);
        }
        self.system.ended.retain(is_known);
    }

    /// Sends the tracer of the running process `SIGCHLD`, or its parent. Whether anybody wants to wait for
    /// it, and the tracer that does so first.
    fn tell_of_end(&mut self, news: ChildStatus, tracer: Option<Task>) -> (bool, Option<Task>) {
        if let Some(other) = tracer.filter(|tracer| tracer.process != self.process.parent)
            && self.tell_process(other.process, news, SIGCHLD)
        {
            return (true, tracer);
        }
        let is_parent = |tracer: &Task| tracer.process == self.process.parent;
        let tracer = tracer.filter(is_parent);
        (self.tell_parent(news), tracer)
    }

    /// Sends the parent of the running process `SIGCHLD`. False if it does not want to wait for an
    /// ended child.
    fn tell_parent(&mut self, news: ChildStatus) -> bool {
        let exit_signal = self.process.exit_signal;
        self.tell_process(self.process.parent, news, exit_signal)
    }

    /// Sends a parent the signal of a child, which is `SIGCHLD` unless it has ended.
    pub(super) fn tell_process(&mut self, parent: u32, news: ChildStatus, exit_signal: u8) -> bool {
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
        self.system.changes += 1;
        self.stop_traced();
        // A parent that traces it hears of the stop of each thread.
        let tracer = self.process.tracer();
        if tracer.is_some_and(|tracer| tracer.process == self.process.parent) {
            return;
        }
        self.process.untold = true;
        let status = u32::from(signal) << 8 | 0x7f;
        let (number, usage) = (self.process.number, Usage::default());
        self.tell_parent(ChildStatus {
            number,
            status,
            usage,
            is_traced: false,
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
        let news = ChildStatus {
            number,
            status: CONTINUED,
            usage: Usage::default(),
            is_traced: false,
        };
        self.tell_process(parent, news, SIGCHLD);
    }

    /// The next news of a child of the running process, or of a thread that it traces; `WNOHANG` is not
    /// looked at.
    ///
    /// # Errors
    /// `ECHILD` if there is no such child.
    pub(super) fn news(&mut self, which: WaitTarget, options: u32) -> Answer<Option<ChildStatus>> {
        let waits = WaitOptions {
            for_ends: options & WEXITED != 0,
            keeps: options & WNOWAIT != 0,
            only_thread: options & WNOTHREAD != 0,
        };
        let (ended, has_ended) = self.news_of_ended(which, options, waits);
        if ended.is_some() {
            return Ok(ended);
        }
        let (traced, has_traced) = self.news_of_traced(which, waits);
        if traced.is_some() {
            return Ok(traced);
        }
        let (stopped, has_children) = self.news_of_children(which, options);
        if has_ended || has_traced || has_children {
            Ok(stopped)
        } else {
            Err(Errno::ECHILD)
        }
    }

    /// Whether a process looks at a child when it waits with these options: children that do not end with
    /// `SIGCHLD` are others'.
    fn asks_for(options: u32, exit_signal: u8) -> bool {
        let is_clone = options & WCLONE != 0;
        options & WALL != 0 || is_clone == (exit_signal != SIGCHLD)
    }

    /// News of a process that has ended. The flag says whether there are any, also those that cannot be
    /// waited for yet.
    fn news_of_ended(
        &mut self,
        which: WaitTarget,
        options: u32,
        waits: WaitOptions,
    ) -> (Option<ChildStatus>, bool) {
        let own = self.process.number;
        let mut has_any = false;
        for index in 0..self.system.ended.len() {
            let ended = &self.system.ended[index];
            let traces = ended.tracer.is_some_and(|tracer| tracer.process == own);
            let is_child = ended.parent == own && Kernel::asks_for(options, ended.exit_signal);
            if !(traces || is_child) || !which.is(ended.number, ended.group) {
                continue;
            }

            has_any = true;
            // The tracer comes first, and all other threads that are traced.
            let is_others = ended.tracer.is_some() && !traces;
            let mut threads = self.system.ended_threads.iter();
            let has_threads = threads.any(|thread| thread.task.process == ended.number);

            if !waits.for_ends || is_others || has_threads {
                continue;
            }

            let news = ChildStatus {
                number: ended.number,
                status: ended.status,
                usage: ended.usage,
                is_traced: false,
            };

            // WNOWAIT leaves the zombie for another call.
            if !waits.keeps {
                self.reap(index);
            }
            return (Some(news), true);
        }
        (None, has_any)
    }

    /// The running process has waited for one that has ended. Its parent still has to, if this is its
    /// tracer only.
    fn reap(&mut self, index: usize) {
        let ended = &self.system.ended[index];
        let (number, usage) = (ended.number, ended.usage);
        if ended.parent != self.process.number {
            return self.give_to_parent(number);
        }
        self.process.children.add(usage);
        self.system.ended.remove(index);
        self.files.ended.remove(&number);
    }

    /// News of a child that was stopped or continued, and whether there are any children.
    fn news_of_children(&mut self, which: WaitTarget, options: u32) -> (Option<ChildStatus>, bool) {
        let parent = self.process.number;
        let mut has_any = false;
        for other in self.processes.values_mut() {
            let child = &mut other.process;
            let is_its = child.parent == parent && Kernel::asks_for(options, child.exit_signal);
            if !is_its || child.has_ended || !which.is(child.number, child.group) {
                continue;
            }

            has_any = true;

            // As `WIFSTOPPED` and `WSTOPSIG` read it (wait(2)).
            let status = match child.stopped {
                Some(signal) if options & WUNTRACED != 0 => u32::from(signal) << 8 | 0x7f,
                None if options & WCONTINUED != 0 => CONTINUED,
                _ => continue,
            };

            if child.untold {
                // WNOWAIT leaves the news for another call.
                child.untold = options & WNOWAIT != 0;

                // The usage is that of the child and of those it has waited for.
                let number = child.number;
                let child = &self.processes[&number].process;
                let mut usage = self.usage(child);
                usage.add(child.children);
                let news = ChildStatus {
                    number,
                    status,
                    usage,
                    is_traced: false,
                };
                return (Some(news), true);
            }
        }
        (None, has_any)
    }

    /// Waits for news of a child; `None` if there are none and it must not wait.
    pub(super) fn wait_for_child(
        &mut self,
        which: WaitTarget,
        options: u32,
    ) -> Answer<Option<ChildStatus>> {
        if let Some(news) = self.news(which, options)? {
            return Ok(Some(news));
        }
        if options & WNOHANG != 0 {
            return Ok(None);
        }
        self.wait_until(None, WaitCondition::Change)?;
        Err(Errno::ERESTARTSYS)
    }
}
