//! Records with their meaning, and what every record has: its time, its thread, its event.
//!
//! Samples are in `sample`, the larger bodies in `bodies`.

use super::attr::EventAttr;
use super::bodies::{Comm, IdIndex, Ksymbol, Mmap, Namespaces, Task, ThreadMap, Throttle};
use super::le;
use super::sample::Sample;
use super::walk::{RawRecord, record_type as rt};
use crate::callchain::Callchain;

/// A record, what it means, and its sample id trailer.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The record as stored.
    pub raw: RawRecord<'a>,
    /// Its meaning.
    pub record: Record<'a>,
    /// The event that wrote it; the first one where the record does not tell.
    pub attr: &'a EventAttr,
}

impl<'a> Event<'a> {
    /// Thread, time and the like, as far as they were recorded.
    pub fn id(&self) -> RecordId<'a> {
        RecordId::of(&self.raw, self.attr)
    }

    /// Time in nanoseconds of the recording's clock. `None` for records of the perf tool and
    /// those it made up before recording began.
    #[inline]
    pub fn time(&self) -> Option<u64> {
        time_of(&self.raw, self.attr)
    }
}

/// The time of a record; zero and all ones stand for "none", as in the perf tool.
#[inline]
pub(crate) fn time_of(raw: &RawRecord<'_>, attr: &EventAttr) -> Option<u64> {
    let layout = &attr.layout;
    let time = if raw.kind == rt::SAMPLE {
        le::u64_at(raw.body, usize::from(layout.time))
    } else if raw.kind >= rt::USER_TYPE_START {
        None
    } else {
        let trailer = raw.body.len().checked_sub(usize::from(layout.trailer))?;
        le::u64_at(&raw.body[trailer..], usize::from(layout.trailer_time))
    };
    time.filter(|&time| time != 0 && time != u64::MAX)
}

/// The sample id trailer of a record, or the same fields of a sample; read when asked.
#[derive(Clone, Copy, Debug)]
pub struct RecordId<'a> {
    bytes: &'a [u8],
    /// Offsets of tid, time, id, stream id and cpu in `bytes`.
    at: [u16; 5],
}

impl<'a> RecordId<'a> {
    fn of(raw: &RawRecord<'a>, attr: &EventAttr) -> Self {
        let layout = &attr.layout;
        if raw.kind == rt::SAMPLE {
            let at = [
                layout.tid,
                layout.time,
                layout.id,
                layout.stream_id,
                layout.cpu,
            ];
            return Self {
                bytes: raw.body,
                at,
            };
        }
        let trailer = raw.body.len().checked_sub(usize::from(layout.trailer));
        let bytes = match trailer {
            Some(start) if raw.kind < rt::USER_TYPE_START => &raw.body[start..],
            _ => &[],
        };
        let at = [
            layout.trailer_tid,
            layout.trailer_time,
            layout.trailer_id,
            layout.trailer_stream_id,
            layout.trailer_cpu,
        ];
        Self { bytes, at }
    }

    fn half(&self, field: usize, skip: usize) -> Option<u32> {
        le::u32_at(self.bytes, usize::from(self.at[field]) + skip)
    }

    fn word(&self, field: usize) -> Option<u64> {
        le::u64_at(self.bytes, usize::from(self.at[field]))
    }

    /// Process id; -1 for none.
    pub fn pid(&self) -> Option<i32> {
        self.half(0, 0).map(u32::cast_signed)
    }

    /// Thread id; -1 for none.
    pub fn tid(&self) -> Option<i32> {
        self.half(0, 4).map(u32::cast_signed)
    }

    /// Time in nanoseconds, as stored.
    pub fn time(&self) -> Option<u64> {
        self.word(1)
    }

    /// Event id.
    pub fn id(&self) -> Option<u64> {
        self.word(2)
    }

    /// Stream id.
    pub fn stream_id(&self) -> Option<u64> {
        self.word(3)
    }

    /// CPU.
    pub fn cpu(&self) -> Option<u32> {
        self.half(4, 0)
    }
}

/// The meaning of a record. Numbers are as stored; names are bytes, without the ending NUL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// `PERF_RECORD_MMAP` or `PERF_RECORD_MMAP2`: something was mapped.
    Mmap(Mmap<'a>),
    /// A task got a name.
    Comm(Comm<'a>),
    /// A task was made.
    Fork(Task),
    /// A task ended.
    Exit(Task),
    /// Records were lost because the ring was full.
    Lost {
        /// Event id.
        id: u64,
        /// How many.
        lost: u64,
    },
    /// Samples were lost.
    LostSamples {
        /// How many.
        lost: u64,
    },
    /// Sampling was throttled.
    Throttle(Throttle),
    /// Sampling goes on.
    Unthrottle(Throttle),
    /// Values read when an inherited event ended; see the raw body.
    Read {
        /// Process.
        pid: i32,
        /// Thread.
        tid: i32,
    },
    /// The task of the trailer was switched in or out.
    Switch {
        /// Out, not in.
        out: bool,
        /// Out, though it could have run on.
        preempted: bool,
    },
    /// The CPU switched tasks.
    SwitchCpuWide {
        /// Out, not in.
        out: bool,
        /// Out, though it could have run on.
        preempted: bool,
        /// Process that comes next (out) or came before (in).
        other_pid: i32,
        /// Thread that comes next (out) or came before (in).
        other_tid: i32,
    },
    /// Namespaces of a task.
    Namespaces(Namespaces<'a>),
    /// Kernel code came or went (BPF programs, trampolines).
    Ksymbol(Ksymbol<'a>),
    /// A BPF program was loaded or unloaded.
    BpfEvent {
        /// 1 loaded, 2 unloaded.
        kind: u16,
        /// Flags.
        flags: u16,
        /// The program's id.
        id: u32,
        /// The program's tag.
        tag: [u8; 8],
    },
    /// A cgroup came to be.
    Cgroup {
        /// Its id.
        id: u64,
        /// Its path.
        path: &'a [u8],
    },
    /// The kernel changed its own code.
    TextPoke {
        /// Where.
        address: u64,
        /// Bytes before.
        old: &'a [u8],
        /// Bytes after.
        new: &'a [u8],
    },
    /// User frames of samples that were deferred (Linux 6.19).
    CallchainDeferred {
        /// Names the kernel entry; samples of the same thread carry it. 0 for none: the record
        /// has the form proposed in 2023.
        cookie: u64,
        /// The user frames, without a marker.
        chain: Callchain<'a>,
    },
    /// All records of earlier rounds have been written.
    FinishedRound,
    /// All records made up by the tool at the start have been written.
    FinishedInit,
    /// Which id belongs to which CPU and thread.
    IdIndex(IdIndex<'a>),
    /// How to turn TSC into time.
    TimeConv {
        /// Right shift.
        shift: u64,
        /// Multiplier.
        mult: u64,
        /// Time at TSC zero.
        zero: u64,
    },
    /// Threads that were recorded.
    ThreadMap(ThreadMap<'a>),
    /// An attribute, in pipe mode; already taken into [`super::PerfFile::attrs`].
    HeaderAttr,
    /// A build id, in pipe mode.
    HeaderBuildId(super::features::BuildId<'a>),
    /// A feature section, in pipe mode.
    HeaderFeature {
        /// Which ([`super::feature`]).
        feature: u64,
        /// Its bytes.
        data: &'a [u8],
    },
    /// A compressed record as stored; only from [`super::PerfFile::records`].
    Compressed,
    /// AUX area and instruction tracing: kept raw.
    Aux,
    /// Known, of no use here, or unknown: kept raw.
    Other,
}
