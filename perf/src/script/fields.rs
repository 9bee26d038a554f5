//! Which fields `perf script` prints for an event.

use crate::data::{EventAttr, Mode, PerfFile, sample_type as st};

/// `PERF_TYPE_TRACEPOINT` (`include/uapi/linux/perf_event.h`).
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_TYPE_RAW`.
const TYPE_RAW: u32 = 4;
/// `PERF_TYPE_BREAKPOINT`.
const TYPE_BREAKPOINT: u32 = 5;
/// `PERF_TYPE_SOFTWARE`.
const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_BPF_OUTPUT`: what BPF programs write.
const SW_BPF_OUTPUT: u64 = 10;
/// `PERF_COUNT_SW_DUMMY`: an event that never happens and only carries side band records.
const SW_DUMMY: u64 = 9;

/// A set of fields (`enum perf_output_field`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields(u32);

/// A word that names no field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownField(
    /// The word.
    pub String,
);

impl std::fmt::Display for UnknownField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        write!(f, "{:?} is not a field; known: {}", self.0, known.join(","))
    }
}

impl std::error::Error for UnknownField {}

/// The fields' names on the command line.
const NAMES: [(&str, Fields); 14] = [
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
    ("dso", Fields::DSO),
    ("addr", Fields::ADDRESS),
    ("period", Fields::PERIOD),
    ("bpf-output", Fields::BPF_OUTPUT),
];

impl Fields {
    /// The name of the task.
    pub const COMM: Self = Self(1);
    /// The thread.
    pub const TID: Self = Self(1 << 1);
    /// The process.
    pub const PID: Self = Self(1 << 2);
    /// The time.
    pub const TIME: Self = Self(1 << 3);
    /// The CPU.
    pub const CPU: Self = Self(1 << 4);
    /// The name of the event.
    pub const EVENT: Self = Self(1 << 5);
    /// The payload of a tracepoint.
    pub const TRACE: Self = Self(1 << 6);
    /// The address, or the callchain.
    pub const IP: Self = Self(1 << 7);
    /// The symbol of each address.
    pub const SYM: Self = Self(1 << 8);
    /// The offset in the symbol.
    pub const SYM_OFFSET: Self = Self(1 << 9);
    /// The object of each address.
    pub const DSO: Self = Self(1 << 10);
    /// The data address.
    pub const ADDRESS: Self = Self(1 << 11);
    /// The period.
    pub const PERIOD: Self = Self(1 << 12);
    /// What a BPF program wrote.
    pub const BPF_OUTPUT: Self = Self(1 << 13);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set that a list such as `comm,tid,ip,sym` names.
    ///
    /// # Errors
    /// If a word names no field.
    pub fn parse(list: &str) -> Result<Self, UnknownField> {
        list.split(',').try_fold(Self::default(), |all, word| {
            NAMES
                .iter()
                .find(|(name, _)| *name == word)
                .map(|(_, field)| all.and(*field))
                .ok_or_else(|| UnknownField(word.to_owned()))
        })
    }

    /// What is printed of events of a type if nobody asks for something else.
    fn of_type(kind: u32) -> Self {
        let task = Self::COMM
            .and(Self::TID)
            .and(Self::CPU)
            .and(Self::TIME)
            .and(Self::EVENT);
        let place = Self::IP.and(Self::SYM).and(Self::SYM_OFFSET).and(Self::DSO);
        match kind {
            TYPE_TRACEPOINT => task.and(Self::TRACE),
            TYPE_RAW => task.and(place).and(Self::PERIOD).and(Self::ADDRESS),
            TYPE_BREAKPOINT => task.and(place),
            TYPE_SOFTWARE => task.and(place).and(Self::PERIOD).and(Self::BPF_OUTPUT),
            _ => task.and(place).and(Self::PERIOD),
        }
    }

    /// The fields of a type that this event did not record.
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

    /// The fields of each event of a file. All events of one type have the same: what the first
    /// of them that is no dummy has not recorded is left out.
    pub(super) fn of_file(file: &PerfFile<'_>, asked: Option<Self>) -> Vec<Self> {
        let attrs = file.attrs();
        let chains = |attr: &EventAttr| attr.sample_type & st::CALLCHAIN != 0;
        // Through a pipe perf sees one attribute after the other, and decides at the first
        // tracepoint by what came so far.
        let tracepoint = |attr: &EventAttr| attr.kind == TYPE_TRACEPOINT;
        let of_chains = match (file.mode(), attrs.iter().position(tracepoint)) {
            (Mode::Pipe, Some(at)) if attrs[..=at].iter().any(chains) => Self::IP.and(Self::SYM),
            (Mode::File, Some(_)) if attrs.iter().any(|attr| tracepoint(attr) && chains(attr)) => {
                Self::IP.and(Self::SYM).and(Self::SYM_OFFSET).and(Self::DSO)
            }
            _ => Self::default(),
        };
        attrs
            .iter()
            .map(|attr| {
                if let Some(asked) = asked {
                    return asked;
                }
                let mut fields = Self::of_type(attr.kind);
                let same = || attrs.iter().filter(|other| other.kind == attr.kind);
                if let Some(first) = same().find(|other| !is_dummy(other)) {
                    fields = fields.without(Self::missing(first));
                }
                if attr.kind == TYPE_TRACEPOINT {
                    fields = fields.and(of_chains);
                }
                fields
            })
            .collect()
    }
}

/// Whether the event's samples are what BPF programs write. Times off the CPU, which perf records
/// so too, are shown as other samples are.
pub(super) fn is_bpf_output(attr: &EventAttr) -> bool {
    let is_off_cpu = attr.name.as_deref() == Some("offcpu-time");
    attr.kind == TYPE_SOFTWARE && attr.config == SW_BPF_OUTPUT && !is_off_cpu
}

/// Whether the event only carries side band records.
fn is_dummy(attr: &EventAttr) -> bool {
    attr.kind == TYPE_SOFTWARE && attr.config == SW_DUMMY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_set_and_an_unknown_word_is_told() {
        let fields = Fields::parse("comm,tid,time,event,ip,sym").unwrap();
        assert!(fields.has(Fields::COMM) && fields.has(Fields::SYM) && !fields.has(Fields::DSO));
        assert_eq!(Fields::parse("comm,what"), Err(UnknownField("what".into())));
    }
}
