//! The fixed parts of a trace file, byte by byte, and its named limits.
//!
//! Responsible for sizes, magic numbers and the meaning of flags; not for what is inside a block.
//! Everything is little-endian. `docs/trace-format.md` is the specification.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a trace. As in PNG, the high bit, the line ends and the control character
/// show a file that a text transfer has damaged.
pub const MAGIC: [u8; 8] = *b"\x89UST\r\n\x1a\n";
/// The last bytes of a trace that was finished.
pub const FOOTER_MAGIC: [u8; 4] = *b"USTE";
/// The version of the format that is written, and the only one that is read.
pub const VERSION: u16 = 1;

/// Most bytes of a block, as stored and as decompressed: 1 MiB.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Most bytes that the samples of one block may come to when all are copied out: 64 MiB. It is
/// also the most that one sample may have.
pub const CHUNK_DECODED_BYTES_MAX: u64 = 64 << 20;
/// Most samples in one block.
pub const CHUNK_SAMPLES_MAX: u32 = 4096;
/// Most regions of one sample.
pub const REGIONS_MAX: usize = 255;
/// Most frames of one true chain; the writer keeps the innermost ones of a longer chain.
pub const TRUTH_FRAMES_MAX: usize = 1 << 17;
/// Most recorded chains of one sample.
pub const RECORDED_CHAINS_MAX: usize = 16;
/// Most addresses in all recorded chains of one sample.
pub const RECORDED_IPS_MAX: usize = 8192;
/// Most rings of branch records of one sample.
pub const BRANCH_STACKS_MAX: usize = 8;
/// Most branch records of one sample, in all its rings.
pub const BRANCHES_MAX: usize = 1024;
/// Most bytes of a name: a path, a symbol, a field of the description.
pub const NAME_BYTES_MAX: usize = 1 << 16;
/// Most sections, and most text ranges, of one image.
pub const IMAGE_PARTS_MAX: usize = 1 << 15;
/// Most symbols of all images together.
pub const SYMBOLS_MAX: u64 = 1 << 23;
/// Most bytes of all images' sections together that are not read in place: 1 GiB.
pub const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Most images.
pub const IMAGES_MAX: u32 = 1 << 20;
/// What a frame of a true chain counts for in [`CHUNK_DECODED_BYTES_MAX`].
pub(crate) const FRAME_BYTES: u64 = 80;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum BlockType {
    /// How the recording was made.
    Meta = 1,
    /// Names and places of an image's parts.
    Image = 2,
    /// Bytes that an image or a samples block refers to.
    Data = 3,
    /// Symbols that an image refers to.
    Symbols = 4,
    /// Events.
    Events = 5,
    /// Samples.
    Samples = 6,
    /// The list of the blocks before it.
    Index = 7,
}

impl BlockType {
    /// All types of this version.
    pub const ALL: [BlockType; 7] = [
        BlockType::Meta,
        BlockType::Image,
        BlockType::Data,
        BlockType::Symbols,
        BlockType::Events,
        BlockType::Samples,
        BlockType::Index,
    ];

    /// The type with this number.
    pub fn from_number(number: u16) -> Option<BlockType> {
        Self::ALL.into_iter().find(|t| *t as u16 == number)
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            BlockType::Meta => "meta",
            BlockType::Image => "image",
            BlockType::Data => "data",
            BlockType::Symbols => "symbols",
            BlockType::Events => "events",
            BlockType::Samples => "samples",
            BlockType::Index => "index",
        }
    }
}

/// The payload is a zstd frame.
pub const FLAG_ZSTD: u16 = 1;

/// The first 16 bytes of a file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U16,
    /// 0.
    pub reserved: U16,
    /// CRC-32C of the 12 bytes before.
    pub crc32c: U32,
}

/// The 24 bytes before a block's payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// A [`BlockType`], or a number that this version does not know.
    pub block_type: U16,
    /// [`FLAG_ZSTD`] or 0.
    pub flags: U16,
    /// Bytes of the payload as stored, without padding.
    pub length: U32,
    /// Bytes of the payload when decompressed.
    pub plain_length: U32,
    /// How many samples, events or symbols the block holds; 0 for other types.
    pub count: U32,
    /// 0.
    pub reserved: U32,
    /// CRC-32C of the 20 bytes before and of the payload as stored.
    pub crc32c: U32,
}

/// The last 16 bytes of a finished file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Footer {
    /// Where the last index block begins.
    pub index: U64,
    /// CRC-32C of the 8 bytes before.
    pub crc32c: U32,
    /// [`FOOTER_MAGIC`].
    pub magic: [u8; 4],
}

/// The first 16 bytes of an index block's payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndexHeader {
    /// Where the index block before this one begins; 0 if this is the first.
    pub previous: U64,
    /// Where the first block that is listed begins.
    pub start: U64,
}

/// Bytes of [`FileHeader`].
pub const FILE_HEADER_BYTES: u64 = size_of::<FileHeader>() as u64;
/// Bytes of [`BlockHeader`].
pub const BLOCK_HEADER_BYTES: u64 = size_of::<BlockHeader>() as u64;
/// Bytes of [`Footer`].
pub const FOOTER_BYTES: u64 = size_of::<Footer>() as u64;

/// A payload of `length` bytes with the zeros that bring the next block to a multiple of 8.
pub(crate) const fn padded(length: u64) -> u64 {
    length.div_ceil(8) * 8
}

impl FileHeader {
    /// The header of this version.
    pub(crate) fn new() -> FileHeader {
        let mut header = FileHeader {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: 0.into(),
            crc32c: 0.into(),
        };
        header.crc32c = header.computed_crc32c().into();
        header
    }

    /// What `crc32c` must be.
    pub(crate) fn computed_crc32c(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..12])
    }
}

impl BlockHeader {
    /// What `crc32c` must be before this `payload`, as stored.
    pub(crate) fn computed_crc32c(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[..20]), payload)
    }
}

impl Footer {
    /// The footer for the index block at `index`.
    pub(crate) fn new(index: u64) -> Footer {
        Footer {
            index: index.into(),
            crc32c: crc32c::crc32c(&index.to_le_bytes()).into(),
            magic: FOOTER_MAGIC,
        }
    }

    /// The footer at the end of `file`, if there is a sound one.
    pub(crate) fn find(file: &[u8]) -> Option<Footer> {
        let (_, footer) = Footer::read_from_suffix(file).ok()?;
        let sound = footer.magic == FOOTER_MAGIC
            && footer.crc32c == crc32c::crc32c(footer.index.as_bytes());
        sound.then_some(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        let sizes = [FILE_HEADER_BYTES, BLOCK_HEADER_BYTES, FOOTER_BYTES];
        assert_eq!(sizes, [16, 24, 16]);
        assert_eq!(size_of::<IndexHeader>(), 16);
    }

    #[test]
    fn checksum_is_the_castagnoli_one() {
        // RFC 3720, appendix B.4: 32 bytes of zeros.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
