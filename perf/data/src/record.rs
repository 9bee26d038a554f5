//! Decoded records, and the properties of every record: time, thread and event.
//!
//! Samples are in `sample`, the larger bodies in `bodies`.

use super::attr::EventAttr;
use super::bodies::{Comm, IdIndex, Ksymbol, Mmap, Namespaces, Task, ThreadMap, Throttle};
use super::le;
use super::sample::Sample;
use super::walk::{RawRecord, record_type as rt};
use crate::callchain::Callchain;

/// A record, decoded, with its sample ID trailer.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The raw record.
    pub raw: RawRecord<'a>,
    /// The decoded record.
    pub record: Record<'a>,
    /// The event that wrote the record; the first event if the record does not tell.
    pub attr: &'a EventAttr,
}

impl<'a> Event<'a> {
    /// Thread, time etc., as far as recorded.
    pub fn id(&self) -> RecordId<'a> {
        RecordId::of(&self.raw, self.attr)
    }

    /// Time in nanoseconds of the recording's clock. `None` for records of the perf tool, and for
    /// those that it synthesized before recording.
    #[inline]
    pub fn time(&self) -> Option<u64> {
        time_of(&self.raw, self.attr)
    }
}

/// The time of a record; zero and all ones mean "none", as in the perf tool.
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

/// The sample ID trailer of a record, or the same fields of a sample; decoded on demand.
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
            // A sample has the fields in its body, each at its own offset.
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

        // The trailer is at the end, behind texts of any length, so it is found from there.
        let trailer = raw.body.len().checked_sub(usize::from(layout.trailer));
        let bytes = match trailer {
            // Records of the perf tool have no trailer.
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

    /// Process ID; -1 for none.
    pub fn pid(&self) -> Option<i32> {
        self.half(0, 0).map(u32::cast_signed)
    }

    /// Thread ID; -1 for none.
    pub fn tid(&self) -> Option<i32> {
        self.half(0, 4).map(u32::cast_signed)
    }

    /// Time in nanoseconds, as stored.
    pub fn time(&self) -> Option<u64> {
        self.word(1)
    }

    /// Event ID.
    pub fn id(&self) -> Option<u64> {
        self.word(2)
    }

    /// Stream ID.
    pub fn stream_id(&self) -> Option<u64> {
        self.word(3)
    }

    /// CPU number.
    pub fn cpu(&self) -> Option<u32> {
        self.half(4, 0)
    }
}

/// A decoded record. Numbers are as stored; names are bytes without the terminating NUL.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// `PERF_RECORD_MMAP` or `PERF_RECORD_MMAP2`: a mapping was created.
    Mmap(Mmap<'a>),
    /// A task was named.
    Comm(Comm<'a>),
    /// A task was created.
    Fork(Task),
    /// A task ended.
    Exit(Task),
    /// Records were lost because the ring was full.
    Lost {
        /// Event ID.
        id: u64,
        /// Number of lost records.
        lost: u64,
    },
    /// Samples were lost.
    LostSamples {
        /// Number of lost samples.
        lost: u64,
    },
    /// Sampling was throttled.
    Throttle(Throttle),
    /// Sampling was resumed.
    Unthrottle(Throttle),
    /// Values read when an inherited event ended; see the raw body.
    Read {
        /// Process ID.
        pid: i32,
        /// Thread ID.
        tid: i32,
    },
    /// The task named in the trailer was switched in or out.
    Switch {
        /// Switched out, not in.
        out: bool,
        /// Switched out although runnable.
        preempted: bool,
    },
    /// The CPU switched tasks.
    SwitchCpuWide {
        /// Switched out, not in.
        out: bool,
        /// Switched out although runnable.
        preempted: bool,
        /// Process ID of the next task (out) or the previous one (in).
        other_pid: i32,
        /// Thread ID of the next task (out) or the previous one (in).
        other_tid: i32,
    },
    /// Namespaces of a task.
    Namespaces(Namespaces<'a>),
    /// Kernel code was added or removed (BPF programs, trampolines).
    Ksymbol(Ksymbol<'a>),
    /// A BPF program was loaded or unloaded.
    BpfEvent {
        /// 1 loaded, 2 unloaded.
        kind: u16,
        /// Flags.
        flags: u16,
        /// The program's ID.
        id: u32,
        /// The program's tag.
        tag: [u8; 8],
    },
    /// A cgroup was created.
    Cgroup {
        /// Its ID.
        id: u64,
        /// Its path.
        path: &'a [u8],
    },
    /// The kernel changed its own code.
    TextPoke {
        /// Address.
        address: u64,
        /// Bytes before the change.
        old: &'a [u8],
        /// Bytes after the change.
        new: &'a [u8],
    },
    /// The deferred user frames of samples (Linux 6.19).
    CallchainDeferred {
        /// Identifies the kernel entry; samples of the same thread have the same cookie. 0 for
        /// none, in the form proposed in 2023.
        cookie: u64,
        /// The user frames, without a marker.
        chain: Callchain<'a>,
    },
    /// All records of earlier rounds have been written.
    FinishedRound,
    /// All records synthesized by the tool at the start have been written.
    FinishedInit,
    /// Maps IDs to CPUs and threads.
    IdIndex(IdIndex<'a>),
    /// Parameters for converting TSC to time.
    TimeConv {
        /// Right shift.
        shift: u64,
        /// Multiplier.
        mult: u64,
        /// Time at TSC zero.
        zero: u64,
    },
    /// The recorded threads.
    ThreadMap(ThreadMap<'a>),
    /// An attribute, in pipe mode; already in [`super::PerfFile::attrs`].
    HeaderAttr,
    /// A build ID, in pipe mode.
    HeaderBuildId(super::features::BuildId<'a>),
    /// A feature section, in pipe mode.
    HeaderFeature {
        /// The section's number ([`super::feature`]).
        feature: u64,
        /// Its bytes.
        data: &'a [u8],
    },
    /// A compressed record that is not unpacked; only from [`super::PerfFile::records`].
    Compressed,
    /// AUX area and instruction tracing; see the raw body.
    Aux,
    /// Any other record, known or not; see the raw body.
    Other,
}
