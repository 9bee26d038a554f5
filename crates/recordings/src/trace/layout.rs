//! The fixed-size parts of a trace file, and its limits.
//!
//! Defines sizes, magic numbers and flags, but not the contents of blocks. All integers are
//! little-endian. `docs/trace-format.md` is the specification.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a trace. As in PNG, the byte with the high bit, the line endings and the
/// control character reveal a file damaged by a text-mode transfer.
pub const MAGIC: [u8; 8] = *b"\x89UST\r\n\x1a\n";
/// The last bytes of a finished trace.
pub const FOOTER_MAGIC: [u8; 4] = *b"USTE";
/// The format version written, and the only one read.
pub const VERSION: u16 = 1;

/// Maximum size of a block's payload, stored and decompressed: 1 MiB.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of all samples of one block, and thus of one sample, when copied out: 64 MiB.
pub const CHUNK_DECODED_BYTES_MAX: u64 = 64 << 20;
/// Maximum samples in one block.
pub const CHUNK_SAMPLES_MAX: u32 = 4096;
/// Maximum regions of one sample.
pub const REGIONS_MAX: usize = 255;
/// Maximum frames of one true chain; of a longer chain the writer keeps the innermost frames.
pub const TRUTH_FRAMES_MAX: usize = 1 << 17;
/// Maximum recorded chains of one sample.
pub const RECORDED_CHAINS_MAX: usize = 16;
/// Maximum addresses in all recorded chains of one sample.
pub const RECORDED_IPS_MAX: usize = 8192;
/// Maximum rings of branch records of one sample.
pub const BRANCH_STACKS_MAX: usize = 8;
/// Maximum branch records of one sample, in all its rings.
pub const BRANCHES_MAX: usize = 1024;
/// Maximum return addresses taken by return probes from one user stack (`MAX_URETPROBE_DEPTH`).
pub const URETPROBES_MAX: usize = 64;
/// Maximum bytes of a name: a path, a symbol, a field of the metadata.
pub const NAME_BYTES_MAX: usize = 1 << 16;
/// Maximum sections, and maximum text ranges, of one image.
pub const IMAGE_PARTS_MAX: usize = 1 << 15;
/// Maximum symbols of all images together.
pub const SYMBOLS_MAX: u64 = 1 << 23;
/// Maximum bytes of all image sections together that are not read in place: 1 GiB.
pub const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of images.
pub const IMAGES_MAX: u32 = 1 << 20;
/// Bytes per true frame counted towards [`CHUNK_DECODED_BYTES_MAX`].
pub(crate) const FRAME_BYTES: u64 = 80;

/// The type of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum BlockType {
    /// Metadata: how the recording was made.
    Meta = 1,
    /// Name of an image and locations of its parts.
    Image = 2,
    /// Bytes used by image or samples blocks.
    Data = 3,
    /// Symbols of an image.
    Symbols = 4,
    /// Events.
    Events = 5,
    /// Samples.
    Samples = 6,
    /// List of the blocks before it.
    Index = 7,
    /// What samples have beside their records.
    Details = 8,
}

impl BlockType {
    /// All types of this version.
    pub const ALL: [BlockType; 8] = [
        BlockType::Meta,
        BlockType::Image,
        BlockType::Data,
        BlockType::Symbols,
        BlockType::Events,
        BlockType::Samples,
        BlockType::Index,
        BlockType::Details,
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
            BlockType::Details => "details",
        }
    }
}

/// Flag: the payload is a zstd frame.
pub const FLAG_ZSTD: u16 = 1;

/// The first 16 bytes of a file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U16,
    /// Always 0.
    pub reserved: U16,
    /// CRC-32C of the 12 bytes before it.
    pub crc32c: U32,
}

/// The 24 bytes before a block's payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// Number of a [`BlockType`], possibly unknown to this version.
    pub block_type: U16,
    /// [`FLAG_ZSTD`] or 0.
    pub flags: U16,
    /// Bytes of the stored payload, without padding.
    pub length: U32,
    /// Bytes of the decompressed payload.
    pub plain_length: U32,
    /// Number of samples, events, symbols or details; 0 for other types.
    pub count: U32,
    /// Always 0.
    pub reserved: U32,
    /// CRC-32C of the 20 bytes before it and the stored payload.
    pub crc32c: U32,
}

/// The last 16 bytes of a finished file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Footer {
    /// File offset of the last index block.
    pub index: U64,
    /// CRC-32C of the 8 bytes before it.
    pub crc32c: U32,
    /// [`FOOTER_MAGIC`].
    pub magic: [u8; 4],
}

/// The first 16 bytes of an index block's payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndexHeader {
    /// File offset of the previous index block; 0 if this is the first.
    pub previous: U64,
    /// File offset of the first listed block.
    pub start: U64,
}

/// Size of [`FileHeader`], bytes.
pub const FILE_HEADER_BYTES: u64 = size_of::<FileHeader>() as u64;
/// Size of [`BlockHeader`], bytes.
pub const BLOCK_HEADER_BYTES: u64 = size_of::<BlockHeader>() as u64;
/// Size of [`Footer`], bytes.
pub const FOOTER_BYTES: u64 = size_of::<Footer>() as u64;

/// Rounds a payload's length up to a multiple of 8, the alignment of blocks.
pub(crate) const fn padded(length: u64) -> u64 {
    length.div_ceil(8) * 8
}

impl FileHeader {
    /// The file header of this version.
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

    /// The correct value of `crc32c`.
    pub(crate) fn computed_crc32c(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..12])
    }
}

impl BlockHeader {
    /// The correct value of `crc32c` for the stored `payload`.
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

    /// The footer at the end of `file`, if there is a valid one.
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
