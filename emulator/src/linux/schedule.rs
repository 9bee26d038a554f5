//! Which thread runs: round robin on one processor, each for a number of instructions that the
//! run's seed gives, or as a given schedule says. A thread that waits gives way to the next; if all
//! wait, time passes.

use super::kernel::Kernel;
use super::numbers;
use super::observer::ProcessObserver;
use super::outcome::Outcome;
use super::task::Task;
use super::turns::{Misfit, MisfitKind, ScheduleOutcome, Turn};

/// How often time passes without a thread that can go on, until only the ends of waits count: a
/// timer that nobody reads expires forever.
const IDLE_MAX: u32 = 10_000;

impl Kernel {
    /// The instructions that the running thread may execute now; all that are asked for, if there
    /// is no other thread.
    pub(super) fn share(&self) -> u64 {
        let is_alone = self.process.others.is_empty() && self.processes.is_empty();
        if is_alone && self.system.schedule.turn().is_none() {
            u64::MAX
        } else {
            self.system.schedule.end.saturating_sub(self.executed())
        }
    }

    /// What has become of the schedule so far.
    pub fn followed(&self) -> ScheduleOutcome {
        let taken = self.system.schedule.taken.as_ref();
        ScheduleOutcome {
            turns: taken.map_or(Vec::new(), |taken| taken.all(self.executed())),
            left: self.turn_left(),
        }
    }

    fn turn_left(&self) -> Option<usize> {
        let schedule = &self.system.schedule;
        let (at, turn) = schedule.turn()?;
        let is_over = schedule.has_begun()
            && (turn.instructions == Turn::OPEN || schedule.end <= self.executed());
        let next = at + usize::from(is_over);
        let count = schedule.given.as_ref()?.turns.len();
        (next < count).then_some(next + 1)
    }

    /// Whether the running thread cannot go on.
    pub(super) fn is_stuck(&self) -> bool {
        let thread = &self.process.thread;
        let is_stuck = thread.wait.is_some() || thread.has_ended || self.is_stopped();
        self.outcome.is_none() && is_stuck
    }

    /// Whether the running thread is stopped, by a signal or for its tracer.
    pub(super) fn is_stopped(&self) -> bool {
        self.process.stops(&self.process.thread)
    }

    /// Lets a thread run that can: the next one by number, the running one last. Waits if all
    /// wait; ends the run if they wait for nothing that can happen.
    pub(super) fn choose<O: ProcessObserver>(&mut self, observer: &mut O) {
        if !self.is_stuck() && self.share() > 0 {
            return;
        }

        // The kernel's state changes from here on.
        self.saved = None;
        if self.follow(observer) {
            return;
        }

        let mut idle = 0;
        while self.outcome.is_none() {
            let changes = self.system.changes;
            // Round robin: first the threads with greater numbers than the running one, then from
            // the lowest on, and the running one last. With the lowest first each time, others
            // could wait forever.
            let (before, after): (Vec<Task>, Vec<Task>) =
                self.tasks().partition(|&task| task <= self.task());
            for task in after.into_iter().chain(before) {
                if self.can_run(task) && self.try_task(task, observer) {
                    return;
                }
            }
            // A call that was answered in part may be what another one waits for.
            if changes == self.system.changes {
                self.idle(&mut idle);
            }
        }
    }

    /// Follows a given schedule. False if there is none, or it is over.
    fn follow<O: ProcessObserver>(&mut self, observer: &mut O) -> bool {
        let mut idle = 0;
        while self.outcome.is_none() {
            let Some((_, turn)) = self.system.schedule.turn() else {
                return false;
            };

            // An open turn lasts until the thread waits or ends.
            let is_open = turn.instructions == Turn::OPEN;
            let has_ended = if is_open {
                self.is_stuck()
            } else {
                self.system.schedule.end <= self.executed()
            };
            if self.system.schedule.has_begun() && has_ended {
                self.system.schedule.next_turn();
                continue;
            }

            let mut tasks = self.tasks();
            let Some(task) = tasks.find(|task| task.thread == turn.thread) else {
                self.misfit(MisfitKind::NoThread);
                break;
            };

            let can_run = self.can_run(task);
            let changes = self.system.changes;
            let runs = can_run && self.try_task(task, observer);

            // A turn of no instructions only answers the call.
            if turn.instructions == 0 {
                self.system.schedule.next_turn();
                continue;
            }

            if runs {
                return true;
            }
            // It may wait for one of the others, whose calls are answered first.
            if changes == self.system.changes && !self.try_others(task, observer) {
                self.idle(&mut idle);
            }
        }
        true
    }

    /// The thread of the current turn cannot run: answers the calls of others, of which it may wait
    /// for one. If another one can run, the schedule does not fit. Whether anything has changed.
    fn try_others<O: ProcessObserver>(&mut self, task: Task, observer: &mut O) -> bool {
        let changes = self.system.changes;
        let waits = self.thread_mut(task.process, task.thread);
        let waits = waits.and_then(|thread| thread.wait.as_ref());
        let call = waits.and_then(|wait| numbers::name(wait.made.number));
        let others: Vec<Task> = self.tasks().filter(|&other| other != task).collect();
        for other in others {
            let thread = self.thread_mut(other.process, other.thread);
            let waits = thread.is_some_and(|thread| thread.wait.is_some());
            if self.can_run(other) && (!waits || self.try_task(other, observer)) {
                self.misfit(MisfitKind::Waits(call, other.thread));
                return true;
            }
        }
        changes != self.system.changes
    }

    /// Lets time pass, or ends the run if nothing will happen.
    fn idle(&mut self, idle: &mut u32) {
        *idle += 1;
        if self.outcome.is_none() && !self.pass_time(*idle < IDLE_MAX) {
            self.end_stuck();
        }
    }

    /// Ends the run because the given schedule does not fit.
    fn misfit(&mut self, why: MisfitKind) {
        let executed = self.executed();
        let schedule = &self.system.schedule;
        let Some((at, turn)) = schedule.turn() else {
            return;
        };
        let begun = schedule.given.as_ref().and_then(|given| given.begun);
        self.outcome = Some(Outcome::Misfit(Misfit {
            number: at + 1,
            turn,
            done: begun.map_or(0, |begun| executed - begun),
            executed,
            why,
        }));
    }

    /// Lets a thread run, or answers its call. False if it still waits.
    fn try_task<O: ProcessObserver>(&mut self, task: Task, observer: &mut O) -> bool {
        let before = (self.system.changes, self.system.told);
        let runs = self.let_run(task, observer);
        let is_seen = before != (self.system.changes, self.system.told);
        let executed = self.executed();
        if let Some(taken) = &mut self.system.schedule.taken {
            match runs {
                true => taken.run(self.process.thread.number, executed),
                false if is_seen => taken.answered(task.thread, executed),
                false => {}
            }
        }
        runs
    }

    /// All threads, by number.
    fn tasks(&self) -> impl Iterator<Item = Task> + use<> {
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
            None if self.process.thread.traced.is_some() => "a stop for its tracer",
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
        !process.stops(thread) && self.is_ready(thread, signals, own, left)
    }

    /// Switches to a thread; answers the call in which it waits. False if it still waits.
    fn let_run<O: ProcessObserver>(&mut self, task: Task, observer: &mut O) -> bool {
        if task != self.task() {
            self.switch_to(task);
        }
        // Another one may have been asked in between, but none has run.
        if task != self.system.told {
            self.leave_sequence();
        }
        self.go_on(observer);
        if self.is_stuck() {
            return false;
        }
        self.tell_task(observer);
        self.deliver_signals(observer);
        if self.is_stuck() {
            return false;
        }
        self.system.schedule.begin(self.executed());
        true
    }

    /// Sleeps until a wait ends, or a timer's signal ends one if `timers`. False if there is neither.
    fn pass_time(&mut self, timers: bool) -> bool {
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
        let timer = self.clock.next_while_sleeping(wakes).filter(|_| timers);
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
