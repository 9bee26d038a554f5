//! The threads of a process: what the kernel knows of each. One runs; its registers are in the
//! machine, and those of the others wait here. Not here: which one runs (`schedule`).

use super::errno::{Answer, Errno};
use super::filter::Filter;
use super::kernel::Kernel;
use super::outcome::Outcome;
use super::process::Process;
use super::rseq::RseqArea;
use super::scheduling::Scheduling;
use super::signals::{OwnSignals, Signals};
use super::task::Task;
use super::tracing::{Phase, Traced};
use crate::state::{Preserved, State};

/// A system call that a thread has made.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemCallEntry {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
    /// The state before it, with rip after the `syscall`.
    pub(super) before: Preserved,
}

/// What a thread waits for in a call. The call is answered again when that may have happened.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) made: SystemCallEntry,
    /// When it began, in real time.
    pub(super) begun: u64,
    /// When it ends at the latest, in real time.
    until: Option<u64>,
    /// [`Kernel::changes`] when the call was last answered.
    seen: u64,
    /// Bytes that the call has already transferred.
    pub(super) done: u64,
    pub(super) what: WaitCondition,
}

/// What ends a wait, besides signals and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitCondition {
    /// A change by another thread.
    Change,
    /// A thread that wakes a futex.
    Futex,
    /// Nothing: the futex was woken.
    Woken,
}

/// What the kernel knows of a thread, besides its registers and signals.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) number: u32,
    /// At most 15 bytes.
    pub(super) name: Vec<u8>,
    /// The address of a word that is cleared, and woken as a futex, when the thread ends; 0 for
    /// none.
    pub(super) cleared_at_exit: u64,
    /// The address of its list of robust futexes; 0 for none.
    pub(super) robust_list: u64,
    /// Its restartable sequences, if it has registered.
    pub(super) rseq: Option<RseqArea>,
    pub(super) scheduling: Scheduling,
    /// What it lets through of its system calls, the oldest first.
    pub(super) filters: Vec<Filter>,
    /// The call that is being answered.
    pub(super) made: Option<SystemCallEntry>,
    /// `orig_rax`: the number of the call that it has made last, or -1 if it has executed something since.
    pub(super) last_call: u64,
    /// What its tracer wants, if it has one.
    pub(super) traced: Option<Box<Traced>>,
    pub(super) phase: Phase,
    /// The process ends so when the thread goes on after a stop.
    pub(super) dying: Option<Outcome>,
    pub(super) wait: Option<Wait>,
    /// When an interrupted sleep ends that goes on, in real time.
    pub(super) sleep_end: Option<u64>,
    /// It has ended; another one must run.
    pub(super) has_ended: bool,
    /// Processor time before it was switched to, nanoseconds.
    pub(super) time: u64,
}

impl Thread {
    pub(super) fn new(number: u32, name: Vec<u8>) -> Thread {
        Thread {
            number,
            name,
            cleared_at_exit: 0,
            robust_list: 0,
            rseq: None,
            scheduling: Scheduling::default(),
            filters: Vec::new(),
            made: None,
            last_call: u64::MAX,
            traced: None,
            phase: Phase::Outside,
            dying: None,
            wait: None,
            sleep_end: None,
            has_ended: false,
            time: 0,
        }
    }
}

impl Thread {
    /// The tracer for which it has stopped.
    pub(super) fn stopped_for(&self) -> Option<Task> {
        let traced = self.traced.as_ref()?;
        traced.stop.is_some().then_some(traced.tracer)
    }
}

/// A thread that does not run.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    pub(super) state: State,
    pub(super) signals: OwnSignals,
    pub(super) thread: Thread,
}

impl Kernel {
    /// The thread that runs.
    pub fn task(&self) -> Task {
        Task {
            process: self.process.number,
            thread: self.process.thread.number,
        }
    }

    /// Whether the call that is answered has waited before.
    pub(super) fn has_waited(&self) -> bool {
        self.process.thread.wait.is_some()
    }

    /// When the call that is answered began to wait, or now.
    pub(super) fn wait_begun(&self) -> u64 {
        let now = self.clock.real();
        self.process
            .thread
            .wait
            .as_ref()
            .map_or(now, |wait| wait.begun)
    }

    /// When the wait of the call that is answered ends.
    pub(super) fn wait_end(&self) -> Option<u64> {
        self.process.thread.wait.as_ref()?.until
    }

    /// The bytes that the call transferred before it waited.
    pub(super) fn transferred(&self) -> u64 {
        self.process
            .thread
            .wait
            .as_ref()
            .map_or(0, |wait| wait.done)
    }

    /// Notes what the call has transferred, before it waits.
    pub(super) fn note_transferred(&mut self, done: u64) {
        let before = std::mem::replace(&mut self.wait_mut(None).done, done);
        // Others may wait for what was transferred.
        self.system.changes += u64::from(before != done);
    }

    /// The wait of the call that is answered, begun now if it has none.
    fn wait_mut(&mut self, until: Option<u64>) -> &mut Wait {
        let begun = self.clock.real();
        let made = self.process.thread.made.unwrap_or(SystemCallEntry {
            number: 0,
            args: [0; 6],
            before: self.machine.core.state.preserved_at(0),
        });
        self.process.thread.wait.get_or_insert(Wait {
            made,
            begun,
            until,
            seen: 0,
            done: 0,
            what: WaitCondition::Change,
        })
    }

    /// Waits until a time, or until a signal that the thread takes: true for a signal. `until`
    /// counts only when the call is answered for the first time.
    ///
    /// # Errors
    /// [`Errno::WAITS`] as long as neither has come: the call is answered again, from its
    /// beginning, when something has changed.
    pub(super) fn wait_until(&mut self, until: Option<u64>, what: WaitCondition) -> Answer<bool> {
        let until = self
            .process
            .thread
            .wait
            .as_ref()
            .map_or(until, |wait| wait.until);
        if self.process.signals.is_deliverable() {
            return Ok(true);
        }
        if until.is_some_and(|until| self.clock.real() >= until) {
            return Ok(false);
        }
        let changes = self.system.changes;
        let wait = self.wait_mut(until);
        (wait.seen, wait.what) = (changes, what);
        Err(Errno::WAITS)
    }

    /// Lets the call that is answered wait for nothing but the end of a stop: it is answered again then,
    /// and finds `done`.
    pub(super) fn wait_woken(&mut self, done: u64) {
        let wait = self.wait_mut(None);
        (wait.done, wait.what) = (done, WaitCondition::Woken);
    }

    /// Changes when the wait of the call that is answered ends, if it waits.
    pub(super) fn set_wait_end(&mut self, until: Option<u64>) {
        if let Some(wait) = &mut self.process.thread.wait {
            wait.until = until;
        }
    }

    /// Waits for a signal, without another end.
    pub(super) fn wait_for_signal(&mut self, interrupted: Errno) -> Answer {
        self.wait_until(None, WaitCondition::Change)?;
        Err(interrupted)
    }

    /// Whether a thread can run, or its call may have an answer.
    pub(super) fn is_ready(
        &self,
        thread: &Thread,
        signals: &Signals,
        own: &OwnSignals,
        left: u64,
    ) -> bool {
        let Some(wait) = &thread.wait else {
            return !thread.has_ended;
        };
        let now = self.clock.real();
        let has_changed = match wait.what {
            WaitCondition::Change => wait.seen != self.system.changes,
            WaitCondition::Futex => false,
            WaitCondition::Woken => true,
        };
        has_changed
            || wait.until.is_some_and(|until| until <= now)
            || signals.is_deliverable_to(own, left)
    }

    /// A thread of any process.
    pub(super) fn thread_mut(&mut self, process: u32, thread: u32) -> Option<&mut Thread> {
        let process = if process == self.process.number {
            &mut self.process
        } else {
            &mut self.processes.get_mut(&process)?.process
        };
        if process.thread.number == thread {
            return Some(&mut process.thread);
        }
        let other = process.others.get_mut(&thread)?;
        Some(&mut other.thread)
    }

    /// All processes: the running one first.
    pub(super) fn all_processes(&self) -> impl Iterator<Item = &Process> {
        let parked = self.processes.values().map(|parked| &parked.process);
        std::iter::once(&self.process).chain(parked)
    }

    /// The earliest time at which a wait ends, in real time.
    pub(super) fn next_end_of_wait(&self) -> Option<u64> {
        let threads = self.all_processes().flat_map(|process| {
            let others = process.others.values().map(|other| &other.thread);
            others.chain([&process.thread])
        });
        threads
            .filter_map(|thread| thread.wait.as_ref()?.until)
            .min()
    }
}
