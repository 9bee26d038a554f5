//! What becomes of an overflow: the timer's flow, its filters, tracepoint and handler variants.
//!
//! `perf_swevent_hrtimer` (`kernel/events/core.c`, Linux 4.8 to 7.2) as a function of what it
//! looks at, so that its truth table can be written down. Not here: the sample itself
//! (`overflow`).

use super::log::Context;
use super::setup::EventSetup;

/// What a handler is told of an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflown {
    /// The event.
    pub event: u16,
    /// Which sample of the run.
    pub number: u64,
    /// The current thread; 0 for the idle task.
    pub tid: i32,
    /// Events it stands for.
    pub period: u64,
    /// Whether the registers are those of user space.
    pub user_mode: bool,
    /// In which context.
    pub context: Context,
}

/// What a program attached to an event decides (`PERF_EVENT_IOC_SET_BPF`).
pub trait Handler {
    /// Called at each overflow that the filters let through; whether the sample is kept.
    fn overflow(&mut self, sample: &Overflown) -> bool;
}

/// Keeps all or drops all.
#[derive(Clone, Copy, Debug)]
pub struct Constant(pub bool);

impl Handler for Constant {
    fn overflow(&mut self, _: &Overflown) -> bool {
        self.0
    }
}

/// Keeps what hit in user space, or what did not.
#[derive(Clone, Copy, Debug)]
pub struct UserOnly(pub bool);

impl Handler for UserOnly {
    fn overflow(&mut self, sample: &Overflown) -> bool {
        sample.user_mode == self.0
    }
}

/// The registers a timer's interrupt found (`get_irq_regs`).
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
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no registers",
            Self::User => "user registers",
            Self::Kernel => "kernel registers",
        }
    }
}

/// What the timer does with an expiry.
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

    /// All combinations; the table's right side is the kernel's text, read by hand.
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
            let flow = timer_flow(regs, idle, &event);
            assert_eq!(flow.overflows, overflows, "{regs:?} idle {idle} {event:?}");
            assert!(flow.traced, "r003_2: the tracepoint is before the filters");
        }
    }
}
