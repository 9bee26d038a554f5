//! Signals: actions, masks, sending, waiting.

use crate::linux::clock::Base;
use crate::linux::errno::{Answer, Errno};
use crate::linux::signals::{
    Action, AlternateStack, Info, SA_RESTORER, SIGKILL, SIGNALS, SIGSTOP, UNBLOCKABLE,
};
use crate::linux::{PID, Process};
use crate::state::reg;

const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
/// The flags that `sigaction` keeps (`UAPI_SA_FLAGS`); all others are cleared.
const SA_KNOWN: u64 = 0xdc00_0807 | SA_RESTORER;

/// Parses a signal number; `None` for 0.
fn signal(number: u64) -> Answer<Option<u8>> {
    match u8::try_from(number as u32) {
        Ok(0) => Ok(None),
        Ok(signal @ 1..=SIGNALS) => Ok(Some(signal)),
        _ => Err(Errno::EINVAL),
    }
}

impl Process {
    pub(super) fn sys_sigaction(&mut self, number: u64, new: u64, old: u64, size: u64) -> Answer {
        let signal = signal(number)?.ok_or(Errno::EINVAL)?;
        if size != 8 || new != 0 && matches!(signal, SIGKILL | SIGSTOP) {
            return Err(Errno::EINVAL);
        }
        let action = *self.signals.action(signal);
        let set = match new {
            0 => None,
            at => {
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
            *self.signals.action_mut(signal) = Action {
                flags: set.flags & SA_KNOWN,
                mask: set.mask & !UNBLOCKABLE,
                ..set
            };
            if self.signals.is_ignored(signal) {
                self.signals.drop_pending(signal);
            }
        }
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
        let blocked = self.signals.blocked;
        if new != 0 {
            let set = self.u64_at(new)?;
            self.signals.set_blocked(match how as u32 {
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
        let pending = self.signals.pending() & self.signals.blocked;
        self.put(to, &pending.to_le_bytes()[..size as usize])?;
        Ok(0)
    }

    pub(super) fn sys_sigsuspend(&mut self, set: u64, size: u64) -> Answer {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let set = self.u64_at(set)?;
        self.signals.suspend(set);
        self.wait("rt_sigsuspend")
    }

    pub(super) fn sys_pause(&mut self) -> Answer {
        self.wait("pause")
    }

    fn wait(&mut self, call: &'static str) -> Answer {
        if self.sleep_until_signal(None) {
            return Err(Errno::ERESTARTNOHAND);
        }
        Err(self.blocked(call))
    }

    pub(super) fn sys_sigtimedwait(
        &mut self,
        set: u64,
        info: u64,
        timeout: u64,
        size: u64,
    ) -> Answer {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let set = self.u64_at(set)?;
        let until = match timeout {
            0 => None,
            at => Some(
                self.clock
                    .now(Base::Real)
                    .saturating_add(self.duration_at(at)?),
            ),
        };
        // These may be unblocked while it waits.
        let blocked = self.signals.blocked;
        self.signals.set_blocked(blocked & !set);
        let woken = self.sleep_until_signal(until);
        self.signals.blocked = blocked;
        match self.signals.take(set) {
            Some(found) => {
                if info != 0 {
                    self.put(info, &found.bytes)?;
                }
                Ok(found.signal.into())
            }
            None if woken => Err(Errno::EINTR),
            None if until.is_some() => Err(Errno::EAGAIN),
            None => Err(self.blocked("rt_sigtimedwait")),
        }
    }

    pub(super) fn sys_sigaltstack(&mut self, new: u64, old: u64) -> Answer {
        let rsp = self.machine.state.gpr(reg::RSP);
        let stack = self.signals.alternate;
        if new != 0 {
            let wanted = AlternateStack {
                start: self.u64_at(new)?,
                flags: self.u32_at(new.wrapping_add(8))?,
                size: self.u64_at(new.wrapping_add(16))?,
            };
            self.signals.set_alternate(wanted, rsp)?;
        }
        if old != 0 {
            let flags = stack.told(rsp);
            self.put_words(old, &[stack.start, flags.into(), stack.size])?;
        }
        Ok(0)
    }

    pub(super) fn sys_kill(&mut self, pid: u64, number: u64) -> Answer {
        let signal = signal(number)?;
        // The process itself, its group, or all processes.
        let pid = pid as i32;
        if !matches!(pid, -1 | 0) && pid.unsigned_abs() != PID {
            return Err(Errno::ESRCH);
        }
        self.send_to_itself(signal, SI_USER)
    }

    pub(super) fn sys_tkill(&mut self, thread: u64, number: u64) -> Answer {
        self.sys_tgkill(PID.into(), thread, number)
    }

    pub(super) fn sys_tgkill(&mut self, group: u64, thread: u64, number: u64) -> Answer {
        if (group as i32) <= 0 || (thread as i32) <= 0 {
            return Err(Errno::EINVAL);
        }
        if [group, thread].iter().any(|&id| id as u32 != PID) {
            return Err(Errno::ESRCH);
        }
        let signal = signal(number)?;
        self.send_to_itself(signal, SI_TKILL)
    }

    fn send_to_itself(&mut self, signal: Option<u8>, code: i32) -> Answer {
        if let Some(signal) = signal {
            let uid = self.files.identity.user.real;
            self.signals.send(Info::from_itself(signal, code, uid));
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
        self.bytes::<128>(info)?;
        if (group as i32) <= 0 || (thread as i32) <= 0 {
            return Err(Errno::EINVAL);
        }
        if thread as u32 != PID {
            return Err(Errno::ESRCH);
        }
        self.sys_sigqueue(group, number, info)
    }

    pub(super) fn sys_sigqueue(&mut self, pid: u64, number: u64, info: u64) -> Answer {
        let bytes = self.bytes(info)?;
        if pid as u32 != PID {
            return Err(Errno::ESRCH);
        }
        let signal = signal(number)?;
        if let Some(signal) = signal {
            self.signals.send(Info::given(signal, bytes));
        }
        Ok(0)
    }
}
