//! The oracle: checks the records of a run against its log.
//!
//! It keeps its own books from the log alone and shares no code with the world: who runs, on which
//! user stack, what was counted, what was lost. `join` compares the output of a stitcher with it.

mod branches;
mod join;
mod programs;
mod records;
mod rule;
mod walk;

pub use join::{Joined, Outcome, Run, items, join};
pub use rule::{Rule, Violation};
pub use walk::{Walk, WalkVerdict};

use crate::log::{Entry, Fact};
use crate::record::{Body, Record};
use crate::setup::{EventSetup, Form, Kind, RfcBuffer, Setup};
use crate::stack::{Leaf, StackId, StackSource};
use crate::world::World;
use branches::BranchAccounts;
use programs::HandlerRuns;
use std::collections::BTreeMap;

/// The ground truth of a sample.
#[derive(Clone, Debug)]
struct Truth {
    tid: i32,
    event: u16,
    time: u64,
    period: u64,
    user_mode: bool,
    stack: Option<(StackId, Leaf)>,
    /// The number of the thread's stay in the kernel.
    stay: u64,
    at_uprobe: bool,
    deferred: Option<u64>,
    fate: SampleFate,
    branches: Option<ExpectedBranches>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleFate {
    Open,
    Written,
    Lost,
    Dropped,
}

/// The expected branch stack of a sample.
#[derive(Clone, Debug, Default)]
struct ExpectedBranches {
    /// Addresses of the thread's calls, innermost first, as many as a ring may have.
    froms: Vec<u64>,
    /// The number of calls on the thread's stack.
    calls: usize,
    /// The number of them in a ring that is never wiped.
    held: usize,
}

/// A thread according to the log.
#[derive(Clone, Debug, Default)]
struct Thread {
    stack: Option<(StackId, Leaf)>,
    stay: u64,
    reset_in_stay: bool,
    no_memory: bool,
    gone: bool,
    /// Its ancestors, with the numbers of the log entries of the forks.
    makers: Vec<(i32, usize)>,
}

/// A cookie in use.
struct IssuedCookie {
    tid: i32,
    stay: u64,
    time: u64,
    kept: bool,
    /// It was given after the mask was cleared on the way out, so no record will follow.
    after_reset: bool,
}

/// The events counted and the records lost of an event on a CPU.
#[derive(Clone, Default)]
struct EventCounts {
    counted: u64,
    /// In frequency mode, the period of the counter once it differs from the initial one.
    period: Option<u64>,
    sampled: u64,
    stopped: bool,
    lost: u64,
    told: u64,
}

/// The most frames of a walk: more than any record holds, and one that a walk may not see.
const WALK_MAX: usize = 512;

/// The oracle's books.
struct Oracle<'a> {
    setup: &'a Setup,
    events: &'a [EventSetup],
    stacks: &'a dyn StackSource,
    threads: BTreeMap<i32, Thread>,
    truths: Vec<Truth>,
    promises: BTreeMap<u64, IssuedCookie>,
    accounts: BTreeMap<(u16, u16), EventCounts>,
    handlers: HandlerRuns,
    /// The number of the log entry that opened the event; `None` while it is closed.
    opened: Vec<Option<usize>>,
    /// The number of entries read.
    read: usize,
    branches: Option<BranchAccounts>,
    /// The stacks of a thread in a stay in which the stack was replaced.
    replaced: BTreeMap<(i32, u64), Vec<(StackId, Leaf)>>,
    violations: Vec<Violation>,
    /// The walks of programs that walk user stacks.
    walks: Vec<Walk>,
}

/// Checks a finished run.
pub fn check(world: &World) -> Vec<Violation> {
    Oracle::of(world).violations
}

/// The user frames that a stitched sample may have.
struct Allowed {
    /// The frames that a walk at the sample finds; `None` without a user stack.
    own: Option<Vec<u64>>,
    /// The most frames of a chain that is unwound later, and of one unwound at once.
    cut: [usize; 2],
    /// The number of calls on the thread's stack, if the event has branch records.
    calls: Option<usize>,
}

impl<'a> Oracle<'a> {
    /// Reads the log of a finished run and checks the records against it.
    fn of(world: &'a World) -> Self {
        let mut oracle = Self {
            setup: world.setup(),
            events: world.events(),
            stacks: world.stacks(),
            threads: BTreeMap::new(),
            truths: Vec::new(),
            promises: BTreeMap::new(),
            accounts: BTreeMap::new(),
            handlers: HandlerRuns::default(),
            opened: world
                .events()
                .iter()
                .map(|event| (!event.is_opened_later).then_some(0))
                .collect(),
            read: 0,
            branches: BranchAccounts::new(
                world.events(),
                world.setup().lbr_depth.entries(),
                world.setup().lbr_storage,
            ),
            replaced: BTreeMap::new(),
            violations: Vec::new(),
            walks: Vec::new(),
        };

        // User frames, and what programs write, have records of their own kinds.
        let is_deferred = |record: &&Record| matches!(record.body, Body::Deferred { .. });
        let is_raw = |record: &&Record| matches!(record.body, Body::Raw { .. });

        // Records of these kinds have no number. Each is matched with its fact by order.
        let mut crashes = world.crashes().iter();
        let mut raw = world.records().iter().filter(is_raw);
        let mut deferred = world.records().iter().filter(is_deferred);

        // In the order of the log: each fact is checked against what was true at that time.
        for (index, entry) in world.log().iter().enumerate() {
            oracle.read = index + 1;
            oracle.fact(entry);
            oracle.handler_fact(entry);
            if let Fact::Output { handler, .. } = entry.fact {
                let record = raw.next();
                oracle.output(entry, record);
                if let Some(record) = record.filter(|_| world.walks(handler)) {
                    oracle.walked(entry, record);
                }
            }

            // Branch records are followed even where no sample has them.
            let fault = oracle.branches.as_mut().and_then(|books| books.fact(entry));
            if let Some((rule, what)) = fault {
                oracle.fault(rule, entry.time, what);
            }

            if let Fact::Deferred { .. } = entry.fact {
                oracle.frames(entry, deferred.next());
            }
            if entry.fact == Fact::Oops {
                oracle.crash(entry, crashes.next());
            }
        }

        // After the whole log, because only then every sample's fate is known.
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

    fn account(&mut self, event: u16, cpu: u16) -> &mut EventCounts {
        self.accounts.entry((event, cpu)).or_default()
    }

    /// Whether the event counts the thread.
    fn is_counted(&self, index: usize, tid: i32) -> bool {
        let event = &self.events[index];
        let (Some(opened), only) = (self.opened[index], event.tid) else {
            return false;
        };
        let makers = self.threads.get(&tid).map(|thread| &thread.makers);
        let Some(only) = only else {
            // A thread is in the cgroup of its first ancestor.
            let founder = makers
                .and_then(|all| all.first())
                .map_or(tid, |first| first.0);
            let is_in = |at: u16| {
                let cgroup = self.setup.cgroups.get(usize::from(at));
                cgroup.is_some_and(|cgroup| cgroup.tids.contains(&founder))
            };
            return event.cgroup.is_none_or(is_in);
        };
        // Threads created before the event was opened do not inherit it.
        let inherits = |&(maker, at): &(i32, usize)| maker == only && at > opened;
        only == tid || event.inherit && makers.is_some_and(|all| all.iter().any(inherits))
    }

    /// Whether calls of the thread are recorded.
    fn is_recorded(&self, tid: i32) -> bool {
        let mut all = self.events.iter().enumerate();
        all.any(|(index, event)| event.branch_stack && self.is_counted(index, tid))
    }

    /// User code went on to another stack.
    fn stack(&mut self, tid: i32, stack: StackId, leaf: Leaf) {
        if let Some(mut books) = self.branches.take() {
            let from = self.threads.get(&tid).and_then(|thread| thread.stack);
            let from = from.map(|(from, _)| from);
            books.ran(tid, from, stack, self.stacks, self.is_recorded(tid));
            self.branches = Some(books);
        }
        let thread = self.thread(tid);
        thread.stack = Some((stack, leaf));
        thread.stay += 1;
    }

    /// Forgets the events counted since the last sample of an event that is opened or closed.
    fn settle(&mut self, event: u16) {
        let setup = &self.events[usize::from(event)];
        let accounts = self.accounts.range_mut((event, 0)..=(event, u16::MAX));
        for (_, account) in accounts {
            let rest = account.counted.saturating_sub(account.sampled);
            if rest < account.period.take().unwrap_or(setup.period) {
                account.counted -= rest;
            }
            account.stopped = false;
        }
    }

    fn opened(&mut self, event: u16, is_open: bool) {
        self.settle(event);
        self.opened[usize::from(event)] = is_open.then_some(self.read);
        if let Some(mut books) = self.branches.take() {
            books.closed(|tid| self.is_recorded(tid));
            self.branches = Some(books);
        }
    }

    fn fact(&mut self, entry: &Entry) {
        let (tid, cpu) = (entry.tid, entry.cpu);

        // Only facts about threads, events and samples; those about handlers are read elsewhere.
        match entry.fact {
            Fact::Ran { user, ns } => self.ran(tid, cpu, user, ns),
            Fact::Loaded {
                event,
                period,
                dropped,
            } => {
                let account = self.account(event, cpu);
                account.period = Some(period);
                // A counter that is loaded anew drops what it had counted.
                account.counted = account.counted.saturating_sub(dropped);
            }
            Fact::Counted { event, by } => self.account(event, cpu).counted += by,
            // The stack of the thread until something replaces it.
            Fact::Stack { stack, leaf } => self.stack(tid, stack, leaf),
            Fact::Opened { event } => self.opened(event, true),
            Fact::Closed { event } => self.opened(event, false),
            Fact::Exec { stack } | Fact::Signal { stack } => {
                self.replace(tid, |_| (stack, Leaf::Body));
            }
            // The push was emulated: the same stack, seen one instruction later.
            Fact::UprobeStep => self.replace(tid, |(stack, _)| (stack, Leaf::AfterPush)),
            Fact::Fork { child } => {
                // The child starts on a copy of its parent's stack.
                let parent = self.thread(tid).clone();
                let mut makers = parent.makers;
                makers.push((tid, self.read));
                let thread = self.thread(child);
                thread.stack = parent.stack;
                thread.makers = makers;
                if let Some(books) = &mut self.branches {
                    books.forked(tid, child);
                }
            }
            Fact::Exit => self.thread(tid).gone = true,
            // A failed allocation concerns one task work only.
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
            Fact::Sample { number } => self.fate(entry.time, number, SampleFate::Written),
            Fact::SampleLost { number, event } => {
                self.account(event, cpu).lost += 1;
                self.fate(entry.time, number, SampleFate::Lost);
            }
            // A lost record answers the request too: its loss is told.
            Fact::DeferredLost { event, cookie } => {
                self.account(event, cpu).lost += 1;
                self.answered(tid, cookie);
            }
            Fact::OtherLost { event } => self.account(event, cpu).lost += 1,
            Fact::Deferred { cookie, .. } => self.answered(tid, cookie),
            Fact::Filtered { .. }
            | Fact::Traced { .. }
            | Fact::Installed { .. }
            | Fact::Taken { .. }
            | Fact::Handled { .. }
            | Fact::Output { .. }
            | Fact::Enter
            | Fact::Interrupt(_)
            | Fact::InterruptEnd(_)
            | Fact::Return
            | Fact::Switch { .. }
            | Fact::Oops
            | Fact::Exiting
            | Fact::Queued
            | Fact::Moved { .. }
            | Fact::Branches(_)
            | Fact::Read => {}
        }
    }

    /// The stack is replaced without user code running.
    fn replace(&mut self, tid: i32, by: impl Fn((StackId, Leaf)) -> (StackId, Leaf)) {
        let thread = self.thread(tid);
        let Some(old) = thread.stack else { return };
        thread.stack = Some(by(old));
        let stay = (tid, thread.stay);
        let replaced = self.replaced.entry(stay).or_default();
        for stack in [old, by(old)] {
            if !replaced.contains(&stack) {
                replaced.push(stack);
            }
        }
    }

    /// The broken rules.
    fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What a sample, numbered from 1, may come out with after stitching.
    fn allowed(&self, number: u64) -> Option<Allowed> {
        let truth = self.truth(number)?;
        let max_stack = self.events[usize::from(truth.event)].max_stack;
        let has_callchain = self.events[usize::from(truth.event)].has_callchain;
        let stack = truth.stack.filter(|_| has_callchain);
        Some(Allowed {
            own: stack.map(|stack| self.walk(stack, truth.at_uprobe)),
            cut: [self.deferred_max(max_stack), usize::from(max_stack)],
            calls: truth.branches.as_ref().map(|due| due.calls),
        })
    }

    /// The frames that walks find at other times in the stay of a sample.
    fn in_stay(&self, number: u64) -> impl Iterator<Item = Vec<u64>> {
        let stay = self.truth(number).map(|truth| (truth.tid, truth.stay));
        let replaced = stay.and_then(|stay| self.replaced.get(&stay));
        let stacks = replaced.into_iter().flatten();
        stacks.map(|&stack| self.walk(stack, false))
    }

    fn truth(&self, number: u64) -> Option<&Truth> {
        self.truths.get((number as usize).wrapping_sub(1))
    }

    /// The most frames of a record.
    fn deferred_max(&self, max_stack: u16) -> usize {
        match (self.setup.form, self.setup.rfc_buffer) {
            (Form::Upstream | Form::Before, _) => 510,
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
            if event.kind == Kind::Pmu && !excluded && self.is_counted(index, tid) {
                let account = self.accounts.entry((index as u16, cpu)).or_default();
                if !account.stopped {
                    account.counted += ns;
                }
            }
        }
    }

    fn sampled(&mut self, entry: &Entry, event: u16, number: u64, period: u64, user_mode: bool) {
        let thread = self.threads.get(&entry.tid);
        let has_branches = self.events[usize::from(event)].branch_stack;
        let books = self.branches.as_ref().filter(|_| has_branches);

        // Taken now, since the stack may change before the sample is written.
        let stack = thread.and_then(|thread| thread.stack);
        let frames = stack.map_or(0, |(stack, _)| self.stacks.depth(stack));
        let branches = books.map(|books| books.due(entry.tid, frames));

        self.truths.push(Truth {
            tid: entry.tid,
            event,
            time: entry.time,
            period,
            user_mode,
            stack,
            stay: thread.map_or(0, |thread| thread.stay),
            at_uprobe: self.events[usize::from(event)].kind == Kind::Uprobe,
            deferred: None,
            fate: SampleFate::Open,
            branches,
        });

        let account = self.accounts.entry((event, entry.cpu)).or_default();
        account.sampled += period;

        let setup = &self.events[usize::from(event)];
        let loaded = account.period.unwrap_or(setup.period);

        // A sample has the period with which its counter was loaded.
        if setup.kind == Kind::Pmu && period != loaded {
            let what = format!("sample {number}: period {period}, its counter had {loaded}");
            self.fault(Rule::Periods, entry.time, what);
        }

        // Numbers count from 1 without gaps: they are the indices of `truths`.
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
        let promise = self.promises.entry(cookie).or_insert(IssuedCookie {
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

    fn fate(&mut self, time: u64, number: u64, fate: SampleFate) {
        let Some(truth) = self.truths.get_mut(number as usize - 1) else {
            return;
        };
        if std::mem::replace(&mut truth.fate, fate) != SampleFate::Open {
            self.fault(Rule::Fate, time, format!("sample {number} ends twice"));
        }
    }

    /// The frames of a stack that a walk by frame pointers finds.
    fn walk(&self, (stack, leaf): (StackId, Leaf), at_uprobe: bool) -> Vec<u64> {
        let depth = self.stacks.depth(stack).min(WALK_MAX);
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

            // What is counted and not yet sampled must be less than a period: else an overflow is
            // missing.
            let rest = account.counted.checked_sub(account.sampled);
            let period = account.period.unwrap_or(setup.period);
            if setup.kind == Kind::Pmu && rest.is_none_or(|rest| rest >= period) {
                let what = format!(
                    "{name} on cpu{cpu}: counted {}, sampled {}",
                    account.counted, account.sampled
                );
                faults.push((Rule::Periods, 0, what));
            }
        }

        // No record is owed unless an event that asks for them counts on every thread.
        let outputs = self
            .events
            .iter()
            .any(|event| event.defer_output && event.tid.is_none());
        for (cookie, promise) in &self.promises {
            let thread = self.threads.get(&promise.tid);
            // A stay that lasts to the end of the run has not got its record yet.
            let open = thread.is_some_and(|t| t.stay == promise.stay && !t.gone);
            if !(promise.kept || promise.after_reset || open) && outputs {
                let what = format!("cookie {cookie:#x}: no record was written");
                faults.push((Rule::Answered, promise.time, what));
            }
        }

        self.handlers_end();
        let left = self.branches.as_ref().and_then(BranchAccounts::end);
        faults.extend(left.map(|(rule, what)| (rule, 0, what)));

        for (rule, time, what) in faults {
            self.fault(rule, time, what);
        }
    }
}
