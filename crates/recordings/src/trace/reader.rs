//! Reads memory-mapped traces, sequentially or at any sample.

use super::block::Block;
use super::chunk::{Chunk, Span};
use super::error::{TraceError, TraceErrorKind};
use super::image::read_images;
use super::index::{self, Entry};
use super::items::Items;
use super::layout::{BlockType, FILE_HEADER_BYTES, FileHeader, MAGIC, VERSION};
use super::meta::{self, Meta};
use crate::import::STACK_BYTES_MAX;
use crate::input_file::InputFile;
use crate::mapped::map_file;
use crate::model::{ProcessMemory, Region, Sample};
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, Owner};
use unwind_sim_unwind::memory::MappedMemory;
use zerocopy::FromBytes;

/// An open trace. Metadata and images are read on opening, events and samples later.
pub struct Trace {
    pub(crate) file: Owner,
    pub(crate) entries: Vec<Entry>,
    path: Option<PathBuf>,
    cut: Option<Arc<TraceError>>,
    meta: Meta,
    images: Vec<Arc<Image>>,
    pub(crate) spans: Vec<Span>,
    samples: u64,
    events: u64,
    /// Memory of all samples, beside what the trace has: see [`Trace::complete`].
    process_memory: Option<ProcessMemory>,
}

/// A block, as listed by `inspect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// File offset of the block's header.
    pub offset: u64,
    /// The number of its type.
    pub number: u16,
    /// Its type, if this version knows it.
    pub block_type: Option<BlockType>,
    /// Bytes of the payload as stored.
    pub stored_bytes: u32,
    /// Bytes of the payload when decompressed.
    pub plain_bytes: u32,
    /// Number of samples, events or symbols.
    pub count: u32,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("path", &self.path)
            .field("samples", &self.samples)
            .field("images", &self.images.len())
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens a trace by mapping the file.
    ///
    /// # Errors
    /// If the file cannot be mapped, is not a trace of this version, or its metadata or one of its
    /// images is damaged. A trace that was only cut short can be opened: see [`Trace::cut`].
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        Trace::of(path, map_file(path))
    }

    /// Reads a trace that is open.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn read(file: &InputFile) -> Result<Trace, TraceError> {
        Trace::of(file.path(), file.bytes())
    }

    fn of(path: &Path, bytes: io::Result<Owner>) -> Result<Trace, TraceError> {
        let file = bytes.map_err(|e| TraceErrorKind::Io(e).at(0, None));
        let opened = file.and_then(|file| Trace::from_owner(file, Some(path.to_owned())));
        opened.map_err(|error| TraceError {
            file: Some(path.to_owned()),
            ..error
        })
    }

    /// Opens a trace whose images were kept in memory (`TraceWriter::keep_image`), and whose samples
    /// have the memory of a process.
    pub(crate) fn open_with(
        path: &Path,
        images: Vec<Arc<Image>>,
        process_memory: Option<ProcessMemory>,
    ) -> Result<Trace, TraceError> {
        let mut trace = Trace::open(path)?;
        trace.images = images;
        trace.process_memory = process_memory;
        Ok(trace)
    }

    /// Gives a sample the memory of its process. A region that was written without bytes has those
    /// of its stack, in place.
    pub(crate) fn complete<'a>(&'a self, mut sample: Sample<'a>) -> Sample<'a> {
        let Some(process) = &self.process_memory else {
            return sample;
        };
        for region in sample.regions.iter_mut().filter(|r| r.bytes.is_empty()) {
            region.bytes = Cow::Borrowed(stack_bytes(&process.memory, region));
        }
        sample.process_memory = Some(process.clone());
        sample
    }

    /// Opens a trace in memory, such as a `Vec<u8>` or an `include_bytes!`.
    ///
    /// # Errors
    /// See [`Trace::open`].
    pub fn from_bytes<B>(bytes: B) -> Result<Trace, TraceError>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        Trace::from_owner(Arc::new(bytes), None)
    }

    fn from_owner(file: Owner, path: Option<PathBuf>) -> Result<Trace, TraceError> {
        check_header((*file).as_ref())?;

        let blocks = index::find(&file);
        let mut trace = Trace {
            images: read_images(&file, &blocks.entries)?,
            // A file that was cut is read up to its last whole block.
            cut: blocks.cut.map(|cut| {
                Arc::new(TraceError {
                    file: path.clone(),
                    ..cut
                })
            }),
            entries: blocks.entries,
            meta: Meta::default(),
            spans: Vec::new(),
            samples: 0,
            events: 0,
            process_memory: None,
            file,
            path,
        };

        // The last one counts: at the end the writer knows more than at the start.
        let last = trace.entries.iter().rposition(|e| e.is(BlockType::Meta));
        if let Some(number) = last {
            let (block, payload) = trace.block_payload(number)?;
            trace.meta = meta::decode(&payload).map_err(|bad| block.error(bad))?;
        }

        // From the list of blocks alone: no samples are read to open a trace.
        trace.make_spans();
        Ok(trace)
    }

    fn make_spans(&mut self) {
        // The index alone says what belongs together: no block is read for it.
        let mut events = Vec::new();
        let mut details = Vec::new();

        for (number, entry) in self.entries.iter().enumerate() {
            if entry.is(BlockType::Events) {
                events.push(number);
                self.events += u64::from(entry.count);
            } else if entry.is(BlockType::Details) {
                details.push(number);
            } else if entry.is(BlockType::Samples) {
                // What came since the last samples block belongs to this one.
                let first = self.samples;
                self.samples += u64::from(entry.count);
                self.spans.push(Span {
                    events: std::mem::take(&mut events),
                    details: std::mem::take(&mut details),
                    samples: Some(number),
                    numbers: first..self.samples,
                });
            }
        }

        // Events after the last sample, such as the program's exit.
        if !events.is_empty() {
            let numbers = self.samples..self.samples;
            self.spans.push(Span {
                events,
                details: Vec::new(),
                samples: None,
                numbers,
            });
        }
    }

    /// The file that the trace was opened from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Why the trace ends early, if it was not finished or its end is damaged. Everything before
    /// that point can be read.
    pub fn cut(&self) -> Option<&Arc<TraceError>> {
        self.cut.as_ref()
    }

    /// How the recording was made.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// All images; [`ImageIndex`](crate::model::ImageIndex) n is the n-th.
    pub fn images(&self) -> &[Arc<Image>] {
        &self.images
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Are there no samples?
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Number of events. In a trace that was cut short, events after missing samples are counted
    /// but not delivered.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// All blocks, for display. The list ends at a block with a damaged header.
    pub fn blocks(&self) -> impl Iterator<Item = BlockInfo> {
        let file = (*self.file).as_ref();
        let blocks = self.entries.iter().map_while(|e| e.block(file).ok());
        blocks.map(|block| BlockInfo {
            offset: block.offset,
            number: block.number(),
            block_type: block.block_type(),
            stored_bytes: block.length(),
            plain_bytes: block.plain_length(),
            count: block.count(),
        })
    }

    pub(crate) fn block_payload(&self, number: usize) -> Result<(Block, Bytes), TraceError> {
        let block = self.entries[number].block((*self.file).as_ref());
        let read = block.and_then(|block| Ok((block, block.payload(&self.file)?)));
        read.map_err(|error| self.in_file(error))
    }

    /// The parts that can be read independently, in order. Together they contain all items.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = Chunk<'_>> {
        let spans = self.spans.iter().enumerate();
        spans.map(|(number, span)| Chunk {
            trace: self,
            span,
            number,
        })
    }

    /// All events and samples in order, as owned copies. Continues with the next block after a
    /// damaged one. Use [`Trace::chunks`] to avoid the copies.
    pub fn items(&self) -> Items<'_> {
        Items::new(self)
    }

    pub(crate) fn in_file(&self, error: TraceError) -> TraceError {
        TraceError {
            file: self.path.clone(),
            ..error
        }
    }
}

/// The bytes of a region, as far as `memory` has them, at most [`STACK_BYTES_MAX`].
fn stack_bytes<'a>(memory: &'a MappedMemory, region: &Region<'_>) -> &'a [u8] {
    let bytes = memory.bytes_from(region.address);
    let size = region.bounds.end.saturating_sub(region.address);
    let size = usize::try_from(size.min(STACK_BYTES_MAX)).unwrap_or(0);
    &bytes[..size.min(bytes.len())]
}

/// Checks that the file starts with a header of this format version.
fn check_header(file: &[u8]) -> Result<(), TraceError> {
    let left = file.len() as u64;
    let Ok((header, _)) = FileHeader::read_from_prefix(file) else {
        let whole = MAGIC.starts_with(&file[..file.len().min(MAGIC.len())]) && left > 0;
        let short = TraceErrorKind::Short {
            needed: FILE_HEADER_BYTES,
            left,
        };
        return Err(if whole { short } else { TraceErrorKind::Magic }.at(0, None));
    };
    let (found, computed) = (header.crc32c.get(), header.computed_crc32c());
    let version = header.version.get();
    let kind = if header.magic != MAGIC {
        TraceErrorKind::Magic
    } else if found != computed {
        TraceErrorKind::Checksum { found, computed }
    } else if version != VERSION {
        TraceErrorKind::Version { found: version }
    } else {
        return Ok(());
    };
    Err(kind.at(0, None))
}

#[cfg(test)]
mod tests;
