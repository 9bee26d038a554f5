//! Stitching: joining samples with the user callchains that were recorded later.
//!
//! With `attr.defer_callchain` (Linux 6.19) a sample holds only its kernel frames, then
//! `PERF_CONTEXT_USER_DEFERRED` and a cookie. The user frames come in a
//! `PERF_RECORD_CALLCHAIN_DEFERRED` of the same thread when it returns to user space, once for
//! all samples of that stay in the kernel. A [`Stitcher`] takes a stream of [`Item`]s in time
//! order and gives out every sample with the chain it ends up with, and how it came by it
//! ([`Stitch`]), in one of three ways ([`Mode`]).
//!
//! What joins a sample and a record is the thread together with the cookie. The kernel hands
//! out a cookie at the first request after an entry and takes it back at the return to user
//! space (`kernel/unwind/deferred.c`, Linux 7.2), so the same thread and the same cookie mean
//! the same stay in the kernel, in which the user stack stands still; until a CPU's counter comes
//! round, which takes [`COOKIE_ROUND_NS`] at least.
//!
//! Here: the three ways ([`Mode::Own`] in `own`, the others in `waiting`), the items of a
//! perf.data file (`source`), and one way judged by another (`judge`). Not here: text, symbols,
//! and sorting by time (`data` does it).

mod held;
mod judge;
mod own;
mod source;
mod waiting;

use std::collections::VecDeque;

use crate::callchain::PERF_CONTEXT_USER_DEFERRED;
use own::Own;
use waiting::Waiting;

pub use judge::{Judged, Judgement, Tally, judge};
pub use own::COOKIE_ROUND_NS;
pub use source::{Feed, items};

/// One thing of the stream, as far as stitching is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What the caller knows it by; handed back, never looked at.
    pub key: u64,
    /// Time in nanoseconds; `None` for what the perf tool made up.
    pub time: Option<u64>,
    /// Thread; -1 for none.
    pub tid: i32,
    /// The event's id, 0 for none. What has a cookie does not need it.
    pub event: u64,
    /// What it is.
    pub what: What,
}

/// What an [`Item`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A sample.
    Sample {
        /// Whether its event has `attr.defer_callchain` set.
        defer: bool,
        /// Its callchain as recorded, with markers.
        chain: Vec<u64>,
        /// Where it hit user space, if that is known; `None` in the kernel.
        ip: Option<u64>,
    },
    /// User frames that come later (record 22).
    Record {
        /// The cookie; `None` in the form proposed in 2023, which had none.
        cookie: Option<u64>,
        /// The frames, innermost first.
        frames: Vec<u64>,
    },
    /// The thread was made: what an earlier one of this number did is over.
    Fork,
    /// The thread ended.
    Exit,
    /// The thread replaced its program (a COMM record with the exec bit).
    Exec,
    /// The kernel mapped `[vdso]` for the thread, which it does inside execve only.
    Vdso,
    /// Records or samples were lost.
    Lost {
        /// How many.
        count: u64,
    },
}

/// How samples and records are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each sample gets the user frames that it really had, or a reason why it has none; in time
    /// order.
    Own,
    /// As perf 7.2 does it (`tools/perf/util/session.c`), its defects included: a record takes
    /// all waiting samples of its thread off the list, those with another cookie without frames;
    /// records are not remembered; samples come out when their record does.
    Perf72,
    /// As proposed in November 2023, without cookies: a record belongs to all waiting samples of
    /// its thread.
    Rfc2023,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Perf72, Self::Rfc2023];

    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Perf72 => "perf-7.2",
            Self::Rfc2023 => "rfc2023",
        }
    }
}

/// A sample as it comes out.
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
    /// The chain it has now.
    ///
    /// [`Mode::Own`]: the kernel part, then `PERF_CONTEXT_USER` and the user frames if there are
    /// any; marker and cookie are gone. The other modes: as perf makes it, with
    /// `PERF_CONTEXT_USER_DEFERRED` before the user frames, and the cookie left where no record
    /// was found.
    pub chain: Vec<u64>,
    /// How it came by it.
    pub how: Stitch,
}

/// How a sample came by its chain. Records are named by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stitch {
    /// The chain is as recorded: nothing was deferred.
    NotDeferred,
    /// The record came after the sample.
    Stitched {
        /// The record.
        record: u64,
    },
    /// The record had come before: the sample hit between the record and the return to user
    /// space.
    Late {
        /// The record.
        record: u64,
    },
    /// The record came, but the thread had gone on in user space before it was made: over the
    /// instruction of a probe, or to the handler of a signal. Its innermost frame is not where
    /// the sample hit, and the sample's caller may be missing.
    Moved {
        /// The record.
        record: u64,
    },
    /// The record came, but the kernel had found no frame.
    Empty {
        /// The record.
        record: u64,
    },
    /// No user frames, for this reason.
    Missing(Why),
}

impl Stitch {
    /// A stable name for machines.
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

    /// The record that was used.
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
pub enum Why {
    /// No record came, and something was lost in the meantime.
    Lost,
    /// No record came, though nothing is known to be lost and the thread went on to other stays
    /// in the kernel: the kernel wrote none.
    NotWritten,
    /// The thread ended before a record came.
    Exited,
    /// The thread replaced its program before the record came: the record tells of the new one.
    Exec,
    /// The data ends before a record came.
    End,
    /// The cookie may have come round: which stay in the kernel it names cannot be told.
    Ambiguous,
    /// The sample has no thread, so that no record can be told to be its own.
    NoThread,
    /// Given up to keep memory bounded: too many samples were waiting, or it came after its record
    /// was forgotten.
    GivenUp,
    /// perf only: a record of the thread with another cookie took the sample off the list.
    OtherCookie,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Lost,
        Self::NotWritten,
        Self::Exited,
        Self::Exec,
        Self::End,
        Self::Ambiguous,
        Self::NoThread,
        Self::GivenUp,
        Self::OtherCookie,
    ];

    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotWritten => "not-written",
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
            Self::Lost => "no record came, and records were lost in the meantime",
            Self::NotWritten => "the thread went on, and the kernel wrote no record",
            Self::Exited => "the thread ended before a record came",
            Self::Exec => "the record tells of the program that execve put in place",
            Self::End => "the data ends before a record came",
            Self::Ambiguous => "the cookie may have come round since it was handed out",
            Self::NoThread => "the sample does not say which thread it is of",
            Self::GivenUp => "given up to keep memory bounded",
            Self::OtherCookie => "a record with another cookie took it off perf's list",
        }
    }
}

/// What was seen and done. Samples of all kinds add up to `samples`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Samples whose user part was deferred.
    pub deferred: u64,
    /// Records with user frames.
    pub records: u64,
    /// Records that no sample used.
    pub orphans: u64,
    /// Records for a thread and cookie that had one already, with the same frames.
    pub duplicates: u64,
    /// The same, with other frames: the recording contradicts itself.
    pub conflicts: u64,
    /// Records whose cookie a waiting sample of another thread has.
    pub foreign: u64,
    /// Records without frames.
    pub empty: u64,
    /// Records and samples that the recording says were lost.
    pub lost: u64,
    /// Samples that came out after one with a later time.
    pub out_of_order: u64,
}

/// Joins samples with their user frames. See the module's text.
#[derive(Debug)]
pub struct Stitcher {
    way: Way,
    out: Out,
}

#[derive(Debug)]
enum Way {
    Own(Own),
    Waiting(Waiting),
}

/// What is ready to be taken, and the counts.
#[derive(Debug, Default)]
struct Out {
    ready: VecDeque<Stitched>,
    counts: Counts,
    latest: u64,
}

impl Out {
    fn give(&mut self, stitched: Stitched) {
        let time = stitched.time.unwrap_or(self.latest);
        self.counts.out_of_order += u64::from(time < self.latest);
        self.latest = self.latest.max(time);
        self.ready.push_back(stitched);
    }
}

impl Stitcher {
    /// A stitcher that has seen nothing.
    pub fn new(mode: Mode) -> Self {
        let way = match mode {
            Mode::Own => Way::Own(Own::default()),
            Mode::Perf72 => Way::Waiting(Waiting::new(true)),
            Mode::Rfc2023 => Way::Waiting(Waiting::new(false)),
        };
        Self {
            way,
            out: Out::default(),
        }
    }

    /// [`Mode::Own`] with another bound on what is held back than the usual 128 MiB.
    pub fn own_within(held_bytes_max: usize) -> Self {
        Self {
            way: Way::Own(Own::within(held_bytes_max)),
            out: Out::default(),
        }
    }

    /// Takes the next item; they come in time order.
    pub fn push(&mut self, item: Item) {
        let counts = &mut self.out.counts;
        match &item.what {
            What::Sample { chain, .. } => {
                counts.samples += 1;
                counts.deferred += u64::from(deferral(chain).is_some());
            }
            What::Record { frames, .. } => {
                counts.records += 1;
                counts.empty += u64::from(frames.is_empty());
            }
            What::Lost { count } => counts.lost = counts.lost.saturating_add(*count),
            What::Fork | What::Exit | What::Exec | What::Vdso => {}
        }
        match &mut self.way {
            Way::Own(own) => own.push(item, &mut self.out),
            Way::Waiting(waiting) => waiting.push(item, &mut self.out),
        }
    }

    /// Says that nothing follows: what waits is given out with the reason.
    pub fn finish(&mut self) {
        match &mut self.way {
            Way::Own(own) => own.finish(&mut self.out),
            Way::Waiting(waiting) => waiting.finish(&mut self.out),
        }
    }

    /// The next sample whose fate is decided.
    pub fn pop(&mut self) -> Option<Stitched> {
        self.out.ready.pop_front()
    }

    /// What was seen and done so far.
    pub fn counts(&self) -> &Counts {
        &self.out.counts
    }
}

/// Stitches a whole stream.
pub fn stitch(mode: Mode, items: impl IntoIterator<Item = Item>) -> (Vec<Stitched>, Counts) {
    let mut stitcher = Stitcher::new(mode);
    for item in items {
        stitcher.push(item);
    }
    stitcher.finish();
    (stitcher.out.ready.into(), stitcher.out.counts)
}

/// The end of a chain whose user part was deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deferral {
    /// Words before the marker.
    kernel: usize,
    cookie: Option<u64>,
}

/// Whether the chain's user part was deferred: its last word but one is the marker, followed by
/// the cookie; or its last word, in the form of 2023.
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
