//! Writes images; the counterpart of `read`.

use crate::model::ImageIndex;
use crate::trace::error::WriteError;
use crate::trace::layout::{
    BLOCK_BYTES_MAX, BlockType, IMAGE_BYTES_MAX, IMAGE_PARTS_MAX, IMAGES_MAX, NAME_BYTES_MAX,
    SYMBOLS_MAX,
};
use crate::trace::output::Output;
use crate::trace::varint::{put, put_bytes, put_difference};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::image::{Image, ImageId, Section, SectionKind, Symbol};

/// Size at which a symbols block is closed, so that one more name always fits.
const SYMBOLS_BYTES: usize = BLOCK_BYTES_MAX - NAME_BYTES_MAX - 64;

/// An image, or an addition to one.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) build_id: &'a [u8],
    pub(crate) text: &'a [Range<u64>],
    pub(crate) sections: &'a [Section],
    pub(crate) symbols: &'a [Symbol],
}

impl<'a> Part<'a> {
    pub(crate) fn of(image: &'a Image) -> Part<'a> {
        Part {
            name: image.name(),
            build_id: image.build_id(),
            text: image.text(),
            sections: image.sections(),
            symbols: image.symbols(),
        }
    }

    /// Two hashes of everything but the name, since one file can have several names.
    fn key(&self) -> (u64, u64) {
        let hash = |seed: u64| {
            let mut state = DefaultHasher::new();
            seed.hash(&mut state);
            (self.build_id, self.text).hash(&mut state);
            for s in self.sections {
                (s.kind, s.address, &s.data[..]).hash(&mut state);
            }
            for s in self.symbols {
                (s.address, s.size, &s.name).hash(&mut state);
            }
            state.finish()
        };
        (hash(0), hash(1))
    }

    /// A hash of what can be compared without reading the contents.
    fn shape(&self) -> u64 {
        let mut state = DefaultHasher::new();
        (self.build_id, self.text, self.symbols.len()).hash(&mut state);
        for s in self.sections {
            (s.kind, s.address, s.data.len()).hash(&mut state);
        }
        state.finish()
    }

    fn check(&self) -> Result<(), WriteError> {
        WriteError::check(
            "bytes in the name of an image",
            self.name.len(),
            NAME_BYTES_MAX,
        )?;
        WriteError::check("bytes in a build id", self.build_id.len(), NAME_BYTES_MAX)?;
        WriteError::check("text ranges of an image", self.text.len(), IMAGE_PARTS_MAX)?;
        WriteError::check("sections of an image", self.sections.len(), IMAGE_PARTS_MAX)?;
        let longest = self.symbols.iter().map(|s| s.name.len()).max();
        WriteError::check(
            "bytes in the name of a symbol",
            longest.unwrap_or(0),
            NAME_BYTES_MAX,
        )
    }
}

/// Writes images and remembers those already written.
#[derive(Default)]
pub(crate) struct ImageWriter {
    count: u32,
    by_id: HashMap<ImageId, ImageIndex>,
    by_content: HashMap<(u64, u64), ImageIndex>,
    bytes: u64,
    symbols: u64,
    kept: Kept,
}

/// Images kept in memory, by their numbers.
#[derive(Default)]
struct Kept {
    images: Vec<Arc<Image>>,
    /// The keys of their contents, if they were needed.
    keys: Vec<Option<(u64, u64)>>,
    /// The numbers of images that may have equal contents.
    alike: HashMap<u64, Vec<usize>>,
}

impl Kept {
    fn push(&mut self, image: Arc<Image>) {
        let numbers = self.alike.entry(Part::of(&image).shape()).or_default();
        numbers.push(self.images.len());
        self.images.push(image);
        self.keys.push(None);
    }

    /// The image with the contents of `part`. The contents are only hashed if images have the same
    /// shape, and each image's at most once.
    fn find(&mut self, part: &Part<'_>) -> Option<ImageIndex> {
        let numbers = self.alike.get(&part.shape())?;
        let wanted = part.key();
        let found = numbers.iter().find(|&&number| {
            let key = self.keys[number].get_or_insert_with(|| Part::of(&self.images[number]).key());
            *key == wanted
        });
        found.map(|&number| ImageIndex(number as u32))
    }
}

impl ImageWriter {
    /// Number of images.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Writes `image`, unless it or one with the same content was already written.
    pub(crate) fn add<W: Write>(
        &mut self,
        out: &mut Output<W>,
        image: &Image,
    ) -> Result<ImageIndex, WriteError> {
        if let Some(index) = self.by_id.get(&image.id()) {
            return Ok(*index);
        }
        let part = Part::of(image);
        let key = part.key();
        if let Some(index) = self.by_content.get(&key) {
            self.by_id.insert(image.id(), *index);
            return Ok(*index);
        }
        let index = self.next()?;
        self.write(out, index, &part)?;
        self.number(image, index);
        self.by_content.insert(key, index);
        Ok(index)
    }

    /// Numbers `image` like [`ImageWriter::add`], but keeps it in memory instead of writing it.
    pub(crate) fn keep(&mut self, image: Arc<Image>) -> Result<ImageIndex, WriteError> {
        if let Some(index) = self.by_id.get(&image.id()) {
            return Ok(*index);
        }
        let part = Part::of(&image);
        if let Some(index) = self.kept.find(&part) {
            self.by_id.insert(image.id(), index);
            return Ok(index);
        }
        let index = self.next()?;
        part.check()?;
        self.spend(&part)?;
        self.number(&image, index);
        self.kept.push(image);
        Ok(index)
    }

    /// Takes the images that were kept, by their numbers.
    pub(crate) fn take_kept(&mut self) -> Vec<Arc<Image>> {
        std::mem::take(&mut self.kept).images
    }

    fn next(&self) -> Result<ImageIndex, WriteError> {
        WriteError::check("images", self.count as usize + 1, IMAGES_MAX as usize)?;
        Ok(ImageIndex(self.count))
    }

    fn number(&mut self, image: &Image, index: ImageIndex) {
        self.count += 1;
        self.by_id.insert(image.id(), index);
    }

    /// Writes an addition to image `index`.
    pub(crate) fn extend<W: Write>(
        &mut self,
        out: &mut Output<W>,
        index: ImageIndex,
        part: &Part<'_>,
    ) -> Result<(), WriteError> {
        if index.0 >= self.count {
            return Err(WriteError::NoImage(index.0));
        }
        // It no longer has the content under which it was registered.
        self.by_content.retain(|_, i| *i != index);
        self.write(out, index, part)
    }

    fn write<W: Write>(
        &mut self,
        out: &mut Output<W>,
        index: ImageIndex,
        part: &Part<'_>,
    ) -> Result<(), WriteError> {
        part.check()?;
        self.spend(part)?;
        let data = write_data(out, part.sections)?;
        let symbols = write_symbols(out, part.symbols)?;
        let payload = descriptor(index, part, out.offset(), &data, &symbols);
        WriteError::check("bytes to describe an image", payload.len(), BLOCK_BYTES_MAX)?;
        out.block(BlockType::Image, 0, &payload)?;
        Ok(())
    }

    /// Counts the bytes and symbols of `part` towards the limits of a trace.
    fn spend(&mut self, part: &Part<'_>) -> Result<(), WriteError> {
        let bytes: u64 = part.sections.iter().map(|s| s.data.len() as u64).sum();
        let limits = [
            (
                "bytes in the sections of all images",
                self.bytes + bytes,
                IMAGE_BYTES_MAX,
            ),
            (
                "symbols",
                self.symbols + part.symbols.len() as u64,
                SYMBOLS_MAX,
            ),
        ];
        for (what, found, max) in limits {
            if found > max {
                return Err(WriteError::TooLarge { what, found, max });
            }
        }
        self.bytes += bytes;
        self.symbols += part.symbols.len() as u64;
        Ok(())
    }
}

/// The payload of the image block at `offset`.
fn descriptor(
    index: ImageIndex,
    part: &Part<'_>,
    offset: u64,
    data: &[u64],
    symbols: &[u64],
) -> Vec<u8> {
    let mut payload = Vec::new();
    // A number that was used before adds to that image (`docs/trace-format.md`, "Images").
    put(&mut payload, u64::from(index.0));
    put_bytes(&mut payload, part.name.as_bytes());
    put_bytes(&mut payload, part.build_id);
    put(&mut payload, part.text.len() as u64);

    let mut last = 0;
    // Relative to the end before, so close neighbours take few bytes.
    for range in part.text {
        put_difference(&mut payload, range.start, last);
        put_difference(&mut payload, range.end, range.start);
        last = range.end;
    }

    put(&mut payload, part.sections.len() as u64);
    let mut last = 0;
    for section in part.sections {
        payload.push(section.kind as u8);
        put_difference(&mut payload, section.address, last);
        put(&mut payload, section.data.len() as u64);
        last = section.address.wrapping_add(section.data.len() as u64);
    }

    // A reference is the distance back to the block.
    for blocks in [data, symbols] {
        put(&mut payload, blocks.len() as u64);
        blocks
            .iter()
            .for_each(|block| put(&mut payload, offset - block));
    }

    payload
}

/// Writes the bytes of the sections one after another and returns the offsets of the data blocks. A
/// section that fits into one block is not split, so that it can be read in place.
fn write_data<W: Write>(out: &mut Output<W>, sections: &[Section]) -> Result<Vec<u64>, WriteError> {
    let (mut blocks, mut pending) = (Vec::new(), Vec::new());
    for section in sections {
        // The file has the number of the kind, which readers use as index into `ALL`.
        debug_assert!(SectionKind::ALL.get(section.kind as usize) == Some(&section.kind));

        let mut rest = &section.data[..];

        // Better a block that is not full than a section in two.
        let room = BLOCK_BYTES_MAX - pending.len();
        if !pending.is_empty() && rest.len() > room && rest.len() <= BLOCK_BYTES_MAX {
            blocks.push(out.image_data(&pending)?);
            pending.clear();
        }

        while !rest.is_empty() {
            // Whole blocks are written from the section itself, without a copy.
            if pending.is_empty()
                && let Some((block, more)) = rest.split_at_checked(BLOCK_BYTES_MAX)
            {
                blocks.push(out.image_data(block)?);
                rest = more;
                continue;
            }

            let (part, more) = rest.split_at(rest.len().min(BLOCK_BYTES_MAX - pending.len()));
            pending.extend_from_slice(part);
            rest = more;
            if pending.len() == BLOCK_BYTES_MAX {
                blocks.push(out.image_data(&pending)?);
                pending.clear();
            }
        }
    }

    if !pending.is_empty() {
        blocks.push(out.image_data(&pending)?);
    }

    Ok(blocks)
}

/// Writes the symbols and returns the offsets of their blocks.
fn write_symbols<W: Write>(
    out: &mut Output<W>,
    symbols: &[Symbol],
) -> Result<Vec<u64>, WriteError> {
    let (mut blocks, mut pending) = (Vec::new(), Vec::new());
    let (mut count, mut last) = (0, 0);
    for symbol in symbols {
        put_difference(&mut pending, symbol.address, last);
        put(&mut pending, symbol.size);
        put_bytes(&mut pending, symbol.name.as_bytes());
        (count, last) = (count + 1, symbol.address);
        if pending.len() > SYMBOLS_BYTES {
            blocks.push(out.block(BlockType::Symbols, count, &pending)?);
            pending.clear();
            (count, last) = (0, 0);
        }
    }
    if count > 0 {
        blocks.push(out.block(BlockType::Symbols, count, &pending)?);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests;
