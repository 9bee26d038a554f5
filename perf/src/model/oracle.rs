//! The oracle: whether what the model wrote is true of the world that its log tells of.
//!
//! It keeps its own books from the log alone and shares no code with the model's: who runs, on
//! which user stack, what was counted, what was lost. Not here: what a stitcher makes of the
//! records (`judge`).

use super::log::{Entry, Fact};
use super::record::{Body, Record};
use super::setup::{EventSetup, Form, Kind, RfcBuffer, Setup};
use super::stack::{Leaf, StackId, StackSource};
use super::world::World;
use std::collections::BTreeMap;

/// A rule that must hold of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A record's frames are those of its thread's user stack.
    OwnStack,
    /// The chain in a sample is what the world had there.
    OwnChain,
    /// The sum of periods equals the events counted.
    Periods,
    /// What found no room is told.
    LossTold,
    /// A handler is called with its own context, and only where it is in place.
    WholeHandler,
    /// A cookie names one stay of one thread.
    Cookie,
    /// Every request gets its record.
    Answered,
    /// Every sample is written once, lost or dropped.
    Fate,
    /// A sample is stitched to its own user stack, or the reason is told.
    Stitched,
}

impl Rule {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OwnStack => "own-stack",
            Self::OwnChain => "own-chain",
            Self::Periods => "periods",
            Self::LossTold => "loss-told",
            Self::WholeHandler => "whole-handler",
            Self::Cookie => "cookie",
            Self::Answered => "answered",
            Self::Fate => "fate",
            Self::Stitched => "stitched",
        }
    }
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, nanoseconds.
    pub time: u64,
    /// What was found.
    pub what: String,
}

/// What the oracle knows of a sample.
#[derive(Clone, Debug)]
struct Truth {
    tid: i32,
    event: u16,
    time: u64,
    period: u64,
    user_mode: bool,
    stack: Option<(StackId, Leaf)>,
    /// Which stay of the thread outside its own code.
    stay: u64,
    at_uprobe: bool,
    deferred: Option<u64>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Written,
    Lost,
    Dropped,
}

/// A thread, by the log.
#[derive(Clone, Debug, Default)]
struct Thread {
    stack: Option<(StackId, Leaf)>,
    stay: u64,
    reset_in_stay: bool,
    no_memory: bool,
    gone: bool,
    ancestors: Vec<i32>,
}

/// A cookie that was handed out.
struct Promise {
    tid: i32,
    stay: u64,
    time: u64,
    kept: bool,
    /// Handed out after the mask was cleared on the way out: nobody will answer.
    after_reset: bool,
}

/// What was counted and lost on one CPU's part of an event.
#[derive(Clone, Default)]
struct Account {
    counted: u64,
    sampled: u64,
    stopped: bool,
    lost: u64,
    told: u64,
}

/// The oracle's books.
struct Oracle<'a> {
    setup: &'a Setup,
    events: &'a [EventSetup],
    stacks: &'a dyn StackSource,
    threads: BTreeMap<i32, Thread>,
    truths: Vec<Truth>,
    promises: BTreeMap<u64, Promise>,
    accounts: BTreeMap<(u16, u16), Account>,
    installed: Vec<u16>,
    /// Stacks that replaced another one within a stay, with the one before.
    replaced: BTreeMap<(i32, u64), Vec<(StackId, Leaf)>>,
    violations: Vec<Violation>,
}

/// Checks a finished run.
pub fn check(world: &World) -> Vec<Violation> {
    Oracle::of(world).violations
}

/// The user frames a sample may come out with.
pub(super) struct Allowed {
    /// What a walk at the sample finds; `None` where there is no user stack.
    pub(super) own: Option<Vec<u64>>,
    /// What walks find elsewhere in the same stay.
    pub(super) stay: Vec<Vec<u64>>,
    /// A chain of this many frames may have been cut: unwound later, and at once.
    pub(super) cut: [usize; 2],
}

/// Checks a finished run; and the frames for each of its samples.
pub(super) fn check_all(world: &World) -> (Vec<Allowed>, Vec<Violation>) {
    let oracle = Oracle::of(world);
    let allowed = oracle
        .truths
        .iter()
        .map(|truth| oracle.allowed(truth))
        .collect();
    (allowed, oracle.violations)
}

impl<'a> Oracle<'a> {
    /// Reads a finished run's log and holds its records against it.
    fn of(world: &'a World) -> Self {
        let mut oracle = Self {
            setup: world.setup(),
            events: world.events(),
            stacks: world.stacks(),
            threads: BTreeMap::new(),
            truths: Vec::new(),
            promises: BTreeMap::new(),
            accounts: BTreeMap::new(),
            installed: vec![0; world.events().len()],
            replaced: BTreeMap::new(),
            violations: Vec::new(),
        };
        let is_deferred = |record: &&Record| matches!(record.body, Body::Deferred { .. });
        let mut deferred = world.records().iter().filter(is_deferred);
        for entry in world.log() {
            oracle.fact(entry);
            if let Fact::Deferred { .. } = entry.fact {
                oracle.frames(entry, deferred.next());
            }
        }
        oracle.records(world.records());
        oracle.end();
        oracle
    }

    fn fault(&mut self, rule: Rule, time: u64, what: String) {
        self.violations.push(Violation { rule, time, what });
    }

    fn thread(&mut self, tid: i32) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    fn account(&mut self, event: u16, cpu: u16) -> &mut Account {
        self.accounts.entry((event, cpu)).or_default()
    }

    /// Whether the event counts the thread.
    fn is_counted(&self, event: &EventSetup, tid: i32) -> bool {
        let Some(only) = event.tid else { return true };
        let ancestors = self.threads.get(&tid).map(|thread| &thread.ancestors);
        only == tid || event.inherit && ancestors.is_some_and(|all| all.contains(&only))
    }

    fn fact(&mut self, entry: &Entry) {
        let (tid, cpu) = (entry.tid, entry.cpu);
        match entry.fact {
            Fact::Ran { user, ns } => self.ran(tid, cpu, user, ns),
            Fact::Counted { event, by } => self.account(event, cpu).counted += by,
            Fact::Stack { stack, leaf } => {
                let thread = self.thread(tid);
                thread.stack = Some((stack, leaf));
                thread.stay += 1;
            }
            Fact::Exec { stack } | Fact::Signal { stack } => {
                self.replace(tid, |_| (stack, Leaf::Body));
            }
            Fact::UprobeStep => self.replace(tid, |(stack, _)| (stack, Leaf::AfterPush)),
            Fact::Fork { child } => {
                let parent = self.thread(tid).clone();
                let mut ancestors = parent.ancestors;
                ancestors.push(tid);
                let thread = self.thread(child);
                thread.stack = parent.stack;
                thread.ancestors = ancestors;
            }
            Fact::Exit => self.thread(tid).gone = true,
            Fact::Unwind => self.thread(tid).no_memory = false,
            Fact::NoMemory => self.thread(tid).no_memory = true,
            Fact::Reset => self.thread(tid).reset_in_stay = true,
            Fact::Throttled { event } => self.account(event, cpu).stopped = true,
            Fact::Unthrottled { event } => self.account(event, cpu).stopped = false,
            Fact::Overflow {
                event,
                number,
                period,
                user_mode,
                ..
            } => self.sampled(entry, event, number, period, user_mode),
            Fact::Request { number, cookie } => self.requested(entry, number, cookie),
            Fact::Handled {
                number,
                handler,
                context,
                kept,
            } => self.handled(entry, number, (handler, context), kept),
            Fact::Installed { event, handler } => self.installed[usize::from(event)] = handler,
            Fact::Sample { number } => self.fate(entry.time, number, Fate::Written),
            Fact::SampleLost { number, event } => {
                self.account(event, cpu).lost += 1;
                self.fate(entry.time, number, Fate::Lost);
            }
            Fact::DeferredLost { event, cookie } => {
                self.account(event, cpu).lost += 1;
                self.answered(tid, cookie);
            }
            Fact::OtherLost { event } => self.account(event, cpu).lost += 1,
            Fact::Deferred { cookie, .. } => self.answered(tid, cookie),
            Fact::Filtered { .. }
            | Fact::Enter
            | Fact::Interrupt(_)
            | Fact::InterruptEnd(_)
            | Fact::Return
            | Fact::Switch { .. }
            | Fact::Exiting
            | Fact::Queued
            | Fact::Read => {}
        }
    }

    /// The stack changes though no user code ran.
    fn replace(&mut self, tid: i32, by: impl Fn((StackId, Leaf)) -> (StackId, Leaf)) {
        let thread = self.thread(tid);
        let Some(old) = thread.stack else { return };
        thread.stack = Some(by(old));
        let stay = (tid, thread.stay);
        self.replaced
            .entry(stay)
            .or_default()
            .extend([old, by(old)]);
    }

    fn allowed(&self, truth: &Truth) -> Allowed {
        let own = truth.stack.map(|stack| self.walk(stack, truth.at_uprobe));
        let replaced = self.replaced.get(&(truth.tid, truth.stay));
        let stay = replaced.into_iter().flatten();
        let max_stack = self.events[usize::from(truth.event)].max_stack;
        Allowed {
            own,
            stay: stay.map(|&stack| self.walk(stack, false)).collect(),
            cut: [self.deferred_max(max_stack), usize::from(max_stack)],
        }
    }

    /// How many frames a record holds.
    fn deferred_max(&self, max_stack: u16) -> usize {
        match (self.setup.form, self.setup.rfc_buffer) {
            (Form::Upstream, _) => 510,
            (Form::Rfc2023, RfcBuffer::OnStack) => 128,
            (Form::Rfc2023, RfcBuffer::Allocated) => usize::from(max_stack),
        }
    }

    fn ran(&mut self, tid: i32, cpu: u16, user: bool, ns: u64) {
        if user {
            let thread = self.thread(tid);
            thread.stay += 1;
            thread.reset_in_stay = false;
        }
        for (index, event) in self.events.iter().enumerate() {
            let excluded = if user {
                event.exclude_user
            } else {
                event.exclude_kernel
            };
            if event.kind == Kind::Pmu && !excluded && self.is_counted(event, tid) {
                let account = self.accounts.entry((index as u16, cpu)).or_default();
                if !account.stopped {
                    account.counted += ns;
                }
            }
        }
    }

    fn sampled(&mut self, entry: &Entry, event: u16, number: u64, period: u64, user_mode: bool) {
        let thread = self.threads.get(&entry.tid);
        self.truths.push(Truth {
            tid: entry.tid,
            event,
            time: entry.time,
            period,
            user_mode,
            stack: thread.and_then(|thread| thread.stack),
            stay: thread.map_or(0, |thread| thread.stay),
            at_uprobe: self.events[usize::from(event)].kind == Kind::Uprobe,
            deferred: None,
            fate: Fate::Open,
        });
        self.account(event, entry.cpu).sampled += period;
        if number != self.truths.len() as u64 {
            let what = format!("sample {number} follows {}", self.truths.len() - 1);
            self.fault(Rule::Fate, entry.time, what);
        }
    }

    fn requested(&mut self, entry: &Entry, number: u64, cookie: Option<u64>) {
        let thread = self.thread(entry.tid);
        let (stay, after_reset) = (thread.stay, thread.reset_in_stay);
        if let Some(truth) = self.truths.get_mut(number as usize - 1) {
            truth.deferred = cookie;
        }
        let Some(cookie) = cookie.filter(|_| self.setup.form == Form::Upstream) else {
            return;
        };
        let promise = self.promises.entry(cookie).or_insert(Promise {
            tid: entry.tid,
            stay,
            time: entry.time,
            kept: false,
            after_reset,
        });
        if (promise.tid, promise.stay) != (entry.tid, stay) {
            let of = promise.tid;
            let what = format!("cookie {cookie:#x} of thread {of} is handed out again");
            self.fault(Rule::Cookie, entry.time, what);
        }
    }

    fn answered(&mut self, tid: i32, cookie: u64) {
        if let Some(promise) = self.promises.get_mut(&cookie).filter(|p| p.tid == tid) {
            promise.kept = true;
        }
    }

    fn handled(&mut self, entry: &Entry, number: u64, (handler, context): (u16, u16), kept: bool) {
        let event = self
            .truths
            .get(number as usize - 1)
            .map_or(0, |truth| truth.event);
        let installed = self.installed[usize::from(event)];
        if handler != context || handler != installed {
            let what = format!(
                "sample {number}: handler {handler} ran with context {context}, {installed} is in place"
            );
            self.fault(Rule::WholeHandler, entry.time, what);
        }
        if !kept {
            self.fate(entry.time, number, Fate::Dropped);
        }
    }

    fn fate(&mut self, time: u64, number: u64, fate: Fate) {
        let Some(truth) = self.truths.get_mut(number as usize - 1) else {
            return;
        };
        if std::mem::replace(&mut truth.fate, fate) != Fate::Open {
            self.fault(Rule::Fate, time, format!("sample {number} ends twice"));
        }
    }

    /// The true frames of a stack, then what a walk by frame pointers cannot see of them.
    fn walk(&self, (stack, leaf): (StackId, Leaf), at_uprobe: bool) -> Vec<u64> {
        let depth = self.stacks.depth(stack);
        let mut frames: Vec<u64> = (0..depth).map(|i| self.stacks.frame(stack, i)).collect();
        let hidden = leaf == Leaf::AfterPush || leaf == Leaf::Entry && !at_uprobe;
        if hidden && depth > 1 {
            frames.remove(1);
        }
        if let Some(first) = frames.first_mut().filter(|_| leaf == Leaf::AfterPush) {
            *first += 1;
        }
        frames
    }

    /// A record with user frames against the stack of its thread at that time.
    fn frames(&mut self, entry: &Entry, record: Option<&Record>) {
        let Some(Record { tid, body, .. }) = record else {
            let what = "a record with user frames is not there".to_owned();
            return self.fault(Rule::OwnStack, entry.time, what);
        };
        let Body::Deferred { frames, .. } = body else {
            return;
        };
        let thread = self.threads.get(&entry.tid).cloned().unwrap_or_default();
        let mut expected = match thread.stack {
            Some(stack) if !thread.no_memory => self.walk(stack, false),
            _ => Vec::new(),
        };
        if let Fact::Deferred { event, .. } = entry.fact {
            expected.truncate(self.deferred_max(self.events[usize::from(event)].max_stack));
        }
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

    fn records(&mut self, records: &[Record]) {
        let mut written = vec![0u32; self.truths.len()];
        let mut periods: BTreeMap<u16, u64> = BTreeMap::new();
        for record in records {
            let time = record.time;
            match &record.body {
                Body::Sample {
                    number,
                    period,
                    chain,
                    ..
                } => {
                    *periods.entry(record.event).or_default() += period;
                    if let Some(seen) = written.get_mut(*number as usize - 1) {
                        *seen += 1;
                        self.chain(record, *number, chain);
                    } else {
                        self.fault(Rule::Fate, time, format!("sample {number} was never taken"));
                    }
                }
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
            let is_written = truth.fate == Fate::Written;
            if is_written {
                *expected.entry(truth.event).or_default() += truth.period;
            }
            if count != u32::from(is_written) {
                let (time, n) = (truth.time, index + 1);
                self.fault(Rule::Fate, time, format!("sample {n}: {count} records"));
            }
        }
        for (event, sum) in periods {
            let counted = expected.get(&event).copied().unwrap_or(0);
            if sum != counted {
                let name = &self.events[usize::from(event)].name;
                let what = format!("{name}: the records' periods add up to {sum}, not {counted}");
                self.fault(Rule::Periods, 0, what);
            }
        }
    }

    /// A sample's chain against the world.
    fn chain(&mut self, record: &Record, number: u64, chain: &[u64]) {
        let truth = self.truths[number as usize - 1].clone();
        let kernel = &chain[..chain
            .iter()
            .position(|&word| word == super::USER || word == super::DEFERRED)
            .unwrap_or(chain.len())];
        let bad = |what: &str| format!("sample {number}: {what}: {}", words(chain));
        let is_kernel = |word: &u64| (super::KERNEL_TEXT..super::MACHINERY_TEXT).contains(word);
        let kernel_is_right = match (truth.user_mode, kernel) {
            (true, []) => true,
            (false, [marker, frames @ ..]) => {
                *marker == super::KERNEL && !frames.is_empty() && frames.iter().all(is_kernel)
            }
            _ => false,
        };
        if !kernel_is_right {
            self.fault(Rule::OwnChain, record.time, bad("not a kernel chain"));
        }
        let user = &chain[kernel.len()..];
        let expected = match (truth.stack, truth.deferred) {
            (None, _) => Vec::new(),
            (Some(_), Some(0)) => vec![super::DEFERRED],
            (Some(_), Some(cookie)) => vec![super::DEFERRED, cookie],
            (Some(stack), None) => {
                let max = usize::from(self.events[usize::from(truth.event)].max_stack);
                let mut frames = self.walk(stack, truth.at_uprobe);
                frames.truncate(max - kernel.len().saturating_sub(1));
                frames.insert(0, super::USER);
                frames
            }
        };
        if user != expected || record.tid != truth.tid {
            let what = bad("not its user part");
            self.fault(Rule::OwnChain, record.time, what);
        }
    }

    fn end(&mut self) {
        let mut faults = Vec::new();
        for (&(event, cpu), account) in &self.accounts {
            let setup = &self.events[usize::from(event)];
            let name = &setup.name;
            if account.lost != account.told {
                let what = format!(
                    "{name} on cpu{cpu}: {} records lost, {} told",
                    account.lost, account.told
                );
                faults.push((Rule::LossTold, 0, what));
            }
            let rest = account.counted.checked_sub(account.sampled);
            if setup.kind == Kind::Pmu && rest.is_none_or(|rest| rest >= setup.period) {
                let what = format!(
                    "{name} on cpu{cpu}: counted {}, sampled {}",
                    account.counted, account.sampled
                );
                faults.push((Rule::Periods, 0, what));
            }
        }
        let outputs = self
            .events
            .iter()
            .any(|event| event.defer_output && event.tid.is_none());
        for (cookie, promise) in &self.promises {
            let thread = self.threads.get(&promise.tid);
            let open = thread.is_some_and(|t| t.stay == promise.stay && !t.gone);
            if !(promise.kept || promise.after_reset || open) && outputs {
                let what = format!("cookie {cookie:#x}: no record was written");
                faults.push((Rule::Answered, promise.time, what));
            }
        }
        for (rule, time, what) in faults {
            self.fault(rule, time, what);
        }
    }
}

/// The first words, for messages.
fn words(all: &[u64]) -> String {
    let shown: Vec<String> = all.iter().take(6).map(|word| format!("{word:x}")).collect();
    let more = if all.len() > 6 { " .." } else { "" };
    format!("[{}{more}]", shown.join(" "))
}
