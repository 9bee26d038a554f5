//! The flow of a timer: its filters, its tracepoint, and handlers.
//!
//! `perf_swevent_hrtimer` (`kernel/events/core.c`, Linux 4.8 to 7.2) as a pure function, so that a
//! test can hold its truth table. The sample itself is made in `world`.

use super::log::Context;
use super::setup::EventSetup;

/// An overflow as a handler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflown {
    /// The event.
    pub event: u16,
    /// The number of the sample, from 1.
    pub number: u64,
    /// The current thread; 0 for the idle task.
    pub tid: i32,
    /// Number of events that it stands for.
    pub period: u64,
    /// Whether the registers are those of user space.
    pub user_mode: bool,
    /// The context.
    pub context: Context,
}

/// A handler of overflows, such as a program attached with `PERF_EVENT_IOC_SET_BPF`.
pub trait Handler {
    /// Called at each overflow that passes the filters. Returns whether the sample is kept.
    fn overflow(&mut self, sample: &Overflown) -> bool;
}

/// Keeps or drops every sample.
#[derive(Clone, Copy, Debug)]
pub struct Constant(pub bool);

impl Handler for Constant {
    fn overflow(&mut self, _: &Overflown) -> bool {
        self.0
    }
}

/// Keeps the samples from user space (true) or from elsewhere (false).
#[derive(Clone, Copy, Debug)]
pub struct UserOnly(pub bool);

impl Handler for UserOnly {
    fn overflow(&mut self, sample: &Overflown) -> bool {
        sample.user_mode == self.0
    }
}

/// The registers that a timer's interrupt found (`get_irq_regs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerRegs {
    /// None: the timer did not fire in an interrupt.
    None,
    /// Those of user space.
    User,
    /// Those of the kernel.
    Kernel,
}

impl TimerRegs {
    /// The name for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no registers",
            Self::User => "user registers",
            Self::Kernel => "kernel registers",
        }
    }
}

/// What happens when a timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerFlow {
    /// A tracepoint at the head of the function, as proposed in July 2016, sees it.
    pub traced: bool,
    /// It becomes an overflow, and handlers see it.
    pub overflows: bool,
}

/// The flow of `perf_swevent_hrtimer`: `if (regs && !perf_exclude_event(event, regs)) if
/// (!(event->attr.exclude_idle && is_idle_task(current)))`.
pub fn timer_flow(regs: TimerRegs, idle: bool, event: &EventSetup) -> TimerFlow {
    let excluded = match regs {
        TimerRegs::None => true,
        TimerRegs::User => event.exclude_user,
        TimerRegs::Kernel => event.exclude_kernel,
    };
    TimerFlow {
        traced: true,
        overflows: !(excluded || event.exclude_idle && idle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected column was read from the kernel's source by hand.
    #[test]
    fn r003_1_the_timers_flow() {
        let rows = [
            // regs, idle, exclude_user, exclude_kernel, exclude_idle: overflows
            (TimerRegs::None, false, false, false, false, false),
            (TimerRegs::None, true, false, false, false, false),
            (TimerRegs::User, false, false, false, false, true),
            (TimerRegs::User, false, true, false, false, false),
            (TimerRegs::User, false, false, true, false, true),
            (TimerRegs::User, false, false, false, true, true),
            (TimerRegs::Kernel, false, false, false, false, true),
            (TimerRegs::Kernel, false, true, false, false, true),
            (TimerRegs::Kernel, false, false, true, false, false),
            (TimerRegs::Kernel, false, false, false, true, true),
            (TimerRegs::Kernel, true, false, false, false, true),
            (TimerRegs::Kernel, true, true, false, false, true),
            (TimerRegs::Kernel, true, false, true, false, false),
            (TimerRegs::Kernel, true, false, false, true, false),
        ];
        for (regs, idle, exclude_user, exclude_kernel, exclude_idle, overflows) in rows {
            let event = EventSetup {
                exclude_user,
                exclude_kernel,
                exclude_idle,
                ..EventSetup::default()
            };

            // Without registers nothing can be sampled, and idle counts only in the kernel.
            let flow = timer_flow(regs, idle, &event);
            assert_eq!(flow.overflows, overflows, "{regs:?} idle {idle} {event:?}");
            assert!(flow.traced, "r003_2: the tracepoint is before the filters");
        }
    }
}
