//! Writes a trace as a stream, in constant memory.

use super::error::WriteError;
use super::event;
use super::image::{ImageWriter, Part};
use super::layout::{
    BLOCK_BYTES_MAX, BlockType, CHUNK_DECODED_BYTES_MAX, CHUNK_SAMPLES_MAX, NAME_BYTES_MAX,
};
use super::meta::{self, Meta};
use super::output::{Output, OutputOptions};
use super::sample::details::{self, Gathered};
use super::sample::encode::{Encoder, check};
use super::sample::weight;
use super::varint::put;
use crate::model::{Event, ImageIndex, Item, Sample};
use std::io::Write;
use std::sync::Arc;
use unwind_sim_unwind::image::{Image, ImageParts};

/// A samples block is closed when its records reach this size, which is also the maximum of a
/// record.
const RECORDS_BYTES: usize = BLOCK_BYTES_MAX / 2;
/// A samples block is closed when its records and literals together reach this size, so that most
/// need no other block...
const CHUNK_BYTES: u64 = BLOCK_BYTES_MAX as u64 - (64 << 10);
/// ...unless it has fewer samples per thread than this: the first sample of a thread has no deltas.
const SAMPLES_PER_THREAD: usize = 8;
/// A samples block is always closed when its literals reach this size.
const LITERALS_BYTES: u64 = 8 << 20;
/// An events block is closed when it reaches this size, and a samples block when its details do.
const EVENTS_BYTES: usize = BLOCK_BYTES_MAX / 4;

/// Writes a trace.
///
/// Images, events and samples are written in the order they are added. An image must be added
/// before the first event that refers to it. Incomplete blocks are buffered, at most a few MiB;
/// [`flush`](TraceWriter::flush) writes them. An unfinished trace can be read up to the last
/// complete block.
pub struct TraceWriter<W: Write> {
    out: Output<W>,
    images: ImageWriter,
    events: Vec<u8>,
    event_count: u32,
    chunk: Chunk,
    /// A reused buffer for the payload of samples blocks.
    payload: Vec<u8>,
    samples: u64,
}

/// The samples block being filled.
#[derive(Default)]
struct Chunk {
    encoder: Encoder,
    count: u32,
    records: Vec<u8>,
    literals: Vec<u8>,
    /// Offsets of the blocks that hold earlier literals, and the total size of those literals.
    data: Vec<u64>,
    data_bytes: u64,
    details: Gathered,
    weight: u64,
}

impl Chunk {
    /// Starts the next block, with the same buffers.
    fn clear(&mut self) {
        self.encoder = Encoder::default();
        self.records.clear();
        self.literals.clear();
        self.data.clear();
        self.details.clear();
        (self.count, self.data_bytes, self.weight) = (0, 0, 0);
    }

    /// Must it be closed?
    fn is_full(&self) -> bool {
        let literals = self.data_bytes + self.literals.len() as u64;
        let few = (self.count as usize) < SAMPLES_PER_THREAD * self.encoder.threads();
        self.count >= CHUNK_SAMPLES_MAX
            || self.records.len() >= RECORDS_BYTES
            || literals >= LITERALS_BYTES
            || self.details.bytes.len() >= EVENTS_BYTES
            || !few && literals + self.records.len() as u64 >= CHUNK_BYTES
    }
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace with the default options.
    ///
    /// # Errors
    /// If writing fails or a field of `meta` is too long.
    pub fn new(out: W, meta: &Meta) -> Result<Self, WriteError> {
        Self::with_options(out, meta, OutputOptions::default())
    }

    /// Starts a trace.
    ///
    /// # Errors
    /// See [`TraceWriter::new`].
    pub fn with_options(out: W, meta: &Meta, options: OutputOptions) -> Result<Self, WriteError> {
        let mut writer = TraceWriter {
            out: Output::new(out, options)?,
            images: ImageWriter::default(),
            events: Vec::new(),
            event_count: 0,
            chunk: Chunk::default(),
            payload: Vec::new(),
            samples: 0,
        };
        writer.meta(meta)?;
        Ok(writer)
    }

    /// Writes the metadata again, when more is known: the last one counts.
    ///
    /// # Errors
    /// If writing fails or a field is too long.
    pub fn meta(&mut self, meta: &Meta) -> Result<(), WriteError> {
        let other = meta.other.iter().flat_map(|(key, value)| [key, value]);
        let texts = meta
            .command
            .iter()
            .chain(&meta.program)
            .chain([&meta.truth])
            .chain(other);
        for text in texts {
            WriteError::check(
                "bytes in a field of the description",
                text.len(),
                NAME_BYTES_MAX,
            )?;
        }
        let payload = meta::encode(meta);
        WriteError::check("bytes of the description", payload.len(), BLOCK_BYTES_MAX)?;
        self.out.block(BlockType::Meta, 0, &payload)?;
        Ok(())
    }

    /// Adds `image`, unless the same image or one with equal content was added before. The content
    /// is build ID, text ranges, sections and symbols, not the name.
    ///
    /// # Errors
    /// If writing fails or the image exceeds a limit of the format.
    pub fn add_image(&mut self, image: &Image) -> Result<ImageIndex, WriteError> {
        self.images.add(&mut self.out, image)
    }

    /// Like [`add_image`](TraceWriter::add_image), but keeps the image in memory instead of writing
    /// it: for a trace that is read by this process, with the images of
    /// [`finish_kept`](TraceWriter::finish_kept).
    ///
    /// # Errors
    /// If the image exceeds a limit of the format.
    pub(crate) fn keep_image(&mut self, image: Arc<Image>) -> Result<ImageIndex, WriteError> {
        self.images.keep(image)
    }

    /// Adds text ranges, sections and symbols to an image, such as the text bytes around samples.
    /// Name and build ID are unchanged.
    ///
    /// # Errors
    /// See [`TraceWriter::add_image`]; also if there is no such image.
    pub fn extend_image(
        &mut self,
        index: ImageIndex,
        parts: &ImageParts,
    ) -> Result<(), WriteError> {
        let part = Part {
            name: "",
            build_id: &[],
            text: &parts.text,
            sections: &parts.sections,
            symbols: &parts.symbols,
        };
        self.images.extend(&mut self.out, index, &part)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// If writing fails, the event refers to an image that was not added, or a name is too long.
    pub fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        event::check(event, self.images.count())?;
        event::encode(&mut self.events, self.chunk.count, event);
        self.event_count += 1;
        if self.events.len() >= EVENTS_BYTES {
            self.write_events()
        } else {
            Ok(())
        }
    }

    /// Adds a sample. A true chain of more than [`TRUTH_FRAMES_MAX`](super::TRUTH_FRAMES_MAX)
    /// frames, or of more than 320 KiB when encoded, is truncated and marked as known to that
    /// depth.
    ///
    /// # Errors
    /// If writing fails or the sample exceeds a limit of the format.
    pub fn sample(&mut self, sample: &Sample<'_>) -> Result<(), WriteError> {
        check(sample)?;
        details::check(sample)?;
        let weight = weight(sample).min(CHUNK_DECODED_BYTES_MAX);
        if self.chunk.weight + weight > CHUNK_DECODED_BYTES_MAX {
            self.write_chunk()?;
        }
        let chunk = &mut self.chunk;
        chunk
            .encoder
            .sample(sample, &mut chunk.records, &mut chunk.literals);
        chunk.details.sample(chunk.count, sample);
        chunk.count += 1;
        chunk.weight += weight;
        self.samples += 1;
        self.write_literals(BLOCK_BYTES_MAX)?;
        if self.chunk.is_full() {
            self.write_chunk()
        } else {
            Ok(())
        }
    }

    /// Adds an event or a sample.
    ///
    /// # Errors
    /// See [`TraceWriter::event`] and [`TraceWriter::sample`].
    pub fn item(&mut self, item: &Item<'_>) -> Result<(), WriteError> {
        match item {
            Item::Event(event) => self.event(event),
            Item::Sample(sample) => self.sample(sample),
        }
    }

    /// Number of samples added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Writes the buffered events and samples. Each call worsens compression a little.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.out.get_mut().flush()?;
        Ok(())
    }

    /// Writes the buffered events and samples, and the index.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.end()?;
        Ok(self.out.into_inner())
    }

    /// Like [`finish`](TraceWriter::finish), for a trace whose images were kept: returns them.
    pub(crate) fn finish_kept(mut self) -> Result<Vec<Arc<Image>>, WriteError> {
        self.end()?;
        Ok(self.images.take_kept())
    }

    /// Like [`finish`](TraceWriter::finish), for an owner that finishes the output itself.
    pub(crate) fn end(&mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.out.finish()
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        self.out.get_mut()
    }

    fn write_events(&mut self) -> Result<(), WriteError> {
        if self.event_count > 0 {
            self.out
                .block(BlockType::Events, self.event_count, &self.events)?;
            self.events.clear();
            self.event_count = 0;
        }
        Ok(())
    }

    /// Writes literals as data blocks until at most `most` bytes are left.
    fn write_literals(&mut self, most: usize) -> Result<(), WriteError> {
        let chunk = &mut self.chunk;
        let mut done = 0;
        while chunk.literals.len() - done > most {
            let part = &chunk.literals[done..];
            let part = &part[..part.len().min(BLOCK_BYTES_MAX)];
            chunk.data.push(self.out.block(BlockType::Data, 0, part)?);
            chunk.data_bytes += part.len() as u64;
            done += part.len();
        }
        chunk.literals.drain(..done);
        Ok(())
    }

    /// Writes the buffered events and samples.
    fn write_chunk(&mut self) -> Result<(), WriteError> {
        // Before the samples: each event says how many samples of the next block precede it.
        self.write_events()?;
        if self.chunk.count == 0 {
            return Ok(());
        }

        /// Maximum size of the lengths before the records, bytes.
        const HEAD_BYTES: usize = 1024;
        // What does not fit into the block goes into data blocks before it.
        if self.chunk.records.len() + self.chunk.literals.len() + HEAD_BYTES > BLOCK_BYTES_MAX {
            self.write_literals(0)?;
        }

        let (chunk, payload) = (&self.chunk, &mut self.payload);
        // Details stand before the samples block that they are about.
        if chunk.details.count > 0 {
            let details = &chunk.details;
            self.out
                .block(BlockType::Details, details.count, &details.bytes)?;
        }

        payload.clear();
        put(payload, chunk.records.len() as u64);
        put(payload, chunk.data.len() as u64);
        // Distances back from where the samples block will be.
        for block in &chunk.data {
            put(payload, self.out.offset() - block);
        }
        payload.extend_from_slice(&chunk.records);
        payload.extend_from_slice(&chunk.literals);

        let written = self.out.block(BlockType::Samples, chunk.count, payload);
        self.chunk.clear();
        written.map(drop)
    }
}

#[cfg(test)]
mod tests;
