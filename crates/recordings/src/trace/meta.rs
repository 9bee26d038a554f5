//! The metadata of a trace: how the recording was made.

use super::error::Bad;
use super::layout::NAME_BYTES_MAX;
use super::varint::{Cursor, put, put_bytes};
use crate::file_kind::FileKind;

/// What made the recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Engine {
    /// Not recorded.
    #[default]
    Unknown,
    /// ptrace on a Linux host.
    Ptrace,
    /// The emulated machine.
    Emulator,
    /// A gdb stub.
    Gdb,
    /// A file of this kind was imported.
    Import(FileKind),
    /// A kernel dump was imported.
    KernelDump,
    /// A test case of the corpus.
    Case,
}

impl Engine {
    /// All engines.
    pub fn all() -> impl Iterator<Item = Engine> {
        let own = [
            Engine::Unknown,
            Engine::Ptrace,
            Engine::Emulator,
            Engine::Gdb,
            Engine::KernelDump,
            Engine::Case,
        ];
        let imported = FileKind::ALL.into_iter().filter(|kind| kind.is_imported());
        own.into_iter().chain(imported.map(Engine::Import))
    }

    /// The stable name, as used in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Engine::Unknown => "unknown",
            Engine::Ptrace => "ptrace",
            Engine::Emulator => "emulator",
            Engine::Gdb => "gdb",
            Engine::Import(kind) => match kind.engine() {
                Some(name) => name,
                None => Engine::Unknown.as_str(),
            },
            Engine::KernelDump => "kernel-dump",
            Engine::Case => "case",
        }
    }

    /// The engine with this name, or [`Engine::Unknown`].
    pub fn from_name(name: &str) -> Engine {
        Self::all()
            .find(|engine| engine.as_str() == name)
            .unwrap_or_default()
    }
}

/// The unit of [`Sample::time`](crate::model::Sample::time).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TimeUnit {
    /// Nanoseconds since an arbitrary origin.
    #[default]
    Nanoseconds,
    /// Instructions executed.
    Instructions,
}

/// How a recording was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// The command line that reproduces the recording, one string per argument.
    pub command: Vec<String>,
    /// The command line of the recorded program; empty if unknown.
    pub program: Vec<String>,
    /// What made the recording.
    pub engine: Engine,
    /// The unit of sample times.
    pub time_unit: TimeUnit,
    /// What the truth covers, in words, such as `from main, 200000 instructions`. Empty: no truth.
    pub truth: String,
    /// Instructions executed under the shadow-stack tracker.
    pub instructions: u64,
    /// Those of them at which the tracker did not know the truth.
    pub unknown_instructions: u64,
    /// Number of lost samples.
    pub lost_samples: u64,
    /// Number of lost events.
    pub lost_events: u64,
    /// The program's wait status, as returned by `waitpid`, if it ended.
    pub status: Option<u32>,
    /// Other key-value pairs.
    pub other: Vec<(String, String)>,
}

/// The field numbers in the file. Unknown fields are skipped.
mod field {
    pub(super) const COMMAND: u64 = 1;
    pub(super) const PROGRAM: u64 = 2;
    pub(super) const ENGINE: u64 = 3;
    pub(super) const TIME_UNIT: u64 = 4;
    pub(super) const TRUTH: u64 = 5;
    pub(super) const INSTRUCTIONS: u64 = 6;
    pub(super) const UNKNOWN_INSTRUCTIONS: u64 = 7;
    pub(super) const LOST_SAMPLES: u64 = 8;
    pub(super) const LOST_EVENTS: u64 = 9;
    pub(super) const STATUS: u64 = 10;
    pub(super) const OTHER: u64 = 11;
}

/// Encodes the payload of a meta block: fields of number, length and contents. Empty and 0 are
/// omitted.
pub(crate) fn encode(meta: &Meta) -> Vec<u8> {
    let mut out = Vec::new();

    // The length lets a reader skip the fields of later versions.
    let mut text = |number, text: &str| {
        put(&mut out, number);
        put_bytes(&mut out, text.as_bytes());
    };

    // A field for each word: a word may contain spaces.
    meta.command
        .iter()
        .for_each(|word| text(field::COMMAND, word));
    meta.program
        .iter()
        .for_each(|word| text(field::PROGRAM, word));

    if meta.engine != Engine::Unknown {
        text(field::ENGINE, meta.engine.as_str());
    }
    if !meta.truth.is_empty() {
        text(field::TRUTH, &meta.truth);
    }

    let integers = [
        (
            field::TIME_UNIT,
            u64::from(meta.time_unit == TimeUnit::Instructions),
        ),
        (field::INSTRUCTIONS, meta.instructions),
        (field::UNKNOWN_INSTRUCTIONS, meta.unknown_instructions),
        (field::LOST_SAMPLES, meta.lost_samples),
        (field::LOST_EVENTS, meta.lost_events),
        // Plus 1, because 0 is omitted.
        (field::STATUS, meta.status.map_or(0, |s| u64::from(s) + 1)),
    ];

    // Encoded separately first, because a field starts with its length.
    let mut integer = Vec::new();
    for (number, value) in integers.into_iter().filter(|(_, value)| *value != 0) {
        integer.clear();
        put(&mut integer, value);
        put(&mut out, number);
        put_bytes(&mut out, &integer);
    }

    for (key, value) in &meta.other {
        integer.clear();
        // Both in one field, so that a key and its value stay together.
        put_bytes(&mut integer, key.as_bytes());
        put_bytes(&mut integer, value.as_bytes());
        put(&mut out, field::OTHER);
        put_bytes(&mut out, &integer);
    }

    out
}

/// Decodes the payload of a meta block.
pub(crate) fn decode(payload: &[u8]) -> Result<Meta, Bad> {
    let mut meta = Meta::default();
    let mut fields = Cursor::new(payload, 0);

    while fields.left() > 0 {
        let number = fields.u64()?;
        // The longest field has two names and their lengths.
        let content = fields.bytes(2 * NAME_BYTES_MAX + 16)?;
        let what = "a field has an invalid value";
        let bad = |_: Bad| Bad {
            what,
            at: fields.at() - content.len(),
        };

        let mut cursor = Cursor::new(content, 0);
        let text = || match std::str::from_utf8(content) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(bad(fields.bad(what))),
        };

        match number {
            field::COMMAND => meta.command.push(text()?),
            field::PROGRAM => meta.program.push(text()?),
            // An engine of a later version is `Unknown`, not an error.
            field::ENGINE => meta.engine = Engine::from_name(&text()?),
            field::TRUTH => meta.truth = text()?,
            field::TIME_UNIT => {
                // At most 1, so it is an index.
                let number = cursor.count(1, what).map_err(bad)?;
                meta.time_unit = [TimeUnit::Nanoseconds, TimeUnit::Instructions][number];
            }
            field::INSTRUCTIONS => meta.instructions = cursor.u64().map_err(bad)?,
            field::UNKNOWN_INSTRUCTIONS => {
                meta.unknown_instructions = cursor.u64().map_err(bad)?;
            }
            field::LOST_SAMPLES => meta.lost_samples = cursor.u64().map_err(bad)?,
            field::LOST_EVENTS => meta.lost_events = cursor.u64().map_err(bad)?,
            // Written plus 1; 0 means that there is no status.
            field::STATUS => {
                let status = cursor.u64().map_err(bad)?.checked_sub(1);
                let status = status.map(u32::try_from).transpose();
                meta.status = status.map_err(|_| bad(fields.bad(what)))?;
            }
            field::OTHER => {
                let key = cursor.string(NAME_BYTES_MAX).map_err(bad)?.to_owned();
                let value = cursor.string(NAME_BYTES_MAX).map_err(bad)?.to_owned();
                meta.other.push((key, value));
            }
            // A field of a later version.
            _ => {}
        }
    }

    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back_and_unknown_ones_are_skipped() {
        for (i, engine) in Engine::all().enumerate() {
            let meta = Meta {
                command: vec!["unwind-sim".into(), "record".into()],
                program: vec!["/bin/true".into()],
                engine,
                time_unit: [TimeUnit::Nanoseconds, TimeUnit::Instructions][i % 2],
                truth: "from main".into(),
                instructions: 1 << 40,
                unknown_instructions: 3,
                lost_samples: 4,
                lost_events: 5,
                status: [None, Some(0), Some(u32::MAX)][i % 3],
                other: vec![
                    ("key".into(), "value".into()),
                    (String::new(), String::new()),
                ],
            };
            let mut payload = encode(&meta);
            // A field that this version does not know.
            put(&mut payload, 1000);
            put_bytes(&mut payload, b"later");
            assert_eq!(decode(&payload), Ok(meta));
        }
        assert_eq!(encode(&Meta::default()), b"");
    }

    #[test]
    fn impossible_values_are_refused() {
        for payload in [
            &b"\x04\x01\x02"[..],
            b"\x05\x01\xff",
            b"\x06\x00",
            b"\x0b\x01\x07",
        ] {
            let error = decode(payload).unwrap_err();
            assert_eq!((error.what, error.at), ("a field has an invalid value", 2));
        }
        assert!(decode(b"\x05\x09").is_err());
    }

    #[test]
    fn a_pair_of_the_longest_words_fits_into_a_field() {
        let word = "x".repeat(65_536);
        let meta = Meta {
            other: vec![(word.clone(), word)],
            ..Meta::default()
        };
        assert_eq!(decode(&encode(&meta)), Ok(meta));
        let field = |length| {
            let mut payload = Vec::new();
            put(&mut payload, 1000);
            put_bytes(&mut payload, &vec![0; length]);
            decode(&payload).map_err(|bad| bad.what)
        };
        assert_eq!(field(131_088), Ok(Meta::default()));
        let what = "a name or field is longer than the format allows";
        assert_eq!(field(131_089), Err(what));
    }
}
