//! Sessions and their controlling terminals: the foreground, stops of the background, hang-up.
//!
//! Source: Linux 6.12 `drivers/tty/tty_jobctrl.c`, `drivers/tty/tty_io.c` (`__tty_hangup`),
//! `kernel/exit.c` (`will_become_orphaned_pgrp`).

use super::errno::{Answer, Errno};
use super::handle::ev;
use super::kernel::Kernel;
use super::process::Process;
use super::signals::{Info, SIG_IGN, SIGCONT, SIGHUP, SIGTTIN, bit};
use super::{INIT, PID};

impl Kernel {
    /// Sends a signal of the kernel to a process group; 0 is none.
    pub(super) fn signal_group(&mut self, group: u32, signal: u8) {
        if group == 0 {
            return;
        }
        let all = self.all_processes();
        let its = all.filter(|process| process.group == group && !process.has_ended);
        let numbers: Vec<u32> = its.map(|process| process.number).collect();
        for number in numbers {
            self.send_to(number, None, Info::from_kernel(signal));
        }
    }

    /// Takes the terminal from all processes of a session.
    pub(super) fn clear_session(&mut self, session: u32) {
        let others = self.processes.values_mut().map(|other| &mut other.process);
        for process in others.chain([&mut self.process]) {
            if process.session == session {
                process.terminal = None;
            }
        }
    }

    /// Makes a terminal control the session of the running process, which leads it.
    pub(super) fn control(&mut self, number: u32) {
        let (session, group) = (self.process.session, self.process.group);
        if let Some(terminal) = self.objects.terminal_mut(number) {
            (terminal.session, terminal.group) = (session, group);
            self.process.terminal = Some(number);
            self.process.old_foreground = 0;
        }
    }

    /// Whether the running process leads its session.
    pub(super) fn leads_session(&self) -> bool {
        self.process.session == self.process.number
    }

    /// Whether no process outside of a group, but of its session, is the parent of one in it
    /// (POSIX: an orphaned process group), if there were no process `without`.
    pub(super) fn is_orphaned(&self, group: u32, without: Option<u32>) -> bool {
        let counts = |process: &&Process| !process.has_ended && without != Some(process.number);
        let keeps = |process: &Process| {
            let mut parents = self.all_processes().filter(counts);
            match parents.find(|parent| parent.number == process.parent) {
                Some(parent) => parent.group != group && parent.session == process.session,
                // The first process has been started by a shell.
                None => process.number == PID && process.session == INIT,
            }
        };
        let mut members = self.all_processes().filter(counts);
        !members.any(|process| process.group == group && keeps(process))
    }

    /// Whether a process of a group is stopped.
    fn has_stopped(&self, group: u32) -> bool {
        let mut all = self.all_processes();
        all.any(|process| process.group == group && process.stopped.is_some())
    }

    /// The running process ends: stopped groups that it alone kept from being orphaned are hung up.
    pub(super) fn orphan_groups(&mut self) {
        let (own, session) = (self.process.number, self.process.session);
        let all = self.all_processes();
        let children = all.filter(|child| child.parent == own && child.session == session);
        let mut groups: Vec<u32> = children.map(|child| child.group).collect();
        groups.push(self.process.group);
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let is_new = !self.is_orphaned(group, None) && self.is_orphaned(group, Some(own));
            if is_new && self.has_stopped(group) {
                self.signal_group(group, SIGHUP);
                self.signal_group(group, SIGCONT);
            }
        }
    }

    /// Stops a process of the background that uses its terminal (`tty_check_change`).
    ///
    /// # Errors
    /// `EIO` if it cannot be stopped and must not read; `ERESTARTSYS` once the signal is sent.
    pub(super) fn check_foreground(&mut self, number: u32, signal: u8) -> Answer<()> {
        let foreground = self.objects.terminal(number).map_or(0, |t| t.group);
        let group = self.process.group;
        if self.process.terminal != Some(number) || foreground == 0 || foreground == group {
            return Ok(());
        }
        let signals = &self.process.signals;
        let is_blocked = signals.own.blocked & bit(signal) != 0;
        if is_blocked || signals.action(signal).handler == SIG_IGN {
            return match signal {
                SIGTTIN => Err(Errno::EIO),
                _ => Ok(()),
            };
        }
        if self.is_orphaned(group, None) {
            return Err(Errno::EIO);
        }
        self.signal_group(group, signal);
        Err(Errno::ERESTARTSYS)
    }

    /// The masters of terminals were closed: their sessions lose them (`__tty_hangup`).
    pub(super) fn hang_up(&mut self) {
        for number in self.objects.take_hung_up() {
            self.files.remove_terminal(number);
            let Some(terminal) = self.objects.terminal_mut(number) else {
                continue;
            };
            let session = std::mem::take(&mut terminal.session);
            let foreground = std::mem::take(&mut terminal.group);
            if session != 0 {
                self.clear_session(session);
                let is_there = self.process_mut(session).map(|leader| {
                    leader.old_foreground = foreground;
                });
                if is_there.is_some() {
                    for signal in [SIGHUP, SIGCONT] {
                        self.send_to(session, None, Info::from_kernel(signal));
                    }
                }
            }
            self.objects.forget_terminal(number);
            self.system.changes += 1;
        }
    }

    /// The leader of a session gives up its terminal (`disassociate_ctty`), or ends.
    pub(super) fn leave_terminal(&mut self, ends: bool) {
        if !self.leads_session() {
            self.process.terminal = None;
            return;
        }
        let old = std::mem::take(&mut self.process.old_foreground);
        let Some(number) = self.process.terminal else {
            if ends {
                self.signal_group(old, SIGHUP);
                self.signal_group(old, SIGCONT);
            }
            return;
        };
        let terminal = self.objects.terminal_mut(number);
        let foreground = terminal.map_or(0, |terminal| {
            terminal.session = 0;
            std::mem::take(&mut terminal.group)
        });
        self.signal_group(foreground, SIGHUP);
        if !ends {
            self.signal_group(foreground, SIGCONT);
        }
        self.clear_session(self.process.session);
    }

    /// Acts on what was typed: sends the signals, and wakes those who wait.
    pub(super) fn after_typing(&mut self, number: u32) {
        let now = self.clock.real();
        let Some(terminal) = self.objects.terminal_mut(number) else {
            return;
        };
        terminal.typed = now;
        let (group, signals) = (terminal.group, std::mem::take(&mut terminal.signals));
        for signal in signals {
            self.signal_group(group, signal);
        }
        self.objects.wake_terminal(number, false, ev::READABLE);
        self.objects
            .wake_terminal(number, true, ev::READABLE | ev::PRI);
    }
}
