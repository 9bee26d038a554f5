//! The oracle on records: compares each record with its books.

use super::rule::Rule;
use super::{Oracle, SampleFate};
use crate::log::{Entry, Fact};
use crate::record::{Body, Branches, Record};
use crate::world::{Crash, TaskBranches};
use std::collections::BTreeMap;

impl Oracle<'_> {
    /// Compares a record with user frames with the stack of its thread at that time.
    pub(super) fn frames(&mut self, entry: &Entry, record: Option<&Record>) {
        let Some(Record { tid, body, .. }) = record else {
            let what = "a record with user frames is not there".to_owned();
            return self.fault(Rule::OwnStack, entry.time, what);
        };

        let Body::Deferred { frames, .. } = body else {
            return;
        };
        let thread = self.threads.get(&entry.tid).cloned().unwrap_or_default();

        // A failed allocation leaves a record without frames.
        let mut expected = match thread.stack {
            Some(stack) if !thread.no_memory => self.walk(stack, false),
            _ => Vec::new(),
        };

        // Limited like the sample's own chain, but by the record's event.
        if let Fact::Deferred { event, .. } = entry.fact {
            expected.truncate(self.deferred_max(self.events[usize::from(event)].max_stack));
        }

        // The thread is compared, too: buffers of two tasks must not mix.
        if *tid != entry.tid || *frames != expected {
            let what = format!(
                "thread {}: the record of thread {tid} has {}, the stack is {}",
                entry.tid,
                words(frames),
                words(&expected)
            );
            self.fault(Rule::OwnStack, entry.time, what);
        }
    }

    pub(super) fn records(&mut self, records: &[Record]) {
        // By sample: its fate says whether there is one record or none.
        let mut written = vec![0u32; self.truths.len()];
        let mut periods: BTreeMap<u16, u64> = BTreeMap::new();

        // The records say what was written; the log says what should have been.
        for record in records {
            let time = record.time;
            match &record.body {
                Body::Sample {
                    number,
                    period,
                    chain,
                    branches,
                    ..
                } => {
                    *periods.entry(record.event).or_default() += period;
                    if let Some(seen) = written.get_mut(*number as usize - 1) {
                        *seen += 1;
                        self.chain(record, *number, chain);
                        self.branches(record, *number, branches.as_ref());
                    } else {
                        self.fault(Rule::Fate, time, format!("sample {number} was never taken"));
                    }
                }
                // Always 0, unless a mutant counts the period twice.
                Body::Deferred { period, .. } => {
                    *periods.entry(record.event).or_default() += period;
                }
                Body::Lost { lost } | Body::LostSamples { lost } => {
                    self.account(record.event, record.cpu).told += lost;
                }
                _ => {}
            }
        }

        let mut expected: BTreeMap<u16, u64> = BTreeMap::new();
        for (index, count) in written.into_iter().enumerate() {
            let truth = &self.truths[index];
            let is_written = truth.fate == SampleFate::Written;
            if is_written {
                *expected.entry(truth.event).or_default() += truth.period;
            }
            if count != u32::from(is_written) {
                let (time, n) = (truth.time, index + 1);
                self.fault(Rule::Fate, time, format!("sample {n}: {count} records"));
            }
        }

        // By event, because each has its own counter.
        for (event, sum) in periods {
            let counted = expected.get(&event).copied().unwrap_or(0);
            if sum != counted {
                let name = &self.events[usize::from(event)].name;
                let what = format!("{name}: the records' periods add up to {sum}, not {counted}");
                self.fault(Rule::Periods, 0, what);
            }
        }
    }

    /// Compares a sample's branch stack with the thread's calls.
    fn branches(&mut self, record: &Record, number: u64, found: Option<&Branches>) {
        let truth = &self.truths[number as usize - 1];
        let (Some(books), Some(due)) = (&self.branches, &truth.branches) else {
            return;
        };
        let entries = found.map_or(&[][..], |found| &found.entries);
        if let Some((rule, what)) = books.judge(truth.tid, due, entries) {
            let what = format!("sample {number} of {}: {what}", truth.tid);
            self.fault(rule, record.time, what);
        }
    }

    /// Compares the branch records of a crash with the calls of each thread.
    pub(super) fn crash(&mut self, entry: &Entry, crash: Option<&Crash>) {
        let Some(books) = &self.branches else { return };
        let Some(crash) = crash.filter(|crash| crash.tid == entry.tid) else {
            let what = format!("a crash of {} kept nothing", entry.tid);
            return self.fault(Rule::OwnBranches, entry.time, what);
        };
        let fault = |kept: &TaskBranches| {
            let due = books.due(kept.tid, 0);
            let (rule, what) = books.judge(kept.tid, &due, &kept.entries)?;
            Some((
                rule,
                format!("crash of {}, task {}: {what}", crash.tid, kept.tid),
            ))
        };
        let faults: Vec<_> = crash.tasks.iter().filter_map(fault).collect();
        for (rule, what) in faults {
            self.fault(rule, crash.time, what);
        }
    }

    /// Checks a sample's chain.
    fn chain(&mut self, record: &Record, number: u64, chain: &[u64]) {
        let truth = self.truths[number as usize - 1].clone();

        // An event without callchains has none, whatever its other flags are.
        if !self.events[usize::from(truth.event)].has_callchain {
            if !chain.is_empty() {
                let what = format!("sample {number}: a chain that nobody asked for");
                self.fault(Rule::OwnChain, record.time, what);
            }
            return;
        }

        let kernel = &chain[..chain
            .iter()
            .position(|&word| word == crate::USER || word == crate::DEFERRED)
            .unwrap_or(chain.len())];

        // The whole chain is shown, since the fault may be in what lies before it.
        let bad = |what: &str| format!("sample {number}: {what}: {}", words(chain));
        let is_kernel = |word: &u64| (crate::KERNEL_TEXT..crate::MACHINERY_TEXT).contains(word);
        let kernel_is_right = match (truth.user_mode, kernel) {
            // A sample in user mode has no kernel part.
            (true, []) => true,
            (false, [marker, frames @ ..]) => {
                *marker == crate::KERNEL && !frames.is_empty() && frames.iter().all(is_kernel)
            }
            _ => false,
        };

        // Faults are noted, not thrown: one run may have several.
        if !kernel_is_right {
            self.fault(Rule::OwnChain, record.time, bad("not a kernel chain"));
        }

        let user = &chain[kernel.len()..];
        let expected = match (truth.stack, truth.deferred) {
            (None, _) => Vec::new(),
            // The form of 2023 has no cookie behind the marker.
            (Some(_), Some(0)) => vec![crate::DEFERRED],
            (Some(_), Some(cookie)) => vec![crate::DEFERRED, cookie],
            (Some(stack), None) => {
                let max = usize::from(self.events[usize::from(truth.event)].max_stack);
                let mut frames = self.walk(stack, truth.at_uprobe);
                // The limit is on kernel and user frames together; markers do not count.
                frames.truncate(max - kernel.len().saturating_sub(1));
                frames.insert(0, crate::USER);
                frames
            }
        };

        if user != expected || record.tid != truth.tid {
            let what = bad("not its user part");
            self.fault(Rule::OwnChain, record.time, what);
        }
    }
}

/// The first words, for messages.
fn words(all: &[u64]) -> String {
    let shown: Vec<String> = all.iter().take(6).map(|word| format!("{word:x}")).collect();
    let more = if all.len() > 6 { " .." } else { "" };
    format!("[{}{more}]", shown.join(" "))
}
