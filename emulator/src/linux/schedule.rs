//! Which thread runs: round robin on one processor, each for a number of instructions that the
//! run's seed gives. A thread that waits gives way to the next; if all wait, time passes.

use super::kernel::Kernel;
use super::numbers;
use super::observer::ProcessObserver;
use super::outcome::Outcome;
use super::random::Random;
use super::task::Task;

/// Instructions that a thread runs at most before another one does. On average it is half of it.
const QUANTUM_MAX: u64 = 20_000;
/// How often time passes without a thread that can go on: a timer that nobody reads expires forever.
const IDLE_MAX: u32 = 10_000;
/// Makes the random numbers of the schedule others than those that programs draw.
const STREAM: u64 = 0x7363_6865_6475_6c65;

/// The processor's time.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    random: Random,
    /// The number of executed instructions at which the running thread has had its share.
    end: u64,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Schedule {
        Schedule {
            random: Random::new(seed ^ STREAM),
            end: 0,
        }
    }

    /// Gives the running thread its share.
    pub(super) fn begin(&mut self, executed: u64) {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        self.end = executed + 1 + u64::from_le_bytes(bytes) % QUANTUM_MAX;
    }

    /// Takes the rest of the running thread's share away.
    pub(super) fn give_way(&mut self) {
        self.end = 0;
    }
}

impl Kernel {
    /// The instructions that the running thread may execute now; all that are asked for, if there
    /// is no other thread.
    pub(super) fn share(&self) -> u64 {
        match self.process.others.is_empty() && self.processes.is_empty() {
            true => u64::MAX,
            false => self.system.schedule.end.saturating_sub(self.executed()),
        }
    }

    /// Whether the running thread cannot go on.
    pub(super) fn is_stuck(&self) -> bool {
        let thread = &self.process.thread;
        let is_stopped = self.process.stopped.is_some();
        self.outcome.is_none() && (thread.wait.is_some() || thread.has_ended || is_stopped)
    }

    /// Lets a thread run that can: the next one by number, the running one last. Waits if all
    /// wait; ends the run if they wait for nothing that can happen.
    pub(super) fn choose<O: ProcessObserver>(&mut self, observer: &mut O) {
        if !self.is_stuck() && self.share() > 0 {
            return;
        }
        // The kernel's state changes from here on.
        self.saved = None;
        let mut idle = 0;
        while self.outcome.is_none() {
            let (before, after): (Vec<Task>, Vec<Task>) =
                self.tasks().partition(|&task| task <= self.task());
            for task in after.into_iter().chain(before) {
                if self.can_run(task) && self.let_run(task, observer) {
                    return;
                }
            }
            idle += 1;
            if self.outcome.is_none() && (!self.pass_time() || idle > IDLE_MAX) {
                self.end_stuck();
            }
        }
    }

    /// All threads, by number.
    fn tasks(&self) -> impl Iterator<Item = Task> {
        let mut all: Vec<Task> = Vec::new();
        for process in self.all_processes().filter(|process| !process.has_ended) {
            let task = |thread| Task {
                process: process.number,
                thread,
            };
            all.extend(process.others.keys().map(|&thread| task(thread)));
            if !process.thread.has_ended {
                all.push(task(process.thread.number));
            }
        }
        all.sort_unstable();
        all.into_iter()
    }

    /// No thread can ever run again.
    fn end_stuck(&mut self) {
        // What the first process left behind does not matter.
        self.outcome = self.system.first_outcome.take();
        if self.outcome.is_some() {
            return;
        }
        let wait = self.process.thread.wait.as_ref();
        let call = match wait {
            Some(wait) => numbers::name(wait.made.number).unwrap_or(""),
            None => "a stop signal",
        };
        self.outcome = Some(Outcome::Blocked {
            rip: self.machine.core.state.rip,
            call,
        });
    }

    fn can_run(&self, task: Task) -> bool {
        let process = match self.processes.get(&task.process) {
            Some(parked) => &parked.process,
            None => &self.process,
        };
        let signals = &process.signals;
        let own = match process.others.get(&task.thread) {
            Some(other) => &other.signals,
            None => &signals.own,
        };
        let thread = match process.others.get(&task.thread) {
            Some(other) => &other.thread,
            None => &process.thread,
        };
        // Signals of the process that its first thread takes.
        let left = match process.others.get(&process.number) {
            _ if task.thread == process.number => 0,
            Some(first) => !first.signals.blocked,
            None if process.thread.number == process.number => !signals.own.blocked,
            None => 0,
        };
        process.stopped.is_none() && self.is_ready(thread, signals, own, left)
    }

    /// Switches to a thread; answers the call in which it waits. False if it still waits.
    fn let_run<O: ProcessObserver>(&mut self, task: Task, observer: &mut O) -> bool {
        if task != self.task() {
            self.switch_to(task);
            self.leave_sequence();
        }
        if let Some(wait) = &self.process.thread.wait {
            let made = wait.made;
            self.answer_call(made, observer);
            if self.is_stuck() {
                return false;
            }
        }
        self.tell_task(observer);
        self.deliver_signals(observer);
        if self.is_stuck() {
            return false;
        }
        self.system.schedule.begin(self.executed());
        true
    }

    /// Sleeps until a wait ends, or a timer's signal ends one. False if there is neither.
    fn pass_time(&mut self) -> bool {
        let wakes = |process: u32, signal: u8| {
            let process = self.all_processes().find(|p| p.number == process);
            process.is_some_and(|process| {
                let bit = super::signals::bit(signal);
                let mut masks = process.others.values().map(|other| other.signals.blocked);
                let own = process.signals.own.blocked;
                let is_blocked = own & bit != 0 && masks.all(|mask| mask & bit != 0);
                let is_read = self.objects.reads_signal(signal);
                is_read || !is_blocked && !process.signals.is_ignored(signal)
            })
        };
        let timer = self.clock.next_while_sleeping(wakes);
        let ends = [timer, self.next_end_of_wait()];
        let Some(next) = ends.into_iter().flatten().min() else {
            return false;
        };
        if next > self.clock.real() {
            self.clock.sleep_until(next);
        }
        self.expire_timers();
        true
    }
}
