//! Writes a trace as a stream, in constant memory.

use super::error::WriteError;
use super::event;
use super::image::{ImageWriter, Part};
use super::layout::{
    BLOCK_BYTES_MAX, BlockType, CHUNK_DECODED_BYTES_MAX, CHUNK_SAMPLES_MAX, NAME_BYTES_MAX,
};
use super::meta::{self, Meta};
use super::output::{Output, OutputOptions};
use super::sample::encode::{Encoder, check};
use super::sample::weight;
use super::varint::put;
use crate::model::{Event, ImageIndex, Item, Sample};
use std::io::Write;
use unwind_sim_unwind::image::{Image, ImageParts};

/// A samples block is closed when its records have this size. A record has at most as much.
const RECORDS_BYTES: usize = BLOCK_BYTES_MAX / 2;
/// A samples block is closed when it has this size, records and literals together, so that it
/// mostly needs no other block...
const CHUNK_BYTES: u64 = BLOCK_BYTES_MAX as u64 - (64 << 10);
/// ...unless it has fewer samples of each thread than this: the first of each is not compressed.
const SAMPLES_PER_THREAD: usize = 8;
/// A samples block is closed in any case when its literals have this size.
const LITERALS_BYTES: u64 = 8 << 20;
/// An events block is closed when it has this size.
const EVENTS_BYTES: usize = BLOCK_BYTES_MAX / 4;

/// Writes a trace.
///
/// Images, events and samples go out in the order they are given in; an image must be added
/// before the first event that names it. What is not yet a whole block is kept back: at most a
/// few MiB, which [`flush`](TraceWriter::flush) writes. A trace that was not finished is read up
/// to the last whole block.
pub struct TraceWriter<W: Write> {
    out: Output<W>,
    images: ImageWriter,
    events: Vec<u8>,
    event_count: u32,
    chunk: Chunk,
    samples: u64,
}

/// The samples block that is being filled.
#[derive(Default)]
struct Chunk {
    encoder: Encoder,
    count: u32,
    records: Vec<u8>,
    literals: Vec<u8>,
    /// Where the blocks begin that hold earlier literals, and how many bytes these have.
    data: Vec<u64>,
    data_bytes: u64,
    weight: u64,
}

impl Chunk {
    /// Must it be closed?
    fn is_full(&self) -> bool {
        let literals = self.data_bytes + self.literals.len() as u64;
        let few = (self.count as usize) < SAMPLES_PER_THREAD * self.encoder.threads();
        self.count >= CHUNK_SAMPLES_MAX
            || self.records.len() >= RECORDS_BYTES
            || literals >= LITERALS_BYTES
            || !few && literals + self.records.len() as u64 >= CHUNK_BYTES
    }
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace with the default options.
    ///
    /// # Errors
    /// If the output fails, or `meta` has a field that is too long.
    pub fn new(out: W, meta: &Meta) -> Result<Self, WriteError> {
        Self::with_options(out, meta, OutputOptions::default())
    }

    /// Begins a trace.
    ///
    /// # Errors
    /// As [`TraceWriter::new`].
    pub fn with_options(out: W, meta: &Meta, options: OutputOptions) -> Result<Self, WriteError> {
        let mut writer = TraceWriter {
            out: Output::new(out, options)?,
            images: ImageWriter::default(),
            events: Vec::new(),
            event_count: 0,
            chunk: Chunk::default(),
            samples: 0,
        };
        writer.meta(meta)?;
        Ok(writer)
    }

    /// Says anew how the recording was made, when more is known: the last word counts.
    ///
    /// # Errors
    /// If the output fails, or a field is too long.
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

    /// Writes `image`, unless this image or one of the same content was added before: build id,
    /// text ranges, sections and symbols decide, not the name.
    ///
    /// # Errors
    /// If the output fails, or the image has more of something than the format allows.
    pub fn add_image(&mut self, image: &Image) -> Result<ImageIndex, WriteError> {
        self.images.add(&mut self.out, image)
    }

    /// Adds text ranges, sections and symbols to an image, such as text bytes around sampled
    /// places; name and build id stay as they are.
    ///
    /// # Errors
    /// As [`TraceWriter::add_image`], or if there is no such image.
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
    /// If the output fails, the event names an image that was not added, or a name is too long.
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
    /// frames, or of more than 320 KiB as written, is kept as known to that depth.
    ///
    /// # Errors
    /// If the output fails, or the sample has more of something than the format allows.
    pub fn sample(&mut self, sample: &Sample<'_>) -> Result<(), WriteError> {
        check(sample)?;
        let weight = weight(sample).min(CHUNK_DECODED_BYTES_MAX);
        if self.chunk.weight + weight > CHUNK_DECODED_BYTES_MAX {
            self.write_chunk()?;
        }
        let chunk = &mut self.chunk;
        chunk
            .encoder
            .sample(sample, &mut chunk.records, &mut chunk.literals);
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
    /// As [`TraceWriter::event`] and [`TraceWriter::sample`].
    pub fn item(&mut self, item: &Item<'_>) -> Result<(), WriteError> {
        match item {
            Item::Event(event) => self.event(event),
            Item::Sample(sample) => self.sample(sample),
        }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Writes what was kept back. Each time costs some of the compression.
    ///
    /// # Errors
    /// If the output fails.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.out.get_mut().flush()?;
        Ok(())
    }

    /// Writes what was kept back, and the index.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.end()?;
        Ok(self.out.into_inner())
    }

    /// As [`finish`](TraceWriter::finish), for an owner that ends the output itself.
    pub(crate) fn end(&mut self) -> Result<(), WriteError> {
        self.write_chunk()?;
        self.out.finish()
    }

    /// The output.
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

    /// Writes whole blocks of literals while there are more than `most` bytes.
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

    /// Writes the events and samples that were kept back.
    fn write_chunk(&mut self) -> Result<(), WriteError> {
        self.write_events()?;
        if self.chunk.count == 0 {
            return Ok(());
        }
        /// What the lengths before the records need at most.
        const HEAD_BYTES: usize = 1024;
        if self.chunk.records.len() + self.chunk.literals.len() + HEAD_BYTES > BLOCK_BYTES_MAX {
            self.write_literals(0)?;
        }
        let chunk = std::mem::take(&mut self.chunk);
        let mut payload = Vec::new();
        put(&mut payload, chunk.records.len() as u64);
        put(&mut payload, chunk.data.len() as u64);
        for block in &chunk.data {
            put(&mut payload, self.out.offset() - block);
        }
        payload.extend_from_slice(&chunk.records);
        payload.extend_from_slice(&chunk.literals);
        self.out.block(BlockType::Samples, chunk.count, &payload)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
