//! Writes perf.data files: attributes, records and features that perf, and this crate's reader,
//! accept.
//!
//! File mode only. The data is kept in memory until [`Writer::finish`]. The layouts are those of
//! `include/uapi/linux/perf_event.h` and `tools/perf/util/header.c` (Linux 7.2). READ values and
//! AUX data in samples, compression and pipe mode are not supported.
//!
//! ```
//! use unwind_sim_perf_data::write::{Body, EventSpec, Id, SampleData, Writer};
//! use unwind_sim_perf_data::{PerfFile, Record, sample_type as st};
//!
//! let event = EventSpec {
//!     sample_type: st::IP | st::TID | st::TIME | st::CALLCHAIN,
//!     ..EventSpec::software("cpu-clock", 0)
//! };
//! let mut writer = Writer::new(vec![event]);
//! let id = Id { pid: 7, tid: 7, time: 1000, ..Id::default() };
//! let sample = SampleData { ip: 0x401000, callchain: &[0x401000], ..SampleData::default() };
//! writer.record(&Body::Sample(sample), &id)?;
//! let bytes = writer.finish();
//! let file = PerfFile::parse(&bytes).unwrap();
//! assert_eq!(file.attrs()[0].name.as_deref(), Some("cpu-clock"));
//! let raw = file.records().next().unwrap().unwrap();
//! assert!(matches!(file.decode(raw).unwrap().record, Record::Sample(s) if s.tid() == Some(7)));
//! # Ok::<(), unwind_sim_perf_data::write::WriteError>(())
//! ```

mod body;
mod tracing;

pub use body::{Body, Id, SampleData, StackCopy};
pub use tracing::{COMMON_BYTES, Tracepoint};

use super::feature;
use super::flag;
use super::layout::sample_type as st;
use super::walk::HEADER;
use std::fmt;

/// Size of a written attribute, bytes (`PERF_ATTR_SIZE_VER7`): perf 6.1 does not know longer ones.
const ATTR_SIZE: u32 = 128;
/// Size of the file header, bytes.
const FILE_HEADER: usize = 104;
/// Strings are padded to a multiple of this (`NAME_ALIGN`).
const NAME_ALIGN: usize = 64;
/// Sample fields that cannot be written.
const NOT_WRITTEN: u64 = st::READ | st::AUX;

/// A recorded event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventSpec {
    /// Its name.
    pub name: String,
    /// `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `sample_period`, or a frequency with [`flag::FREQ`].
    pub sample_period: u64,
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// The flag word.
    pub flags: u64,
    /// `config1`; its meaning depends on the PMU.
    pub config1: u64,
    /// `branch_sample_type`.
    pub branch_sample_type: u64,
    /// `sample_regs_user`.
    pub sample_regs_user: u64,
    /// `sample_stack_user`.
    pub sample_stack_user: u32,
    /// `clockid`; only used with [`flag::USE_CLOCKID`].
    pub clock_id: i32,
    /// `sample_regs_intr`.
    pub sample_regs_intr: u64,
    /// `sample_max_stack`; 0 for the system's limit.
    pub sample_max_stack: u16,
    /// IDs of the event, one for each CPU or thread.
    pub ids: Vec<u64>,
}

impl EventSpec {
    /// A software event (`PERF_TYPE_SOFTWARE`) whose samples have no fields yet. Records other than
    /// samples have a sample ID trailer.
    pub fn software(name: &str, config: u64) -> Self {
        Self {
            name: name.to_owned(),
            kind: 1,
            config,
            sample_period: 1,
            flags: flag::SAMPLE_ID_ALL,
            ..Self::default()
        }
    }

    /// A tracepoint or a probe of tracefs (`PERF_TYPE_TRACEPOINT`), whose format must be written
    /// too ([`Writer::tracepoints`]).
    pub fn tracepoint(tracepoint: &Tracepoint) -> Self {
        Self {
            kind: 2,
            ..Self::software(&tracepoint.event_name(), u64::from(tracepoint.id))
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; ATTR_SIZE as usize];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.kind.to_le_bytes());
        put(4, &ATTR_SIZE.to_le_bytes());
        for (at, word) in [
            (8, self.config),
            (16, self.sample_period),
            (24, self.sample_type),
            (32, self.read_format),
            (40, self.flags),
            (56, self.config1),
            (72, self.branch_sample_type),
            (80, self.sample_regs_user),
            (96, self.sample_regs_intr),
        ] {
            put(at, &word.to_le_bytes());
        }
        put(88, &self.sample_stack_user.to_le_bytes());
        put(92, &self.clock_id.to_le_bytes());
        put(108, &self.sample_max_stack.to_le_bytes());
        out
    }
}

/// Properties of the machine and the recording. None is required, but perf warns if the number of
/// CPUs is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub os_release: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Capabilities of the core PMU, such as `branches` = `32`.
    pub pmu_caps: Vec<(String, String)>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            hostname: "model".to_owned(),
            os_release: "7.2.0".to_owned(),
            cpus: 1,
            pmu_caps: Vec::new(),
        }
    }
}

/// Why a record cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The record would have this many bytes; its size field has 16 bits.
    TooLarge(usize),
    /// The recording has no event.
    NoEvents,
    /// There is no event with this index.
    NoEvent(usize),
    /// The event has fields (bits of `sample_type`) that cannot be written.
    Fields(u64),
    /// The sample has this many registers, which does not match the event's mask.
    Registers(usize),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(size) => {
                write!(
                    f,
                    "a record of {size} bytes is too large; the maximum is 65535"
                )
            }
            Self::NoEvents => write!(f, "a recording needs at least one event"),
            Self::NoEvent(number) => write!(f, "there is no event {number}"),
            Self::Fields(bits) => write!(f, "sample fields {bits:#x} cannot be written"),
            Self::Registers(count) => {
                write!(f, "{count} registers do not match the event's mask")
            }
        }
    }
}

impl std::error::Error for WriteError {}

/// A recording being written.
#[derive(Clone, Debug)]
pub struct Writer {
    events: Vec<EventSpec>,
    machine: Machine,
    tracepoints: Vec<Tracepoint>,
    data: Vec<u8>,
    /// Times of the first and the last sample.
    times: Option<(u64, u64)>,
}

impl Writer {
    /// A recording with these events.
    pub fn new(events: Vec<EventSpec>) -> Self {
        Self {
            events,
            machine: Machine::default(),
            tracepoints: Vec::new(),
            data: Vec::new(),
            times: None,
        }
    }

    /// Sets the properties of the machine. The default is a machine with one CPU.
    pub fn machine(&mut self, machine: Machine) {
        self.machine = machine;
    }

    /// Sets the formats of tracepoints.
    pub fn tracepoints(&mut self, tracepoints: Vec<Tracepoint>) {
        self.tracepoints = tracepoints;
    }

    /// Size of the records so far, bytes.
    pub fn data_len(&self) -> usize {
        self.data.len()
    }

    /// Appends a record. Only the fields of `id` that the event records are written.
    ///
    /// # Errors
    /// If the record is too large or does not match its event; nothing is written then.
    pub fn record(&mut self, body: &Body<'_>, id: &Id) -> Result<(), WriteError> {
        let event = self
            .events
            .get(id.event)
            .ok_or(WriteError::NoEvent(id.event))?;
        let refused = event.sample_type & NOT_WRITTEN;
        if refused != 0 && matches!(body, Body::Sample(_)) {
            return Err(WriteError::Fields(refused));
        }

        let start = self.data.len();
        self.data.extend_from_slice(&[0; HEADER]);
        let written = body.write(event, id, &mut self.data);
        let size = self.data.len() - start;

        // The size field has 16 bits (`struct perf_event_header`).
        let size_word = u16::try_from(size).map_err(|_| WriteError::TooLarge(size));

        let size_word = match (written, size_word) {
            (Ok(()), Ok(size)) => size,
            // Nothing of a refused record stays in the file.
            (Err(error), _) | (_, Err(error)) => {
                self.data.truncate(start);
                return Err(error);
            }
        };

        // `type`, `misc` and `size`.
        let (kind, misc) = body.header();
        let header = u64::from(kind) | u64::from(misc) << 32 | u64::from(size_word) << 48;
        self.data[start..start + HEADER].copy_from_slice(&header.to_le_bytes());

        // As the feature SAMPLE_TIME has them: of samples, not of all records.
        if matches!(body, Body::Sample(_)) {
            let (first, last) = self.times.unwrap_or((id.time, id.time));
            self.times = Some((first.min(id.time), last.max(id.time)));
        }

        Ok(())
    }

    /// The complete file.
    pub fn finish(self) -> Vec<u8> {
        // The places are computed first: the header, which comes first in the file, has them all.
        let ids_at = FILE_HEADER as u64;
        let ids_len: usize = self.events.iter().map(|event| 8 * event.ids.len()).sum();
        let attrs_at = ids_at + ids_len as u64;
        let entry = u64::from(ATTR_SIZE) + 16;
        let attrs_len = entry * self.events.len() as u64;
        let data_at = attrs_at + attrs_len;
        let features = self.features();

        let mut out = b"PERFILE2".to_vec();
        let words = |words: &[u64], out: &mut Vec<u8>| {
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };

        let data_len = self.data.len() as u64;
        let header = [
            FILE_HEADER as u64,
            entry,
            attrs_at,
            attrs_len,
            data_at,
            data_len,
            // The section of event types, which is no longer used.
            0,
            0,
        ];
        words(&header, &mut out);

        // A bit for each feature (`HEADER_FEAT_BITS` is 256).
        let mut bits = [0u64; 4];
        for (number, _) in &features {
            bits[usize::from(*number) / 64] |= 1 << (number % 64);
        }
        words(&bits, &mut out);

        for event in &self.events {
            words(&event.ids, &mut out);
        }

        // Each attribute is followed by the place of its IDs.
        let mut at = ids_at;
        for event in &self.events {
            out.extend_from_slice(&event.bytes());
            let len = 8 * event.ids.len() as u64;
            words(&[at, len], &mut out);
            at += len;
        }
        out.extend_from_slice(&self.data);

        // perf finds a feature's descriptor by its rank among the bits: same order, no gaps.
        let mut at = data_at + data_len + 16 * features.len() as u64;
        for (_, section) in &features {
            words(&[at, section.len() as u64], &mut out);
            at += section.len() as u64;
        }
        for (_, section) in &features {
            out.extend_from_slice(section);
        }

        out
    }

    /// The feature sections in ascending order of number.
    fn features(&self) -> Vec<(u8, Vec<u8>)> {
        let machine = &self.machine;

        // Strings have their length in front and are padded.
        let text = |text: &str| {
            let mut out = Vec::new();
            string(text, &mut out);
            out
        };
        let half = |halves: &[u32]| {
            halves
                .iter()
                .flat_map(|h| h.to_le_bytes())
                .collect::<Vec<_>>()
        };

        // For each event: attribute, number of ids, name, ids (`perf.data-file-format.txt`).
        let mut events = half(&[self.events.len() as u32, ATTR_SIZE]);
        for event in &self.events {
            events.extend_from_slice(&event.bytes());
            events.extend_from_slice(&(event.ids.len() as u32).to_le_bytes());
            string(&event.name, &mut events);
            events.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
        }

        let mut features = Vec::new();
        if !self.tracepoints.is_empty() {
            features.push((feature::TRACING_DATA, tracing::section(&self.tracepoints)));
        }

        // Without the number of CPUs, perf warns.
        features.extend([
            (feature::HOSTNAME, text(&machine.hostname)),
            (feature::OSRELEASE, text(&machine.os_release)),
            (feature::VERSION, text(env!("CARGO_PKG_VERSION"))),
            (feature::ARCH, text("x86_64")),
            (feature::NRCPUS, half(&[machine.cpus, machine.cpus])),
            (feature::EVENT_DESC, events),
        ]);

        // The times of the first and last sample are known only if there is one.
        if let Some((first, last)) = self.times {
            let times = [first.to_le_bytes(), last.to_le_bytes()].concat();
            features.push((feature::SAMPLE_TIME, times));
        }

        if !machine.pmu_caps.is_empty() {
            let mut caps = half(&[machine.pmu_caps.len() as u32]);
            for (name, value) in &machine.pmu_caps {
                string(name, &mut caps);
                string(value, &mut caps);
            }
            features.push((feature::CPU_PMU_CAPS, caps));
        }

        // The list is in ascending order, as the descriptors have to be.
        features
    }
}

/// A string in a feature section: its padded length, then its bytes with at least one NUL.
fn string(text: &str, out: &mut Vec<u8>) {
    let len = (text.len() + 1).next_multiple_of(NAME_ALIGN);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.extend(std::iter::repeat_n(0, len - text.len()));
}
