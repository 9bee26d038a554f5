//! A program in the emulated machine that can go to any instruction of its run, forwards and
//! backwards, and give the sample there.
//!
//! There are three machines of the same run. The *scout* goes ahead, to the end of the run, and
//! leaves a copy of itself every so many instructions. The *walker* goes to what is asked for: it
//! becomes the nearest copy before that place, and executes the rest. On its way it takes
//! snapshots, so that the way back is short too.

mod run;
mod watcher;

pub use run::{Entry, Look, ReversibleRun, RunEnd, RunThread};

use super::state::{RDI, live, program_entry, stacks};
use crate::machine::cpu;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_emulator::linux::{
    End, Kernel, Outcome, Snapshot, StartError, Task, ThreadActivity,
};
use unwind_sim_recordings::model;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;
use watcher::{RunState, Search, Watcher};

/// Instructions between snapshots of the walker.
const SNAPSHOT_EVERY: u64 = 1 << 16;
/// Maximum number of snapshots of the walker; then the oldest are dropped.
const SNAPSHOTS_MAX: usize = 64;
/// Bytes kept for the walker's snapshots.
const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
/// Instructions between the first copies of the scout. Doubles when there are too many.
const COPY_EVERY: u64 = 1 << 18;
/// Maximum number of copies, and of their bytes.
const COPIES_MAX: usize = 24;
const COPY_BYTES_MAX: usize = 128 << 20;
/// Instructions that the walker executes rather than become a copy.
const NEAR: u64 = 1 << 16;
/// Instructions between questions whether to stop.
const SLICE: u64 = 1 << 16;

/// A run that can go back.
///
/// The program's standard streams must not be those of this process, which cannot take back what
/// was read or written, and it must not write to files of the host.
pub struct Reversible {
    walker: Machine,
    /// The walker's snapshots, oldest first.
    snapshots: Vec<(Snapshot, RunState)>,
    scout: Machine,
    /// Copies of the scout, by the number of instructions executed. The first one is at the start.
    copies: Vec<Copy>,
    copy_every: u64,
    stack_bytes: u64,
    limit: u64,
    stop: Arc<AtomicBool>,
    /// The address of `main`, once it was looked for.
    main: Option<Option<u64>>,
}

/// A machine with what is known of its run.
struct Machine {
    kernel: Kernel,
    watcher: Watcher,
    end: Option<Outcome>,
}

/// A copy of the scout.
struct Copy {
    kernel: Kernel,
    known: RunState,
    end: Option<Outcome>,
}

impl Copy {
    fn of(machine: &Machine) -> Copy {
        Copy {
            kernel: machine.kernel.clone(),
            known: machine.watcher.known.clone(),
            end: machine.end.clone(),
        }
    }

    fn bytes(&self) -> usize {
        machine_bytes(&self.kernel)
    }
}

fn machine_bytes(kernel: &Kernel) -> usize {
    const PAGE: usize = 4096;
    kernel.machine.core.memory.pages_in_use() * PAGE + kernel.machine.code_bytes()
}

impl Machine {
    fn executed(&self) -> u64 {
        self.kernel.executed()
    }

    /// Executes until this number of instructions was executed, or the run ends.
    fn run_to(&mut self, number: u64) {
        while self.end.is_none() && self.executed() < number {
            let left = number - self.executed();
            let outcome = self.kernel.run(left, &mut self.watcher);
            if outcome != Outcome::Limit {
                self.end = Some(outcome);
            }
        }
        // The thread whose turn it is becomes the one that runs.
        if self.end.is_none() {
            self.kernel.take_turns(&mut self.watcher);
        }
    }

    fn become_copy(&mut self, copy: &Copy) {
        self.kernel = copy.kernel.clone();
        self.watcher.known = copy.known.clone();
        self.watcher.executed = copy.kernel.executed();
        self.end = copy.end.clone();
    }
}

impl Reversible {
    /// Starts `program`. A sample has at most `stack_bytes` bytes of each stack, from rsp upwards.
    /// Long ways end early while `stop` is set.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(
        program: RunningProgram,
        stack_bytes: u64,
        stop: Arc<AtomicBool>,
    ) -> Result<Reversible, StartError> {
        let mut options = program.options;
        let root: PathBuf = options.root.clone();
        options.limits.history_bytes = SNAPSHOT_BYTES_MAX;

        let mut scout = Machine {
            kernel: Kernel::start(&program.path, options)?,
            watcher: Watcher::new(&root),
            end: None,
        };
        // What the kernel maps is reported before the first instruction.
        scout.run_to(0);
        // From this copy every place can be reached.
        let first = Copy::of(&scout);

        let mut walker = Machine {
            kernel: first.kernel.clone(),
            watcher: Watcher::new(&root),
            end: None,
        };
        // The walker starts behind these reports.
        walker.watcher.known = first.known.clone();

        Ok(Reversible {
            walker,
            snapshots: Vec::new(),
            scout,
            copies: vec![first],
            copy_every: COPY_EVERY,
            stack_bytes,
            limit: u64::MAX,
            stop,
            main: None,
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn explore_to(&mut self, number: u64) {
        let number = number.min(self.limit);
        while self.scout.end.is_none() && self.scout.executed() < number && !self.is_stopped() {
            let at = self.scout.executed();
            let due = (at / self.copy_every + 1) * self.copy_every;
            self.scout.run_to(number.min(due).min(at + SLICE));
            if self.scout.executed() == due && self.scout.end.is_none() {
                self.leave_copy();
            }
        }
    }

    fn leave_copy(&mut self) {
        let size = machine_bytes(&self.scout.kernel);
        let held: usize = self.copies.iter().map(Copy::bytes).sum();
        if self.copies.len() >= COPIES_MAX || held + size > COPY_BYTES_MAX {
            self.copy_every = self.copy_every.saturating_mul(2);
            let every = self.copy_every;
            let is_kept = |copy: &Copy| copy.kernel.executed().is_multiple_of(every);
            self.copies.retain(is_kept);
        }
        let held: usize = self.copies.iter().map(Copy::bytes).sum();
        let is_due = self.scout.executed().is_multiple_of(self.copy_every);
        if is_due && held + size <= COPY_BYTES_MAX {
            self.copies.push(Copy::of(&self.scout));
        }
    }

    /// Becomes the nearest earlier state that is kept, if that is nearer than this one.
    fn jump(&mut self, number: u64) {
        let here = self.executed();
        if number < here {
            self.snapshots.retain(|(s, _)| s.executed() <= here);
        }

        // The last copy at or before the place; the first one is at the start of the run.
        let last = self
            .copies
            .partition_point(|c| c.kernel.executed() <= number);
        let copy = last.checked_sub(1).and_then(|index| self.copies.get(index));
        let copied = copy.map_or(0, |copy| copy.kernel.executed());

        if number < here {
            // The newest snapshots come last: those behind the place, or no longer valid, are
            // dropped.
            while let Some((snapshot, known)) = self.snapshots.last() {
                let at = snapshot.executed();
                // The copy is nearer.
                if at <= number && at < copied {
                    break;
                }
                if at <= number && self.walker.kernel.restore(snapshot).is_ok() {
                    self.walker.watcher.known = known.clone();
                    self.walker.watcher.executed = at;
                    self.walker.end = None;
                    return;
                }
                self.snapshots.pop();
            }
        } else if copied <= here + NEAR {
            return;
        }

        if let Some(copy) = copy {
            // Snapshots belong to the machine that is replaced.
            self.snapshots.clear();
            self.walker.become_copy(copy);
        }
    }

    fn walk_to(&mut self, number: u64) {
        while self.walker.end.is_none() && self.executed() < number && !self.is_stopped() {
            let due = (self.executed() / SNAPSHOT_EVERY + 1) * SNAPSHOT_EVERY;
            self.walker.run_to(number.min(due));
            if self.executed() == due && self.walker.end.is_none() {
                self.take_snapshot();
            }
        }
    }

    fn take_snapshot(&mut self) {
        let executed = self.executed();
        let is_newer = |(s, _): &(Snapshot, RunState)| s.executed() < executed;
        if self.snapshots.last().is_none_or(is_newer) {
            if self.snapshots.len() >= SNAPSHOTS_MAX {
                self.snapshots.remove(0);
            }
            let snapshot = self.walker.kernel.snapshot();
            let known = self.walker.watcher.known.clone();
            self.snapshots.push((snapshot, known));
        }
    }

    /// Executes until `until`, and says what was found after this place.
    fn search(&mut self, look: Box<dyn Look>, until: u64) -> Search {
        let mut search = Search {
            look,
            first: None,
            last: None,
        };
        self.walker.watcher.search = Some(search);
        self.walk_to(until);
        search = self.walker.watcher.search.take().unwrap_or_else(|| Search {
            look: Box::new(|_: &Core, _: u64, _: Task, _: &World| false),
            first: None,
            last: None,
        });
        search
    }

    fn find_main(&mut self) -> Option<u64> {
        /// The length of the code at an entry point, in bytes, at most; in instructions it is less.
        const ENTRY_MAX: u64 = 64;
        self.go_to(0);
        let entry = program_entry(self.core())?;
        if self.core().state.rip != entry {
            let look = Box::new(move |_: &Core, rip: u64, _: Task, _: &World| rip == entry);
            let at = self.first(look, 0)?;
            self.go_to(at);
        }
        for _ in 0..ENTRY_MAX {
            let next = self.executed() + 1;
            if self.go_to(next) != next {
                return None;
            }
            let state = &self.core().state;
            if !(entry..entry + ENTRY_MAX).contains(&state.rip) {
                let main = state.gpr(RDI);
                let is_code = self.core().memory.fetch(main, &mut [0]).is_ok();
                return is_code.then_some(main);
            }
        }
        None
    }
}

impl ReversibleRun for Reversible {
    fn set_limit(&mut self, instructions_max: u64) {
        self.limit = instructions_max;
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn executed(&self) -> u64 {
        self.walker.executed()
    }

    fn end(&self) -> Option<RunEnd> {
        let executed = self.scout.executed();
        let outcome = match &self.scout.end {
            Some(outcome) => outcome,
            None if executed >= self.limit => &Outcome::Limit,
            None => return None,
        };
        Some(RunEnd {
            text: outcome.to_string(),
            // A program that has exited has no next instruction.
            states: match outcome {
                Outcome::Exited(_) => executed,
                _ => executed + 1,
            },
            is_modelled: !End::Outcome(outcome.clone()).is_not_modelled(),
        })
    }

    fn has_exited(&self) -> bool {
        matches!(self.walker.end, Some(Outcome::Exited(_)))
    }

    fn explored(&self) -> u64 {
        self.scout.executed()
    }

    fn notices(&self) -> Vec<String> {
        let notices = self.scout.kernel.notices().iter();
        notices.map(ToString::to_string).collect()
    }

    fn world(&self) -> &World {
        &self.walker.watcher.known.world
    }

    fn core(&self) -> &Core {
        &self.walker.kernel.machine.core
    }

    fn task(&self) -> Task {
        self.walker.watcher.known.shadow.task()
    }

    fn auxv(&self) -> &[u8] {
        self.walker.kernel.auxv()
    }

    fn threads(&self) -> Vec<RunThread> {
        let shadow = &self.walker.watcher.known.shadow;
        let threads = self.walker.kernel.threads().into_iter();
        let with_truth = threads.map(|thread| {
            let truth = shadow.truth_of(thread.task, &cpu(&thread.at));
            RunThread {
                task: thread.task,
                name: thread.name,
                doing: match thread.doing {
                    ThreadActivity::Runs => "runs".to_owned(),
                    ThreadActivity::CanRun => "can run".to_owned(),
                    ThreadActivity::WaitsIn(call) => format!("waits in {call}"),
                    ThreadActivity::Stopped(signal) => format!("stopped by signal {signal}"),
                    ThreadActivity::Traced(tracer) => {
                        format!("stopped for its tracer, thread {tracer}")
                    }
                },
                truth: truth.unwrap_or(Truth::Unknown),
                at: thread.at,
            }
        });
        with_truth.collect()
    }

    fn explore(&mut self, instructions: u64) -> bool {
        let until = self.scout.executed().saturating_add(instructions);
        self.explore_to(until);
        self.end().is_none()
    }

    fn go_to(&mut self, number: u64) -> u64 {
        let number = number.min(self.limit);
        let ahead = number.checked_sub(self.executed());
        if ahead.is_none_or(|ahead| ahead > NEAR) {
            // The way there is explored first, since it may be needed again.
            self.explore_to(number);
            self.jump(number.min(self.scout.executed()));
        }
        self.walk_to(number);
        self.executed()
    }

    fn first(&mut self, look: Box<dyn Look>, from: u64) -> Option<u64> {
        if self.go_to(from) != from {
            return None;
        }
        let mut look = look;
        loop {
            let until = self.executed() + SLICE;
            let search = self.search(look, until.min(self.limit));
            if search.first.is_some() {
                return search.first;
            }
            let is_over = self.walker.end.is_some() || self.executed() < until;
            if is_over || self.is_stopped() {
                return None;
            }
            look = search.look;
        }
    }

    fn last(&mut self, look: Box<dyn Look>, mut end: u64) -> Option<u64> {
        let mut look = look;
        while end > 0 && !self.is_stopped() {
            let begin = (end - 1) / SLICE * SLICE;
            if self.go_to(begin) != begin {
                return None;
            }
            let (core, task) = (self.core(), self.task());
            let is_here = look.is_there(core, core.state.rip, task, self.world());
            let search = self.search(look, end - 1);
            let found = search.last.or(is_here.then_some(begin));
            if found.is_some() {
                return found;
            }
            look = search.look;
            end = begin;
        }
        None
    }

    fn main(&mut self) -> Option<u64> {
        if self.main.is_none() {
            self.main = Some(self.find_main());
        }
        self.main.flatten()
    }

    fn sample(&self) -> model::Sample<'static> {
        let core = self.core();
        let shadow = &self.walker.watcher.known.shadow;
        let rip = core.state.rip;
        let task = shadow.task();
        model::Sample {
            pid: task.process,
            tid: task.thread,
            time: self.executed(),
            regs: SampleRegs::hardware(live(core, rip)),
            regions: stacks(core, shadow, self.stack_bytes),
            truth: shadow.truth(core, rip),
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: None,
            process_memory: None,
        }
    }
}

#[cfg(test)]
mod tests;
