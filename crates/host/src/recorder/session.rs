//! A recording from start to end: the loop that waits for thread stops and resumes the threads.

use super::launch::launch;
use super::options::{RecorderOptions, Target};
use super::places::names;
use super::step::StepOutcome;
use super::task::{Mode, Name, Phase, Process, Thread};
use super::watchdog::Watchdog;
use super::{End, ProgramEnd, Recorder, Summary};
use crate::error::HostError;
use crate::plan::At;
use nix::libc;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use unwind_sim_emulator_native::pin::Pinned;
use unwind_sim_emulator_native::ptrace::{self, Registers, Resume, Status, Waited};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::Stats;

/// The state of a recording.
pub(crate) struct Session<'a> {
    pub(crate) options: &'a RecorderOptions,
    pub(crate) recorder: &'a mut dyn Recorder,
    pub(crate) processes: HashMap<i32, Process>,
    pub(crate) threads: HashMap<i32, Thread>,
    /// New threads that stopped before their creation was reported.
    pub(crate) early: Vec<i32>,
    /// Stops that were waited for out of order.
    pub(crate) deferred: VecDeque<(i32, Status)>,
    pub(crate) names: Vec<Name>,
    /// For each of `names`, whether some image contains it.
    pub(crate) located: Vec<bool>,
    pub(crate) pinned: Option<Pinned>,
    pub(crate) summary: Summary,
    /// Why the recording is to end, once decided.
    pub(crate) end: Option<End>,
    pub(crate) began: Instant,
    /// The process whose end ends the recording.
    pub(crate) target: i32,
    next_tick: Instant,
    /// Whether the target was waited for, so that its number is no longer its own.
    pub(crate) has_target_ended: bool,
    /// Until the target has ended.
    pub(crate) watchdog: Option<Watchdog>,
}

/// Records what `options` say into `recorder`.
///
/// The calling thread must not have children of its own to wait for: this reaps them, too.
pub fn record(
    options: &RecorderOptions,
    recorder: &mut dyn Recorder,
) -> Result<Summary, HostError> {
    let names = names(options.plan.from.as_deref(), options.plan.at.points());
    let target = match &options.target {
        Target::Run(program) => launch(program, options.randomize)?,
        Target::Attach(pid) => *pid,
    };

    let mut session = Session {
        options,
        recorder,
        processes: HashMap::new(),
        threads: HashMap::new(),
        early: Vec::new(),
        deferred: VecDeque::new(),
        located: vec![false; names.len()],
        names,
        // Waking a thread on another processor costs more than a step.
        pinned: options.steps().then(Pinned::here).flatten(),
        summary: Summary {
            program: ProgramEnd::RunsOn,
            end: End::Program,
            samples: 0,
            instructions: 0,
            approach: 0,
            from_reached: false,
            threads: 0,
            not_located: Vec::new(),
            tracker: Stats::default(),
        },
        end: None,
        began: Instant::now(),
        target,
        next_tick: Instant::now(),
        has_target_ended: false,
        watchdog: None,
    };

    // Even after a panic, the program's code must be restored.
    let ran = catch_unwind(AssertUnwindSafe(|| session.run()));
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(panic) => {
            let _ = session.wind_up(true);
            resume_unwind(panic);
        }
    };

    // Even after an error, so that the program is not left with our breakpoints.
    let wound_up = session.wind_up(outcome.is_err());
    outcome.and(wound_up)?;

    // A name may be in an image that is mapped late, so it can be missing only now.
    let missing = session.names.iter().zip(&session.located);
    session.summary.not_located = missing
        .filter(|&(_, &located)| !located)
        .map(|(name, _)| name.text.clone())
        .collect();
    Ok(session.summary)
}

/// How long to wait for an event when running threads are also sampled by time.
const POLL: Duration = Duration::from_millis(1);

impl Session<'_> {
    fn run(&mut self) -> Result<(), HostError> {
        match self.options.target {
            Target::Run(_) => {
                self.add_process(self.target, self.first_phase());
                self.threads.insert(self.target, Thread::new(self.target));
                // waitpid(2) has no timeout, so another thread ends the program when its time is
                // over.
                if let Some(timeout) = self.options.timeout {
                    let started = Watchdog::start(self.target, timeout);
                    let failed = |error| HostError::System {
                        call: "starting a thread for the timeout",
                        tid: self.target,
                        error,
                    };
                    self.watchdog = Some(started.map_err(failed)?);
                }
            }
            Target::Attach(pid) => self.attach(pid)?,
        }

        while self.end.is_none() {
            if self.options.plan.is_stopped() {
                self.end = Some(End::Interrupted);
                break;
            }
            if self.is_too_late() {
                self.end = Some(End::Timeout);
                break;
            }
            // A program may start threads without end.
            if self.threads.len() > self.options.tasks_max {
                self.end = Some(End::Tasks);
                break;
            }

            match self.next_event()? {
                Waited::Stopped(tid, status) => match self.handle(tid, status) {
                    // Killed while we handled its stop (ptrace(2), "Death under ptrace"): its end
                    // comes later.
                    Err(error) if error.is_gone() => {}
                    other => other?,
                },
                Waited::Nothing => {}
                Waited::NoChildren => self.end = Some(End::Program),
            }
        }
        Ok(())
    }

    /// Whether the time of the recording is over.
    pub(crate) fn is_too_late(&self) -> bool {
        self.watchdog.as_ref().is_some_and(Watchdog::is_over)
    }

    pub(crate) fn add_process(&mut self, pid: i32, phase: Phase) {
        let process = Process::new(pid, phase, self.names.len());
        self.processes.insert(pid, process);
    }

    fn next_event(&mut self) -> Result<Waited, HostError> {
        if let Some((tid, status)) = self.deferred.pop_front() {
            return Ok(Waited::Stopped(tid, status));
        }
        let At::Freq(hz) = self.options.plan.at else {
            return Ok(ptrace::wait(-1, true)?);
        };
        let waited = ptrace::wait(-1, self.options.steps())?;
        if waited != Waited::Nothing || self.options.steps() {
            return Ok(waited);
        }
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + Duration::from_secs(1) / hz.max(1);
            self.ask_running_threads();
        }
        std::thread::sleep(POLL.min(self.next_tick.saturating_duration_since(now)));
        Ok(Waited::Nothing)
    }

    /// Stops the threads that are on a processor, to sample them.
    fn ask_running_threads(&mut self) {
        for (&tid, thread) in &mut self.threads {
            let is_free = !thread.stopped && thread.mode == Mode::Run && !thread.asked;
            if is_free && is_running(thread.pid, tid) && ptrace::interrupt(tid).is_ok() {
                thread.asked = true;
            }
        }
    }

    /// Handles a stop or the end of a thread.
    pub(crate) fn handle(&mut self, tid: i32, status: Status) -> Result<(), HostError> {
        if let Status::Exited(_) | Status::Killed(_) = status {
            return self.ended(tid, status);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            self.early.push(tid);
            return Ok(());
        };
        thread.stopped = true;
        match status {
            Status::Event { event, signal } => self.event(tid, event, signal),
            Status::Syscall => self.at_syscall(tid),
            Status::Signal(libc::SIGTRAP) => self.trapped(tid),
            Status::Signal(signal) => {
                let regs = ptrace::registers(tid)?;
                thread.regs = Some(regs);
                self.resume(tid, signal)
            }
            Status::Exited(_) | Status::Killed(_) => Ok(()),
        }
    }

    /// Handles a stop at the entry or exit of a system call.
    fn at_syscall(&mut self, tid: i32) -> Result<(), HostError> {
        let regs = ptrace::registers(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let pid = thread.pid;
        thread.regs = Some(regs);
        if ptrace::is_syscall_entry(tid)? {
            if matches!(self.options.plan.at, At::Syscall) && self.is_recording(pid) {
                self.refresh_maps(pid, tid)?;
                self.sample(tid, &regs, super::sample::hardware(&regs), None)?;
            }
        } else {
            self.refresh_maps(pid, tid)?;
        }
        self.resume(tid, 0)
    }

    pub(crate) fn is_recording(&self, pid: i32) -> bool {
        self.processes
            .get(&pid)
            .is_some_and(|p| p.phase == Phase::Record)
    }

    /// Handles SIGTRAP: a single step, one of our breakpoints, or the program's own trap.
    fn trapped(&mut self, tid: i32) -> Result<(), HostError> {
        let mut regs = ptrace::registers(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        match thread.mode {
            Mode::Step => return self.after_step(tid, &regs),
            Mode::Run | Mode::New => {}
        }
        let address = regs.rip.wrapping_sub(1);
        let process = self.processes.get(&thread.pid);
        if !process.is_some_and(|p| p.breakpoints.contains(address)) {
            thread.regs = Some(regs);
            return self.resume(tid, libc::SIGTRAP);
        }
        regs.rip = address;
        ptrace::set_registers(tid, &regs)?;
        thread.regs = Some(regs);
        thread.handled = Some(address);
        self.at_breakpoint(tid, &regs)?;
        self.resume(tid, 0)
    }

    fn after_step(&mut self, tid: i32, regs: &Registers) -> Result<(), HostError> {
        let stepped = self.stepped(tid, regs)?;

        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        let pid = thread.pid;

        let insn = match stepped {
            StepOutcome::Instruction(insn) => insn,
            StepOutcome::Handler => {
                // The first instruction of the handler may be a place to sample.
                if self.is_recording(pid) {
                    self.at_place(tid, regs)?;
                }
                return self.resume(tid, 0);
            }
            StepOutcome::Nothing => return self.resume(tid, 0),
        };

        match self.processes.get(&pid).map(|p| p.phase) {
            Some(Phase::Record) => {
                // Before the sample, whose time it is.
                self.summary.instructions += 1;
                self.sample_after(tid, insn, regs)?;
                if self.options.plan.max_instructions == Some(self.summary.instructions) {
                    self.end = self.end.or(Some(End::Limit));
                }
            }
            Some(Phase::Approach) => self.approach(pid, tid, insn, regs)?,
            _ => {}
        }

        // The program's own `int3` ended the step, and its SIGTRAP belongs to the program.
        let signal = if insn == Insn::Breakpoint {
            libc::SIGTRAP
        } else {
            0
        };

        self.resume(tid, signal)
    }

    /// Handles the step to a place: the previous instruction was executed, or a signal handler
    /// returned to the place.
    fn step_to_place(&mut self, tid: i32, insn: Insn, regs: &Registers) -> Result<(), HostError> {
        let here = (regs.rip, regs.rsp);
        if let Some(thread) = self.threads.get_mut(&tid) {
            let last = thread.last_place;
            if insn == Insn::Syscall && last == here {
                return Ok(());
            }
            let is_place = |p: &Process| p.places.contains_key(&regs.rip);
            if !self.processes.get(&thread.pid).is_some_and(is_place) {
                return Ok(());
            }
            thread.last_place = here;
        }
        self.at_place(tid, regs)
    }

    /// Takes the samples due after an instruction.
    fn sample_after(&mut self, tid: i32, insn: Insn, regs: &Registers) -> Result<(), HostError> {
        let due = match self.options.plan.at {
            At::Every(n) => self.summary.instructions.is_multiple_of(n.max(1)),
            At::Call => matches!(insn, Insn::Call { .. }),
            At::Syscall => insn == Insn::Syscall,
            At::Freq(hz) => {
                let now = Instant::now();
                let due = now >= self.next_tick;
                if due {
                    self.next_tick = now + Duration::from_secs(1) / hz.max(1);
                }
                due
            }
            At::Points(_) => return self.step_to_place(tid, insn, regs),
        };
        if due {
            self.sample(tid, regs, super::sample::hardware(regs), None)?;
        }
        Ok(())
    }

    /// Resumes a stopped thread with `signal`, as the phase of its process requires.
    pub(crate) fn resume(&mut self, tid: i32, signal: i32) -> Result<(), HostError> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        if self.end.is_some() {
            // It stays stopped until the recording ends.
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.pending = signal;
            }
            return Ok(());
        }

        let Some(process) = self.processes.get(&thread.pid) else {
            return Ok(());
        };

        let steps = match process.phase {
            Phase::ToEntry(_) | Phase::Seek => false,
            Phase::Approach => true,
            Phase::Record => self.options.steps(),
        };

        // The registers may have been read at the stop already.
        let regs = match thread.regs {
            Some(regs) => regs,
            None => ptrace::registers(tid)?,
        };

        // System calls make mappings, which may contain the names that are still missing.
        let watch_calls =
            !process.missing.is_empty() || matches!(self.options.plan.at, At::Syscall);
        let (mode, how) = if steps {
            self.begin_stepping(tid, &regs);
            self.prepare_step(tid, &regs);
            (Mode::Step, Resume::Step)
        } else if thread.handled == Some(regs.rip) && process.breakpoints.contains(regs.rip) {
            // The breakpoint at which it has stopped is still in the code.
            return self.step_over(tid, &regs, signal);
        } else if watch_calls {
            (Mode::Run, Resume::RunToSyscall)
        } else {
            (Mode::Run, Resume::Run)
        };

        // What the next stop is compared with.
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        thread.regs = Some(regs);
        thread.mode = mode;
        thread.injected = signal;
        thread.handled = None;
        thread.stopped = false;

        Ok(ptrace::resume(tid, how, signal)?)
    }
}

/// Whether the thread is on a processor or waiting for one (`Documentation/filesystems/proc.rst`).
fn is_running(pid: i32, tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
    let state = |text: &str| Some(text.rsplit_once(") ")?.1.starts_with('R'));
    stat.ok().as_deref().and_then(state).unwrap_or(false)
}
