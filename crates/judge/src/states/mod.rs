//! The states of a stack, one after the other: the samples of a recording, or every instruction of
//! a program in the emulated machine. Any state can be asked for, in any order.
//!
//! [`Index`] says where something is of interest in them. What the unwinders make of a state is
//! computed by the caller.

#[cfg(feature = "machine")]
mod find;
mod index;
mod interest;
#[cfg(feature = "machine")]
mod machine;
mod stops;

#[cfg(feature = "machine")]
pub use find::addresses_of;
#[cfg(feature = "machine")]
pub use index::ProgramIndex;
pub use index::{Event, EventKind, Finding, Index, Marks, Wrong};
#[cfg(feature = "machine")]
pub use machine::Processor;
pub use stops::{Access, Goal, Stops, Watch};

use crate::input::{Input, InputError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "machine")]
use unwind_sim_emulator::state::Preserved;
#[cfg(feature = "machine")]
pub use unwind_sim_record::reversible::Entry;
#[cfg(feature = "machine")]
use unwind_sim_record::reversible::ReversibleRun;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
#[cfg(feature = "machine")]
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::truth::Truth;

/// What to look for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A function: its first instruction or, in a recording, any.
    Function(String),
    /// An instruction at this address.
    Address(u64),
    /// The next instruction or the name of its function contains this text.
    Text(String),
    /// A thread has left all functions below this stack pointer.
    Left {
        /// The thread.
        tid: u32,
        /// Its stack pointer.
        rsp: u64,
    },
    /// Another thread than this one runs.
    OtherThread(u32),
    /// This thread runs.
    Thread(u32),
    /// What a debugger stops for.
    Stops(Arc<Stops>),
}

/// Where to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// At later states.
    Forward,
    /// At earlier states.
    Backward,
}

/// The state before one, of which registers have changed.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Its thread.
    pub tid: u32,
    /// Its registers.
    pub regs: Regs,
}

/// A thread at a state.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it does: `runs`, `can run`, `waits in CALL` or `stopped by signal N`.
    pub doing: String,
    /// Its true chain, as far as it is known.
    pub truth: Truth,
    /// Its instruction pointer, stack pointer and callee-saved registers.
    pub regs: Regs,
}

/// A state, with what surrounds it.
pub struct StateView<'a> {
    /// The sample.
    pub view: &'a View<'a>,
    /// The state before it, if there is one.
    pub before: Option<Before>,
    /// All threads of a program; empty for a recording.
    pub threads: Vec<ThreadState>,
}

/// The states.
pub struct States {
    source: Source,
    stop: Arc<AtomicBool>,
}

enum Source {
    Recording(Input),
    #[cfg(feature = "machine")]
    Program(Box<dyn ReversibleRun>),
}

impl States {
    /// The samples of a recording.
    pub fn of_recording(input: Input) -> States {
        States {
            source: Source::Recording(input),
            stop: Arc::default(),
        }
    }

    /// The instructions of a program or a kernel. `stop` is what the run was started with: while it is
    /// set, long ways end early, and what is looked for is not found.
    #[cfg(feature = "machine")]
    pub fn of_program(run: impl ReversibleRun + 'static, stop: Arc<AtomicBool>) -> States {
        States {
            source: Source::Program(Box::new(run)),
            stop,
        }
    }

    /// Whether a state is an instruction, not a sample.
    pub fn is_program(&self) -> bool {
        !matches!(self.source, Source::Recording(_))
    }

    /// Whether a state is an instruction of a kernel that was booted, or of what runs on it.
    pub fn is_kernel(&self) -> bool {
        match &self.source {
            Source::Recording(_) => false,
            #[cfg(feature = "machine")]
            Source::Program(run) => run.is_kernel(),
        }
    }

    /// Ends a program or kernel after this number of states.
    #[cfg(feature = "machine")]
    pub fn set_limit(&mut self, states_max: u64) {
        if let Source::Program(run) = &mut self.source {
            run.set_limit(states_max);
        }
    }

    /// Lets an NMI come at a state of a kernel, and at none behind it any longer.
    #[cfg(feature = "machine")]
    pub fn send_nmi(&mut self, number: u64) {
        if let Source::Program(run) = &mut self.source {
            run.send_nmi(number);
        }
    }

    /// Whether somebody has asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The number of states, if it is known. That of a program is known once its end was met.
    pub fn total(&self) -> Option<u64> {
        match &self.source {
            Source::Recording(input) => input.sample_count(),
            #[cfg(feature = "machine")]
            Source::Program(run) => run.end().map(|end| end.states),
        }
    }

    /// How a program ended, once its end was met.
    pub fn end(&self) -> Option<String> {
        match &self.source {
            Source::Recording(_) => None,
            #[cfg(feature = "machine")]
            Source::Program(run) => run.end().map(|end| end.text),
        }
    }

    /// Lets a program go on by this many instructions, so that later places are near. Returns
    /// whether there is more to explore.
    pub fn explore(&mut self, instructions: u64) -> bool {
        match &mut self.source {
            Source::Recording(_) => {
                let _ = instructions;
                false
            }
            #[cfg(feature = "machine")]
            Source::Program(run) => run.explore(instructions),
        }
    }

    /// The number of states up to which all are near.
    pub fn explored(&self) -> u64 {
        match &self.source {
            Source::Recording(input) => input.sample_count().unwrap_or(u64::MAX),
            #[cfg(feature = "machine")]
            Source::Program(run) => run.explored(),
        }
    }

    /// What the program asked for that is not modelled, as far as it was explored.
    pub fn notices(&self) -> Vec<String> {
        match &self.source {
            Source::Recording(_) => Vec::new(),
            #[cfg(feature = "machine")]
            Source::Program(run) => run.notices(),
        }
    }

    /// Whether all that the program did is modelled, as far as it was explored.
    pub fn is_modelled(&self) -> bool {
        match &self.source {
            Source::Recording(_) => true,
            #[cfg(feature = "machine")]
            Source::Program(run) => {
                run.notices().is_empty() && run.end().is_none_or(|end| end.is_modelled)
            }
        }
    }

    /// Calls `take` with state `number`. Returns whether there is such a state.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn with(
        &mut self,
        number: u64,
        take: &mut dyn FnMut(&StateView<'_>),
    ) -> Result<bool, InputError> {
        self.range(number, 1, take).map(|taken| taken == 1)
    }

    /// Calls `take` with `count` states from `first` on. Returns how many there are.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn range(
        &mut self,
        first: u64,
        count: u64,
        take: &mut dyn FnMut(&StateView<'_>),
    ) -> Result<u64, InputError> {
        match &mut self.source {
            Source::Recording(input) => {
                // The sample before the first one is read, too: what has changed since is shown.
                let from = first.saturating_sub(1);
                let ahead = first - from;
                let mut before = None;
                let all = count.saturating_add(ahead);

                let taken = input.range(from, all, &mut |view| {
                    if view.number >= first {
                        take(&StateView {
                            view,
                            before,
                            threads: Vec::new(),
                        });
                    }

                    before = Some(Before {
                        tid: view.sample.tid,
                        regs: view.live(),
                    });
                })?;

                // The caller asked for states from `first` on; the one before was only read for its
                // registers.
                Ok(taken.saturating_sub(ahead))
            }
            #[cfg(feature = "machine")]
            Source::Program(run) => {
                let mut before = None;

                // The state before is taken on the way: going back to it would execute the program
                // again.
                if let Some(earlier) = first.checked_sub(1) {
                    if run.go_to(earlier) != earlier {
                        return Ok(0);
                    }
                    before = Some(before_next(&**run));
                }

                for index in 0..count {
                    let Some(number) = first.checked_add(index) else {
                        return Ok(index);
                    };
                    if run.go_to(number) != number || run.has_exited() {
                        // The run ended before this state.
                        return Ok(index);
                    }

                    let sample = run.sample();
                    let view = View {
                        number,
                        sample: &sample,
                        space: run.world().space(sample.pid),
                        pristine: None,
                        stitched: &[],
                        world: Some(run.world()),
                    };

                    take(&StateView {
                        view: &view,
                        before,
                        threads: threads(&**run),
                    });
                    before = Some(before_next(&**run));
                }

                Ok(count)
            }
        }
    }

    /// Calls `take` with the states of these numbers, which are in order. Returns how many there are.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn each(
        &mut self,
        numbers: &[u64],
        take: &mut dyn FnMut(&StateView<'_>),
    ) -> Result<u64, InputError> {
        let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else {
            return Ok(0);
        };

        let mut taken = 0;
        if self.total().is_some() {
            // Neighbours are read in one piece.
            for piece in numbers.chunk_by(|one, next| one + 1 == *next) {
                taken += self.range(piece[0], piece.len() as u64, take)?;
            }
            return Ok(taken);
        }

        // What has no index is read from its start each time: once is enough.
        let mut wanted = numbers.iter().copied().peekable();
        self.range(first, last - first + 1, &mut |at| {
            if wanted.next_if_eq(&at.view.number).is_some() {
                taken += 1;
                take(at);
            }
        })?;
        Ok(taken)
    }

    /// The nearest later state that is a target, up to state `end`.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn find_up_to(
        &mut self,
        target: &Target,
        from: u64,
        end: u64,
    ) -> Result<Option<u64>, InputError> {
        match &mut self.source {
            #[cfg(feature = "machine")]
            Source::Program(run) => {
                let limit = run.limit();
                run.set_limit(limit.min(end));
                let found = find::in_run(&mut **run, target, from, Direction::Forward);
                run.set_limit(limit);
                Ok(found)
            }
            Source::Recording(_) => {
                let found = self.find(target, from, Direction::Forward)?;
                Ok(found.filter(|&number| number <= end))
            }
        }
    }

    /// The nearest other state at which a kernel was entered: by a system call, an exception or an
    /// interrupt. `None` for what is not a kernel.
    #[cfg(feature = "machine")]
    pub fn entry(&mut self, from: u64, direction: Direction) -> Option<Entry> {
        match &mut self.source {
            Source::Program(run) => run.entry(from, direction == Direction::Forward),
            Source::Recording(_) => None,
        }
    }

    /// The nearest other state that is a target.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn find(
        &mut self,
        target: &Target,
        from: u64,
        direction: Direction,
    ) -> Result<Option<u64>, InputError> {
        let stop = self.stop.clone();
        match &mut self.source {
            #[cfg(feature = "machine")]
            Source::Program(run) => Ok(find::in_run(&mut **run, target, from, direction)),
            Source::Recording(input) => {
                let mut found = None;
                let (first, count) = match direction {
                    Direction::Forward => (from.saturating_add(1), u64::MAX),
                    Direction::Backward => (0, from),
                };

                // In pieces, so that the first or last one ends the search.
                let mut pieces = Pieces::new(first, count, direction);
                while let Some((first, count)) = pieces.next() {
                    let taken = input.range(first, count, &mut |view| {
                        // Forwards the first hit counts; backwards the last one of the piece.
                        let is_first = direction == Direction::Forward && found.is_some();
                        if !is_first && is_met(target, view) {
                            found = Some(view.number);
                        }
                    })?;

                    if found.is_some() || stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if taken < count && direction == Direction::Forward {
                        // The recording ends within this piece.
                        break;
                    }
                }

                Ok(found)
            }
        }
    }
}

/// The pieces of a range of samples, nearest first. Each is twice as long as the one before.
struct Pieces {
    first: u64,
    left: u64,
    size: u64,
    direction: Direction,
}

impl Pieces {
    const MIN: u64 = 64;

    fn new(first: u64, left: u64, direction: Direction) -> Pieces {
        Pieces {
            first,
            left,
            size: Pieces::MIN,
            direction,
        }
    }

    fn next(&mut self) -> Option<(u64, u64)> {
        let size = self.size.min(self.left);
        self.size = self.size.saturating_mul(2);
        self.left -= size;
        let first = match self.direction {
            Direction::Forward => {
                let first = self.first;
                self.first = first.checked_add(size)?;
                first
            }
            Direction::Backward => self.first + self.left,
        };
        (size > 0).then_some((first, size))
    }
}

/// Whether a sample is what is looked for.
fn is_met(target: &Target, view: &View<'_>) -> bool {
    let (live, thread) = (view.live(), view.sample.tid);
    let function = || Location::at(view.space, live.rip()).function;
    match target {
        Target::Function(name) => function().as_deref() == Some(name),
        Target::Address(address) => live.rip() == *address,
        Target::Text(text) => {
            let has = |name: String| name.contains(text);
            let mapping = view.space.find(live.rip());
            let insn = mapping.and_then(|m| crate::disassembly::at(m, live.rip()));
            function().is_some_and(has) || insn.is_some_and(has)
        }
        Target::Left { tid, rsp } => thread == *tid && live.rsp() >= *rsp,
        Target::OtherThread(tid) => thread != *tid,
        Target::Thread(tid) => thread == *tid,
        Target::Stops(stops) => stops.is_at(thread, live.rip(), live.rsp()),
    }
}

#[cfg(feature = "machine")]
fn before_next(run: &dyn ReversibleRun) -> Before {
    Before {
        tid: run.task().thread,
        regs: run.registers(),
    }
}

#[cfg(feature = "machine")]
fn threads(run: &dyn ReversibleRun) -> Vec<ThreadState> {
    let all = run.threads().into_iter();
    let state = all.map(|thread| ThreadState {
        pid: thread.task.process,
        tid: thread.task.thread,
        name: thread.name,
        doing: thread.doing,
        truth: thread.truth,
        regs: kept(&thread.at),
    });
    state.collect()
}

/// What is known of a thread that does not run.
#[cfg(feature = "machine")]
fn kept(at: &Preserved) -> Regs {
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, at.rip);
    regs.set(Reg::Rsp, at.rsp);
    for (reg, value) in Reg::CALLEE_SAVED.into_iter().zip(at.saved) {
        regs.set(reg, value);
    }
    regs
}
