//! Makes what unpacks to far more than it holds: a kernel's image in every compression, sections of an
//! ELF file, compressed records of perf.data.

use super::perfdata;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The unpacked size of a block, bytes: the maximum of lz4's legacy frame, and what lzop uses.
const LZ4_BLOCK: usize = 8 << 20;
const LZO_BLOCK: usize = 256 << 10;
/// The unpacked size that every image claims.
const CLAIM: u32 = u32::MAX;

/// How a kernel can be compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packer {
    Gzip,
    Bzip2,
    Lzma,
    Xz,
    Lzo,
    Lz4,
    Zstd,
}

impl Packer {
    pub(crate) const ALL: [Packer; 7] = [
        Packer::Gzip,
        Packer::Bzip2,
        Packer::Lzma,
        Packer::Xz,
        Packer::Lzo,
        Packer::Lz4,
        Packer::Zstd,
    ];

    /// So many zeros, compressed. They are not kept unpacked.
    pub(crate) fn zeros(self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut zeros = io::Read::take(io::repeat(0), bytes);
        let mut out = Vec::new();

        match self {
            Packer::Gzip => {
                let level = flate2::Compression::best();
                let mut writer = flate2::write::GzEncoder::new(out, level);
                io::copy(&mut zeros, &mut writer)?;
                out = writer.finish()?;
            }
            Packer::Bzip2 => {
                let level = bzip2::Compression::best();
                let mut writer = bzip2::write::BzEncoder::new(out, level);
                io::copy(&mut zeros, &mut writer)?;
                out = writer.finish()?;
            }
            Packer::Lzma => {
                let options = lzma_rust2::LzmaOptions::with_preset(0);
                let mut writer = lzma_rust2::LzmaWriter::new_use_header(out, &options, None)?;
                io::copy(&mut zeros, &mut writer)?;
                out = writer.finish()?;
            }
            Packer::Xz => {
                let options = lzma_rust2::XzOptions::with_preset(0);
                let mut writer = lzma_rust2::XzWriter::new(out, options)?;
                io::copy(&mut zeros, &mut writer)?;
                out = writer.finish()?;
            }
            Packer::Zstd => {
                let mut writer = zstd::stream::write::Encoder::new(out, 1)?;
                io::copy(&mut zeros, &mut writer)?;
                out = writer.finish()?;
            }
            Packer::Lz4 => {
                let block = lz4_flex::block::compress(&vec![0; LZ4_BLOCK]);
                let block = [&(block.len() as u32).to_le_bytes()[..], &block].concat();
                // The magic of the legacy format, which the kernel uses; then blocks with their
                // sizes.
                out.extend([0x02, 0x21, 0x4c, 0x18]);
                out.extend(block.repeat(bytes.div_ceil(LZ4_BLOCK as u64) as usize));
            }
            Packer::Lzo => {
                let block = lzokay::compress::compress(&vec![0; LZO_BLOCK]);
                let block = block.map_err(|error| io::Error::other(format!("{error:?}")))?;
                // lzop writes numbers with the most significant byte first, the unpacked length
                // before the packed one.
                let lengths = [LZO_BLOCK, block.len()].map(|len| (len as u32).to_be_bytes());
                let block = [lengths.as_flattened(), &block[..]].concat();
                // Version 0x1040, LZO1X-999; no flags, mode, time, name; nor their checksum.
                out.extend(b"\x89LZO\0\r\n\x1a\n\x10\x40\x20\xa0\x09\x40\x03\x09");
                out.extend([0; 4 + 4 + 8 + 1 + 4]);
                out.extend(block.repeat(bytes.div_ceil(LZO_BLOCK as u64) as usize));
                // A block of length 0 ends the file.
                out.extend([0; 4]);
            }
        }

        Ok(out)
    }

    /// Changes the header so that it asks for a window of 2 GiB or more. `None` for what has none.
    pub(crate) fn with_window(self, mut packed: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            // The size of the dictionary, and an unknown size of the whole.
            Packer::Lzma => packed[3..5].copy_from_slice(&[0xff; 2]),
            // A frame without a size of contents; the window is 2^(10 + 21).
            Packer::Zstd => {
                packed.truncate(4);
                packed.extend([0, 21 << 3]);
                // The last block: one byte, 128 KiB times.
                let header = 1u32 | 1 << 1 | (128 << 10) << 3;
                packed.extend(&header.to_le_bytes()[..3]);
                packed.push(0);
            }
            _ => return None,
        }
        Some(packed)
    }
}

/// A bzImage with this payload, which claims to unpack to [`CLAIM`] bytes.
pub(crate) fn kernel(path: &Path, payload: &[u8]) -> io::Result<()> {
    // Linux Documentation/arch/x86/boot.rst: one sector of setup; the signature, the magic, protocol
    // 2.15; the payload's offset behind the setup and its length.
    const PAYLOAD: u32 = 0x40;
    let mut out = vec![0; 1024 + PAYLOAD as usize];
    out[0x1f1] = 1;
    out[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    out[0x202..0x206].copy_from_slice(b"HdrS");
    out[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    out[0x248..0x24c].copy_from_slice(&PAYLOAD.to_le_bytes());
    out[0x24c..0x250].copy_from_slice(&(payload.len() as u32 + 4).to_le_bytes());
    out.extend(payload);
    out.extend(CLAIM.to_le_bytes());
    fs::write(path, out)
}

/// The contents of an `SHF_COMPRESSED` section: `Elf64_Chdr`, ELFCOMPRESS_ZSTD, and zeros.
pub(crate) fn zstd_section(bytes: u64) -> io::Result<Vec<u8>> {
    let mut out = 2u32.to_le_bytes().to_vec();
    out.extend([0; 4]);
    out.extend(bytes.to_le_bytes());
    out.extend(8u64.to_le_bytes());
    out.extend(Packer::Zstd.zeros(bytes)?);
    Ok(out)
}

/// A `PERF_RECORD_COMPRESSED` of so many MiB of records.
pub(crate) fn record(mib: usize) -> io::Result<Vec<u8>> {
    // Of 32 KiB, of a kind without a meaning: `PERF_RECORD_FINISHED_ROUND`.
    let filler = perfdata::record(68, 0, &[0; (32 << 10) - 8]);
    let mut writer = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    for _ in 0..mib * 32 {
        writer.write_all(&filler)?;
    }
    Ok(perfdata::record(81, 0, &writer.finish()?))
}
