//! A capture's JSON, with errors that give the location.
//!
//! No tree is made of it: the members of an object are parts of the text, and are parsed when somebody asks
//! for them. So memory does not grow with the number of stops.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::Read;

/// Maximum unpacked size of one piece of memory, bytes: more than all stacks of a processor.
const MEMORY_MAX: u64 = 1 << 20;

/// Maximum unpacked size of all memory of a kind that is kept at a time, bytes: more than a kernel's code. The
/// file may have a thousandth of it.
pub(super) const UNPACKED_MAX: usize = 64 << 20;

/// What is wrong with a capture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("capture: {place}: {what}")]
pub struct Problem {
    /// The location, such as `points[3].regs.rip`.
    place: String,
    what: String,
}

impl Problem {
    /// The text is not JSON.
    fn syntax(error: &serde_json::Error) -> Problem {
        Problem {
            place: "JSON".into(),
            what: error.to_string(),
        }
    }

    pub(super) fn not_a_capture() -> Problem {
        let what = "not a kernel's capture, which has `points`, `samples` or `steps`; a profile as JSON \
                    has no registers and stacks to walk";
        Problem {
            place: "JSON".into(),
            what: what.into(),
        }
    }

    pub(super) fn kernel(release: &str) -> Problem {
        let what = format!("the image of kernel {release} is required; give it with --kernel FILE");
        Problem {
            place: "kernel".into(),
            what,
        }
    }

    /// The image belongs to another kernel than the capture.
    pub(super) fn other_image(key: &str, what: &str, told: &str, image: &str) -> Problem {
        let what = format!(
            "the capture was taken on {what} {told}, but the image is of {image}; give the image \
             that was running, or --force"
        );
        Problem {
            place: key.into(),
            what,
        }
    }
}

/// A value whose syntax was checked, but which was not parsed, and its location.
struct Part<'a> {
    raw: &'a RawValue,
    place: String,
}

impl<'a> Part<'a> {
    fn problem(&self, what: impl Into<String>) -> Problem {
        Problem {
            place: self.place.clone(),
            what: what.into(),
        }
    }

    /// Whether it starts like this. The text has no space around it.
    fn starts_with(&self, first: char) -> bool {
        self.raw.get().starts_with(first)
    }

    fn parsed<T: serde::Deserialize<'a>>(&self) -> Result<T, Problem> {
        // What can be wrong yet is what has no place in the syntax, such as a number that is too large.
        serde_json::from_str(self.raw.get()).map_err(|error| {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            self.problem(what)
        })
    }

    fn object(self) -> Result<Object<'a>, Problem> {
        if !self.starts_with('{') {
            return Err(self.problem("not an object"));
        }
        Ok(Object {
            members: self.parsed()?,
            place: self.place,
        })
    }

    fn string(&self) -> Result<String, Problem> {
        if !self.starts_with('"') {
            return Err(self.problem("not a string"));
        }
        self.parsed()
    }

    /// Memory: zlib data in base64.
    fn memory(&self) -> Result<Vec<u8>, Problem> {
        let packed = STANDARD
            .decode(self.string()?)
            .map_err(|e| self.problem(format!("not base64: {e}")))?;

        // A few bytes may unpack to very many.
        let mut bytes = Vec::new();
        let mut unpacked = ZlibDecoder::new(packed.as_slice()).take(MEMORY_MAX + 1);
        unpacked
            .read_to_end(&mut bytes)
            .map_err(|e| self.problem(format!("not zlib: {e}")))?;
        if bytes.len() as u64 > MEMORY_MAX {
            Err(self.problem("more than 1 MiB of memory"))
        } else {
            Ok(bytes)
        }
    }
}

/// An object and its location.
pub(super) struct Object<'a> {
    /// In the order of the keys, so that what is reported first does not depend on the run.
    members: BTreeMap<String, &'a RawValue>,
    place: String,
}

impl<'a> Object<'a> {
    /// Checks the syntax of all.
    pub(super) fn root(bytes: &'a [u8]) -> Result<Object<'a>, Problem> {
        Ok(Object {
            members: serde_json::from_slice(bytes).map_err(|e| Problem::syntax(&e))?,
            place: String::new(),
        })
    }

    fn at(&self, key: &str) -> String {
        match self.place.as_str() {
            "" => key.to_owned(),
            place => format!("{place}.{key}"),
        }
    }

    /// An error: `what` is wrong with the value of `key`.
    pub(super) fn problem(&self, key: &str, what: &str) -> Problem {
        Problem {
            place: self.at(key),
            what: what.to_owned(),
        }
    }

    fn get(&self, key: &str) -> Option<Part<'a>> {
        let raw = *self.members.get(key)?;
        (raw.get() != "null").then(|| Part {
            raw,
            place: self.at(key),
        })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|raw| raw.get() != "null")
    }

    /// Is the value of `key` this word?
    pub(super) fn says(&self, key: &str, word: &str) -> bool {
        self.string(key)
            .is_ok_and(|text| text.as_deref() == Some(word))
    }

    /// An unsigned number, decimal or a string `0x...`.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Problem> {
        let Some(part) = self.get(key) else {
            return Ok(None);
        };
        let number = unsigned(&part.parsed()?);
        number
            .map(Some)
            .ok_or_else(|| part.problem("not an unsigned number"))
    }

    pub(super) fn needed(&self, key: &str) -> Result<u64, Problem> {
        self.number(key)?
            .ok_or_else(|| self.problem(key, "missing"))
    }

    pub(super) fn signed(&self, key: &str) -> Result<Option<i64>, Problem> {
        let Some(part) = self.get(key) else {
            return Ok(None);
        };
        let value: Value = part.parsed()?;
        value
            .as_i64()
            .or_else(|| unsigned(&value).map(as_int))
            .map(Some)
            .ok_or_else(|| part.problem("not a number"))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Problem> {
        self.get(key).map(|part| part.string()).transpose()
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Object<'a>>, Problem> {
        self.get(key).map(Part::object).transpose()
    }

    pub(super) fn required_object(&self, key: &str) -> Result<Object<'a>, Problem> {
        self.object(key)?
            .ok_or_else(|| self.problem(key, "missing"))
    }

    /// The values of a list; empty if there is no list.
    fn list<T: serde::Deserialize<'a>>(&self, key: &str) -> Result<Vec<T>, Problem> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(part) if !part.starts_with('[') => Err(part.problem("not a list")),
            Some(part) => part.parsed(),
        }
    }

    /// The objects of a list, one by one; none if there is no list.
    pub(super) fn objects(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = Result<Object<'a>, Problem>> + use<'a>, Problem> {
        let place = self.at(key);
        let list = self.list(key)?.into_iter().enumerate();
        Ok(list.map(move |(i, raw)| {
            let place = format!("{place}[{i}]");
            Part { raw, place }.object()
        }))
    }

    /// The numbers of a list.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<u64>, Problem> {
        numbers(&self.list(key)?).ok_or_else(|| self.problem(key, "not a list of unsigned numbers"))
    }

    /// The numbers of a list of lists.
    pub(super) fn rows(&self, key: &str) -> Result<Vec<Vec<u64>>, Problem> {
        let rows: Vec<Value> = self.list(key)?;
        let rows = rows.iter().map(|row| numbers(row.as_array()?));
        rows.collect::<Option<_>>()
            .ok_or_else(|| self.problem(key, "not a list of lists of unsigned numbers"))
    }

    /// Memory: zlib data in base64. Empty if missing.
    pub(super) fn memory(&self, key: &str) -> Result<Vec<u8>, Problem> {
        let memory = self.get(key).map(|part| part.memory()).transpose()?;
        Ok(memory.unwrap_or_default())
    }

    /// Pieces of memory with their addresses, one by one.
    pub(super) fn memories(
        &self,
        key: &str,
    ) -> Result<impl Iterator<Item = Result<(u64, Vec<u8>), Problem>> + use<'a>, Problem> {
        let place = self.at(key);
        let pieces = self.object(key)?;
        let pieces = pieces.into_iter().flat_map(|pieces| pieces.members);
        Ok(pieces.map(move |(at, raw)| {
            let place = format!("{place}.{at}");
            let part = Part { raw, place };
            let address = match at.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => at.parse(),
            };
            let address = address.map_err(|_| part.problem("not an address"))?;
            Ok((address, part.memory()?))
        }))
    }
}

/// A number: decimal, a string `0x...`, or a boolean.
fn unsigned(value: &Value) -> Option<u64> {
    let hex = || u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok();
    let flag = || value.as_bool().map(u64::from);
    value.as_u64().or_else(flag).or_else(hex)
}

/// These bits as an `int`: `0xffffffff` is -1.
fn as_int(bits: u64) -> i64 {
    match u32::try_from(bits) {
        Ok(bits) => i64::from(bits as i32),
        Err(_) => bits as i64,
    }
}

fn numbers(list: &[Value]) -> Option<Vec<u64>> {
    list.iter().map(unsigned).collect()
}
