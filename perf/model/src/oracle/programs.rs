//! The oracle on handlers, from the log alone: which handler is called, what programs write, and
//! what the tracepoint of the timers sees.

use super::rule::Rule;
use super::{Oracle, SampleFate};
use crate::log::{Entry, Fact, Handling};
use crate::programs::{REPORT_WORDS, STACK_WORDS};
use crate::record::{Body, Record};
use crate::sampling::TimerRegs;
use crate::setup::Kind;
use std::collections::BTreeMap;

/// Numbers of the built-in programs; those of scenarios follow.
const REPORTS: [u16; 2] = [5, 6];
const STACK: u16 = 7;

/// The books on handlers.
#[derive(Default)]
pub(super) struct HandlerRuns {
    /// The installed handler by event and, for inherited events, by task.
    installed: BTreeMap<(u16, Option<i32>), u16>,
    /// The number of changes of the handler, by event.
    changes: BTreeMap<u16, u64>,
    /// By sample, the handler that was installed when it began and was not called yet, with the
    /// number of changes at that time.
    awaited: BTreeMap<u64, (u16, u64)>,
    /// By sample, the program that was chosen and has not run yet: CPU, handler and context.
    taken: BTreeMap<u64, (u16, u16, u16)>,
    /// The expiries of timers, by event.
    timers: BTreeMap<u16, Expiries>,
}

#[derive(Clone, Copy, Default)]
struct Expiries {
    traced: u64,
    without_registers: u64,
    filtered: u64,
    sampled: u64,
}

impl HandlerRuns {
    fn in_place(&self, event: u16, tid: i32) -> u16 {
        let inherited = self.installed.get(&(event, Some(tid)));
        let found = inherited.or_else(|| self.installed.get(&(event, None)));
        found.copied().unwrap_or(0)
    }
}

impl Oracle<'_> {
    /// Checks a fact about handlers.
    pub(super) fn handler_fact(&mut self, entry: &Entry) {
        let books = &mut self.handlers;

        match entry.fact {
            Fact::Installed { event, handler } => {
                books.installed.insert((event, None), handler);
                // Every change counts: a handler that came and went was still there in between.
                *books.changes.entry(event).or_default() += 1;
            }
            Fact::Closed { event } => {
                // The copies that tasks inherited are closed with it.
                books.installed.retain(|&(of, _), _| of != event);
                *books.changes.entry(event).or_default() += 1;
            }
            Fact::Sample { number } | Fact::SampleLost { number, .. } => {
                self.not_called(entry, number);
            }
            Fact::Fork { child } => self.inherited(entry.tid, child),
            Fact::Traced { event, regs } => {
                let timer = books.timers.entry(event).or_default();
                timer.traced += 1;
                timer.without_registers += u64::from(regs == TimerRegs::None);
            }
            Fact::Filtered { event, .. } => {
                books.timers.entry(event).or_default().filtered += 1;
            }
            Fact::Overflow { event, number, .. } => {
                // It may be replaced before it is called: the number of changes tells.
                let handler = books.in_place(event, entry.tid);
                let changes = books.changes.get(&event).copied().unwrap_or(0);
                if handler != 0 {
                    books.awaited.insert(number, (handler, changes));
                }
                books.timers.entry(event).or_default().sampled += 1;
            }
            Fact::Taken {
                number,
                handler,
                context,
            } => {
                books.awaited.remove(&number);
                let busy = books.taken.values().any(|&(cpu, ..)| cpu == entry.cpu);
                let pair = (entry.cpu, handler, context);
                books.taken.insert(number, pair);
                // The program must be the one that was installed when the sample began.
                self.in_place(entry, number, (handler, context));
                if busy {
                    let what = format!("sample {number}: two programs run on one CPU");
                    self.fault(Rule::Program, entry.time, what);
                }
            }
            Fact::Handled {
                number,
                handler,
                context,
                how,
            } => self.handled(entry, number, (handler, context), how),
            _ => {}
        }
    }

    /// The events that a child inherits have the current handlers of its parent's events.
    fn inherited(&mut self, maker: i32, child: i32) {
        for (index, event) in self.events.iter().enumerate() {
            if event.tid.is_some() && event.inherit && self.is_counted(index, maker) {
                let event = index as u16;
                let handler = self.handlers.in_place(event, maker);
                self.handlers
                    .installed
                    .insert((event, Some(child)), handler);
            }
        }
    }

    /// Checks that the handler that is called is the installed one, with its own context.
    fn in_place(&mut self, entry: &Entry, number: u64, (handler, context): (u16, u16)) {
        let truth = self.truths.get(number as usize - 1);
        let (event, tid) = truth.map_or((0, 0), |truth| (truth.event, truth.tid));
        let installed = self.handlers.in_place(event, tid);
        if handler != context || handler != installed {
            let what = format!(
                "sample {number}: handler {handler} ran with context {context}, {installed} is in place"
            );
            self.fault(Rule::WholeHandler, entry.time, what);
        }
    }

    /// A sample is written: checks that a handler that was installed all the time was called.
    fn not_called(&mut self, entry: &Entry, number: u64) {
        let Some((handler, then)) = self.handlers.awaited.remove(&number) else {
            return;
        };
        let event = self.truth(number).map_or(0, |truth| truth.event);
        let changes = self.handlers.changes.get(&event).copied().unwrap_or(0);
        if changes == then {
            let what = format!("sample {number}: handler {handler} was not called");
            self.fault(Rule::WholeHandler, entry.time, what);
        }
    }

    fn handled(&mut self, entry: &Entry, number: u64, pair: (u16, u16), how: Handling) {
        self.handlers.awaited.remove(&number);

        // A program that was chosen before must be the one that ran.
        match self.handlers.taken.remove(&number) {
            None => self.in_place(entry, number, pair),
            Some((cpu, handler, context)) => {
                if (cpu, handler, context) != (entry.cpu, pair.0, pair.1) {
                    let what = format!("sample {number}: another program ran than was to");
                    self.fault(Rule::WholeHandler, entry.time, what);
                }
            }
        }

        let runs = self.handlers.taken.values();
        let is_running = runs.clone().any(|&(cpu, ..)| cpu == entry.cpu);

        // Built-in programs are correct, so a fault would be the model's.
        let what = match how {
            Handling::Recursion if !is_running => "dropped for a program that does not run",
            Handling::Fault { .. } if pair.0 <= STACK => "a program that is right has a fault",
            _ => "",
        };
        if !what.is_empty() {
            self.fault(
                Rule::Program,
                entry.time,
                format!("sample {number}: {what}"),
            );
        }

        // Only the return value that keeps a sample lets it be written.
        if how != Handling::Kept {
            self.fate(entry.time, number, SampleFate::Dropped);
        }
    }

    /// Checks the output of a program against the log.
    pub(super) fn output(&mut self, entry: &Entry, record: Option<&Record>) {
        let Fact::Output {
            number, handler, ..
        } = entry.fact
        else {
            return;
        };

        // The record must be there, and of the thread that ran.
        let data = match record.map(|record| (&record.body, record.tid)) {
            Some((Body::Raw { data }, tid)) if tid == entry.tid => data,
            _ => {
                let what = format!("sample {number}: what its program wrote is not there");
                return self.fault(Rule::Program, entry.time, what);
            }
        };

        let words: Vec<u64> = data
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect();

        // Numbers count from 1.
        let Some(truth) = self.truths.get(number as usize - 1) else {
            return;
        };

        // Only of the built-in programs is it known what they write.
        let is_right = if REPORTS.contains(&handler) && words.len() >= REPORT_WORDS {
            let tid = truth.tid as u64;
            let frame = truth
                .stack
                .and_then(|stack| self.walk(stack, truth.at_uprobe).first().copied());
            let is_kernel = (crate::KERNEL_TEXT..crate::MACHINERY_TEXT).contains(&words[1]);
            // In user mode, the innermost frame; in the kernel, any address of its text.
            let ip_is_right = if truth.user_mode {
                frame == Some(words[1])
            } else {
                is_kernel
            };
            let expected = [truth.period, u64::from(entry.cpu), entry.time];
            ip_is_right && words[0] == tid << 32 | tid && words[2..5] == expected
        } else if handler == STACK && words.len() >= STACK_WORDS {
            let frames = words[0] as usize / 8;
            self.stack_is_right(number, words.get(1..=frames))
        } else {
            // What a scenario's own program writes is not known here.
            handler > STACK
        };

        if !is_right {
            let what = format!(
                "sample {number} of {}: program {handler} saw {words:x?}",
                truth.tid
            );
            self.fault(Rule::Program, entry.time, what);
        }
    }

    /// Whether `stack` got the right user frames: those of a walk, or those of the sample's own
    /// chain with its marker; never a deferred chain.
    fn stack_is_right(&self, number: u64, found: Option<&[u64]>) -> bool {
        let truth = &self.truths[number as usize - 1];
        let Some(found) = found else { return false };
        let event = &self.events[usize::from(truth.event)];
        let walk = truth
            .stack
            .map_or(Vec::new(), |stack| self.walk(stack, truth.at_uprobe));
        let most = STACK_WORDS - 1;
        match (event.has_callchain, truth.deferred) {
            (false, _) => *found == walk[..walk.len().min(most)],
            (true, Some(_)) => found.is_empty(),
            (true, None) if walk.is_empty() => found.is_empty(),
            (true, None) => {
                // The kernel's frames, four at most, count against the event's depth.
                let least = usize::from(event.max_stack).saturating_sub(4);
                let is_cut = found.len() - 1 < walk.len().min(most - 1).min(least);
                found[0] == crate::USER && walk.starts_with(&found[1..]) && !is_cut
            }
        }
    }

    /// The checks of handlers at the end of a run.
    pub(super) fn handlers_end(&mut self) {
        for (event, timer) in std::mem::take(&mut self.handlers.timers) {
            let is_traced = match self.events[usize::from(event)].kind {
                Kind::Timer => self.setup.timer_tracepoint,
                Kind::Pmu => self.setup.overflow_tracepoint,
                _ => false,
            };
            if !is_traced {
                continue;
            }

            let Expiries {
                traced,
                without_registers,
                filtered,
                sampled,
            } = timer;

            // Without the tracepoint there is nothing to count against.
            // The tracepoint comes before the filters, so every expiry is traced, and then filtered
            // or sampled.
            if traced != filtered + sampled || without_registers > filtered {
                let name = &self.events[usize::from(event)].name;
                let what = format!(
                    "{name}: {traced} traced, {without_registers} of them without registers, \
                     {filtered} filtered, {sampled} sampled"
                );
                self.fault(Rule::Traced, 0, what);
            }
        }
    }
}
