//! Ticks, interrupts, and the way into the kernel.
//!
//! Not here: what an interrupt does with an event (`overflow`).

use super::log::{Context, Fact};
use super::record::Body;
use super::sampling::TimerRegs;
use super::setup::{Form, Kind, TIMER_FLOOR_NS};
use super::world::{Frame, Loop, Place, TICK_NS, World};

impl World {
    /// A new tick: events that were throttled go on.
    pub(super) fn tick(&mut self, cpu: usize) {
        let tick = self.now / TICK_NS;
        if std::mem::replace(&mut self.cpus[cpu].tick, tick) == tick {
            return;
        }
        for event in 0..self.events.len() as u16 {
            let index = self.index(event, cpu);
            let now = self.now;
            let counter = &mut self.counters[index];
            counter.in_tick = 0;
            if std::mem::take(&mut counter.throttled) {
                counter.due = counter.due.max(now);
                self.say(cpu, Fact::Unthrottled { event });
                self.write_side(cpu, event, Body::Unthrottle);
            }
            self.adjust_at_tick(cpu, event);
        }
    }

    /// A hardirq: the irq work and the timers that are due, then `left` steps of its own.
    pub(super) fn interrupt(&mut self, cpu: usize, left: u8) {
        let from_user = self.enter(cpu);
        let mut queue = Vec::new();
        for event in (0..self.events.len() as u16).rev() {
            let index = self.index(event, cpu);
            let counter = &mut self.counters[index];
            let setup = &self.events[usize::from(event)];
            if setup.kind == Kind::Timer && !counter.throttled && counter.due <= self.now {
                counter.due = self.now + setup.period.max(TIMER_FLOOR_NS);
                queue.push(event);
            }
        }
        let irq_work = std::mem::take(&mut self.cpus[cpu].irq_work);
        self.say(cpu, Fact::Interrupt(Context::Hardirq));
        self.cpus[cpu].frames.push(Frame {
            context: Context::Hardirq,
            from_user,
            job: None,
            queue,
            irq_work,
            left,
        });
    }

    /// A softirq, on top of a task in the kernel, with a timer to run if one is given.
    pub(super) fn softirq(&mut self, cpu: usize, timer: Option<u16>, left: u8) {
        let from_user = self.enter(cpu);
        self.say(cpu, Fact::Interrupt(Context::Softirq));
        self.cpus[cpu].frames.push(Frame {
            context: Context::Softirq,
            from_user,
            job: None,
            queue: timer.into_iter().collect(),
            irq_work: false,
            left,
        });
    }

    /// Into the kernel, if user code runs: whether it did.
    pub(super) fn enter(&mut self, cpu: usize) -> bool {
        let user = self.in_user(cpu);
        if let Some(task) = self.cpus[cpu].current.filter(|_| user) {
            self.say(cpu, Fact::Enter);
            self.tasks[task].place = Place::Loop(Loop::Check);
        }
        user
    }

    pub(super) fn step_frame(&mut self, cpu: usize) {
        let Some(mut frame) = self.cpus[cpu].frames.pop() else {
            return;
        };
        if let Some(mut job) = frame.job.take() {
            // The frame is on the stack while its job runs: what the job sees of the CPU must
            // not be the task below.
            let context = frame.context;
            self.cpus[cpu].frames.push(frame);
            if !self.overflow_step(cpu, &mut job)
                && let Some(frame) = self.cpus[cpu].frames.last_mut()
            {
                debug_assert_eq!(frame.context, context);
                frame.job = Some(job);
            }
            return;
        }
        if std::mem::take(&mut frame.irq_work) {
            self.cpus[cpu].frames.push(frame);
            if self.setup.form == Form::Rfc2023 {
                self.pending_irq(cpu);
            }
            return;
        }
        if let Some(event) = frame.queue.pop() {
            let regs = match (frame.context, frame.from_user) {
                (Context::Softirq, _) => TimerRegs::None,
                (_, true) => TimerRegs::User,
                (_, false) => TimerRegs::Kernel,
            };
            self.cpus[cpu].frames.push(frame);
            let job = self.timer(cpu, event, regs);
            if let Some(frame) = self.cpus[cpu].frames.last_mut() {
                frame.job = job;
            }
            return;
        }
        if frame.left > 0 {
            frame.left -= 1;
            self.cpus[cpu].frames.push(frame);
            return;
        }
        self.say(cpu, Fact::InterruptEnd(frame.context));
    }
}
