//! Delivers signals: default actions and handlers.
//!
//! Source: Linux 6.12 `kernel/signal.c`, `arch/x86/kernel/signal.c`.

mod exception;
pub(super) mod frame;

use super::errno::Errno;
use super::observer::ProcessObserver;
use super::outcome::{Outcome, Why};
use super::process::Process;
use super::signals::{
    Action, Info, SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN, SIGSEGV, SIGSTOP,
    SIGTTOU, bit,
};
use crate::state::reg;

impl Process {
    /// Delivers the pending signals.
    pub(super) fn deliver_signals<O: ProcessObserver>(&mut self, observer: &mut O) {
        while self.outcome.is_none() {
            let Some(info) = self.signals.take(!self.signals.blocked) else {
                break;
            };
            let action = *self.signals.action(info.signal);
            match action.handler {
                SIG_IGN => {}
                SIG_DFL if self.signals.is_ignored(info.signal) => {}
                SIG_DFL => self.default_action(&info),
                _ => self.handle(&info, &action, observer),
            }
        }
        // No handler ran.
        if let Some((number, _)) = self.signals.restart.take()
            && self.outcome.is_none()
        {
            self.call_again(number);
            self.signals.resume();
        }
    }

    fn default_action(&mut self, info: &Info) {
        let rip = self.machine.state.rip;
        self.outcome = Some(match info.signal {
            SIGSTOP..=SIGTTOU => Outcome::Blocked {
                rip,
                call: "a stop signal",
            },
            signal => Outcome::Killed {
                signal,
                rip,
                why: info.why,
            },
        });
    }

    fn call_again(&mut self, number: u64) {
        let state = &mut self.machine.state;
        state.set_gpr(reg::RAX, number);
        state.rip = state.rip.wrapping_sub(2);
    }

    fn handle<O: ProcessObserver>(&mut self, info: &Info, action: &Action, observer: &mut O) {
        if let Some((number, errno)) = self.signals.restart.take()
            && errno == Errno::ERESTARTSYS
            && action.flags & SA_RESTART != 0
        {
            self.call_again(number);
        }
        let signals = &mut self.signals;
        if action.flags & SA_RESETHAND != 0 {
            signals.action_mut(info.signal).handler = SIG_DFL;
        }
        let old_mask = signals.take_old_mask();
        let state = &self.machine.state;
        let interrupted = state.cpu_at(state.rip);
        if self.push_signal_frame(info, action, old_mask).is_none() {
            // Like Linux' `force_sigsegv`: a fault while handling SIGSEGV kills.
            if info.signal == SIGSEGV {
                self.signals.action_mut(SIGSEGV).handler = SIG_DFL;
            }
            self.signals.force(Info::forced(SIGSEGV, Why::Frame));
            return;
        }
        let mut mask = self.signals.blocked | action.mask;
        if action.flags & SA_NODEFER == 0 {
            mask |= bit(info.signal);
        }
        self.signals.set_blocked(mask);
        let state = &self.machine.state;
        let handler = state.cpu_at(state.rip);
        observer.signal(info.signal, &interrupted, &handler, action.restorer);
    }
}
