//! Parses the start of a pipe-mode perf.data file, where attributes and features are records.

use super::attr::{ATTR_SIZE_VER0, EventAttr};
use super::error::{PerfError, PerfErrorKind};
use super::features::{Features, feature};
use super::file::{Mode, Parts};
use super::file_mode::ATTRS_MAX;
use super::le;
use super::walk::{HEADER, RawRecord, Records, record_type as rt};

/// The size in the header: magic and size only.
pub(super) const HEADER_SIZE: u64 = 16;
/// The `EVENT_UPDATE` type that carries a name.
const EVENT_UPDATE_NAME: u64 = 2;

/// Reads the records up to the first sample.
pub(super) fn parse(bytes: &[u8]) -> Result<Parts<'_>, PerfError> {
    let start = HEADER_SIZE as usize;
    let mut attrs: Vec<EventAttr> = Vec::new();
    let mut features = Features::default();
    let mut problems = Vec::new();

    // Names may come before or after the attribute that they belong to.
    let mut names: Vec<(u64, &[u8])> = Vec::new();

    for record in Records::new(&bytes[start..], HEADER_SIZE) {
        let raw = match record {
            Ok(raw) => raw,
            Err(error) => {
                problems.push(error);
                break;
            }
        };
        match raw.kind {
            rt::HEADER_ATTR => {
                let count = attrs.len() as u64;
                // Bounds the memory, as in a file.
                if count >= ATTRS_MAX {
                    let kind = PerfErrorKind::TooMany {
                        count,
                        limit: ATTRS_MAX,
                    };
                    return Err(PerfError::new(kind, raw.offset, "attribute record"));
                }
                attrs.push(read_attr(&raw)?);
            }
            rt::HEADER_FEATURE => {
                if let Some(number) = le::u64_at(raw.body, 0).and_then(|n| u8::try_from(n).ok()) {
                    // The record's header and the number come before the data.
                    features.push(number, raw.offset + 16, &raw.body[8..]);
                }
            }
            rt::EVENT_UPDATE if le::u64_at(raw.body, 0) == Some(EVENT_UPDATE_NAME) => {
                if let Some(id) = le::u64_at(raw.body, 8) {
                    // The name follows the type of the update and the event's ID.
                    names.push((id, le::until_nul(&raw.body[16..])));
                }
            }
            rt::HEADER_TRACING_DATA => {
                // The data follows the record.
                let begin = raw.offset as usize + HEADER + raw.body.len();
                let size = le::u32_at(raw.body, 0).unwrap_or(0) as usize;
                if let Some(data) = bytes.get(begin..).and_then(|rest| rest.get(..size)) {
                    features.push(feature::TRACING_DATA, begin as u64, data);
                }
            }
            // What describes the recording comes before the first sample.
            rt::SAMPLE | rt::COMPRESSED | rt::COMPRESSED2 => break,
            _ => {}
        }
    }

    // Only now, when all attributes are known: descriptions and updates are records of their own.
    name_events(&features, &names, &mut attrs, &mut problems);
    Ok(Parts {
        mode: Mode::Pipe,
        attrs,
        features,
        data_start: start,
        data_end: bytes.len(),
        problems,
    })
}

/// Reads an attribute record: the attribute, of its stated size, then its IDs.
fn read_attr(raw: &RawRecord<'_>) -> Result<EventAttr, PerfError> {
    let size = match le::u32_at(raw.body, 4).unwrap_or(0) as usize {
        0 => ATTR_SIZE_VER0,
        size => size,
    };
    let Some((attr, ids)) = raw.body.split_at_checked(size) else {
        let kind = PerfErrorKind::Short {
            need: size as u64,
            have: raw.body.len() as u64,
        };
        return Err(PerfError::new(kind, raw.offset, "attribute record"));
    };
    let mut attr = EventAttr::parse(attr, raw.offset + 8)?;
    attr.ids.extend(
        ids.as_chunks::<8>()
            .0
            .iter()
            .map(|id| u64::from_le_bytes(*id)),
    );
    Ok(attr)
}

/// Names the events: from their description, or else from updates, which are found by ID.
fn name_events(
    features: &Features<'_>,
    names: &[(u64, &[u8])],
    attrs: &mut [EventAttr],
    problems: &mut Vec<PerfError>,
) {
    let described = features.events().unwrap_or_else(|error| {
        problems.push(error);
        None
    });
    for (attr, event) in attrs.iter_mut().zip(described.into_iter().flatten()) {
        attr.name = Some(String::from_utf8_lossy(event.name).into_owned());
    }
    let mut sorted = names.to_vec();
    sorted.sort_by_key(|name| name.0);
    for attr in attrs.iter_mut().filter(|attr| attr.name.is_none()) {
        let Some(first) = attr.ids.first() else {
            continue;
        };
        if let Ok(place) = sorted.binary_search_by_key(first, |name| name.0) {
            attr.name = Some(String::from_utf8_lossy(sorted[place].1).into_owned());
        }
    }
}
