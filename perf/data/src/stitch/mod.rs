//! Stitching: joining samples with user callchains that were recorded later.
//!
//! With `attr.defer_callchain` (Linux 6.19), a sample has only its kernel frames, followed by
//! `PERF_CONTEXT_USER_DEFERRED` and a cookie. The user frames come in a
//! `PERF_RECORD_CALLCHAIN_DEFERRED` of the same thread when it returns to user space, once for all
//! samples of that stay in the kernel. A [`Stitcher`] takes a stream of [`Item`]s in time order and
//! returns every sample with its final chain and the origin of that chain ([`Stitch`]), by one of
//! three methods ([`Mode`]).
//!
//! A sample and a record are joined by thread and cookie. The kernel assigns a cookie at the first
//! request after an entry and drops it at the return to user space (`kernel/unwind/deferred.c`,
//! Linux 7.2). So the same thread and cookie mean the same stay in the kernel, during which the
//! user stack does not change. Cookies repeat when a CPU's counter wraps around, which takes at
//! least [`COOKIE_ROUND_NS`].
//!
//! This module has the three methods ([`Mode::Own`] in `own`, the others in `waiting`), the items
//! of a perf.data file (`source`), and the judgement of one method by another (`judge`). Sorting by
//! time is in `order` and `queue`.

mod held;
mod judge;
mod own;
mod source;
mod waiting;

use std::collections::VecDeque;

use crate::attr::{EventAttr, flag};
use crate::callchain::PERF_CONTEXT_USER_DEFERRED;
use own::OwnStitcher;
use waiting::Waiting;

pub use judge::{JudgedSample, Judgement, Tally, judge};
pub use own::COOKIE_ROUND_NS;
pub use source::{Feed, items};

/// An element of the stream, as far as relevant for stitching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// An opaque identifier chosen by the caller.
    pub key: u64,
    /// Time in nanoseconds; `None` for items synthesized by the perf tool.
    pub time: Option<u64>,
    /// Thread ID; -1 for none.
    pub tid: i32,
    /// The event's ID; 0 for none. Not needed with cookies.
    pub event: u64,
    /// The kind of item.
    pub what: ItemKind,
}

/// The kinds of [`Item`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A sample.
    Sample {
        /// Does its event have `attr.defer_callchain` set?
        defer: bool,
        /// Its callchain as recorded, with markers.
        chain: Vec<u64>,
        /// The user-space address at which it was taken, if known; `None` in the kernel.
        ip: Option<u64>,
    },
    /// User frames of earlier samples (record type 22).
    Record {
        /// The cookie; `None` in the form proposed in 2023.
        cookie: Option<u64>,
        /// The frames, innermost first.
        frames: Vec<u64>,
    },
    /// The thread was created: anything from an earlier thread with this ID is over.
    Fork,
    /// The thread ended.
    Exit,
    /// The thread executed another program (a COMM record with the exec bit).
    Exec,
    /// The kernel mapped `[vdso]` for the thread, which it only does in execve.
    Vdso,
    /// Records or samples were lost.
    Lost {
        /// The number lost.
        count: u64,
    },
}

/// How samples and records are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each sample gets its actual user frames, or a reason why it has none, in time order.
    Own,
    /// The method of perf 7.2 (`tools/perf/util/session.c`), including its defects: a record
    /// removes all waiting samples of its thread from the list, those with another cookie without
    /// frames; records are not remembered; samples are delivered with their record.
    Perf72,
    /// The method proposed in November 2023, without cookies: a record belongs to all waiting
    /// samples of its thread.
    Rfc2023,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Own, Self::Perf72, Self::Rfc2023];

    /// A stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Perf72 => "perf-7.2",
            Self::Rfc2023 => "rfc2023",
        }
    }
}

/// A stitched sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stitched {
    /// The sample's key.
    pub key: u64,
    /// The sample's time.
    pub time: Option<u64>,
    /// The sample's thread.
    pub tid: i32,
    /// The cookie, if the sample was deferred and had one.
    pub cookie: Option<u64>,
    /// The resulting chain.
    ///
    /// [`Mode::Own`]: the kernel part, then `PERF_CONTEXT_USER` and the user frames, if any; marker
    /// and cookie are removed. Other modes: as produced by perf, with `PERF_CONTEXT_USER_DEFERRED`
    /// before the user frames, and the cookie left in place if there was no record.
    pub chain: Vec<u64>,
    /// The origin of the chain.
    pub how: Stitch,
}

/// The origin of a sample's chain. Records are identified by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stitch {
    /// The chain is as recorded: nothing was deferred.
    NotDeferred,
    /// The record came after the sample.
    Stitched {
        /// The record.
        record: u64,
    },
    /// The record came before the sample, which was taken between the record and the return to user
    /// space.
    Late {
        /// The record.
        record: u64,
    },
    /// The record came, but the thread had continued in user space before it was made: past a
    /// probed instruction, or to a signal handler. Its innermost frame is not where the sample was
    /// taken, and the sample's caller may be missing.
    Moved {
        /// The record.
        record: u64,
    },
    /// The record came, but it has no frames.
    Empty {
        /// The record.
        record: u64,
    },
    /// There are no user frames, for this reason.
    Missing(MissingReason),
}

impl Stitch {
    /// A stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotDeferred => "not-deferred",
            Self::Stitched { .. } => "stitched",
            Self::Late { .. } => "late",
            Self::Moved { .. } => "moved",
            Self::Empty { .. } => "empty",
            Self::Missing(why) => why.as_str(),
        }
    }

    /// The key of the record that was used.
    pub const fn record(self) -> Option<u64> {
        match self {
            Self::Stitched { record }
            | Self::Late { record }
            | Self::Moved { record }
            | Self::Empty { record } => Some(record),
            Self::NotDeferred | Self::Missing(_) => None,
        }
    }
}

/// Why a sample has no user frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MissingReason {
    /// No record came, and something was lost in the meantime.
    Lost,
    /// No record came although no loss is known and the thread went on to other stays in the
    /// kernel: the kernel wrote none.
    NotWritten,
    /// No event asks for records (`defer_output`), so the kernel writes none.
    NotAsked,
    /// The thread ended before a record came.
    Exited,
    /// The thread executed another program before the record came; the record belongs to that one.
    Exec,
    /// The data ended before a record came.
    End,
    /// The cookie may have been reused: it is unknown which stay in the kernel it identifies.
    Ambiguous,
    /// The sample has no thread, so no record can be assigned to it.
    NoThread,
    /// Given up to bound memory: too many samples were waiting, or it came after its record was
    /// dropped.
    GivenUp,
    /// perf only: a record of the thread with another cookie removed the sample from the list.
    OtherCookie,
}

impl MissingReason {
    /// All reasons.
    pub const ALL: [Self; 10] = [
        Self::Lost,
        Self::NotWritten,
        Self::NotAsked,
        Self::Exited,
        Self::Exec,
        Self::End,
        Self::Ambiguous,
        Self::NoThread,
        Self::GivenUp,
        Self::OtherCookie,
    ];

    /// A stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotWritten => "not-written",
            Self::NotAsked => "not-asked",
            Self::Exited => "exited",
            Self::Exec => "exec",
            Self::End => "end",
            Self::Ambiguous => "ambiguous",
            Self::NoThread => "no-thread",
            Self::GivenUp => "given-up",
            Self::OtherCookie => "other-cookie",
        }
    }

    /// The reason in words.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Lost => "no record arrived, and records were lost in the meantime",
            Self::NotWritten => "the thread returned to user space, but the kernel wrote no record",
            Self::NotAsked => {
                "no event asks for records of deferred callchains (defer_output), so none is written"
            }
            Self::Exited => "the thread ended before a record arrived",
            Self::Exec => "the record describes the program that execve started",
            Self::End => "the data ends before a record arrived",
            Self::Ambiguous => "the cookie may have wrapped around since it was assigned",
            Self::NoThread => "the sample does not say which thread it belongs to",
            Self::GivenUp => "given up to keep memory bounded",
            Self::OtherCookie => "a record with another cookie removed it from perf's list",
        }
    }
}

/// Counts of items and outcomes. Samples of all kinds add up to `samples`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of samples.
    pub samples: u64,
    /// Samples whose user part was deferred.
    pub deferred: u64,
    /// Records with user frames.
    pub records: u64,
    /// Records that no sample used.
    pub orphans: u64,
    /// Records for a thread and cookie that already had one, with the same frames.
    pub duplicates: u64,
    /// Records for a thread and cookie that already had one, with other frames.
    pub conflicts: u64,
    /// Records whose cookie belongs to a waiting sample of another thread.
    pub foreign: u64,
    /// Records without frames.
    pub empty: u64,
    /// Lost records and samples, as reported by the recording.
    pub lost: u64,
    /// Samples delivered after one with a later time.
    pub out_of_order: u64,
}

/// Joins samples with their user frames. See the module documentation.
#[derive(Debug)]
pub struct Stitcher {
    way: Method,
    out: DeliveredSamples,
}

#[derive(Debug)]
enum Method {
    Own(OwnStitcher),
    Waiting(Waiting),
}

/// The delivered samples, and the counts.
#[derive(Debug, Default)]
struct DeliveredSamples {
    ready: VecDeque<Stitched>,
    counts: Counts,
    latest: u64,
}

impl DeliveredSamples {
    fn give(&mut self, stitched: Stitched) {
        let time = stitched.time.unwrap_or(self.latest);
        self.counts.out_of_order += u64::from(time < self.latest);
        self.latest = self.latest.max(time);
        self.ready.push_back(stitched);
    }
}

impl Stitcher {
    /// A stitcher for this mode.
    pub fn new(mode: Mode) -> Self {
        let way = match mode {
            Mode::Own => Method::Own(OwnStitcher::default()),
            Mode::Perf72 => Method::Waiting(Waiting::new(true)),
            Mode::Rfc2023 => Method::Waiting(Waiting::new(false)),
        };
        Self {
            way,
            out: DeliveredSamples::default(),
        }
    }

    /// [`Mode::Own`] with another limit for buffered samples than the default 128 MiB.
    pub fn own_within(held_bytes_max: usize) -> Self {
        Self {
            way: Method::Own(OwnStitcher::within(held_bytes_max)),
            out: DeliveredSamples::default(),
        }
    }

    /// Says that the items are those of a file with these events: if none of them asks for records
    /// ([`flag::DEFER_OUTPUT`]) and none comes, that is why they are missing. Only [`Mode::Own`]
    /// tells.
    pub fn events(&mut self, events: &[EventAttr]) {
        let asks = |event: &EventAttr| event.flags & flag::DEFER_OUTPUT != 0;
        self.asked(events.iter().any(asks));
    }

    /// Like [`Stitcher::events`], for events that are not in a file: whether any of them asks.
    pub fn asked(&mut self, any: bool) {
        if let Method::Own(own) = &mut self.way {
            own.not_asked = !any;
        }
    }

    /// Adds the next item. Items must be in time order.
    pub fn push(&mut self, item: Item) {
        let counts = &mut self.out.counts;
        match &item.what {
            ItemKind::Sample { chain, .. } => {
                counts.samples += 1;
                counts.deferred += u64::from(deferral(chain).is_some());
            }
            ItemKind::Record { frames, .. } => {
                counts.records += 1;
                counts.empty += u64::from(frames.is_empty());
            }
            ItemKind::Lost { count } => counts.lost = counts.lost.saturating_add(*count),
            ItemKind::Fork | ItemKind::Exit | ItemKind::Exec | ItemKind::Vdso => {}
        }
        match &mut self.way {
            Method::Own(own) => own.push(item, &mut self.out),
            Method::Waiting(waiting) => waiting.push(item, &mut self.out),
        }
    }

    /// Ends the stream: waiting samples are delivered with the reason.
    pub fn finish(&mut self) {
        match &mut self.way {
            Method::Own(own) => own.finish(&mut self.out),
            Method::Waiting(waiting) => waiting.finish(&mut self.out),
        }
    }

    /// The next settled sample.
    pub fn pop(&mut self) -> Option<Stitched> {
        self.out.ready.pop_front()
    }

    /// The counts so far.
    pub fn counts(&self) -> &Counts {
        &self.out.counts
    }
}

/// Stitches a whole stream.
///
/// ```
/// use unwind_sim_perf_data::callchain::{PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED};
/// use unwind_sim_perf_data::stitch::{Item, ItemKind, Mode, Stitch, stitch};
///
/// let item = |key, time, what| Item { key, time: Some(time), tid: 7, event: 0, what };
/// // A sample in the kernel, whose user frames come when the thread returns to user space.
/// let chain = vec![0xffff_ffff_8100_0010, PERF_CONTEXT_USER_DEFERRED, 42];
/// let sample = ItemKind::Sample { defer: true, chain, ip: None };
/// let record = ItemKind::Record { cookie: Some(42), frames: vec![0x401100, 0x401200] };
///
/// let items = [item(0, 1000, sample), item(1, 2000, record)];
/// let (stitched, counts) = stitch(Mode::Own, items);
/// assert_eq!(stitched[0].how, Stitch::Stitched { record: 1 });
/// let chain = [0xffff_ffff_8100_0010, PERF_CONTEXT_USER, 0x401100, 0x401200];
/// assert_eq!(stitched[0].chain, chain);
/// assert_eq!((counts.deferred, counts.orphans), (1, 0));
/// ```
pub fn stitch(mode: Mode, items: impl IntoIterator<Item = Item>) -> (Vec<Stitched>, Counts) {
    let mut stitcher = Stitcher::new(mode);
    for item in items {
        stitcher.push(item);
    }
    stitcher.finish();
    (stitcher.out.ready.into(), stitcher.out.counts)
}

/// The location of the deferral in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deferral {
    /// Words before the marker.
    kernel: usize,
    cookie: Option<u64>,
}

/// Finds the deferral of a chain's user part: the second-to-last word is the marker, followed by
/// the cookie; or, in the form of 2023, the last word is the marker.
fn deferral(chain: &[u64]) -> Option<Deferral> {
    match *chain {
        [.., PERF_CONTEXT_USER_DEFERRED, cookie] => Some(Deferral {
            kernel: chain.len() - 2,
            cookie: Some(cookie),
        }),
        [.., PERF_CONTEXT_USER_DEFERRED] => Some(Deferral {
            kernel: chain.len() - 1,
            cookie: None,
        }),
        _ => None,
    }
}
