//! Splits a recording into chunks that can be processed in parallel.
//!
//! One cheap pass over the record headers finds the chunk boundaries, without reading the bytes
//! between or storing anything. Each chunk is then iterated with [`PerfFile::records_in`]; bytes
//! are shared, so several threads can do so at once. Records in a chunk are in file order. For time
//! order, use [`PerfFile::for_each_ordered`], whose events have offsets for
//! [`PerfFile::record_at`].

use std::ops::Range;

use super::error::PerfError;
use super::file::PerfFile;
use super::walk::{Records, record_type as rt};

/// A range of complete records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// File offsets, for [`PerfFile::records_in`].
    pub range: Range<u64>,
    /// Number of records.
    pub records: u64,
    /// Number of samples among them.
    pub samples: u64,
    /// Does it have compressed records? They form one stream, which only [`PerfFile::for_each`] can
    /// unpack.
    pub compressed: bool,
}

/// Iterator over the chunks of a recording.
///
/// If the framing is lost, yields the chunk before that point, then the error, then nothing.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    records: Records<'a>,
    size: u64,
    error: Option<PerfError>,
}

impl PerfFile<'_> {
    /// Splits the recording into chunks of at least `size` bytes, except the last.
    pub fn chunks(&self, size: u64) -> Chunks<'_> {
        Chunks {
            records: self.records(),
            size,
            error: None,
        }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Chunk, PerfError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The error of the last chunk, whose whole records came first.
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }

        let start = self.records.offset();
        let mut chunk = Chunk {
            range: start..start,
            records: 0,
            samples: 0,
            compressed: false,
        };

        // A record is never split: one larger than a chunk is a chunk of its own.
        while chunk.records == 0 || chunk.range.end - start < self.size {
            match self.records.next() {
                Some(Ok(raw)) => {
                    chunk.records += 1;
                    chunk.samples += u64::from(raw.kind == rt::SAMPLE);
                    chunk.compressed |= matches!(raw.kind, rt::COMPRESSED | rt::COMPRESSED2);
                    chunk.range.end = self.records.offset();
                }
                Some(Err(error)) => {
                    self.error = Some(error);
                    break;
                }
                None => break,
            }
        }

        // An error after whole records is kept for the next call, so that they are not lost.
        if chunk.records == 0 {
            return self.error.take().map(Err);
        }
        Some(Ok(chunk))
    }
}
