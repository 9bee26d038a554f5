//! Unpacks compressed sections (gABI, "Section Compression"; the older `.zdebug_*` of binutils are
//! zlib, too). Needs `std`, and is a feature of its own.

use super::{Compressed, Compression, Elf};
use crate::image::{Bytes, Section, SectionKind};
use std::io::Read;
use std::vec::Vec;

/// Maximum unpacked size of a section, and of all sections of a file together, bytes.
pub const UNPACKED_MAX: u64 = 1 << 30;
/// Of sections that cannot be unpacked, as many times [`UNPACKED_MAX`] bytes are tried.
const TRIES: u64 = 4;
/// Maximum zstd window, as a power of two.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Why a compressed section could not be unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackErrorKind {
    /// The data are damaged.
    #[error("cannot be unpacked: {0}")]
    Data(std::io::ErrorKind),
    /// They unpack to more than [`UNPACKED_MAX`] bytes, with the sections before them.
    #[error("unpacks to more than {UNPACKED_MAX} bytes, with what else of the file is compressed")]
    Limit,
}

/// A compressed section that could not be unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} at offset {offset:#x} {what}", section.as_str())]
pub struct UnpackError {
    /// The kind of section.
    pub section: SectionKind,
    /// Offset of its compressed bytes in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: UnpackErrorKind,
}

/// Reads to the end; fails if there are more than [`UNPACKED_MAX`] bytes.
///
/// # Errors
/// If the data are damaged or too long.
pub fn read_to_end(reader: impl Read) -> Result<Vec<u8>, UnpackErrorKind> {
    read_at_most(reader, UNPACKED_MAX)
}

/// [`read_to_end`] with another limit.
fn read_at_most(reader: impl Read, max: u64) -> Result<Vec<u8>, UnpackErrorKind> {
    let mut out = Vec::new();
    let read = reader.take(max + 1).read_to_end(&mut out);
    read.map_err(|error| UnpackErrorKind::Data(error.kind()))?;
    if out.len() as u64 > max {
        Err(UnpackErrorKind::Limit)
    } else {
        Ok(out)
    }
}

/// Unpacks the contents of a compressed section, without their header.
///
/// # Errors
/// If they are damaged or too long.
pub fn unpack(compression: Compression, data: &[u8]) -> Result<Vec<u8>, UnpackErrorKind> {
    unpack_at_most(compression, data, UNPACKED_MAX)
}

/// [`unpack`] with another limit, bytes.
///
/// # Errors
/// If they are damaged or too long.
pub fn unpack_at_most(
    compression: Compression,
    data: &[u8],
    max: u64,
) -> Result<Vec<u8>, UnpackErrorKind> {
    match compression {
        Compression::Zlib => read_at_most(flate2::read::ZlibDecoder::new(data), max),
        Compression::Zstd => {
            let io = |error: std::io::Error| UnpackErrorKind::Data(error.kind());
            let mut reader = zstd::stream::read::Decoder::with_buffer(data).map_err(io)?;
            reader.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(io)?;
            read_at_most(reader, max)
        }
    }
}

impl Compressed {
    /// The section with its contents unpacked.
    ///
    /// # Errors
    /// If they are damaged or too long.
    pub fn unpacked(&self) -> Result<Section, UnpackError> {
        self.unpacked_at_most(UNPACKED_MAX)
    }

    /// [`unpacked`](Compressed::unpacked) with another limit. No more is unpacked than the
    /// section's header says.
    fn unpacked_at_most(&self, max: u64) -> Result<Section, UnpackError> {
        let fail = |what| UnpackError {
            section: self.kind,
            offset: self.offset,
            what,
        };
        if self.size > max {
            return Err(fail(UnpackErrorKind::Limit));
        }

        let unpacked = unpack_at_most(self.compression, &self.data, self.size);
        let data = unpacked.map_err(|what| match what {
            UnpackErrorKind::Limit => fail(UnpackErrorKind::Data(std::io::ErrorKind::InvalidData)),
            what => fail(what),
        })?;
        Ok(Section {
            kind: self.kind,
            address: self.address,
            data: Bytes::from_vec(data),
        })
    }
}

impl Elf {
    /// Moves the compressed sections into the parts of the image. Returns what could not be
    /// unpacked.
    pub fn unpack(&mut self) -> Vec<UnpackError> {
        self.unpack_at_most(UNPACKED_MAX)
    }

    /// [`unpack`](Elf::unpack) with another limit. It is for all sections together: of sections
    /// that each are just small enough a file may have a thousand.
    fn unpack_at_most(&mut self, max: u64) -> Vec<UnpackError> {
        let (mut errors, mut left) = (Vec::new(), max);
        // What is damaged at its end was unpacked up to there.
        let mut tries = max.saturating_mul(TRIES);
        for section in std::mem::take(&mut self.compressed) {
            match section.unpacked_at_most(left.min(tries)) {
                Ok(section) => {
                    left -= section.data.len() as u64;
                    self.parts.sections.push(section);
                }
                Err(error) => {
                    if matches!(error.what, UnpackErrorKind::Data(_)) {
                        tries -= section.size;
                    }
                    errors.push(error);
                }
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageParts;
    use std::vec;

    #[test]
    fn data_come_back_and_damage_is_an_error() {
        let plain = vec![7; 5000];
        let mut zlib = Vec::new();
        let mut reader = flate2::read::ZlibEncoder::new(&plain[..], flate2::Compression::fast());
        reader.read_to_end(&mut zlib).expect("packed");
        let zstd = zstd::encode_all(&plain[..], 1).expect("packed");
        for (compression, packed) in [(Compression::Zlib, zlib), (Compression::Zstd, zstd)] {
            assert_eq!(unpack(compression, &packed).as_ref(), Ok(&plain));
            let cut = unpack(compression, &packed[..packed.len() - 3]);
            assert!(matches!(cut, Err(UnpackErrorKind::Data(_))), "{cut:?}");
            assert!(unpack(compression, b"neither of the two").is_err());
        }
    }

    fn packed(kind: SectionKind, size: u64, data: Vec<u8>) -> Compressed {
        Compressed {
            kind,
            address: 0,
            compression: Compression::Zstd,
            size,
            offset: 0x40,
            data: Bytes::from_vec(data),
        }
    }

    fn elf(compressed: Vec<Compressed>) -> Elf {
        Elf {
            empty: Vec::new(),
            parts: ImageParts::default(),
            segments: Vec::new(),
            compressed,
            debug_link: None,
            debug_data: None,
            has_symtab: false,
            problems: Vec::new(),
        }
    }

    /// A damaged section is named, and the others are used.
    #[test]
    fn compressed_sections_become_parts_of_the_image() {
        let rows = zstd::encode_all(&[1, 2, 3][..], 1).expect("packed");
        let mut elf = elf(vec![
            packed(SectionKind::EhFrame, 9, b"damaged".to_vec()),
            packed(SectionKind::DebugFrame, 3, rows),
        ]);
        let errors = elf.unpack();
        let places: Vec<_> = errors.iter().map(|e| (e.section, e.offset)).collect();
        assert_eq!(places, [(SectionKind::EhFrame, 0x40)]);
        assert!(elf.compressed.is_empty());
        let sections = elf.parts.sections.iter();
        let sections: Vec<_> = sections.map(|s| (s.kind, s.data.to_vec())).collect();
        assert_eq!(sections, [(SectionKind::DebugFrame, vec![1, 2, 3])]);
    }

    /// The limit is for all together, and what no longer fits is named.
    #[test]
    fn many_sections_unpack_to_no_more_than_one() {
        let bytes = zstd::encode_all(&[0; 100][..], 1).expect("packed");
        let all = vec![packed(SectionKind::DebugFrame, 100, bytes); 5];
        for (max, fit) in [(500, 5), (499, 4), (100, 1), (99, 0)] {
            let mut elf = elf(all.clone());
            let errors = elf.unpack_at_most(max);
            assert_eq!(elf.parts.sections.len(), fit, "of {max} bytes");
            assert_eq!(errors.len(), 5 - fit);
            assert!(errors.iter().all(|e| e.what == UnpackErrorKind::Limit));
        }
    }

    /// Sections that are damaged cost what was unpacked of them, and those that lie about their
    /// size are.
    #[test]
    fn damaged_sections_are_tried_up_to_a_limit() {
        let bytes = zstd::encode_all(&[0; 101][..], 1).expect("packed");
        let mut all = vec![packed(SectionKind::EhFrame, 100, bytes); 5];
        let good = zstd::encode_all(&[0; 100][..], 1).expect("packed");
        all.push(packed(SectionKind::DebugFrame, 100, good.clone()));

        let mut elf = elf(all.clone());
        let errors = elf.unpack_at_most(100);
        let kinds: Vec<_> = errors.iter().map(|e| e.what).collect();
        let damaged = UnpackErrorKind::Data(std::io::ErrorKind::InvalidData);
        let limit = UnpackErrorKind::Limit;
        assert_eq!(kinds, [damaged, damaged, damaged, damaged, limit, limit]);

        let mut elf = self::elf(all.split_off(3));
        assert_eq!(elf.unpack_at_most(100).len(), 2);
        assert_eq!(elf.parts.sections.len(), 1);
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused() {
        assert_eq!(read_to_end(std::io::repeat(0)), Err(UnpackErrorKind::Limit));
    }
}
