//! The fields that `perf script` prints for an event.

use super::asked::{EventType, RequestedFields};
use std::fmt;
use unwind_sim_perf_data::event_name;
use unwind_sim_perf_data::{EventAttr, Mode, PerfFile, feature, sample_type as st};

/// `PERF_COUNT_SW_PAGE_FAULTS`, `.._MIN` and `.._MAJ` (`include/uapi/linux/perf_event.h`).
const SW_PAGE_FAULTS: [u64; 3] = [2, 5, 6];
/// `PERF_COUNT_SW_BPF_OUTPUT`: data that BPF programs write.
const SW_BPF_OUTPUT: u64 = 10;
/// `PERF_COUNT_SW_DUMMY`: an event that never happens and only carries side band records.
const SW_DUMMY: u64 = 9;

/// A set of fields (`enum perf_output_field`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields(u32);

/// A requested field that cannot be printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldError {
    /// The event did not record it.
    NotRecorded {
        /// The event's name.
        event: String,
        /// The field's name.
        field: &'static str,
    },
    /// Symbols or objects were requested of samples without an address.
    NoAddress {
        /// The event's name.
        event: String,
        /// The field's name.
        field: &'static str,
    },
    /// `symoff` without `sym`.
    OffsetWithoutSymbol,
    /// `srcline` without `ip`.
    LineWithoutAddress {
        /// The event's name.
        event: String,
    },
    /// An empty list (`raw:`) for a type of events that the recording lacks.
    NoEvents {
        /// The type, as on the command line.
        kind: &'static str,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRecorded { event, field } => {
                write!(
                    f,
                    "samples of event {event} have no {field}: leave the field {field} out"
                )
            }
            Self::NoAddress { event, field } => write!(
                f,
                "samples of event {event} have no address: leave the field {field} out"
            ),
            Self::OffsetWithoutSymbol => f.write_str("the field symoff needs the field sym"),
            Self::LineWithoutAddress { event } => write!(
                f,
                "the field srcline needs the field ip, which is not printed for event {event}"
            ),
            Self::NoEvents { kind } => {
                write!(f, "the recording has no {kind} events: leave {kind}: out")
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// The fields' names on the command line.
const NAMES: [(&str, Fields); 15] = [
    ("comm", Fields::COMM),
    ("tid", Fields::TID),
    ("pid", Fields::PID),
    ("time", Fields::TIME),
    ("cpu", Fields::CPU),
    ("event", Fields::EVENT),
    ("trace", Fields::TRACE),
    ("ip", Fields::IP),
    ("sym", Fields::SYM),
    ("symoff", Fields::SYM_OFFSET),
    ("srcline", Fields::SOURCE_LINE),
    ("dso", Fields::DSO),
    ("addr", Fields::ADDRESS),
    ("period", Fields::PERIOD),
    ("bpf-output", Fields::BPF_OUTPUT),
];

impl Fields {
    /// No field.
    pub const NONE: Self = Self(0);
    /// The task's name.
    pub const COMM: Self = Self(1);
    /// The thread id.
    pub const TID: Self = Self(1 << 1);
    /// The process id.
    pub const PID: Self = Self(1 << 2);
    /// The sample's time.
    pub const TIME: Self = Self(1 << 3);
    /// The CPU.
    pub const CPU: Self = Self(1 << 4);
    /// The event's name.
    pub const EVENT: Self = Self(1 << 5);
    /// The payload of a tracepoint.
    pub const TRACE: Self = Self(1 << 6);
    /// The address, or the callchain.
    pub const IP: Self = Self(1 << 7);
    /// The symbol of each address.
    pub const SYM: Self = Self(1 << 8);
    /// The offset of each address in its symbol.
    pub const SYM_OFFSET: Self = Self(1 << 9);
    /// The object of each address.
    pub const DSO: Self = Self(1 << 10);
    /// The data address.
    pub const ADDRESS: Self = Self(1 << 11);
    /// The period.
    pub const PERIOD: Self = Self(1 << 12);
    /// Data that a BPF program wrote.
    pub const BPF_OUTPUT: Self = Self(1 << 13);

    /// The source line of each address.
    pub const SOURCE_LINE: Self = Self(1 << 14);

    /// The field with the name `word`.
    pub(super) fn named(word: &str) -> Option<Self> {
        let named = NAMES.iter().find(|(name, _)| *name == word);
        named.map(|&(_, field)| field)
    }

    /// The names of all fields, separated by commas.
    pub(super) fn names() -> String {
        NAMES.map(|(name, _)| name).join(",")
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains all of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The fields that this event did not record.
    fn missing(attr: &EventAttr) -> Self {
        let absent = |bit| attr.sample_type & bit == 0;
        let mut missing = Self::default();
        for (bit, field) in [
            (st::IP, Self::IP),
            (st::ADDR, Self::ADDRESS),
            (st::TID, Self::TID.and(Self::PID)),
            (st::TIME, Self::TIME),
            (st::CPU, Self::CPU),
        ] {
            if absent(bit) {
                missing = missing.and(field);
            }
        }
        missing
    }

    /// The fields of each event of a file. All events of one type have the same fields. Like perf,
    /// omits the fields that the type's first event other than a dummy did not record, unless they
    /// were requested by name. `with_chains` adds the fields that callchains need.
    pub(super) fn of_file(
        file: &PerfFile<'_>,
        asked: &RequestedFields,
        with_chains: bool,
    ) -> Vec<Self> {
        let attrs = file.attrs();
        let fields = |attr: &EventAttr| {
            let kind = EventType::of(attr.kind);
            let mut fields = asked.fields(kind);
            let same = |other: &&EventAttr| EventType::of(other.kind) == kind;
            if let Some(first) = attrs.iter().filter(same).find(|attr| !is_dummy(attr)) {
                fields = fields.without(Self::missing(first).without(asked.named(kind)));
            }
            if with_chains {
                fields.and(Self::of_chains(file, asked, kind))
            } else {
                fields
            }
        };
        attrs.iter().map(fields).collect()
    }

    /// The fields that callchains add to those of a type.
    fn of_chains(file: &PerfFile<'_>, asked: &RequestedFields, kind: EventType) -> Self {
        let attrs = file.attrs();
        let has_chain = |attr: &EventAttr| attr.sample_type & st::CALLCHAIN != 0;
        let mut same = (0..attrs.len()).filter(|&at| EventType::of(attrs[at].kind) == kind);
        match file.mode() {
            // From a pipe, perf reads one attribute after the other. It decides at the first one of
            // each type, from the attributes read so far, whatever fields were requested.
            Mode::Pipe => match same.next() {
                Some(at) if attrs[..=at].iter().any(has_chain) => {
                    Self::IP.and(Self::SYM).without(asked.removed(kind))
                }
                _ => Self::default(),
            },
            Mode::File
                if kind == EventType::Tracepoint
                    && !asked.is_set(kind)
                    && same.any(|at| has_chain(&attrs[at])) =>
            {
                Self::IP.and(Self::SYM).and(Self::SYM_OFFSET).and(Self::DSO)
            }
            Mode::File => Self::default(),
        }
    }

    /// Checks whether the requested fields can be printed, like perf's `evsel__check_attr`.
    ///
    /// # Errors
    /// The first field that cannot be printed.
    pub fn check(file: &PerfFile<'_>, asked: &RequestedFields) -> Result<(), FieldError> {
        // Traces of a processor's branches may have fields that their events do not declare.
        let from_traces = file.features().section(feature::AUXTRACE).is_some();

        for kind in EventType::ALL {
            let same = |attr: &&EventAttr| EventType::of(attr.kind) == kind && !is_dummy(attr);
            let Some(attr) = file.attrs().iter().find(same) else {
                // As in perf, which makes synthesized events itself.
                if asked.is_emptied(kind) && kind != EventType::Synthesized {
                    let kind = kind.word();
                    return Err(FieldError::NoEvents { kind });
                }
                continue;
            };

            if !asked.is_set(kind) {
                continue;
            }

            let event = || event_name(attr);
            let fields = asked.fields(kind);
            let missing = Self::missing(attr);

            // Default fields that were not recorded are left out; those that the user named are
            // errors.
            for (field, wanted) in NAMES {
                let excused = from_traces && Self::ADDRESS.and(Self::CPU).has(wanted);
                let named = asked.named(kind).has(wanted) && fields.has(wanted);
                if named && missing.has(wanted) && !excused {
                    let event = event();
                    return Err(FieldError::NotRecorded { event, field });
                }
            }

            let is_placed = attr.sample_type & (st::IP | st::ADDR) != 0;
            for (field, wanted) in [("sym", Self::SYM), ("dso", Self::DSO)] {
                if fields.has(wanted) && !is_placed {
                    let event = event();
                    return Err(FieldError::NoAddress { event, field });
                }
            }

            // An offset or a line has no column of its own: it follows the symbol or the address.
            if fields.has(Self::SYM_OFFSET) && !fields.has(Self::SYM) {
                return Err(FieldError::OffsetWithoutSymbol);
            }
            if fields.has(Self::SOURCE_LINE) && !fields.has(Self::IP) {
                let event = event();
                return Err(FieldError::LineWithoutAddress { event });
            }
        }

        Ok(())
    }
}

/// Whether the event's samples hold data written by BPF programs. The samples of `offcpu-time`,
/// which perf records with the same event, are printed like any other sample.
pub(super) fn is_bpf_output(attr: &EventAttr) -> bool {
    let is_off_cpu = attr.name.as_deref() == Some("offcpu-time");
    is_software(attr) && attr.config == SW_BPF_OUTPUT && !is_off_cpu
}

/// Whether the event's data addresses are shown with symbols (`sample_addr_correlates_sym`).
pub(super) fn names_data(attr: &EventAttr) -> bool {
    is_software(attr) && SW_PAGE_FAULTS.contains(&attr.config)
}

fn is_software(attr: &EventAttr) -> bool {
    EventType::of(attr.kind) == EventType::Software
}

/// Whether the event only carries side band records.
fn is_dummy(attr: &EventAttr) -> bool {
    is_software(attr) && attr.config == SW_DUMMY
}
