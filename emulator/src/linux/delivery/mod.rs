//! Delivers signals: default actions and handlers.
//!
//! Source: Linux 6.12 `kernel/signal.c`, `arch/x86/kernel/signal.c`.

mod exception;
pub(super) mod frame;

use super::errno::Errno;
use super::kernel::Kernel;
use super::observer::ProcessObserver;
use super::outcome::{Outcome, SignalOrigin};
use super::signals::{
    Action, Info, SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN, SIGSEGV, SIGSTOP,
    SIGTSTP, SIGTTOU, bit,
};
use crate::state::reg;

impl Kernel {
    /// Delivers the pending signals.
    pub(super) fn deliver_signals<O: ProcessObserver>(&mut self, observer: &mut O) {
        while self.outcome.is_none() && !self.process.has_ended && !self.is_stopped() {
            let Some(info) = self.next_signal() else {
                break;
            };
            let action = *self.process.signals.action(info.signal);
            match action.handler {
                SIG_IGN => {}
                SIG_DFL if self.process.signals.is_ignored(info.signal) => {}
                SIG_DFL => self.default_action(&info),
                _ => self.handle(&info, &action, observer),
            }
        }

        // What the tracer sees is what was interrupted.
        if self.process.thread.traced.is_some() && self.is_stopped() {
            return;
        }

        // No handler ran.
        if let Some((number, _)) = self.process.signals.own.restart.take()
            && self.outcome.is_none()
        {
            self.call_again(number);
            self.process.signals.resume();
        }
    }

    fn default_action(&mut self, info: &Info) {
        let rip = self.machine.core.state.rip;
        match info.signal {
            // Nobody could continue it.
            SIGTSTP..=SIGTTOU if self.is_orphaned(self.process.group, None) => {}
            signal @ SIGSTOP..=SIGTTOU => self.stop_process(signal),
            signal => {
                let outcome = Outcome::Killed {
                    signal,
                    rip,
                    why: info.why,
                };
                if !self.stops_before_end(signal.into(), &outcome) {
                    self.end_process(outcome);
                }
            }
        }
    }

    fn call_again(&mut self, number: u64) {
        let core = &mut self.machine.core;
        core.state.set_gpr(reg::RAX, number);
        core.state.rip = core.state.rip.wrapping_sub(2);
    }

    fn handle<O: ProcessObserver>(&mut self, info: &Info, action: &Action, observer: &mut O) {
        self.process.thread.sleep_end = None;
        // Without SA_RESTART the interrupted call returns EINTR (signal(7)).
        if let Some((number, errno)) = self.process.signals.own.restart.take()
            && errno == Errno::ERESTARTSYS
            && action.flags & SA_RESTART != 0
        {
            self.call_again(number);
        }

        // The frame must hold the abort address of a restartable sequence (`rseq_signal_deliver`).
        self.leave_sequence();
        let steps = self.ends_step();

        let signals = &mut self.process.signals;
        if action.flags & SA_RESETHAND != 0 {
            signals.action_mut(info.signal).handler = SIG_DFL;
        }

        // `rt_sigsuspend` and the like return to another mask than the current one.
        let old_mask = signals.take_old_mask();
        let core = &self.machine.core;
        let interrupted = core.state.preserved_at(core.state.rip);

        if self.push_signal_frame(info, action, old_mask).is_none() {
            // Like Linux' `force_sigsegv`: a fault while handling SIGSEGV kills.
            if info.signal == SIGSEGV {
                self.process.signals.action_mut(SIGSEGV).handler = SIG_DFL;
            }
            self.process
                .signals
                .force(Info::forced(SIGSEGV, SignalOrigin::Frame));
            return;
        }

        let mut mask = self.process.signals.own.blocked | action.mask;
        if action.flags & SA_NODEFER == 0 {
            mask |= bit(info.signal);
        }
        self.process.signals.set_blocked(mask);

        let core = &self.machine.core;
        let handler = core.state.preserved_at(core.state.rip);
        if self.process.observed {
            observer.signal(info.signal, &interrupted, &handler, action.restorer);
        }

        if steps {
            self.stop_in_handler();
        }
    }
}
