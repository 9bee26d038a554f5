//! A capture's JSON, with errors that give the location.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use serde_json::{Map, Value};
use std::io::Read;

/// Maximum unpacked size of one piece of memory, bytes: more than all stacks of a processor.
const MEMORY_MAX: u64 = 1 << 20;

/// What is wrong with a capture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("capture: {place}: {what}")]
pub struct Problem {
    /// The location, such as `points[3].regs.rip`.
    place: String,
    what: String,
}

impl Problem {
    pub(super) fn syntax(what: String) -> Problem {
        Problem {
            place: "JSON".into(),
            what,
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

/// An object and its location.
pub(super) struct Object<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

impl<'a> Object<'a> {
    pub(super) fn root(value: &'a Value) -> Result<Object<'a>, Problem> {
        let map = value
            .as_object()
            .ok_or_else(|| Problem::syntax("not an object".into()))?;
        Ok(Object {
            map,
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

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Is the value of `key` this word?
    pub(super) fn says(&self, key: &str, word: &str) -> bool {
        self.get(key).and_then(Value::as_str) == Some(word)
    }

    /// An unsigned number, decimal or a string `0x...`.
    pub(super) fn number(&self, key: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        unsigned(value)
            .map(Some)
            .ok_or_else(|| self.problem(key, "not an unsigned number"))
    }

    pub(super) fn needed(&self, key: &str) -> Result<u64, Problem> {
        self.number(key)?
            .ok_or_else(|| self.problem(key, "missing"))
    }

    pub(super) fn signed(&self, key: &str) -> Result<Option<i64>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_i64()
            .or_else(|| unsigned(value).map(as_int))
            .map(Some)
            .ok_or_else(|| self.problem(key, "not a number"))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'a str>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.problem(key, "not a string"))
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Object<'a>>, Problem> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let map = value
            .as_object()
            .ok_or_else(|| self.problem(key, "not an object"))?;
        Ok(Some(Object {
            map,
            place: self.at(key),
        }))
    }

    pub(super) fn required_object(&self, key: &str) -> Result<Object<'a>, Problem> {
        self.object(key)?
            .ok_or_else(|| self.problem(key, "missing"))
    }

    fn list(&self, key: &str) -> Result<&'a [Value], Problem> {
        let Some(value) = self.get(key) else {
            return Ok(&[]);
        };
        let list = value
            .as_array()
            .ok_or_else(|| self.problem(key, "not a list"))?;
        Ok(list)
    }

    /// The objects of a list; empty if there is no list.
    pub(super) fn objects(&self, key: &str) -> Result<Vec<Object<'a>>, Problem> {
        let list = self.list(key)?.iter().enumerate();
        list.map(|(i, value)| {
            let place = format!("{}[{i}]", self.at(key));
            let map = value.as_object().ok_or_else(|| Problem {
                place: place.clone(),
                what: "not an object".into(),
            })?;
            Ok(Object { map, place })
        })
        .collect()
    }

    /// The numbers of a list.
    pub(super) fn numbers(&self, key: &str) -> Result<Vec<u64>, Problem> {
        numbers(self.list(key)?).ok_or_else(|| self.problem(key, "not a list of unsigned numbers"))
    }

    /// The numbers of a list of lists.
    pub(super) fn rows(&self, key: &str) -> Result<Vec<Vec<u64>>, Problem> {
        let rows = self.list(key)?.iter().map(|row| numbers(row.as_array()?));
        rows.collect::<Option<_>>()
            .ok_or_else(|| self.problem(key, "not a list of lists of unsigned numbers"))
    }

    /// Memory: zlib data in base64. Empty if missing.
    pub(super) fn memory(&self, key: &str) -> Result<Vec<u8>, Problem> {
        match self.string(key)? {
            Some(text) => self.unpacked(key, text),
            None => Ok(Vec::new()),
        }
    }

    /// Pieces of memory with their addresses.
    pub(super) fn memories(&self, key: &str) -> Result<Vec<(u64, Vec<u8>)>, Problem> {
        let Some(pieces) = self.object(key)? else {
            return Ok(Vec::new());
        };
        let piece = |(at, value): (&String, &Value)| {
            let digits = at.strip_prefix("0x");
            let address = match digits {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => at.parse(),
            };
            let address = address.map_err(|_| pieces.problem(at, "not an address"))?;
            let text = value.as_str();
            let text = text.ok_or_else(|| pieces.problem(at, "not a string"))?;
            Ok((address, pieces.unpacked(at, text)?))
        };
        pieces.map.iter().map(piece).collect()
    }

    fn unpacked(&self, key: &str, text: &str) -> Result<Vec<u8>, Problem> {
        let packed = STANDARD
            .decode(text)
            .map_err(|e| self.problem(key, &format!("not base64: {e}")))?;
        let mut bytes = Vec::new();
        let mut unpacked = ZlibDecoder::new(packed.as_slice()).take(MEMORY_MAX + 1);
        unpacked
            .read_to_end(&mut bytes)
            .map_err(|e| self.problem(key, &format!("not zlib: {e}")))?;
        match bytes.len() as u64 > MEMORY_MAX {
            true => Err(self.problem(key, "more than 1 MiB of memory")),
            false => Ok(bytes),
        }
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
