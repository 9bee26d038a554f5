//! What a program left in a kernel, beside what it left here.
//!
//! The text has `map NAME`, and below it the entries of that map as `bpftool map dump` prints them on a line each
//! (`key: 01 00 00 00  value: 2a 00 00 00`), or, if it is one of outputs, what was read from its events, in order
//! (`output: 01 02`).

use super::Handled;
use super::print::hex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use unwind_sim_perf_model::bpf::maps::{Map, Storage};
use unwind_sim_perf_model::bpf::raw_payload;
use unwind_sim_recordings::counted::counted;
use unwind_sim_unwind::printable::Printable;

/// Maximum number of differences of a map that are shown.
const SHOWN_MAX: usize = 8;

/// Why a text is not one of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapsTextError {
    /// A line is none of those that there are.
    #[error("line {0} is none of `map NAME`, `key: BYTES  value: BYTES`, `output: BYTES`")]
    Line(usize),
    /// An entry stands above all maps.
    #[error("line {0}: there is no `map NAME` above it")]
    NoMap(usize),
    /// An entry stands there twice.
    #[error("line {0}: the map has this key already")]
    Again(usize),
    /// A map stands there twice.
    #[error("line {0}: there is such a map already")]
    MapAgain(usize),
    /// There is no map.
    #[error("there is no `map NAME` in it")]
    Empty,
}

/// What a kernel had at the end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MapsText {
    maps: Vec<Left>,
}

/// What is in a map.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    name: String,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

/// Bytes of two hexadecimal digits with spaces between them.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let byte = |digits: &str| {
        let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_byte.then(|| u8::from_str_radix(digits, 16).ok())?
    };
    text.split_whitespace().map(byte).collect()
}

impl MapsText {
    /// Reads the text.
    ///
    /// # Errors
    /// If a line is something else, a key or a map is there twice, or there is no map.
    pub fn parse(text: &str) -> Result<MapsText, MapsTextError> {
        let mut found = MapsText::default();
        for (at, line) in text.lines().enumerate() {
            let (at, line) = (at + 1, line.trim());
            // bpftool's last line.
            if line.is_empty() || line.starts_with("Found ") {
                continue;
            }
            if let Some(name) = line.strip_prefix("map ") {
                if found.maps.iter().any(|map| map.name == name) {
                    return Err(MapsTextError::MapAgain(at));
                }
                found.maps.push(Left {
                    name: name.to_owned(),
                    ..Left::default()
                });
                continue;
            }
            let map = found.maps.last_mut().ok_or(MapsTextError::NoMap(at));
            let wrong = MapsTextError::Line(at);
            if let Some(output) = line.strip_prefix("output:") {
                map?.outputs.push(bytes(output).ok_or(wrong)?);
                continue;
            }
            let entry = line.strip_prefix("key:").ok_or(wrong)?;
            let (key, value) = entry.split_once("value:").ok_or(wrong)?;
            let (key, value) = (bytes(key).ok_or(wrong)?, bytes(value).ok_or(wrong)?);
            if map?.entries.insert(key, value).is_some() {
                return Err(MapsTextError::Again(at));
            }
        }
        match found.maps.is_empty() {
            true => Err(MapsTextError::Empty),
            false => Ok(found),
        }
    }
}

/// The entries of a map, each with one value; `None` if the map has none that can be compared.
fn entries(map: &Map) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    match &map.storage {
        Storage::Stacks(stacks) => {
            let entry = |id: u32| {
                let frames = stacks.get(id).unwrap_or_default();
                let mut value: Vec<u8> = frames.iter().flat_map(|ip| ip.to_le_bytes()).collect();
                // The kernel hands out the whole value, with zeros behind the stack.
                value.resize(map.def.value_size as usize, 0);
                (id.to_le_bytes().to_vec(), value)
            };
            Some(stacks.ids().map(entry).collect())
        }
        Storage::Array(_) | Storage::Hash(_) => {
            let all = map.dump().into_iter();
            all.map(|(key, values)| match values[..] {
                [value] => Some((key, value.to_vec())),
                // One for each processor.
                _ => None,
            })
            .collect()
        }
        _ => None,
    }
}

/// What is different, as `(what, here, there)`.
type Difference<'a> = (String, Option<&'a Vec<u8>>, Option<&'a Vec<u8>>);

impl Handled {
    /// Writes for each map of the text whether the program left the same here. Returns how many entries and
    /// outputs were compared, and how many of these are different.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn against(&self, there: &MapsText, out: &mut dyn Write) -> io::Result<(usize, usize)> {
        let (mut compared, mut different) = (0, 0);
        for left in &there.maps {
            let name = Printable::new(&left.name);
            let Some(map) = self.handlers.maps.named(&left.name) else {
                writeln!(out, "map {name}: the object has no such map")?;
                different += 1;
                continue;
            };
            let of_map = |output: &&super::Output| !output.is_ring && output.map == left.name;
            let outputs = self.outputs.iter().filter(of_map);
            let outputs: Vec<Vec<u8>> = outputs.map(|output| raw_payload(&output.data)).collect();
            let here = match &map.storage {
                Storage::PerfEvents(_) => BTreeMap::new(),
                _ => match entries(map) {
                    Some(here) => here,
                    None => {
                        writeln!(out, "map {name}: maps of this kind are not compared")?;
                        continue;
                    }
                },
            };

            let keys = here.keys().chain(left.entries.keys());
            let keys: BTreeSet<&Vec<u8>> = keys.collect();
            let of_key = |key: &&Vec<u8>| {
                let what = format!("key {}", hex(key));
                (what, here.get(*key), left.entries.get(*key))
            };
            let longest = outputs.len().max(left.outputs.len());
            let of_output = |at: usize| {
                let what = format!("output {at}");
                (what, outputs.get(at), left.outputs.get(at))
            };
            let all: Vec<Difference<'_>> = keys.iter().map(of_key).collect();
            let all: Vec<_> = all.into_iter().chain((0..longest).map(of_output)).collect();
            let differ = all.iter().filter(|(_, here, there)| here != there);
            let differ: Vec<_> = differ.collect();

            compared += all.len();
            different += differ.len();
            let word = match map.storage {
                Storage::PerfEvents(_) => "output",
                _ => "entry",
            };
            let same = all.len() - differ.len();
            writeln!(
                out,
                "map {name}: {} as in the kernel, {} not",
                counted(same, word),
                differ.len()
            )?;
            for (what, here, there) in differ.iter().take(SHOWN_MAX) {
                let text = |bytes: &Option<&Vec<u8>>| bytes.map_or("none".into(), |b| hex(b));
                writeln!(out, "  {what}: {}", text(here))?;
                writeln!(out, "    in the kernel: {}", text(there))?;
            }
            if differ.len() > SHOWN_MAX {
                writeln!(out, "  and {} more", differ.len() - SHOWN_MAX)?;
            }
        }
        Ok((compared, different))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_maps() {
        let text = "map counts\nkey: 01 00  value: 2A\n\nFound 1 element\nmap out\noutput: 05 06\noutput:\n";
        let found = MapsText::parse(text).expect("well formed");
        let counts = Left {
            name: "counts".into(),
            entries: BTreeMap::from([(vec![1, 0], vec![0x2a])]),
            outputs: Vec::new(),
        };
        let out = Left {
            name: "out".into(),
            entries: BTreeMap::new(),
            outputs: vec![vec![5, 6], Vec::new()],
        };
        assert_eq!(found.maps, [counts, out]);
    }

    #[test]
    fn a_text_that_is_none() {
        for (text, error) in [
            ("", MapsTextError::Empty),
            ("Found 0 elements\n", MapsTextError::Empty),
            ("key: 01  value: 02\n", MapsTextError::NoMap(1)),
            ("map a\nkey: 01\n", MapsTextError::Line(2)),
            ("map a\nkey: 1  value: 02\n", MapsTextError::Line(2)),
            ("map a\nkey: +1  value: 02\n", MapsTextError::Line(2)),
            ("map a\noutput: 012\n", MapsTextError::Line(2)),
            ("map a\nhello\n", MapsTextError::Line(2)),
            (
                "map a\nkey: 01  value: 02\nkey: 01  value: 02\n",
                MapsTextError::Again(3),
            ),
            ("map a\nmap b\nmap a\n", MapsTextError::MapAgain(3)),
        ] {
            assert_eq!(MapsText::parse(text), Err(error), "{text:?}");
        }
    }
}
