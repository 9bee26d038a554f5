//! The compressed kernel in a bzImage: finds and unpacks it.
//!
//! Sources: Linux `Documentation/arch/x86/boot.rst` (`setup_sects`, `payload_offset`,
//! `payload_length`, since boot protocol 2.08); `scripts/Makefile.lib` and `lib/decompress*.c` for
//! the payload formats. All but gzip are followed by the unpacked size, four bytes, used here only
//! as a hint. lz4 is the legacy frame: blocks of at most 8 MiB, each preceded by its length. lzo is
//! the format of lzop(1).

use super::error::KernelErrorKind;
use super::lzop;
use crate::mapped::huge;
use std::io::{self, Read};
use std::sync::Arc;
use unwind_sim_unwind::image::Bytes;

/// Maximum unpacked size of a kernel or module, bytes; the size of a kernel's address range.
pub(super) const UNPACKED_MAX: u64 = 1 << 30;
/// Maximum memory reserved up front, as a multiple of the compressed size.
const RATIO_TRUSTED: u64 = 64;
/// Maximum memory for the window of xz and lzma, KiB. The kernel is packed with 32 MiB.
const LZMA_MEMORY_KIB_MAX: u32 = 256 << 10;
/// Maximum zstd window, as a power of two; `zstd -22 --ultra`, used by the kernel, has 27.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Maximum unpacked size of a block in lz4's legacy frame, bytes.
const LZ4_BLOCK: usize = 8 << 20;

/// How a payload is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not compressed.
    None,
    /// `CONFIG_KERNEL_GZIP`
    Gzip,
    /// `CONFIG_KERNEL_BZIP2`
    Bzip2,
    /// `CONFIG_KERNEL_LZMA`
    Lzma,
    /// `CONFIG_KERNEL_XZ`
    Xz,
    /// `CONFIG_KERNEL_LZO`
    Lzo,
    /// `CONFIG_KERNEL_LZ4`
    Lz4,
    /// `CONFIG_KERNEL_ZSTD`
    Zstd,
}

impl Compression {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Bzip2 => "bzip2",
            Compression::Lzma => "lzma",
            Compression::Xz => "xz",
            Compression::Lzo => "lzo",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Detects the compression from the first bytes (Linux `lib/decompress.c`).
    pub fn from_magic(bytes: &[u8]) -> Option<Compression> {
        Some(match bytes {
            [0x7f, b'E', b'L', b'F', ..] => Compression::None,
            [0x1f, 0x8b | 0x9e, ..] => Compression::Gzip,
            [b'B', b'Z', b'h', ..] => Compression::Bzip2,
            [0x5d, 0, 0, ..] => Compression::Lzma,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [0x89, b'L', b'Z', b'O', ..] => Compression::Lzo,
            [0x02, 0x21, 0x4c, 0x18, ..] => Compression::Lz4,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            _ => return None,
        })
    }
}

/// The payload of a bzImage.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Its bytes.
    pub data: Bytes,
    /// How it is compressed.
    pub compression: Compression,
    /// The kernel's version string in the boot header.
    pub version: Option<String>,
}

/// Does the file start with the boot sector and the header of a bzImage?
pub fn is_bzimage(bytes: &[u8]) -> bool {
    bytes.get(0x1fe..0x200) == Some(&[0x55, 0xaa]) && bytes.get(0x202..0x206) == Some(b"HdrS")
}

impl Payload {
    /// Finds the payload of the bzImage `file`.
    ///
    /// # Errors
    /// If the header is invalid, or the payload is outside the file or in an unknown format.
    pub fn find(file: &Bytes) -> Result<Payload, KernelErrorKind> {
        const SECTOR: u64 = 512;
        let boot = |offset, what| KernelErrorKind::Boot { offset, what };
        if !is_bzimage(file) {
            return Err(KernelErrorKind::NotKernel);
        }

        let u16_at = |at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
        let protocol = u16_at(0x206).ok_or_else(|| boot(0x206, "the file ends early"))?;
        // Linux 2.6.26 (`boot.rst`).
        if protocol < 0x0208 {
            return Err(boot(
                0x206,
                "a protocol before 2.08 does not give the payload's location",
            ));
        }

        let end = || boot(0x248, "the file ends");
        // 0 means 4 (`Documentation/arch/x86/boot.rst`, `setup_sects`).
        let sectors = match file.get(0x1f1).copied().ok_or_else(end)? {
            0 => 4,
            n => u64::from(n),
        };

        // `payload_offset` counts from the code behind the boot sector and the setup sectors.
        let offset = u64::from(u32_at(0x248).ok_or_else(end)?) + (sectors + 1) * SECTOR;
        let length = u64::from(u32_at(0x24c).ok_or_else(end)?);

        let range = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(offset + length).ok());
        let data = range
            .and_then(|(from, to)| file.part(from..to))
            .ok_or_else(|| boot(0x248, "the payload lies outside the file"))?;

        let compression = Compression::from_magic(&data).ok_or_else(|| {
            let mut magic = [0; 4];
            let known = data.len().min(4);
            magic[..known].copy_from_slice(&data[..known]);
            KernelErrorKind::UnknownCompression { offset, magic }
        })?;

        // `kernel_version` is the place of the string less 0x200.
        let version = u16_at(0x20e).filter(|at| *at != 0);
        Ok(Payload {
            offset,
            compression,
            version: version.and_then(|at| version_at(file, usize::from(at) + 0x200)),
            data,
        })
    }

    /// Unpacks the payload.
    ///
    /// # Errors
    /// If it is damaged, or larger than 1 GiB.
    pub fn unpack(&self) -> Result<Bytes, KernelErrorKind> {
        if self.compression == Compression::None {
            return Ok(self.data.clone());
        }
        // gzip's own trailer also ends with this size.
        let hint = self.data.last_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let hint = u64::from(hint);
        unpack(
            &self.data,
            self.compression,
            self.offset,
            hint,
            UNPACKED_MAX,
        )
    }
}

/// The first word of the string at `at`, such as "6.1.0-50-cloud-amd64".
fn version_at(file: &[u8], at: usize) -> Option<String> {
    const LEN_MAX: usize = 128;
    let rest = file.get(at..)?;
    let rest = &rest[..rest.len().min(LEN_MAX)];
    let end = rest.iter().position(|b| matches!(b, 0 | b' ')).unwrap_or(0);
    let word = std::str::from_utf8(&rest[..end]).ok()?;
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.to_owned())
}

/// Unpacks `data`, which is at `offset` in its file and claims to unpack to `hint` bytes, of which
/// `max` are allowed. Data after the end of the compressed stream is ignored.
pub(super) fn unpack(
    data: &[u8],
    compression: Compression,
    offset: u64,
    hint: u64,
    max: u64,
) -> Result<Bytes, KernelErrorKind> {
    let failed = |why: io::Error| KernelErrorKind::Unpack {
        compression,
        offset,
        why: why.kind(),
    };

    // The hint comes from the file: a small payload must not allocate much at once.
    let believed = hint.min(max).min(data.len() as u64 * RATIO_TRUSTED);
    let believed = usize::try_from(believed).unwrap_or(0);
    // These two are unpacked at once if their size is known, without this buffer.
    let mut out = match compression {
        Compression::Lz4 | Compression::Zstd => Vec::new(),
        _ => Vec::with_capacity(believed),
    };

    match compression {
        Compression::None => out.extend_from_slice(data),
        Compression::Gzip => {
            read_all(flate2::bufread::GzDecoder::new(data), &mut out, max).map_err(failed)?
        }
        Compression::Bzip2 => {
            read_all(bzip2::bufread::BzDecoder::new(data), &mut out, max).map_err(failed)?
        }
        Compression::Xz => {
            // The data says how large its dictionary is, so that is bounded, too.
            let reader = lzma_rust2::XzReader::new_mem_limit(data, false, LZMA_MEMORY_KIB_MAX);
            read_all(reader, &mut out, max).map_err(failed)?;
        }
        Compression::Lzma => {
            let reader = lzma_rust2::LzmaReader::new_mem_limit(data, LZMA_MEMORY_KIB_MAX, None);
            read_all(reader.map_err(failed)?, &mut out, max).map_err(failed)?;
        }
        // If the hint is wrong, the same data is unpacked without it.
        Compression::Lz4 => match lz4_whole(data, believed) {
            Some(whole) => return Ok(whole),
            None => lz4_stream(data, &mut out, max).map_err(failed)?,
        },
        Compression::Zstd => match zstd_whole(data, believed).map_err(failed)? {
            Some(whole) => return Ok(whole),
            None => zstd_stream(data, &mut out, max).map_err(failed)?,
        },
        Compression::Lzo => {
            lzop::unpack(data, &mut out, max).map_err(|(at, why)| KernelErrorKind::Unpack {
                compression,
                offset: offset + at as u64,
                why,
            })?
        }
    }

    // Readers go one byte past the limit, so that this is seen.
    if out.len() as u64 > max {
        return Err(KernelErrorKind::UnpackLimit { limit: max });
    }
    Ok(Bytes::from_vec(out))
}

/// Reads to the end, or to one byte past the limit.
fn read_all(reader: impl Read, out: &mut Vec<u8>, max: u64) -> io::Result<()> {
    reader.take(max + 1).read_to_end(out).map(drop)
}

/// Decompresses in one call, if the result fits into `believed` bytes.
fn zstd_whole(data: &[u8], believed: usize) -> io::Result<Option<Bytes>> {
    let frame = zstd::zstd_safe::find_frame_compressed_size(data);
    let frame = frame.ok().and_then(|len| data.get(..len)).unwrap_or(data);
    let mut whole = zstd::bulk::Decompressor::new()?;
    whole.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    let Some(mut room) = huge(believed) else {
        return Ok(None);
    };
    let unpacked = whole.decompress_to_buffer(frame, &mut room[..]);
    Ok(unpacked
        .ok()
        .and_then(|len| Bytes::new(Arc::new(room), 0..len)))
}

fn zstd_stream(data: &[u8], out: &mut Vec<u8>, max: u64) -> io::Result<()> {
    let mut reader = zstd::stream::read::Decoder::with_buffer(data)?.single_frame();
    reader.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    read_all(reader, out, max)
}

/// The blocks of lz4's legacy frame. It ends with the data; a remainder of four bytes is the size
/// appended by the kernel's build.
struct Lz4Blocks<'a>(&'a [u8]);

impl<'a> Lz4Blocks<'a> {
    fn new(data: &'a [u8]) -> Self {
        Lz4Blocks(data.get(4..).unwrap_or_default())
    }
}

impl<'a> Iterator for Lz4Blocks<'a> {
    type Item = io::Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (length, tail) = self.0.split_first_chunk()?;
        if tail.is_empty() {
            return None;
        }
        let length = u32::from_le_bytes(*length) as usize;
        let block = tail.get(..length).ok_or_else(bad_lz4);
        self.0 = tail.get(length..).unwrap_or_default();
        Some(block)
    }
}

fn bad_lz4() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Unpacks lz4's legacy frame, if the result fits into `believed` bytes.
fn lz4_whole(data: &[u8], believed: usize) -> Option<Bytes> {
    let mut room = huge(believed)?;
    let mut len = 0;
    for block in Lz4Blocks::new(data) {
        let end = believed.min(len + LZ4_BLOCK);
        len += lz4_flex::block::decompress_into(block.ok()?, &mut room[len..end]).ok()?;
    }
    Bytes::new(Arc::new(room), 0..len)
}

/// Unpacks lz4's legacy frame, whatever its size.
fn lz4_stream(data: &[u8], out: &mut Vec<u8>, max: u64) -> io::Result<()> {
    for block in Lz4Blocks::new(data) {
        let len = out.len();
        if len as u64 > max {
            break;
        }
        out.resize(len + LZ4_BLOCK, 0);
        let unpacked = lz4_flex::block::decompress_into(block?, &mut out[len..]);
        out.truncate(len + unpacked.map_err(|_| bad_lz4())?);
    }
    Ok(())
}
