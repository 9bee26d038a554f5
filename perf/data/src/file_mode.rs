//! Parses the header of a file-mode perf.data file.

use super::attr::EventAttr;
use super::error::{PerfError, PerfErrorKind};
use super::features::Features;
use super::file::{DATA_SECTION, Mode, Parts, outside, section};
use super::le::{self, Cursor};

/// Minimum header size, bytes: up to the feature bits, which the oldest files lack.
pub(super) const HEADER_SIZE_MIN: u64 = 72;
/// Size of the header including its 256 feature bits.
const HEADER_SIZE: u64 = 104;
/// Size of a section descriptor: offset and size.
const SECTION: usize = 16;
/// Maximum number of attributes in a file.
pub(super) const ATTRS_MAX: u64 = 1 << 16;
/// Maximum number of feature bits.
const FEATURE_BITS: u64 = 256;

/// Reads the header, attributes and feature table.
pub(super) fn parse(bytes: &[u8], header_size: u64) -> Result<Parts<'_>, PerfError> {
    let mut c = Cursor::new(bytes, 0, "file header");
    // The magic and the header's size, which chose this reader.
    c.take(16)?;
    let attr_size = c.u64()?;
    let (attrs_offset, attrs_size) = (c.u64()?, c.u64()?);
    let (data_offset, data_size) = (c.u64()?, c.u64()?);
    // The section of event types, which is no longer used.
    c.take(SECTION)?;
    let feature_bits: &[u8] = if header_size >= HEADER_SIZE {
        c.take(32)?
    } else {
        &[]
    };

    // Without attributes nothing can be decoded, so damage there is fatal.
    let attr_table = section(bytes, attrs_offset, attrs_size, "attribute section")?;
    let mut attrs = read_attrs(bytes, attr_table, attrs_offset, attr_size)?;

    let mut problems = Vec::new();
    let data_start = match usize::try_from(data_offset) {
        Ok(start) if start <= bytes.len() => start,
        _ => {
            let kind = outside(bytes, data_offset, data_size);
            return Err(PerfError::new(kind, data_offset, DATA_SECTION));
        }
    };

    // The table of features starts where the data ends: a wrong size leaves no features.
    let mut features = Features::default();
    let data_end = match section(bytes, data_offset, data_size, DATA_SECTION) {
        // The size is written last: zero means that the recorder was killed.
        Ok([]) => {
            let kind = PerfErrorKind::DataSizeZero;
            problems.push(PerfError::new(kind, data_offset, DATA_SECTION));
            bytes.len()
        }
        Ok(data) => {
            let end = data_start + data.len();
            read_feature_table(bytes, end, feature_bits, &mut features, &mut problems);
            end
        }
        Err(error) => {
            problems.push(error);
            bytes.len()
        }
    };

    // Names come from a feature, so they are missing if the recorder was killed.
    match name_events(&features, &mut attrs) {
        Ok(()) => {}
        Err(error) => problems.push(error),
    }

    Ok(Parts {
        mode: Mode::File,
        attrs,
        features,
        data_start,
        data_end,
        problems,
    })
}

/// Reads the attributes, and the IDs that each one points to.
fn read_attrs(
    bytes: &[u8],
    table: &[u8],
    table_offset: u64,
    entry_size: u64,
) -> Result<Vec<EventAttr>, PerfError> {
    const PART: &str = "attribute section";
    let error = |kind| PerfError::new(kind, table_offset, PART);

    // An entry is an attribute of the writer's own size and the place of its IDs.
    let entry = usize::try_from(entry_size)
        .ok()
        .filter(|&size| size >= super::attr::ATTR_SIZE_VER0 + SECTION)
        .ok_or_else(|| error(PerfErrorKind::AttrSize(entry_size)))?;

    // Bounds the memory: each attribute here is larger than the entry it comes from.
    let count = (table.len() / entry) as u64;
    if count > ATTRS_MAX {
        return Err(error(PerfErrorKind::TooMany {
            count,
            limit: ATTRS_MAX,
        }));
    }

    // No ID is listed twice, so all lists together fit into the file.
    let mut ids_left = bytes.len() / 8;
    let mut attrs = Vec::new();
    for (index, slot) in table.chunks_exact(entry).enumerate() {
        let offset = table_offset + (index * entry) as u64;
        let mut attr = EventAttr::parse(&slot[..entry - SECTION], offset)?;

        // The place of the IDs follows the attribute, whose size may be smaller than its slot.
        let at = match le::u32_at(slot, 4).unwrap_or(0) as usize {
            0 => super::attr::ATTR_SIZE_VER0,
            size => size.min(entry - SECTION),
        };

        let word = |at| le::u64_at(slot, at).unwrap_or_default();
        let ids = section(bytes, word(at), word(at + 8), "attribute's ids")?;
        ids_left = ids_left.checked_sub(ids.len() / 8).ok_or_else(|| {
            let limit = bytes.len() as u64 / 8;
            let kind = PerfErrorKind::TooMany {
                count: ids.len() as u64 / 8,
                limit,
            };
            PerfError::new(kind, word(at), "attribute's ids")
        })?;

        // Each ID has 64 bits.
        attr.ids.extend(
            ids.as_chunks::<8>()
                .0
                .iter()
                .map(|id| u64::from_le_bytes(*id)),
        );
        attrs.push(attr);
    }

    Ok(attrs)
}

/// Reads the descriptors of the feature sections, which follow the data in ascending order.
fn read_feature_table<'a>(
    bytes: &'a [u8],
    table: usize,
    bits: &[u8],
    features: &mut Features<'a>,
    problems: &mut Vec<PerfError>,
) {
    let mut c = Cursor::new(&bytes[table..], table as u64, "feature table");

    // Only the features whose bit is set have a descriptor, in the order of the bits.
    for number in 0..FEATURE_BITS.min(8 * bits.len() as u64) as usize {
        if bits[number / 8] >> (number % 8) & 1 == 0 {
            continue;
        }

        let place = c.u64().and_then(|offset| Ok((offset, c.u64()?)));
        let (offset, size) = match place {
            Ok(place) => place,
            // The descriptors behind it cannot be found, so this ends the table.
            Err(error) => {
                problems.push(error);
                return;
            }
        };

        // One feature out of the file does not make the others unreadable.
        match section(bytes, offset, size, "feature section") {
            Ok(data) => features.push(number as u8, offset, data),
            Err(error) => problems.push(error),
        }
    }
}

/// Names the events from the feature section that has their names.
fn name_events(features: &Features<'_>, attrs: &mut [EventAttr]) -> Result<(), PerfError> {
    for (index, event) in features.events()?.into_iter().flatten().enumerate() {
        let name = || Some(String::from_utf8_lossy(event.name).into_owned());
        // The descriptions are in the order of the attributes; IDs, if present, must agree.
        if let Some(attr) = attrs.get_mut(index)
            && (event.ids.is_empty() || attr.ids.is_empty() || attr.ids == event.ids)
        {
            attr.name = name();
        }
    }
    Ok(())
}
