//! The file as a whole: header, attributes, features, and the range of the records.

use super::attr::EventAttr;
use super::decode::decode;
use super::error::{PerfError, PerfErrorKind};
use super::features::{BuildId, Features};
use super::layout::ABSENT;
use super::le;
use super::record::{self, Event, Record};
use super::sample::Sample;
use super::walk::{RawRecord, Records, record_type as rt};
use super::{file_mode, pipe_mode};

/// The part of a file-mode file that has the records, in errors.
pub(super) const DATA_SECTION: &str = "data section";

/// How the file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To a file: attributes and features are in sections.
    File,
    /// To a pipe: attributes and features are records.
    Pipe,
}

/// The parsed header, from [`file_mode`] or [`pipe_mode`].
pub(super) struct Parts<'a> {
    pub(super) mode: Mode,
    pub(super) attrs: Vec<EventAttr>,
    pub(super) features: Features<'a>,
    pub(super) data_start: usize,
    pub(super) data_end: usize,
    pub(super) problems: Vec<PerfError>,
}

/// A perf.data file in memory, usually memory-mapped.
#[derive(Debug)]
pub struct PerfFile<'a> {
    bytes: &'a [u8],
    mode: Mode,
    attrs: Vec<EventAttr>,
    features: Features<'a>,
    ids: Ids,
    data_start: usize,
    data_end: usize,
    problems: Vec<PerfError>,
}

impl<'a> PerfFile<'a> {
    /// Parses the header, the attributes and the feature table. In pipe mode these are records,
    /// which are read up to the first sample.
    ///
    /// # Errors
    /// If it is not a perf.data file, has an unsupported form, or has no attribute. Non-fatal
    /// problems are in [`PerfFile::problems`] instead.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PerfError> {
        let error = |kind| PerfError::new(kind, 0, "file header");

        // The magic is a number in the writer's byte order: read backwards, it is big-endian.
        match bytes.first_chunk::<8>() {
            Some(b"PERFILE2") => {}
            Some(b"2ELIFREP") => return Err(error(PerfErrorKind::BigEndian)),
            Some(b"PERFFILE" | b"ELIFFREP") => return Err(error(PerfErrorKind::OldLayout)),
            _ => return Err(error(PerfErrorKind::NotPerfData)),
        }

        // Only the header's size tells a pipe's stream from a file.
        let size = le::u64_at(bytes, 8).ok_or_else(|| {
            error(PerfErrorKind::Short {
                need: 16,
                have: bytes.len() as u64,
            })
        })?;
        let parts = match size {
            pipe_mode::HEADER_SIZE => pipe_mode::parse(bytes)?,
            file_mode::HEADER_SIZE_MIN.. => file_mode::parse(bytes, size)?,
            _ => return Err(error(PerfErrorKind::HeaderSize(size))),
        };

        let Parts {
            mode,
            attrs,
            features,
            data_start,
            data_end,
            problems,
        } = parts;

        // Without an attribute no record can be decoded: all layouts come from there.
        if attrs.is_empty() {
            return Err(error(PerfErrorKind::NoAttr));
        }

        // Made once: each record that is read looks up its attribute by its ID.
        let ids = Ids::new(&attrs);
        Ok(Self {
            bytes,
            mode,
            attrs,
            features,
            ids,
            data_start,
            data_end,
            problems,
        })
    }

    /// How the file was written.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The recorded events; never empty.
    pub fn attrs(&self) -> &[EventAttr] {
        &self.attrs
    }

    /// The feature sections. In pipe mode, those written before the first sample.
    pub fn features(&self) -> &Features<'a> {
        &self.features
    }

    /// Non-fatal problems with the header.
    pub fn problems(&self) -> &[PerfError] {
        &self.problems
    }

    /// Why the last records are missing, if the file was cut short and that can be told without
    /// unpacking: in file mode from the header, in pipe mode by going from record to record.
    pub fn cut(&self) -> Option<PerfError> {
        match self.mode {
            Mode::File => self.data_problem(),
            Mode::Pipe => self.records().find_map(Result::err),
        }
    }

    /// What the header says wrongly about the range of the records.
    pub(super) fn data_problem(&self) -> Option<PerfError> {
        let is_data = |problem: &&PerfError| problem.part == DATA_SECTION;
        self.problems.iter().find(is_data).copied()
    }

    /// File offsets of the start of the first record and of the end of the last.
    pub fn data_range(&self) -> std::ops::Range<u64> {
        self.data_start as u64..self.data_end as u64
    }

    /// The records in file order; compressed ones are not unpacked.
    pub fn records(&self) -> Records<'a> {
        Records::new(
            &self.bytes[self.data_start..self.data_end],
            self.data_start as u64,
        )
    }

    /// The records that start in a range of file offsets. The range must start at a record, as
    /// those of [`PerfFile::chunks`] do.
    pub fn records_in(&self, range: std::ops::Range<u64>) -> Records<'a> {
        let clamp = |offset: u64| {
            usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .clamp(self.data_start, self.data_end)
        };
        let (start, end) = (clamp(range.start), clamp(range.end));
        Records::new(&self.bytes[start..end.max(start)], start as u64)
    }

    /// The record at a file offset from [`RawRecord::offset`].
    ///
    /// # Errors
    /// If there is no complete record.
    #[inline]
    pub fn record_at(&self, offset: u64) -> Result<RawRecord<'a>, PerfError> {
        let mut records = self.records_in(offset..self.data_end as u64);
        if records.offset() != offset {
            return Err(PerfError::new(
                PerfErrorKind::NoRecordHere,
                offset,
                "record",
            ));
        }
        let nothing = || PerfError::new(PerfErrorKind::NoRecordHere, offset, "record");
        records.next().ok_or_else(nothing)?
    }

    /// Build IDs of the sampled files, as far as perf recorded them: from the feature section, or
    /// in pipe mode from records, for which the whole file is read. Mappings may have their own
    /// ([`super::MmapIdentity::BuildId`]). An invalid entry is an error; entries after it are still
    /// read if the framing allows.
    pub fn build_ids(&self) -> impl Iterator<Item = Result<BuildId<'a>, PerfError>> + 'a {
        let in_pipe = (self.mode == Mode::Pipe).then(|| self.records());
        let from_records = in_pipe.into_iter().flatten().filter_map(|record| {
            let raw = record.ok().filter(|raw| raw.kind == rt::HEADER_BUILD_ID)?;
            Some(BuildId::parse(raw.misc, raw.body, raw.offset))
        });
        self.features.build_ids().chain(from_records)
    }

    /// The event of a record; the first event if the record does not tell.
    ///
    /// # Errors
    /// If a sample has an ID that no event has.
    #[inline]
    pub fn attr_of(&self, raw: &RawRecord<'_>) -> Result<&EventAttr, PerfError> {
        if let [only] = self.attrs.as_slice() {
            return Ok(only);
        }
        let is_sample = raw.kind == rt::SAMPLE;
        match self.ids.index_of(raw) {
            Ok(index) => Ok(&self.attrs[index]),
            Err(id) if is_sample => Err(PerfError::new(
                PerfErrorKind::UnknownId(id),
                raw.offset,
                "sample",
            )),
            Err(_) => Ok(&self.attrs[0]),
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// If its body is invalid for its type.
    #[inline]
    pub fn decode<'r>(&'r self, raw: RawRecord<'r>) -> Result<Event<'r>, PerfError> {
        let attr = self.attr_of(&raw)?;
        let record = match raw.kind {
            rt::SAMPLE => Record::Sample(Sample::new(&raw, attr)?),
            _ => decode(&raw, attr)?,
        };
        Ok(Event { raw, record, attr })
    }

    /// Decodes a sample; `None` for another kind of record.
    ///
    /// # Errors
    /// If the record is too short or has the ID of an unknown event.
    #[inline]
    pub fn sample<'r>(&'r self, raw: &RawRecord<'r>) -> Result<Option<Sample<'r>>, PerfError> {
        if raw.kind != rt::SAMPLE {
            return Ok(None);
        }
        Sample::new(raw, self.attr_of(raw)?).map(Some)
    }

    /// The time of a record; see [`Event::time`].
    #[inline]
    pub(super) fn time_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        record::time_of(raw, self.attr_of(raw).ok()?)
    }
}

/// Maps IDs to events.
#[derive(Debug)]
struct Ids {
    /// (id, index of the event), ascending.
    sorted: Vec<(u64, u32)>,
    /// Offset of the ID in a sample, if it is the same for all events.
    in_sample: u16,
    /// Offset of the ID from the end of a record other than a sample.
    from_end: u16,
}

impl Ids {
    fn new(attrs: &[EventAttr]) -> Self {
        let numbered = attrs.iter().zip(0u32..);
        let mut sorted: Vec<(u64, u32)> = numbered
            .flat_map(|(attr, index)| attr.ids.iter().map(move |&id| (id, index)))
            .collect();
        sorted.sort_unstable();
        let common = |place: fn(&EventAttr) -> u16| {
            let first = attrs.first().map_or(ABSENT, place);
            if attrs.iter().all(|attr| place(attr) == first) {
                first
            } else {
                ABSENT
            }
        };
        Self {
            sorted,
            in_sample: common(|attr| attr.layout.id),
            from_end: common(|attr| match attr.layout.trailer_id {
                ABSENT => ABSENT,
                at => attr.layout.trailer - at,
            }),
        }
    }

    /// Index of a record's event; the first event for records without an ID or with ID 0, which the
    /// perf tool synthesizes. `Err` is an unknown ID.
    #[inline]
    fn index_of(&self, raw: &RawRecord<'_>) -> Result<usize, u64> {
        let id = if raw.kind == rt::SAMPLE {
            le::u64_at(raw.body, usize::from(self.in_sample))
        } else if raw.kind >= rt::USER_TYPE_START {
            None
        } else {
            let at = raw.body.len().checked_sub(usize::from(self.from_end));
            at.and_then(|at| le::u64_at(raw.body, at))
        };
        match id {
            None | Some(0) => Ok(0),
            Some(id) => {
                let found = self.sorted.binary_search_by_key(&id, |entry| entry.0);
                found
                    .map(|place| self.sorted[place].1 as usize)
                    .map_err(|_| id)
            }
        }
    }
}

/// The bytes at `offset` with `size`, if they are in the file.
pub(super) fn section<'a>(
    bytes: &'a [u8],
    offset: u64,
    size: u64,
    part: &'static str,
) -> Result<&'a [u8], PerfError> {
    let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
    range
        .and_then(|(start, size)| bytes.get(start..start.checked_add(size)?))
        .ok_or_else(|| PerfError::new(outside(bytes, offset, size), offset, part))
}

/// The error that a section of `size` bytes at `offset` ends outside the file.
pub(super) fn outside(bytes: &[u8], offset: u64, size: u64) -> PerfErrorKind {
    let file = bytes.len() as u64;
    let missing = offset.saturating_add(size).saturating_sub(file).min(size);
    PerfErrorKind::SectionOutOfFile {
        size,
        missing,
        file,
    }
}
