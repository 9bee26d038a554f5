//! Reads images; the counterpart of `write`.

use crate::trace::block::Block;
use crate::trace::error::{Bad, TraceError, TraceErrorKind};
use crate::trace::index::Entry;
use crate::trace::layout::{
    BlockType, IMAGE_BYTES_MAX, IMAGE_PARTS_MAX, IMAGES_MAX, NAME_BYTES_MAX, SYMBOLS_MAX,
};
use crate::trace::varint::Cursor;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Owner, Section, SectionKind, Symbol};

/// Reads all images of a file.
pub(crate) fn read_images(file: &Owner, entries: &[Entry]) -> Result<Vec<Arc<Image>>, TraceError> {
    let mut reader = Reader {
        file,
        entries,
        images: Vec::new(),
        data_end: 0,
        bytes: 0,
        symbols: 0,
    };
    for entry in entries.iter().filter(|e| e.is(BlockType::Image)) {
        reader.read(entry)?;
    }
    Ok(reader
        .images
        .into_iter()
        .map(|parts| Arc::new(Image::new(parts)))
        .collect())
}

/// The contents of an image block.
struct Descriptor {
    number: usize,
    parts: ImageParts,
    /// Kind (if known to this version), address, length.
    sections: Vec<(Option<SectionKind>, u64, u64)>,
    /// Distances from data and symbols blocks to this image block, bytes.
    data: Vec<u64>,
    symbols: Vec<u64>,
}

fn descriptor(payload: &[u8]) -> Result<Descriptor, Bad> {
    let mut cursor = Cursor::new(payload, 0);
    let number = cursor.count(IMAGES_MAX as usize, "more images than a trace may have")?;
    let mut parts = ImageParts {
        name: cursor.string(NAME_BYTES_MAX)?.to_owned(),
        build_id: cursor.bytes(NAME_BYTES_MAX)?.to_vec(),
        ..ImageParts::default()
    };

    // Addresses are relative to the end before, so close neighbours take few bytes.
    let mut last = 0;
    for _ in 0..cursor.count(IMAGE_PARTS_MAX, "more text ranges than an image may have")? {
        let start = cursor.difference(last)?;
        last = cursor.difference(start)?;
        parts.text.push(start..last);
    }

    let (mut sections, mut last) = (Vec::new(), 0u64);
    for _ in 0..cursor.count(IMAGE_PARTS_MAX, "more sections than an image may have")? {
        // A section of an unknown kind is skipped, but its bytes count.
        let kind = SectionKind::ALL.get(usize::from(cursor.u8()?)).copied();
        let address = cursor.difference(last)?;
        let length = cursor.u64()?;
        last = address.wrapping_add(length);
        sections.push((kind, address, length));
    }

    // A reference takes at least a byte, so there are no more than bytes are left.
    let blocks = |cursor: &mut Cursor<'_>| -> Result<Vec<u64>, Bad> {
        let count = cursor.count(cursor.left(), "more references than bytes")?;
        (0..count).map(|_| cursor.u64()).collect()
    };
    let (data, symbols) = (blocks(&mut cursor)?, blocks(&mut cursor)?);

    cursor.end()?;
    Ok(Descriptor {
        number,
        parts,
        sections,
        data,
        symbols,
    })
}

/// The block of type `needed` that starts `distance` bytes before `block`.
pub(crate) fn referred(
    file: &[u8],
    entries: &[Entry],
    block: &Block,
    distance: u64,
    needed: BlockType,
) -> Result<Block, TraceError> {
    let target = block.offset.checked_sub(distance);
    let found = target.and_then(|t| entries.binary_search_by_key(&t, |e| e.offset).ok());
    match found.map(|i| &entries[i]).filter(|e| e.is(needed)) {
        Some(entry) => entry.block(file),
        None => Err(block.error(TraceErrorKind::Reference {
            needed: needed.as_str(),
            target: block.offset.wrapping_sub(distance),
        })),
    }
}

struct Reader<'a> {
    file: &'a Owner,
    entries: &'a [Entry],
    images: Vec<ImageParts>,
    /// End of the last data or symbols block used. Blocks must be used once and in order, so the
    /// work is bounded by the file size.
    data_end: u64,
    bytes: u64,
    symbols: u64,
}

impl Reader<'_> {
    /// Reads the image, or the addition to one, that the image block `entry` describes.
    fn read(&mut self, entry: &Entry) -> Result<(), TraceError> {
        let block = entry.block((**self.file).as_ref())?;
        let payload = block.payload(self.file)?;
        let descriptor = descriptor(&payload).map_err(|bad| block.error(bad))?;
        self.image(&block, descriptor)
    }

    fn image(&mut self, block: &Block, mut new: Descriptor) -> Result<(), TraceError> {
        let sections = self.sections(block, &new)?;
        let symbols = self.read_symbols(block, &new.symbols)?;
        let count = self.images.len();
        if let Some(image) = self.images.get_mut(new.number) {
            image.text.append(&mut new.parts.text);
            image.sections.extend(sections);
            image.symbols.extend(symbols);
        } else if new.number == count {
            self.images.push(ImageParts {
                sections,
                symbols,
                ..new.parts
            });
        } else {
            return Err(block.error(Bad {
                what: "images are not in order",
                at: 0,
            }));
        }
        Ok(())
    }

    fn use_block(
        &mut self,
        block: &Block,
        distance: u64,
        needed: BlockType,
    ) -> Result<(Block, Bytes), TraceError> {
        let found = referred(
            (**self.file).as_ref(),
            self.entries,
            block,
            distance,
            needed,
        )?;

        // In file order, and none twice: otherwise a small file could be images of any size.
        if found.offset < self.data_end {
            let target = found.offset;
            return Err(block.error(TraceErrorKind::Reference {
                needed: "new",
                target,
            }));
        }

        self.data_end = found.end();
        let payload = found.payload(self.file)?;
        // What is not compressed is read in place.
        if found.is_compressed() {
            self.add_bytes(block, payload.len() as u64)?;
        }
        Ok((found, payload))
    }

    fn add_bytes(&mut self, block: &Block, bytes: u64) -> Result<(), TraceError> {
        self.bytes += bytes;
        let (max, what) = (IMAGE_BYTES_MAX, "bytes of memory for their sections");
        if self.bytes > max {
            Err(block.error(TraceErrorKind::ImagesTooLarge { max, what }))
        } else {
            Ok(())
        }
    }

    fn sections(&mut self, block: &Block, new: &Descriptor) -> Result<Vec<Section>, TraceError> {
        let mut data = new.data.iter();
        let mut current = Bytes::from_vec(Vec::new());
        let mut used = 0;
        let mut sections = Vec::new();

        for &(kind, address, length) in &new.sections {
            let mut piece = None;
            let mut whole = Vec::new();
            let mut left = length;
            while left > 0 {
                // A section may continue in the next block.
                if used == current.len() {
                    let what = "sections are longer than the data blocks";
                    let distance = data
                        .next()
                        .ok_or_else(|| block.error(Bad { what, at: 0 }))?;
                    (_, current) = self.use_block(block, *distance, BlockType::Data)?;
                    used = 0;
                }

                // The length is from the file, but never more is copied than the block has.
                let count = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(current.len() - used);
                // A section within one block is read in place; only others are copied and counted.
                if count as u64 == length {
                    piece = current.part(used..used + count);
                } else {
                    self.add_bytes(block, count as u64)?;
                    whole.extend_from_slice(&current[used..used + count]);
                }
                used += count;
                left -= count as u64;
            }

            let data = piece.unwrap_or_else(|| Bytes::from_vec(whole));
            sections.extend(kind.map(|kind| Section {
                kind,
                address,
                data,
            }));
        }

        // Leftovers would mean that lengths and blocks do not belong together.
        if used < current.len() || data.next().is_some() {
            let what = "the data blocks have more bytes than the sections";
            return Err(block.error(Bad { what, at: 0 }));
        }

        Ok(sections)
    }

    fn read_symbols(&mut self, block: &Block, places: &[u64]) -> Result<Vec<Symbol>, TraceError> {
        let mut symbols = Vec::new();
        for &distance in places {
            let (found, payload) = self.use_block(block, distance, BlockType::Symbols)?;
            self.symbols += u64::from(found.count());
            if self.symbols > SYMBOLS_MAX {
                let (max, what) = (SYMBOLS_MAX, "symbols");
                return Err(block.error(TraceErrorKind::ImagesTooLarge { max, what }));
            }
            symbol_list(&payload, found.count(), &mut symbols).map_err(|bad| found.error(bad))?;
        }
        Ok(symbols)
    }
}

fn symbol_list(payload: &[u8], count: u32, symbols: &mut Vec<Symbol>) -> Result<(), Bad> {
    let mut cursor = Cursor::new(payload, 0);
    let mut address = 0;
    for _ in 0..count {
        address = cursor.difference(address)?;
        let size = cursor.u64()?;
        let name = cursor.string(NAME_BYTES_MAX)?.to_owned();
        symbols.push(Symbol {
            address,
            size,
            name,
        });
    }
    cursor.end()
}

#[cfg(test)]
mod tests;
