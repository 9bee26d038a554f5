//! An index of a run: where an unwinder becomes wrong, calls, signals, and what processes and
//! threads do. It is filled in pieces, so that nobody waits for the end of a long run.

#[cfg(feature = "machine")]
mod program;

use super::interest::Interest;
use super::{Direction, States};
#[cfg(feature = "machine")]
use crate::engine::Engine;
use crate::input::{Input, InputError};
use crate::run::Run;
#[cfg(feature = "machine")]
pub use program::ProgramIndex;
use unwind_sim_unwind::cache::Cache;

/// Maximum number of marks of each kind; what comes later is only counted.
const MARKS_MAX: usize = 1 << 21;
/// Samples that are indexed before the time is looked at.
const SAMPLES: u64 = 64;

/// Some unwinder is wrong from a state on at which it, or the state before, was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The number of the state.
    pub number: u64,
    /// A bit for each unwinder that became wrong: those of [`Index::unwinders`].
    pub unwinders: u64,
}

/// What to look at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The number of the state.
    pub number: u64,
    /// The unwinder that is wrong there: its place in [`Index::unwinders`].
    pub unwinder: usize,
    /// Whether that counts. If not, it is expected of the unwinder, and no error counts.
    pub counts: bool,
}

/// Something else happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The number of the state after it.
    pub number: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A signal of this number is delivered.
    Signal(u8),
    /// Another thread runs from here on.
    Switch,
    /// A program starts.
    Program,
    /// A thread was created.
    Thread,
    /// A process was created.
    Process,
    /// A thread or process has ended.
    Exit,
}

impl EventKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Signal(_) => "signal",
            EventKind::Switch => "switch",
            EventKind::Program => "program",
            EventKind::Thread => "thread",
            EventKind::Process => "process",
            EventKind::Exit => "exit",
        }
    }
}

/// The marks, in the order of their numbers.
#[derive(Clone, Default, Debug)]
pub struct Marks {
    /// Where unwinders become wrong.
    pub wrong: Vec<Wrong>,
    /// The first instruction of each called function.
    pub calls: Vec<u64>,
    /// All else.
    pub events: Vec<Event>,
    /// Number of marks beyond the maximum.
    pub left_out: u64,
}

impl Marks {
    fn add_wrong(&mut self, number: u64, unwinders: u64) {
        let len = self.wrong.len();
        match self.wrong.last_mut() {
            Some(last) if last.number == number => last.unwinders |= unwinders,
            _ if len >= MARKS_MAX => self.left_out += 1,
            _ => self.wrong.push(Wrong { number, unwinders }),
        }
    }

    #[cfg(feature = "machine")]
    fn add_call(&mut self, number: u64) {
        if self.calls.len() < MARKS_MAX {
            self.calls.push(number)
        } else {
            self.left_out += 1
        }
    }

    fn add_event(&mut self, event: Event) {
        if self.events.len() < MARKS_MAX {
            self.events.push(event)
        } else {
            self.left_out += 1
        }
    }
}

/// An index.
pub struct Index<'a> {
    filler: Filler<'a>,
    /// Of the run.
    marks: Marks,
    unwinders: Vec<String>,
}

enum Filler<'a> {
    Samples(Box<Samples<'a>>),
    /// Nothing is looked for.
    Nothing,
    #[cfg(feature = "machine")]
    Program(Box<ProgramIndex<'a>>),
}

struct Samples<'a> {
    run: &'a Run,
    caches: Vec<Cache>,
    next: u64,
    is_done: bool,
    last: Option<(u32, u32, u64)>,
    interest: Interest,
}

impl<'a> Index<'a> {
    /// An index of a recording: all unwinders of `run`, judged by their walks.
    pub fn of_recording(run: &'a Run) -> Index<'a> {
        Index {
            filler: Filler::Samples(Box::new(Samples {
                run,
                caches: run.engines.iter().map(|_| Cache::new()).collect(),
                next: 0,
                is_done: false,
                last: None,
                interest: Interest::default(),
            })),
            marks: Marks::default(),
            unwinders: run.column_names(),
        }
    }

    /// An index in which nothing is found: that of a kernel, whose chains `verify` judges.
    pub fn nothing() -> Index<'a> {
        Index {
            filler: Filler::Nothing,
            marks: Marks::default(),
            unwinders: Vec::new(),
        }
    }

    /// An index of a program: `tables`, unwinders that find rules, judged by their rules at each
    /// instruction and call, as `verify` does.
    #[cfg(feature = "machine")]
    pub fn of_program(program: ProgramIndex<'a>, tables: &[Engine]) -> Index<'a> {
        Index {
            filler: Filler::Program(Box::new(program)),
            marks: Marks::default(),
            unwinders: tables.iter().map(|e| e.name().to_owned()).collect(),
        }
    }

    /// The unwinders that are judged, in the order of the bits of [`Wrong::unwinders`].
    pub fn unwinders(&self) -> &[String] {
        &self.unwinders
    }

    /// The marks found so far.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The number of states that are indexed.
    pub fn covered(&self) -> u64 {
        match &self.filler {
            Filler::Samples(samples) => samples.next,
            Filler::Nothing => u64::MAX,
            #[cfg(feature = "machine")]
            Filler::Program(program) => program.number(),
        }
    }

    /// Whether there is no more to index.
    pub fn is_complete(&self) -> bool {
        match &self.filler {
            Filler::Samples(samples) => samples.is_done,
            Filler::Nothing => true,
            #[cfg(feature = "machine")]
            Filler::Program(program) => program.is_done(),
        }
    }

    /// At most `count` samples of a recording, in order: one of each kind of wrong stack (unwinder,
    /// cause and function), then more of those of unwinders whose errors count, then a spread over all
    /// that is indexed. `None` for a program, whose states follow from each other.
    pub fn chosen(&self, count: u64) -> Option<Vec<u64>> {
        match &self.filler {
            Filler::Samples(samples) => Some(samples.interest.choose(count, samples.next)),
            Filler::Nothing => None,
            #[cfg(feature = "machine")]
            Filler::Program(_) => None,
        }
    }

    /// The state to look at first, and the unwinder that is wrong there (its place in
    /// [`Index::unwinders`]): of a recording, of the most frequent kind of wrong stack among those whose
    /// errors count; of a program, the first at which such an unwinder is wrong, by more than what a
    /// derived table cannot hold. If there is none, that of any unwinder. `None` if none is wrong.
    pub fn first_finding(&self) -> Option<(u64, usize)> {
        match &self.filler {
            Filler::Samples(samples) => samples.interest.first(),
            Filler::Nothing => None,
            #[cfg(feature = "machine")]
            Filler::Program(program) => {
                let any = || {
                    let wrong = self.marks.wrong.first()?;
                    Some((wrong.number, wrong.unwinders.trailing_zeros() as usize))
                };
                program.first_counted().or_else(any)
            }
        }
    }

    /// Indexes until the first finding is known, at most to state `limit`, and gives it: see
    /// [`Index::first_finding`]. Of a program it is known as soon as an unwinder is wrong whose errors
    /// count; of a recording, whose most frequent error is looked for, when all is indexed. While the
    /// states are stopped, nothing is found.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn look_for_finding(
        &mut self,
        states: &States,
        limit: u64,
    ) -> Result<Option<Finding>, InputError> {
        while !states.is_stopped() && !self.knows_finding() && self.covered() < limit {
            if !self.fill(states, 0)? {
                break;
            }
        }

        let counts = match &self.filler {
            Filler::Samples(samples) => samples.interest.counts(),
            Filler::Nothing => false,
            #[cfg(feature = "machine")]
            Filler::Program(program) => program.first_counted().is_some(),
        };
        let found = self.first_finding().filter(|_| !states.is_stopped());
        Ok(found.map(|(number, unwinder)| Finding {
            number,
            unwinder,
            counts,
        }))
    }

    /// Whether indexing on does not change the first finding.
    fn knows_finding(&self) -> bool {
        match &self.filler {
            Filler::Samples(samples) => samples.is_done,
            Filler::Nothing => true,
            #[cfg(feature = "machine")]
            Filler::Program(program) => program.first_counted().is_some(),
        }
    }

    /// Indexes on, at least to `until` or by a small piece. Returns whether there is more.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn fill(&mut self, states: &States, until: u64) -> Result<bool, InputError> {
        match &mut self.filler {
            Filler::Samples(samples) => {
                #[cfg_attr(
                    not(feature = "machine"),
                    expect(clippy::infallible_destructuring_match, reason = "one variant is left")
                )]
                let input = match &states.source {
                    super::Source::Recording(input) => input,
                    #[cfg(feature = "machine")]
                    super::Source::Program(_) => return Ok(false),
                };

                // A perf.data is read from its start each time: fewer and fewer times.
                let piece = match input.sample_count() {
                    Some(_) => SAMPLES,
                    None => SAMPLES.max(samples.next),
                };

                let count = until.saturating_sub(samples.next).max(piece);
                samples.fill(input, count, &mut self.marks)?;
            }
            Filler::Nothing => {}
            #[cfg(feature = "machine")]
            Filler::Program(program) => program.fill(until, &mut self.marks),
        }

        Ok(!self.is_complete())
    }

    /// The nearest other state at which an unwinder becomes wrong, as far as the index is filled;
    /// it is filled until there is one.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn wrong(
        &mut self,
        states: &States,
        from: u64,
        direction: Direction,
    ) -> Result<Option<u64>, InputError> {
        if direction == Direction::Backward {
            // Which one is the last before `from` is only known once all of them are indexed.
            while self.covered() < from && !states.is_stopped() && self.fill(states, from)? {}
            let before = self.marks.wrong.partition_point(|w| w.number < from);
            let last = before.checked_sub(1).map(|index| self.marks.wrong[index]);
            return Ok(last.map(|wrong| wrong.number));
        }
        loop {
            let next = self.marks.wrong.partition_point(|w| w.number <= from);
            if let Some(wrong) = self.marks.wrong.get(next) {
                return Ok(Some(wrong.number));
            }
            if states.is_stopped() || self.is_complete() {
                return Ok(None);
            }
            self.fill(states, 0)?;
        }
    }
}

impl Samples<'_> {
    fn fill(&mut self, input: &Input, count: u64, marks: &mut Marks) -> Result<(), InputError> {
        let columns = self.run.columns();
        let Samples {
            run,
            caches,
            last,
            interest,
            ..
        } = self;

        let taken = input.range(self.next, count, &mut |view| {
            let mut wrong = 0;
            // There is one bit for each of the first 64 columns.
            for (index, column) in columns.iter().enumerate().take(u64::BITS as usize) {
                let engine = &run.engines[column.engine];
                let variant = column.variant_for(view);
                let outcome =
                    engine.examine(view, variant, &run.setting, &mut caches[column.engine]);
                if outcome.verdict.is_wrong() {
                    wrong |= 1 << index;
                    let is_expected = !run.is_unexpected(column.engine, &outcome, false);
                    interest.add(view, index, &outcome, is_expected);
                }
            }

            let (pid, tid) = (view.sample.pid, view.sample.tid);
            let is_same = last.is_some_and(|(p, t, _)| (p, t) == (pid, tid));

            // Samples are far apart: each wrong one counts.
            if wrong != 0 {
                marks.add_wrong(view.number, wrong);
            }

            if last.is_some() && !is_same {
                marks.add_event(Event {
                    number: view.number,
                    pid,
                    tid,
                    kind: EventKind::Switch,
                });
            }

            *last = Some((pid, tid, wrong));
        })?;

        // Fewer samples than asked for mean that the recording has ended.
        self.next += taken;
        self.is_done = taken < count;
        Ok(())
    }
}
