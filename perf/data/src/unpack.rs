//! Unpacks compressed records (`perf record -z`) through a buffer of fixed size.
//!
//! All compressed records of a file form one zstd stream; a record inside it may start in one of
//! them and end in a later one. Memory is the buffer plus the stream's window, which the decoder
//! limits, regardless of the length of the recording.

use std::ops::ControlFlow;

use super::decoder::Decoder;
use super::error::{PerfError, PerfErrorKind, ZstdFault};
use super::le;
use super::walk::{RawRecord, Records, record_type as rt};

/// Bytes unpacked at a time; several times the maximum size of a record (64 KiB).
const BUFFER: usize = 256 << 10;
/// Maximum bytes that one compressed record may unpack to, if the file does not state the ring
/// size.
const OUTPUT_MAX: u64 = 64 << 20;
/// Minimum for this limit, whatever ring size the file states.
const OUTPUT_MAX_LEAST: u64 = 1 << 20;
/// Maximum for this limit, whatever ring size the file states.
const RING_MAX: u64 = 1 << 30;

/// Outcome for a compressed record.
pub(super) enum Unpacked {
    /// All of it was delivered.
    All,
    /// The callback asked to stop.
    Stopped,
}

/// The state of the stream between compressed records.
pub(super) struct Unpacker {
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Bytes at the start of `buffer` of a record that is not completely unpacked yet.
    carried: usize,
    output_max: u64,
}

impl Unpacker {
    /// `ring` is the size in bytes of the recorder's rings, if the file states it.
    pub(super) fn new(ring: Option<u32>, offset: u64) -> Result<Self, PerfError> {
        let refused = |fault| error(PerfErrorKind::Zstd(fault), offset);
        let decoder = Decoder::new().map_err(refused)?;
        let output_max = ring
            .map_or(OUTPUT_MAX, u64::from)
            .clamp(OUTPUT_MAX_LEAST, RING_MAX);
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Ok(Self {
            decoder,
            buffer,
            carried: 0,
            output_max,
        })
    }

    /// Unpacks one compressed record and delivers the records that are complete.
    pub(super) fn feed(
        &mut self,
        container: &RawRecord<'_>,
        take: &mut impl FnMut(RawRecord<'_>) -> ControlFlow<()>,
    ) -> Result<Unpacked, PerfError> {
        let mut input = payload(container)?;
        let offset = container.offset;

        // A few bytes of zstd can unpack to gigabytes.
        let mut output_left = self.output_max;
        loop {
            let room = &mut self.buffer[self.carried..];
            let room_len = room.len();

            let step = self.decoder.run(input, room);
            let step = step.map_err(|fault| error(PerfErrorKind::Zstd(fault), offset))?;
            let (read, written) = (step.read, step.written);
            input = &input[read..];

            output_left = output_left
                .checked_sub(written as u64)
                .ok_or_else(|| error(PerfErrorKind::DecompressionLimit(self.output_max), offset))?;

            if self
                .hand_on(self.carried + written, offset, take)?
                .is_break()
            {
                return Ok(Unpacked::Stopped);
            }

            // If the buffer was full, the decoder may have more output.
            if input.is_empty() && written < room_len {
                return Ok(Unpacked::All);
            }

            // Else the loop would not end: with the same input, the decoder would do the same
            // again.
            if read == 0 && written == 0 {
                return Err(error(PerfErrorKind::Zstd(ZstdFault::Stalled), offset));
            }
        }
    }

    /// Delivers the complete records in the first `filled` bytes and keeps the rest.
    fn hand_on(
        &mut self,
        filled: usize,
        offset: u64,
        take: &mut impl FnMut(RawRecord<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PerfError> {
        let mut at = 0;

        // Compressed records are cut at any byte, so the last record may be incomplete.
        while let Some(size) = le::u16_at(&self.buffer[at..filled], 6) {
            if filled - at < usize::from(size) {
                break;
            }

            let end = at + usize::from(size);

            // Read like a record of the file, so that the same checks hold for it.
            let framed = Records::new(&self.buffer[at..end], offset).next();
            let Some(Ok(record)) = framed else {
                let kind = PerfErrorKind::RecordSize(size);
                return Err(PerfError::new(kind, offset, "unpacked record"));
            };

            // Otherwise a few bytes could unpack to any number of records.
            if matches!(record.kind, rt::COMPRESSED | rt::COMPRESSED2) {
                return Err(error(PerfErrorKind::NestedCompression, offset));
            }

            if take(RawRecord {
                unpacked: true,
                ..record
            })
            .is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            at = end;
        }

        // To the front, where the next output continues it.
        self.buffer.copy_within(at..filled, 0);
        self.carried = filled - at;
        Ok(ControlFlow::Continue(()))
    }

    /// Checks that no partial record is left at the end of the data.
    pub(super) fn finish(&self, offset: u64) -> Result<(), PerfError> {
        match self.carried {
            0 => Ok(()),
            have => Err(error(
                PerfErrorKind::UnfinishedRecord { have: have as u64 },
                offset,
            )),
        }
    }
}

/// The zstd bytes of a compressed record.
fn payload<'a>(container: &RawRecord<'a>) -> Result<&'a [u8], PerfError> {
    if container.kind == rt::COMPRESSED {
        return Ok(container.body);
    }
    // COMPRESSED2 is padded, and states the size without padding.
    let short = |need: u64| {
        error(
            PerfErrorKind::Short {
                need,
                have: container.body.len() as u64,
            },
            container.offset,
        )
    };
    let size = le::u64_at(container.body, 0).ok_or_else(|| short(8))?;
    let end = usize::try_from(size)
        .ok()
        .and_then(|size| size.checked_add(8));
    end.and_then(|end| container.body.get(8..end))
        .ok_or_else(|| short(size))
}

#[cold]
fn error(kind: PerfErrorKind, offset: u64) -> PerfError {
    PerfError::new(kind, offset, "compressed record")
}
