//! Signals: actions, masks, sending, waiting.

use crate::linux::errno::{Answer, Errno};
use crate::linux::process::{Process, Zombie};
use crate::linux::signals::{
    Action, AlternateStack, Info, SA_RESTORER, SIGCONT, SIGKILL, SIGNALS, SIGRTMIN, SIGSTOP,
    Signals, UNBLOCKABLE,
};
use crate::linux::threads::WaitCondition;
use crate::linux::{INIT, Kernel};
use crate::state::reg;

pub(super) const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
/// The flags that `sigaction` keeps (`UAPI_SA_FLAGS`); all others are cleared.
const SA_KNOWN: u64 = 0xdc00_0807 | SA_RESTORER;

/// Parses a signal number; `None` for 0.
pub(super) fn signal(number: u64) -> Answer<Option<u8>> {
    match u8::try_from(number as u32) {
        Ok(0) => Ok(None),
        Ok(signal @ 1..=SIGNALS) => Ok(Some(signal)),
        _ => Err(Errno::EINVAL),
    }
}

impl Kernel {
    pub(super) fn sys_sigaction(&mut self, number: u64, new: u64, old: u64, size: u64) -> Answer {
        let signal = signal(number)?.ok_or(Errno::EINVAL)?;
        if size != 8 || new != 0 && matches!(signal, SIGKILL | SIGSTOP) {
            return Err(Errno::EINVAL);
        }

        let action = *self.process.signals.action(signal);
        let set = match new {
            0 => None,
            at => {
                // The kernel's `struct sigaction`: handler, flags, restorer, mask.
                let word = |index: u64| self.u64_at(at.wrapping_add(8 * index));
                Some(Action {
                    handler: word(0)?,
                    flags: word(1)?,
                    restorer: word(2)?,
                    mask: word(3)?,
                })
            }
        };

        if let Some(set) = set {
            *self.process.signals.action_mut(signal) = Action {
                // Unknown flags are cleared: that is how a program asks for them (sigaction(2)).
                flags: set.flags & SA_KNOWN,
                // SIGKILL and SIGSTOP cannot be blocked.
                mask: set.mask & !UNBLOCKABLE,
                ..set
            };

            // What is ignored from now on is not pending either (`do_sigaction`).
            if self.process.signals.is_ignored(signal) {
                self.process.signals.drop_pending(signal);
            }
        }

        // The old action is stored last: both may be in the same place.
        if old != 0 {
            let words = [action.handler, action.flags, action.restorer, action.mask];
            self.put_words(old, &words)?;
        }
        Ok(0)
    }

    pub(super) fn sys_sigprocmask(&mut self, how: u64, new: u64, old: u64, size: u64) -> Answer {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let blocked = self.process.signals.own.blocked;
        if new != 0 {
            let set = self.u64_at(new)?;
            self.process.signals.set_blocked(match how as u32 {
                0 => blocked | set,
                1 => blocked & !set,
                2 => set,
                _ => return Err(Errno::EINVAL),
            });
        }
        if old != 0 {
            self.put_u64(old, blocked)?;
        }
        Ok(0)
    }

    pub(super) fn sys_sigpending(&mut self, to: u64, size: u64) -> Answer {
        if size > 8 {
            return Err(Errno::EINVAL);
        }
        let pending = self.process.signals.pending() & self.process.signals.own.blocked;
        self.put(to, &pending.to_le_bytes()[..size as usize])?;
        Ok(0)
    }

    pub(super) fn sys_sigsuspend(&mut self, set: u64, size: u64) -> Answer {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let set = self.u64_at(set)?;
        if !self.has_waited() {
            self.process.signals.suspend(set);
        }
        self.wait_for_signal(Errno::ERESTARTNOHAND)
    }

    pub(super) fn sys_pause(&mut self) -> Answer {
        self.wait_for_signal(Errno::ERESTARTNOHAND)
    }

    pub(super) fn sys_sigtimedwait(
        &mut self,
        set: u64,
        info: u64,
        timeout: u64,
        size: u64,
    ) -> Answer {
        // The size of a signal set in the kernel.
        if size != 8 {
            return Err(Errno::EINVAL);
        }

        let set = self.u64_at(set)?;
        let until = match timeout {
            0 => None,
            at => Some(self.clock.real().saturating_add(self.duration_at(at)?)),
        };

        // These are not blocked while it waits.
        if !self.has_waited() {
            self.process
                .signals
                .suspend(self.process.signals.own.blocked & !set);
        }

        let woken = self.wait_until(until, WaitCondition::Change)?;
        self.process.signals.resume();

        // A signal of the set is taken here, and no handler runs.
        match self.process.signals.take(set) {
            Some(found) => {
                if info != 0 {
                    self.put(info, &found.bytes)?;
                }
                Ok(found.signal.into())
            }
            // Another signal ended the wait, or the time did.
            None if woken => Err(Errno::EINTR),
            None => Err(Errno::EAGAIN),
        }
    }

    pub(super) fn sys_sigaltstack(&mut self, new: u64, old: u64) -> Answer {
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let stack = self.process.signals.own.alternate;
        if new != 0 {
            let wanted = AlternateStack {
                start: self.u64_at(new)?,
                flags: self.u32_at(new.wrapping_add(8))?,
                size: self.u64_at(new.wrapping_add(16))?,
            };
            self.process.signals.set_alternate(wanted, rsp)?;
        }
        if old != 0 {
            let flags = stack.told(rsp);
            self.put_words(old, &[stack.start, flags.into(), stack.size])?;
        }
        Ok(0)
    }

    pub(super) fn sys_kill(&mut self, pid: u64, number: u64) -> Answer {
        let signal = signal(number)?;

        let (own, group) = (self.process.number, self.process.group);
        let targets: Vec<u32> = match pid as i32 {
            // All processes but itself and `init`; in Linux it is an error if there are none.
            -1 => self.numbers_where(|process| process.number != own),
            0 => self.numbers_where(|process| process.group == group),
            group @ ..0 => self.numbers_where(|process| process.group == group.unsigned_abs()),
            number if number.cast_unsigned() == INIT => return self.signal_init(),
            number => self.numbers_where(|process| process.number == number.cast_unsigned()),
        };

        // A process that ended but was not waited for still takes signals (kill(2)).
        if targets.is_empty() {
            let wanted = (pid as i32).unsigned_abs();
            let is_it = |ended: &Zombie| {
                if (pid as i32) < 0 {
                    ended.group == wanted
                } else {
                    ended.number == wanted
                }
            };
            return if self.system.ended.iter().any(is_it) {
                Ok(0)
            } else {
                Err(Errno::ESRCH)
            };
        }

        let uid = self.files.own.identity.user.real;
        let mut answer = Err(Errno::EPERM);
        for target in targets {
            // One that may be signalled is enough (kill(2)).
            if self.may_signal(target, signal).is_err() {
                continue;
            }

            answer = Ok(0);
            if let Some(signal) = signal {
                let info = Info::from_process(signal, SI_USER, own, uid);
                self.send_to(target, None, info);
            }
        }

        // What is sent to all counts as sent, whoever may have it.
        if pid as i32 == -1 { Ok(0) } else { answer }
    }

    /// Checks whether a process may get a signal from the running one (`kill_ok_by_cred`); 0, which
    /// only asks, is `None`.
    pub(super) fn may_signal(&self, process: u32, signal: Option<u8>) -> Answer<()> {
        let own = &self.files.own.identity;
        if process == self.process.number || self.is_capable_over(process) {
            return Ok(());
        }
        let of = self.identity_of(process).user;
        let users = [own.user.real, own.user.effective];
        let session = self.process(process).map(|process| process.session);
        let is_continued = signal == Some(SIGCONT) && session == Some(self.process.session);
        if is_continued || users.iter().any(|id| [of.real, of.saved].contains(id)) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    /// A signal to `init`, which ignores all.
    fn signal_init(&self) -> Answer {
        self.may_signal(INIT, None).map(|()| 0)
    }

    fn numbers_where(&self, is_it: impl Fn(&Process) -> bool) -> Vec<u32> {
        let all = self.all_processes().filter(|process| is_it(process));
        all.map(|process| process.number).collect()
    }

    /// The signals of a process.
    pub(in crate::linux) fn signals_of(&mut self, process: u32) -> Option<&mut Signals> {
        if process == self.process.number {
            return Some(&mut self.process.signals);
        }
        let other = self.processes.get_mut(&process)?;
        Some(&mut other.process.signals)
    }

    /// Sends a signal to a process, or to one of its threads.
    pub(in crate::linux) fn send_to(&mut self, process: u32, thread: Option<u32>, info: Info) {
        let own = self.process.number;
        if matches!(info.signal, SIGCONT | SIGKILL) {
            self.continue_process(process);
            self.notify_traced(process, info.signal == SIGKILL);
        }
        let process = match self.processes.get_mut(&process) {
            Some(other) => &mut other.process,
            None if process == own => &mut self.process,
            None => return,
        };
        match thread {
            None => process.signals.send(info),
            Some(thread) => match process.others.get_mut(&thread) {
                Some(other) => process.signals.send_to_other(info, &mut other.signals),
                None if process.thread.number == thread => process.signals.send_to_thread(info),
                None => {}
            },
        }
    }

    pub(super) fn sys_tkill(&mut self, thread: u64, number: u64) -> Answer {
        let process = self.process_of(thread).unwrap_or(match thread as u32 {
            INIT => INIT,
            _ => 0,
        });
        self.sys_tgkill(process.into(), thread, number)
    }

    /// The process of a thread.
    pub(in crate::linux) fn process_of(&self, thread: u64) -> Option<u32> {
        let thread = thread as u32;
        let has_it = |process: &&Process| {
            process.thread.number == thread || process.others.contains_key(&thread)
        };
        self.all_processes()
            .find(has_it)
            .map(|process| process.number)
    }

    /// Checks the target of a signal to a thread.
    fn target(&self, group: u64, thread: u64) -> Answer<(u32, Option<u32>)> {
        if (group as i32) < 0 || (thread as i32) <= 0 {
            return Err(Errno::EINVAL);
        }
        if thread as u32 == INIT && group as u32 == INIT {
            return Ok((INIT, None));
        }
        match self.process_of(thread) {
            Some(process) if process == group as u32 => Ok((process, Some(thread as u32))),
            _ => Err(Errno::ESRCH),
        }
    }

    pub(super) fn sys_tgkill(&mut self, group: u64, thread: u64, number: u64) -> Answer {
        if group as i32 == 0 && self.process_of(thread).is_some() {
            return Err(Errno::EINVAL);
        }
        let (process, thread) = self.target(group, thread)?;
        let signal = signal(number)?;
        self.may_signal(process, signal)?;
        if let Some(signal) = signal {
            let uid = self.files.own.identity.user.real;
            let info = Info::from_process(signal, SI_TKILL, self.process.number, uid);
            self.send_to(process, thread, info);
        }
        Ok(0)
    }

    /// `rt_tgsigqueueinfo`.
    pub(super) fn sys_tgsigqueue(
        &mut self,
        group: u64,
        thread: u64,
        number: u64,
        info: u64,
    ) -> Answer {
        let bytes = self.bytes(info)?;
        if group as i32 == 0 {
            return Err(Errno::EINVAL);
        }
        let (process, thread) = self.target(group, thread)?;
        let signal = signal(number)?;
        self.may_signal(process, signal)?;
        if let Some(signal) = signal {
            if signal >= SIGRTMIN {
                self.may_queue_signal()?;
            }
            self.send_to(process, thread, Info::given(signal, bytes));
        }
        Ok(0)
    }

    pub(super) fn sys_sigqueue(&mut self, pid: u64, number: u64, info: u64) -> Answer {
        let bytes = self.bytes(info)?;
        let process = pid as u32;
        if self.signals_of(process).is_none() && process != INIT {
            return Err(Errno::ESRCH);
        }
        let signal = signal(number)?;
        self.may_signal(process, signal)?;
        if let Some(signal) = signal {
            if signal >= SIGRTMIN {
                self.may_queue_signal()?;
            }
            self.send_to(process, None, Info::given(signal, bytes));
        }
        Ok(0)
    }

    /// Whether the running process has this thread.
    pub(super) fn has_thread(&self, number: u64) -> bool {
        self.process_of(number) == Some(self.process.number)
    }
}
