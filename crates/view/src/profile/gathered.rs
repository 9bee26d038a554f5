//! A profile: threads, their stacks, and how often or when each stack was sampled.
//!
//! It is filled from a source of stacks and written in one of the formats. Each distinct stack is
//! stored once; only a profile of times lists every sample, in 24 bytes.

use super::table::{Detail, Table};
use super::tree::{ROOT, Tree};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use unwind_sim_perf_data::{EventAttr, PerfFile, event_name, flag};

/// Marks a node of the tree as a thread, not a frame. The other bits are the thread's number.
const THREAD: u32 = 1 << 31;

/// What a profile keeps of its samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatherKind {
    /// The count of each stack of names, by thread name.
    Names,
    /// The count of each stack of addresses, by thread.
    Addresses,
    /// Every sample with its time, by thread.
    Times,
}

/// An event or an unwinder: what the samples of some threads have in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The event it belongs to, if the recording says.
    pub event: Option<EventInfo>,
}

/// What is known of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventInfo {
    /// Its name.
    pub name: String,
    /// Whether it counts nanoseconds of CPU time.
    pub is_clock: bool,
    /// The nanoseconds between two samples that were asked for.
    pub interval_ns: Option<u64>,
    /// The period that was asked for, if it was not a frequency.
    pub period: Option<u64>,
}

impl EventInfo {
    /// What an attribute says.
    pub fn of(attr: &EventAttr) -> EventInfo {
        let is_frequency = attr.flags & flag::FREQ != 0;
        EventInfo {
            name: event_name(attr),
            is_clock: attr.is_clock(),
            interval_ns: attr.interval_ns(),
            period: (!is_frequency && attr.sample_period != 0).then_some(attr.sample_period),
        }
    }
}

impl Series {
    /// The series of the samples of an event.
    pub fn of_event(attr: &EventAttr) -> Series {
        let event = EventInfo::of(attr);
        Series {
            name: event.name.clone(),
            event: Some(event),
        }
    }
}

/// What distinguishes threads. Fields that do not matter are 0 or empty.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ThreadKey {
    pid: u32,
    tid: u32,
    series: u32,
    name: Arc<str>,
}

/// A thread in one series of samples.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The process id; 0 in a profile of names.
    pub pid: u32,
    /// The thread id; 0 in a profile of names.
    pub tid: u32,
    /// The number of its series.
    pub series: u32,
    /// The thread's name; in a profile of times, the last one.
    pub name: Arc<str>,
    last_part: u64,
}

/// How often a stack was sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// The number of samples.
    pub samples: u64,
    /// The number of events that they stand for; 0 if not known.
    pub events: u64,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The time in nanoseconds.
    pub time: u64,
    /// The node of the innermost frame, or of the thread if there is no frame.
    pub node: u32,
    /// The number of its thread.
    pub thread: u32,
    /// What its event counted since its last sample; 0 if not known.
    pub period: u64,
}

/// What a node of the tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodePlace {
    /// A thread, by number.
    Thread(u32),
    /// A frame, by number.
    Frame(u32),
}

impl NodePlace {
    /// Decodes the word of a node of the tree.
    pub fn of(word: u32) -> NodePlace {
        match word & THREAD {
            0 => NodePlace::Frame(word),
            _ => NodePlace::Thread(word & !THREAD),
        }
    }
}

/// What is known of a clock that counts nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Nothing else.
    Unknown,
    /// Added to a time, this gives the nanoseconds since 1970.
    Since(i128),
    /// The recording ended at this time, nanoseconds since 1970.
    EndsAt(u64),
}

impl Clock {
    /// The clock of a perf.data that was last written at `modified`: perf does that right after the
    /// last sample, unless the file was copied.
    pub fn of(file: &PerfFile<'_>, modified: Option<SystemTime>) -> Clock {
        if let Ok(Some(both)) = file.features().clock_data() {
            return Clock::Since(i128::from(both.wall_ns) - i128::from(both.clock_ns));
        }
        let ended = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let ended = ended.and_then(|time| u64::try_from(time.as_nanos()).ok());
        ended.map_or(Clock::Unknown, Clock::EndsAt)
    }
}

/// A profile.
#[derive(Debug)]
pub struct Profile {
    /// What is kept of each sample.
    pub kind: GatherKind,
    /// The frames of all stacks, each once.
    pub table: Table,
    /// The threads, with their frames below them; see [`NodePlace`].
    pub tree: Tree,
    /// The series: events or unwinders.
    pub series: Vec<Series>,
    /// The clock of its times, if they are nanoseconds.
    pub clock: Option<Clock>,
    /// The first and the last time of a sample.
    times: Option<(u64, u64)>,
    /// The threads, one for each series that they have samples of.
    pub threads: Vec<Thread>,
    numbers: HashMap<ThreadKey, u32>,
    /// The counts by node; empty in a profile of times.
    counts: Vec<Count>,
    /// The samples, in the order of time within a thread; empty except in a profile of times.
    pub samples: Vec<Sample>,
    /// The number of each part of the recording, and the index of its first sample.
    parts: Vec<(u64, usize)>,
}

impl Profile {
    /// An empty profile with these series.
    pub fn new(kind: GatherKind, series: Vec<Series>) -> Profile {
        let detail = match kind {
            GatherKind::Names => Detail::Name,
            GatherKind::Addresses | GatherKind::Times => Detail::Address,
        };
        Profile {
            kind,
            table: Table::new(detail),
            tree: Tree::default(),
            series,
            clock: None,
            times: None,
            threads: Vec::new(),
            numbers: HashMap::new(),
            counts: Vec::new(),
            samples: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Starts the part of the recording with this number.
    pub fn part(&mut self, number: u64) {
        self.parts.push((number, self.samples.len()));
    }

    /// The number of a thread, and the parent node of its stacks.
    pub fn thread(&mut self, pid: u32, tid: u32, series: u32, name: &Arc<str>) -> (u32, u32) {
        let (pid, tid) = match self.kind {
            GatherKind::Names => (0, 0),
            GatherKind::Addresses | GatherKind::Times => (pid, tid),
        };
        let last_part = self.parts.last().map_or(0, |part| part.0);
        let number = self.add_thread(Thread {
            pid,
            tid,
            series,
            name: name.clone(),
            last_part,
        });
        (number, self.tree.child(ROOT, THREAD | number))
    }

    fn add_thread(&mut self, thread: Thread) -> u32 {
        let name = match self.kind {
            GatherKind::Names | GatherKind::Addresses => thread.name.clone(),
            GatherKind::Times => "".into(),
        };
        let key = ThreadKey {
            pid: thread.pid,
            tid: thread.tid,
            series: thread.series,
            name,
        };
        let next = self.threads.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        match self.threads.get_mut(number as usize) {
            None => self.threads.push(thread),
            Some(known) if known.last_part <= thread.last_part => *known = thread,
            Some(_) => {}
        }
        number
    }

    /// Adds a sample of a thread whose stack ends in `node`. `events` is the number of events that
    /// it stands for.
    #[inline]
    pub fn add(&mut self, thread: u32, node: u32, time: u64, events: u64) {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        match self.kind {
            GatherKind::Times => self.samples.push(Sample {
                time,
                node,
                thread,
                period: events,
            }),
            GatherKind::Names | GatherKind::Addresses => {
                let samples = 1;
                self.count(node, Count { samples, events });
            }
        }
    }

    fn count(&mut self, node: u32, more: Count) {
        let at = node as usize;
        if at >= self.counts.len() {
            let len = self.tree.nodes().len().max(at + 1);
            self.counts.resize(len, Count::default());
        }
        let count = &mut self.counts[at];
        count.samples += more.samples;
        count.events = count.events.saturating_add(more.events);
    }

    /// How often the stack that ends in `node` was sampled.
    pub fn counted(&self, node: u32) -> Count {
        self.counts.get(node as usize).copied().unwrap_or_default()
    }

    /// The nanoseconds from the first to the last sample; `None` if times are not nanoseconds.
    pub fn duration_ns(&self) -> Option<u64> {
        let (first, last) = self.times.filter(|_| self.clock.is_some())?;
        Some(last - first)
    }

    /// The time of the first sample in nanoseconds since 1970, if known.
    pub fn started_ns(&self) -> Option<u64> {
        let (first, last) = self.times?;
        match self.clock? {
            Clock::Unknown => None,
            Clock::Since(offset) => u64::try_from(i128::from(first) + offset).ok(),
            Clock::EndsAt(end) => end.checked_sub(last - first),
        }
    }

    /// The used series whose events are known.
    pub fn used_events(&self) -> impl Iterator<Item = &EventInfo> {
        let used = self.used_series().into_iter();
        used.filter_map(|series| self.series.get(series as usize)?.event.as_ref())
    }

    /// The numbers of the series that have threads.
    pub fn used_series(&self) -> Vec<u32> {
        let mut used: Vec<u32> = self.threads.iter().map(|thread| thread.series).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The display names of the threads, with the series if there are several.
    pub fn shown(&self) -> Vec<String> {
        let several = self.used_series().len() > 1;
        let shown = |thread: &Thread| match self.series.get(thread.series as usize) {
            Some(series) if several => format!("{} [{}]", thread.name, series.name),
            _ => thread.name.to_string(),
        };
        self.threads.iter().map(shown).collect()
    }

    /// The numbers of the threads, sorted by process, thread id, name and series.
    pub fn ordered_threads(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.threads.len() as u32).collect();
        order.sort_by_key(|&at| {
            let thread = &self.threads[at as usize];
            (thread.pid, thread.tid, &thread.name, thread.series)
        });
        order
    }

    /// The nodes in depth-first order, which is the same for equal profiles.
    pub fn ordered_nodes(&self) -> Vec<u32> {
        let ranks = |order: Vec<u32>| {
            let mut ranks = vec![0; order.len()];
            for (rank, &at) in order.iter().enumerate() {
                ranks[at as usize] = rank as u32;
            }
            ranks
        };
        let frames = ranks(self.table.ordered());
        let threads = ranks(self.ordered_threads());
        self.tree.ordered(|word| match NodePlace::of(word) {
            NodePlace::Thread(thread) => threads[thread as usize],
            NodePlace::Frame(frame) => frames[frame as usize],
        })
    }

    /// The frames of the stack that ends in `node`, innermost first.
    pub fn stack(&self, node: u32) -> impl Iterator<Item = u32> {
        let nodes = self.tree.nodes();
        let up = move |&at: &u32| nodes.get(at as usize).map(|node| node.parent);
        std::iter::successors(Some(node), up)
            .map_while(|at| nodes.get(at as usize))
            .map_while(|node| match NodePlace::of(node.frame) {
                NodePlace::Frame(frame) => Some(frame),
                NodePlace::Thread(_) => None,
            })
    }

    /// Joins the profiles that several workers gathered from the same recording.
    pub fn join(mut all: Vec<Profile>) -> Option<Profile> {
        if all.len() <= 1 {
            return all.pop();
        }

        // All workers gathered from one recording, so the first one's series and clock are those of
        // all.
        let first = all.first()?;
        let mut whole = Profile::new(first.kind, first.series.clone());
        whole.clock = first.clock;

        // The time that the recording spans is that from the first to the last of all workers.
        for (from, to) in all.iter().filter_map(|one| one.times) {
            let (first, last) = whole.times.unwrap_or((from, to));
            whole.times = Some((first.min(from), last.max(to)));
        }

        // Samples of one thread must stay in the order of time, whichever worker took which part.
        let mut parts = Vec::new();
        let mut numbers = Vec::new();
        for (of, one) in all.iter().enumerate() {
            // The numbers of nodes and threads are a worker's own; `merge` says which are the same
            // here.
            let (nodes, threads) = whole.merge(one);
            for (&count, &node) in one.counts.iter().zip(&nodes) {
                whole.count(node, count);
            }
            numbers.push((nodes, threads));
            // Not every recording comes in parts.
            let begins = [(0, 0)].iter().chain(&one.parts);
            let ends = one.parts.iter().map(|part| part.1);
            let ends = ends.chain([one.samples.len()]);
            parts.extend(
                begins
                    .zip(ends)
                    .map(|(part, end)| (part.0, of, part.1..end)),
            );
        }
        // Parts of different series may have the same number. The sort is stable, so those of a
        // thread stay in order.
        parts.sort_by_key(|part| part.0);

        // Room for all at once, as the list is the largest part of a profile.
        whole
            .samples
            .reserve(all.iter().map(|one| one.samples.len()).sum());

        for (_, of, range) in parts {
            let (nodes, threads) = &numbers[of];
            whole
                .samples
                .extend(all[of].samples[range].iter().map(|sample| Sample {
                    time: sample.time,
                    node: nodes[sample.node as usize],
                    thread: threads[sample.thread as usize],
                    period: sample.period,
                }));
        }

        Some(whole)
    }

    /// Adds the frames, stacks and threads of `other`. Returns the new numbers of its nodes and
    /// threads.
    fn merge(&mut self, other: &Profile) -> (Vec<u32>, Vec<u32>) {
        let frames = self.table.merge(&other.table);
        let threads: Vec<u32> = other
            .threads
            .iter()
            .map(|thread| self.add_thread(thread.clone()))
            .collect();
        let nodes = self
            .tree
            .merge(&other.tree, |word| match NodePlace::of(word) {
                NodePlace::Frame(frame) => frames[frame as usize],
                NodePlace::Thread(thread) => THREAD | threads[thread as usize],
            });
        (nodes, threads)
    }
}
