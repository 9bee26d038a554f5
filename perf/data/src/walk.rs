//! Raw records in file order: framing only.

use super::error::{PerfError, PerfErrorKind};
use super::le;

/// Record types (`enum perf_event_type`, and `enum perf_user_event_type` of the perf tool).
#[allow(missing_docs, reason = "the names are those of perf's headers")]
pub mod record_type {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const READ: u32 = 8;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const NAMESPACES: u32 = 16;
    pub const KSYMBOL: u32 = 17;
    pub const BPF_EVENT: u32 = 18;
    pub const CGROUP: u32 = 19;
    pub const TEXT_POKE: u32 = 20;
    pub const AUX_OUTPUT_HW_ID: u32 = 21;
    pub const CALLCHAIN_DEFERRED: u32 = 22;
    /// Types from here on are written by the perf tool; they have no sample ID trailer.
    pub const USER_TYPE_START: u32 = 64;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_EVENT_TYPE: u32 = 65;
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const HEADER_BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const ID_INDEX: u32 = 69;
    pub const AUXTRACE_INFO: u32 = 70;
    pub const AUXTRACE: u32 = 71;
    pub const AUXTRACE_ERROR: u32 = 72;
    pub const THREAD_MAP: u32 = 73;
    pub const CPU_MAP: u32 = 74;
    pub const STAT_CONFIG: u32 = 75;
    pub const STAT: u32 = 76;
    pub const STAT_ROUND: u32 = 77;
    pub const EVENT_UPDATE: u32 = 78;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const FINISHED_INIT: u32 = 82;
    pub const COMPRESSED2: u32 = 83;
}

/// Bits of a record's `misc` word.
#[allow(missing_docs, reason = "the names are those of the kernel's header")]
pub mod misc {
    pub const CPUMODE_MASK: u16 = 7;
    pub const CPUMODE_KERNEL: u16 = 1;
    pub const CPUMODE_USER: u16 = 2;
    pub const CPUMODE_HYPERVISOR: u16 = 3;
    pub const CPUMODE_GUEST_KERNEL: u16 = 4;
    pub const CPUMODE_GUEST_USER: u16 = 5;
    pub const MMAP_DATA: u16 = 1 << 13;
    pub const COMM_EXEC: u16 = 1 << 13;
    pub const SWITCH_OUT: u16 = 1 << 13;
    pub const EXACT_IP: u16 = 1 << 14;
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// Size of `struct perf_event_header`, bytes.
pub(crate) const HEADER: usize = 8;

/// A raw record: the fields of its header, and its body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its type ([`record_type`]).
    pub kind: u32,
    /// Its `misc` word ([`misc`]).
    pub misc: u16,
    /// Was it unpacked from a compressed record? `offset` is then that of the compressed record.
    pub unpacked: bool,
    /// File offset of its header.
    pub offset: u64,
    /// The bytes after the header.
    pub body: &'a [u8],
}

impl std::fmt::Debug for RawRecord<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            misc,
            unpacked,
            offset,
            body,
        } = self;
        write!(
            f,
            "RawRecord {{ kind: {kind}, misc: {misc:#x}, offset: {offset:#x}, unpacked: \
             {unpacked}, body: {} bytes }}",
            body.len()
        )
    }
}

/// Iterator over the records of a part of the file, in file order.
///
/// It ends after an error, since the framing is lost.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// File offset of `bytes[0]`.
    base: u64,
    unpacked: bool,
}

impl<'a> Records<'a> {
    /// The records in `bytes`, which are at offset `base` in the file.
    pub(crate) fn new(bytes: &'a [u8], base: u64) -> Self {
        Self {
            bytes,
            at: 0,
            base,
            unpacked: false,
        }
    }

    /// File offset of the next record.
    pub fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Bytes not iterated yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Touches the memory of a later header, assuming that records continue at this size, as
    /// samples do. Each header locates the next one, so the processor would otherwise wait for one
    /// after another.
    #[inline]
    fn look_ahead(&self, size: usize) {
        const LARGE: usize = 1024;
        const RECORDS: usize = 6;
        if size >= LARGE
            && let Some(word) = self.bytes.get(self.at + RECORDS * size)
        {
            std::hint::black_box(*word);
        }
    }

    #[cold]
    fn fail(&mut self, kind: PerfErrorKind) -> Option<Result<RawRecord<'a>, PerfError>> {
        let error = PerfError::new(kind, self.offset(), "record");
        self.at = self.bytes.len();
        Some(Err(error))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, PerfError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.at..];

        // A rest that is too short for a header is damage, unless it is empty.
        let Some(header) = rest.first_chunk::<HEADER>() else {
            if rest.is_empty() {
                return None;
            }
            let left = rest.len() as u64;
            return self.fail(PerfErrorKind::RecordPastEnd {
                size: HEADER as u64,
                left,
            });
        };

        // One word: type, `misc` and size (`struct perf_event_header`).
        let header = u64::from_le_bytes(*header);
        let kind = header as u32;
        let misc = (header >> 32) as u16;
        let size = usize::from((header >> 48) as u16);

        // A size of 0 would never advance.
        if size < HEADER {
            return self.fail(PerfErrorKind::RecordSize(size as u16));
        }

        // The size has 16 bits, so a record is at most 64 KiB, and the rest of the file bounds it.
        let Some(body) = rest.get(HEADER..size) else {
            let left = rest.len() as u64;
            return self.fail(PerfErrorKind::RecordPastEnd {
                size: size as u64,
                left,
            });
        };

        let record = RawRecord {
            kind,
            misc,
            unpacked: self.unpacked,
            offset: self.offset(),
            body,
        };

        // Some records have a size of only their own, and data behind them.
        let trailing = trailing_bytes(kind, body);
        if trailing > (rest.len() - size) as u64 {
            let left = rest.len() as u64;
            return self.fail(PerfErrorKind::RecordPastEnd {
                size: trailing.saturating_add(size as u64),
                left,
            });
        }

        self.at += size + trailing as usize;
        self.look_ahead(size);
        Some(Ok(record))
    }
}

/// Number of bytes after a record that its size does not include.
#[inline]
fn trailing_bytes(kind: u32, body: &[u8]) -> u64 {
    match kind {
        record_type::AUXTRACE => le::u64_at(body, 0).unwrap_or(0),
        record_type::HEADER_TRACING_DATA => {
            u64::from(le::u32_at(body, 0).unwrap_or(0)).next_multiple_of(8)
        }
        _ => 0,
    }
}
