//! Records as the model's kernel writes them, and their sizes.

use super::registers::Registers;
use unwind_sim_perf_data::BranchEntry;
use unwind_sim_perf_data::write::COMMON_BYTES;

/// A record in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of writing, nanoseconds.
    pub time: u64,
    /// Sequence number in the run, which orders records of the same time.
    pub sequence: u64,
    /// The CPU it was written on.
    pub cpu: u16,
    /// Index of the event whose ring it is in.
    pub event: u16,
    /// The current thread; 0 for the idle task.
    pub tid: i32,
    /// The contents.
    pub body: Body,
}

/// The contents of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// PERF_RECORD_SAMPLE.
    Sample {
        /// The number of the sample, from 1.
        number: u64,
        /// Number of events that it stands for.
        period: u64,
        /// Whether the registers are those of user space.
        user_mode: bool,
        /// The instruction pointer of the registers.
        ip: u64,
        /// The callchain with its markers.
        chain: Vec<u64>,
        /// Size of the user registers and the user stack, bytes.
        user_bytes: u32,
        /// The fields of a tracepoint, without the common ones (PERF_SAMPLE_RAW).
        payload: Vec<u8>,
        /// The registers, for events that record them (PERF_SAMPLE_REGS_INTR).
        registers: Option<Registers>,
        /// The branch stack, for events that have one.
        branches: Option<Branches>,
    },
    /// PERF_RECORD_SAMPLE with PERF_SAMPLE_RAW: the output of a program.
    Raw {
        /// The payload, padded with zeros so that it and its size fill whole words.
        data: Vec<u8>,
    },
    /// PERF_RECORD_CALLCHAIN_DEFERRED.
    Deferred {
        /// The cookie; none in the form of 2023.
        cookie: Option<u64>,
        /// Number of events that it stands for; must be 0.
        period: u64,
        /// The user frames, innermost first, without a marker.
        frames: Vec<u64>,
    },
    /// PERF_RECORD_LOST: this many records did not fit before this one.
    Lost {
        /// The number of records.
        lost: u64,
    },
    /// PERF_RECORD_LOST_SAMPLES: the count that the tool reads at the end (PERF_FORMAT_LOST).
    LostSamples {
        /// The number of records.
        lost: u64,
    },
    /// PERF_RECORD_COMM with the exec bit.
    Exec,
    /// PERF_RECORD_MMAP2 of `[vdso]`, which the kernel maps only in execve.
    Vdso,
    /// PERF_RECORD_FORK.
    Fork {
        /// The new thread.
        child: i32,
    },
    /// PERF_RECORD_EXIT.
    Exit,
    /// PERF_RECORD_THROTTLE.
    Throttle,
    /// PERF_RECORD_UNTHROTTLE.
    Unthrottle,
}

/// PERF_SAMPLE_BRANCH_STACK with PERF_SAMPLE_BRANCH_HW_INDEX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    /// Index of the newest entry in the ring.
    pub hw_index: u64,
    /// The entries, newest first.
    pub entries: Vec<BranchEntry>,
}

/// A step of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// It took the record with this sequence number.
    Record(u64),
    /// It emptied this CPU's rings.
    Cpu(u16),
}

/// Size of `struct perf_event_header`.
const HEADER: u32 = 8;
/// Bytes of IDENTIFIER, TID, TIME and CPU, which `sample_id_all` puts after every record.
const SAMPLE_ID: u32 = 32;

impl Body {
    /// Size in a ring, bytes.
    pub fn size(&self) -> u32 {
        match self {
            // IP and PERIOD in addition to the fields of the trailer; then nr and the words.
            Self::Sample {
                chain,
                user_bytes,
                payload,
                registers,
                branches,
                ..
            } => {
                let payload = match payload.len() as u32 {
                    0 => 0,
                    bytes => (4 + COMMON_BYTES as u32 + bytes).next_multiple_of(8),
                };
                // The ABI and the registers.
                let registers = registers.map_or(0, |r| 8 + size_of_val(&r) as u32);
                let entry = size_of::<BranchEntry>() as u32;
                let branches = branches.as_ref();
                let branches = branches.map_or(0, |b| 16 + entry * b.entries.len() as u32);
                HEADER
                    + SAMPLE_ID
                    + 24
                    + 8 * chain.len() as u32
                    + user_bytes
                    + branches
                    + registers
                    + payload
            }
            // Its size, 32 bits, comes before the payload.
            Self::Raw { data } => HEADER + SAMPLE_ID + 16 + 4 + data.len() as u32,
            Self::Deferred { cookie, frames, .. } => {
                let cookie = if cookie.is_some() { 8 } else { 0 };
                HEADER + cookie + 8 + 8 * frames.len() as u32 + SAMPLE_ID
            }
            Self::Lost { .. } => HEADER + 16 + SAMPLE_ID,
            Self::LostSamples { .. } => HEADER + 8 + SAMPLE_ID,
            // The sizes of the bodies in `include/uapi/linux/perf_event.h`.
            Self::Exec | Self::Fork { .. } | Self::Exit => HEADER + 24 + SAMPLE_ID,
            Self::Vdso => HEADER + 72 + SAMPLE_ID,
            Self::Throttle | Self::Unthrottle => HEADER + 24 + SAMPLE_ID,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r001_3_a_record_of_2023_has_no_cookie() {
        let size = |cookie, frames: usize| {
            let frames = vec![0; frames];
            Body::Deferred {
                cookie,
                period: 0,
                frames,
            }
            .size()
        };
        assert_eq!(size(None, 5), 8 + 8 + 8 * 5 + 32);
        assert_eq!(size(Some(3), 5), 8 + 8 + 8 + 8 * 5 + 32);
    }
}
