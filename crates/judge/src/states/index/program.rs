//! The index of a program: a second run of it, under the checker of `verify`.

use super::{Event, EventKind, Marks};
use crate::engine::{Engine, Setting};
use crate::unwinders::may_err;
use crate::verify::{Checker, Images, UNWINDERS_MAX};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_emulator::linux::{
    Kernel, MappedFile, Outcome, ProcessObserver, StartError, SystemCall, Task,
};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{AddressSpace, Core, Observer, Permissions, State};

/// Instructions that are indexed before the time is looked at.
const PIECE: u64 = 1 << 15;
/// Instructions that are indexed at most.
const INDEXED_MAX: u64 = 1 << 32;

/// Runs a program and marks what is of interest.
pub struct ProgramIndex<'a> {
    kernel: Kernel,
    marker: Marker<'a>,
    limit: u64,
    is_done: bool,
}

impl<'a> ProgramIndex<'a> {
    /// Starts `program`. The first `tables`, at most [`UNWINDERS_MAX`], are judged; all must find
    /// rules.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(
        program: RunningProgram,
        tables: &'a [Engine],
        setting: Setting,
        limit: u64,
    ) -> Result<ProgramIndex<'a>, StartError> {
        let root = &program.options.root;
        let images = Images::new((root != Path::new("/")).then(|| root.clone()));
        let tables = &tables[..tables.len().min(UNWINDERS_MAX)];
        let kernel = Kernel::start(&program.path, program.options)?;
        Ok(ProgramIndex {
            kernel,
            marker: Marker {
                checker: Checker::new(tables, images, setting, true),
                task: Task::FIRST,
                wrong: 0,
                calls_wrong: [0; UNWINDERS_MAX],
                // There are at most eight, so each has a bit.
                counted: (0..).zip(tables).fold(0, |bits, (which, engine)| {
                    bits | u8::from(!may_err(engine.name())) << which
                }),
                first_counted: None,
                lost: HashSet::new(),
                marks: Marks::default(),
            },
            limit: limit.min(INDEXED_MAX),
            is_done: tables.is_empty() && limit == 0,
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.kernel.executed()
    }

    /// The first state at which an unwinder is wrong whose errors count, by more than what a derived
    /// table cannot hold, and the unwinder.
    pub(super) fn first_counted(&self) -> Option<(u64, usize)> {
        self.marker.first_counted
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Goes on to `until`, or by a piece.
    pub(super) fn fill(&mut self, until: u64, marks: &mut Marks) {
        let left = self.limit - self.number().min(self.limit);
        let count = until.saturating_sub(self.number()).max(PIECE).min(left);
        std::mem::swap(marks, &mut self.marker.marks);
        let outcome = self.kernel.run(count, &mut self.marker);
        std::mem::swap(marks, &mut self.marker.marks);
        self.is_done = outcome != Outcome::Limit || self.number() >= self.limit;
    }
}

/// Passes everything to the checker, and marks what it finds.
struct Marker<'a> {
    checker: Checker<'a>,
    task: Task,
    /// The unwinders that are wrong at the last instruction.
    wrong: u8,
    /// The wrong calls of each unwinder so far.
    calls_wrong: [u64; UNWINDERS_MAX],
    /// The unwinders whose errors count.
    counted: u8,
    /// The first state at which one of them is wrong.
    first_counted: Option<(u64, usize)>,
    /// Where a derived table of an unwinder has lost something, and nothing else is wrong.
    lost: HashSet<(WrongAt, usize)>,
    marks: Marks,
}

/// Where a row is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum WrongAt {
    /// At the next instruction, which has this address.
    Instruction(u64),
    /// At the call of this address, which was just executed.
    Call(u64),
}

impl Marker<'_> {
    /// An unwinder has become wrong.
    #[cold]
    fn mark(&mut self, unwinders: u8) {
        self.marks
            .add_wrong(self.checker.number(), unwinders.into());
    }

    /// Keeps the first finding: what is wrong with these unwinders counts, or it is only lost.
    #[cold]
    fn count(&mut self, core: &Core, place: WrongAt, unwinders: u8) {
        /// Places that are remembered, at most; what is lost at others is looked at again.
        const LOST_MAX: usize = 1 << 16;

        let mut left = unwinders & self.counted;
        while left != 0 && self.first_counted.is_none() {
            let which = left.trailing_zeros() as usize;
            left &= left - 1;

            if self.lost.contains(&(place, which)) {
                continue;
            }
            let counts = match place {
                WrongAt::Instruction(rip) => self.checker.counts_here(core, rip, which),
                WrongAt::Call(_) => self.checker.counts_at_call(core, which),
            };
            if counts {
                self.first_counted = Some((self.checker.number(), which));
            } else if self.lost.len() < LOST_MAX {
                self.lost.insert((place, which));
            }
        }
    }

    #[inline(never)]
    fn called(&mut self, core: &Core, rip: u64) {
        let mut wrong = 0;
        for (index, count) in self.checker.calls_wrong().enumerate() {
            wrong |= u8::from(count != self.calls_wrong[index]) << index;
            self.calls_wrong[index] = count;
        }
        self.marks.add_call(self.checker.number());
        if wrong != 0 {
            self.mark(wrong);
            if self.first_counted.is_none() {
                self.count(core, WrongAt::Call(rip), wrong);
            }
        }
    }

    fn event(&mut self, task: Task, kind: EventKind) {
        self.marks.add_event(Event {
            number: self.checker.number(),
            pid: task.process,
            tid: task.thread,
            kind,
        });
    }
}

impl Observer for Marker<'_> {
    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        self.checker.enter_block(core, block, operations, end);
        0
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.checker.before(core, insn);
        let wrong = self.checker.wrong_here();
        if wrong != self.wrong {
            let new = wrong & !self.wrong;
            self.wrong = wrong;
            if new != 0 {
                self.mark(new);
                if self.first_counted.is_none() {
                    self.count(core, WrongAt::Instruction(insn.rip), new);
                }
            }
        }
    }

    #[inline]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.checker.after(core, insn, next);
        if self.checker.was_call() {
            self.called(core, insn.rip);
        }
    }
}

impl ProcessObserver for Marker<'_> {
    fn started(&mut self, core: &Core, stack_end: u64) {
        self.checker.started(core, stack_end);
        self.task.thread = self.task.process;
        self.event(self.task, EventKind::Program);
    }

    fn mapped(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.checker.mapped(range, permissions, file);
    }

    fn protected(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: Option<MappedFile<'_>>,
    ) {
        self.checker.protected(range, permissions, file);
    }

    fn unmapped(&mut self, range: Range<u64>) {
        self.checker.unmapped(range);
    }

    fn thread_started(&mut self, task: Task, state: &State, memory: &AddressSpace) {
        self.checker.thread_started(task, state, memory);
        self.event(task, EventKind::Thread);
    }

    fn forked(&mut self, child: Task, shares: bool, state: &State) {
        self.checker.forked(child, shares, state);
        self.event(child, EventKind::Process);
    }

    fn process_ended(&mut self, process: u32) {
        self.checker.process_ended(process);
        let task = Task {
            process,
            thread: process,
        };
        self.event(task, EventKind::Exit);
    }

    fn switched(&mut self, task: Task, core: &Core) {
        self.checker.switched(task, core);
        if task != self.task {
            self.task = task;
            self.wrong = 0;
            self.event(task, EventKind::Switch);
        }
    }

    fn disturbed(&mut self, task: Task, state: &State) {
        self.checker.disturbed(task, state);
    }

    fn observes(&mut self, observed: bool) {
        self.checker.observes(observed);
    }

    fn thread_ended(&mut self, task: Task) {
        self.checker.thread_ended(task);
        self.event(task, EventKind::Exit);
    }

    fn signal(&mut self, signal: u8, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        self.checker.signal(signal, interrupted, handler, restorer);
        self.event(self.task, EventKind::Signal(signal));
    }

    fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.checker.system_call(call, core);
    }
}
