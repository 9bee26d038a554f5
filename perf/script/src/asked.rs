//! The value of `-F`, parsed like `parse_output_fields` of `tools/perf/builtin-script.c`: a list of
//! fields for one type of events or for all, which replaces perf's default fields, or adds to and
//! removes from them.

use super::fields::Fields;
use std::fmt;

/// `PERF_TYPE_SYNTH`: events synthesized by the perf tool (`tools/perf/util/event.h`).
const TYPE_SYNTH: u32 = 0x8000_0000;

/// A type of events. Each type has its own list of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventType {
    /// `PERF_TYPE_HARDWARE`.
    Hardware,
    /// `PERF_TYPE_SOFTWARE`.
    Software,
    /// `PERF_TYPE_TRACEPOINT`.
    Tracepoint,
    /// `PERF_TYPE_HW_CACHE`.
    Cache,
    /// `PERF_TYPE_RAW`.
    Raw,
    /// `PERF_TYPE_BREAKPOINT`.
    Breakpoint,
    /// Synthesized by the perf tool.
    Synthesized,
    /// An event of a PMU with a dynamic type number.
    Other,
}

/// perf's fields that are not supported here (`all_output_options`, Linux 7.2).
const PERF_ONLY: [&str; 31] = [
    "dsoff",
    "iregs",
    "uregs",
    "brstack",
    "brstacksym",
    "data_src",
    "weight",
    "callindent",
    "insn",
    "disasm",
    "insnlen",
    "brstackinsn",
    "brstackoff",
    "synth",
    "phys_addr",
    "metric",
    "misc",
    "srccode",
    "ipc",
    "tod",
    "data_page_size",
    "code_page_size",
    "ins_lat",
    "brstackinsnlen",
    "machine_pid",
    "vcpu",
    "cgroup",
    "retire_lat",
    "brstackdisasm",
    "brcntr",
    "flags",
];

/// The default fields of all events except tracepoints.
const USUAL: Fields = Fields::COMM
    .and(Fields::TID)
    .and(Fields::CPU)
    .and(Fields::TIME)
    .and(Fields::EVENT)
    .and(Fields::IP)
    .and(Fields::SYM)
    .and(Fields::SYM_OFFSET)
    .and(Fields::DSO);

impl EventType {
    /// All types, in the order of their discriminants.
    pub(super) const ALL: [Self; 8] = [
        Self::Hardware,
        Self::Software,
        Self::Tracepoint,
        Self::Cache,
        Self::Raw,
        Self::Breakpoint,
        Self::Synthesized,
        Self::Other,
    ];

    /// The type for a value of `attr.type`.
    pub(super) fn of(kind: u32) -> Self {
        match kind {
            TYPE_SYNTH => Self::Synthesized,
            0..=5 => Self::ALL[kind as usize],
            _ => Self::Other,
        }
    }

    /// The type named before the colon of a list.
    fn named(word: &str) -> Option<Self> {
        let has_word = |kind: &Self| !matches!(kind, Self::Cache | Self::Other);
        let mut named = Self::ALL.into_iter().filter(has_word);
        named.find(|kind| kind.word() == word)
    }

    /// The name on the command line; `cache` and `other` have none there.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Hardware => "hw",
            Self::Software => "sw",
            Self::Tracepoint => "trace",
            Self::Cache => "cache",
            Self::Raw => "raw",
            Self::Breakpoint => "break",
            Self::Synthesized => "synth",
            Self::Other => "other",
        }
    }

    /// The default fields.
    const fn fields(self) -> Fields {
        match self {
            Self::Tracepoint => Fields::COMM
                .and(Fields::TID)
                .and(Fields::CPU)
                .and(Fields::TIME)
                .and(Fields::EVENT)
                .and(Fields::TRACE),
            Self::Raw => USUAL.and(Fields::PERIOD).and(Fields::ADDRESS),
            Self::Software => USUAL.and(Fields::PERIOD).and(Fields::BPF_OUTPUT),
            Self::Synthesized => USUAL,
            _ => USUAL.and(Fields::PERIOD),
        }
    }

    /// Fields that this type never has.
    const fn invalid(self) -> Fields {
        match self {
            Self::Tracepoint => Fields::NONE,
            Self::Software => Fields::TRACE,
            _ => Fields::TRACE.and(Fields::BPF_OUTPUT),
        }
    }
}

/// An invalid list of fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListError {
    /// A word that is not the name of a field.
    UnknownField {
        /// The word.
        word: String,
    },
    /// The word before the colon is not a type of events.
    UnknownType {
        /// The word.
        word: String,
    },
    /// Some words have a sign and some do not.
    Mixed,
    /// An empty list for all types.
    Empty,
    /// The type has no such field.
    Invalid {
        /// The field's name.
        field: String,
    },
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { word } if PERF_ONLY.contains(&word.as_str()) => write!(
                f,
                "the field {word} is not supported; known fields: {}",
                Fields::names()
            ),
            Self::UnknownField { word } => {
                write!(
                    f,
                    "{word:?} is not a field; known fields: {}",
                    Fields::names()
                )
            }
            Self::UnknownType { word } => write!(
                f,
                "{word:?} is not a type of events; known types: hw,sw,trace,raw,break,synth"
            ),
            Self::Mixed => f.write_str("give all fields a sign, + or -, or none of them"),
            Self::Empty => f.write_str("the list of fields is empty"),
            Self::Invalid { field } => write!(f, "events of this type have no field {field}"),
        }
    }
}

impl std::error::Error for ListError {}

/// The value of one `-F`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldList {
    /// The only type that the list applies to; `None` for all types.
    kind: Option<EventType>,
    /// Whether the fields replace the previous ones.
    instead: bool,
    /// Fields to add (`true`) and to remove (`false`).
    changes: Vec<(bool, Fields)>,
}

impl FieldList {
    /// Parses `comm,ip,sym`, `trace:comm,trace` or `+addr,-dso`.
    ///
    /// # Errors
    /// If `text` is not a valid list.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let (kind, words) = match text.split_once(':') {
            None => (None, text),
            Some((word, words)) => {
                let unknown = || ListError::UnknownType { word: word.into() };
                (Some(EventType::named(word).ok_or_else(unknown)?), words)
            }
        };

        // Only behind a type may the list be empty: it removes all fields.
        if kind.is_none() && words.is_empty() {
            return Err(ListError::Empty);
        }

        // Even the hyphen of `bpf-output`: perf takes it for a sign.
        let instead = !words.contains(['+', '-']);

        let mut changes = Vec::new();
        let (mut signed, mut plain) = (false, false);
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (sign, name) = match word.as_bytes()[0] {
                sign @ (b'+' | b'-') => (Some(sign), &word[1..]),
                _ => (None, word),
            };

            signed |= sign.is_some();
            plain |= sign.is_none();
            if signed && plain {
                return Err(ListError::Mixed);
            }

            // The name without its sign.
            let unknown = || ListError::UnknownField { word: name.into() };
            let field = Fields::named(name).ok_or_else(unknown)?;
            // A type in front is held to its own fields; without one, each type takes what it has.
            if kind.is_some_and(|kind| kind.invalid().has(field)) {
                return Err(ListError::Invalid { field: name.into() });
            }

            changes.push((sign != Some(b'-'), field));
        }

        Ok(Self {
            kind,
            instead,
            changes,
        })
    }
}

/// The requested fields of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TypeFields {
    fields: Fields,
    set: bool,
    /// Whether an empty list for this type (`trace:`) removed all fields.
    emptied: bool,
    /// Fields added by name.
    named: Fields,
    /// Fields removed by name.
    removed: Fields,
}

/// The requested fields of each type of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestedFields([TypeFields; EventType::ALL.len()]);

impl Default for RequestedFields {
    fn default() -> Self {
        Self(EventType::ALL.map(|kind| TypeFields {
            fields: kind.fields(),
            set: false,
            emptied: false,
            named: Fields::NONE,
            removed: Fields::NONE,
        }))
    }
}

impl RequestedFields {
    /// Applies several `-F` lists in order.
    pub fn of(lists: &[FieldList]) -> Self {
        let mut asked = Self::default();
        for list in lists {
            for kind in EventType::ALL {
                if list.kind.is_none_or(|only| only == kind) {
                    asked.0[kind as usize].change(kind, list);
                }
            }
        }
        asked
    }

    fn of_type(&self, kind: EventType) -> &TypeFields {
        &self.0[kind as usize]
    }

    /// The fields of a type.
    pub(super) fn fields(&self, kind: EventType) -> Fields {
        self.of_type(kind).fields
    }

    /// Whether any list changed the fields of the type.
    pub(super) fn is_set(&self, kind: EventType) -> bool {
        self.of_type(kind).set
    }

    /// Whether an empty list for this type removed all fields.
    pub(super) fn is_emptied(&self, kind: EventType) -> bool {
        self.of_type(kind).emptied
    }

    /// The fields of a type that were added by name.
    pub(super) fn named(&self, kind: EventType) -> Fields {
        self.of_type(kind).named
    }

    /// The fields of a type that were removed by name.
    pub(super) fn removed(&self, kind: EventType) -> Fields {
        self.of_type(kind).removed
    }
}

impl TypeFields {
    fn change(&mut self, kind: EventType, list: &FieldList) {
        // A list without signs replaces the defaults, even if it names no field.
        if list.instead {
            self.fields = Fields::NONE;
            self.set = true;
            self.emptied = list.kind.is_some();
        }

        for &(add, field) in &list.changes {
            if kind.invalid().has(field) {
                continue;
            }
            self.set = true;
            self.emptied = false;
            if add {
                self.fields = self.fields.and(field);
            } else {
                self.fields = self.fields.without(field);
            }

            // perf remembers names only from lists for all types.
            if list.kind.is_none() {
                let (to, from) = if add {
                    (&mut self.named, &mut self.removed)
                } else {
                    (&mut self.removed, &mut self.named)
                };
                *to = to.and(field);
                *from = from.without(field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lists: &[&str]) -> RequestedFields {
        let lists: Result<Vec<_>, _> = lists.iter().map(|list| FieldList::parse(list)).collect();
        RequestedFields::of(&lists.unwrap())
    }

    #[test]
    fn a_list_stands_in_place_of_the_usual_fields_and_a_sign_changes_them() {
        let software = |lists: &[&str]| asked(lists).fields(EventType::Software);
        assert_eq!(software(&["comm,ip"]), Fields::COMM.and(Fields::IP));
        let usual = EventType::Software.fields();
        assert_eq!(software(&["+addr"]), usual.and(Fields::ADDRESS));
        assert_eq!(
            software(&["-ip,-sym"]),
            usual.without(Fields::IP.and(Fields::SYM))
        );
        assert_eq!(software(&["comm", "+ip"]), Fields::COMM.and(Fields::IP));
        assert_eq!(software(&["comm", "pid"]), Fields::PID);
        assert_eq!(
            software(&["comm,bpf-output"]),
            usual,
            "perf takes the hyphen for a sign"
        );
    }

    #[test]
    fn a_type_has_only_its_own_fields() {
        let all = asked(&["trace"]);
        assert_eq!(all.fields(EventType::Tracepoint), Fields::TRACE);
        assert!(all.fields(EventType::Software).is_empty());
        let of_software = asked(&["sw:comm"]);
        assert_eq!(of_software.fields(EventType::Software), Fields::COMM);
        assert_eq!(
            of_software.fields(EventType::Other),
            EventType::Other.fields()
        );
        assert!(asked(&["trace:"]).fields(EventType::Tracepoint).is_empty());
        assert!(!of_software.named(EventType::Software).has(Fields::COMM));
    }

    #[test]
    fn what_is_no_list_is_told() {
        let error = |text| FieldList::parse(text).unwrap_err();
        let word = || "what".to_owned();
        assert_eq!(error("comm,what"), ListError::UnknownField { word: word() });
        assert_eq!(error("what:comm"), ListError::UnknownType { word: word() });
        assert_eq!(error("+comm,ip"), ListError::Mixed);
        assert_eq!(error(""), ListError::Empty);
        let field = "trace".to_owned();
        assert_eq!(error("sw:trace"), ListError::Invalid { field });
    }

    #[test]
    fn types_are_those_of_the_kernel_and_one_for_all_others() {
        assert_eq!(EventType::of(5), EventType::Breakpoint);
        assert_eq!(EventType::of(6), EventType::Other);
        assert_eq!(EventType::of(TYPE_SYNTH), EventType::Synthesized);
        assert!(EventType::Breakpoint.fields().has(Fields::PERIOD));
        assert!(!EventType::Tracepoint.fields().has(Fields::PERIOD));
    }
}
