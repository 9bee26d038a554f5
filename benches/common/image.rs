//! ELF files mapped into memory, and their addresses in a process: the input of every unwinder.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};

/// Bytes of a mapped file.
#[derive(Clone)]
pub(crate) struct Bytes {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A section: its addresses as the file states them, and its bytes.
#[derive(Clone)]
pub(crate) struct Section {
    pub(crate) svma: Range<u64>,
    pub(crate) bytes: Bytes,
}

/// A loadable segment's place in the file and in memory.
struct Segment {
    offset: u64,
    file_size: u64,
    vaddr: Range<u64>,
    executable: bool,
}

/// One ELF file with the sections that unwinding needs.
pub(crate) struct Elf {
    pub(crate) path: PathBuf,
    pub(crate) file: Bytes,
    pub(crate) text: Option<Section>,
    pub(crate) got: Option<Section>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) eh_frame_hdr: Option<Section>,
    segments: Vec<Segment>,
}

impl Elf {
    /// Maps the file. Each call makes a new mapping, whose pages are not in the page table yet.
    pub(crate) fn open(path: &Path) -> Option<Arc<Elf>> {
        let file = File::open(path).ok()?;
        // SAFETY: the benches map system libraries and their own files, which nobody truncates
        // while a bench runs.
        let map = Arc::new(unsafe { Mmap::map(&file) }.ok()?);
        let elf = object::File::parse(&map[..]).ok()?;

        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            let (offset, size) = section.file_range()?;
            let range = usize::try_from(offset).ok()?..usize::try_from(offset + size).ok()?;
            // A damaged file may claim bytes that it does not have.
            map.get(range.clone())?;
            let svma = section.address()..section.address() + size;
            Some(Section {
                svma,
                bytes: Bytes {
                    map: map.clone(),
                    range,
                },
            })
        };

        let segments = elf.segments().map(|s| {
            let (offset, file_size) = s.file_range();
            // Bit 0 of `p_flags` is `PF_X`.
            let executable =
                matches!(s.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0);
            Segment {
                offset,
                file_size,
                vaddr: s.address()..s.address() + s.size(),
                executable,
            }
        });
        let segments = segments.collect();

        Some(Arc::new(Elf {
            path: path.to_owned(),
            file: Bytes {
                range: 0..map.len(),
                map: map.clone(),
            },
            text: section(".text"),
            got: section(".got"),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            segments,
        }))
    }
}

/// An ELF file at its addresses in a process.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) elf: Arc<Elf>,
    /// Address in the process minus address in the file.
    pub(crate) bias: u64,
    /// From the lowest to the highest address of its segments.
    pub(crate) range: Range<u64>,
}

/// A part of a file in memory.
pub(crate) struct LoadedSegment {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// Its offset in the file.
    pub(crate) offset: u64,
}

const PAGE: u64 = 4096;

impl Image {
    /// The pages of its first executable segment.
    pub(crate) fn executable(&self) -> Option<LoadedSegment> {
        let segment = self.elf.segments.iter().find(|s| s.executable)?;
        let before = segment.offset % PAGE;
        let length = segment.vaddr.end - segment.vaddr.start + before;
        Some(LoadedSegment {
            address: segment.vaddr.start.wrapping_add(self.bias) - before,
            length: length.next_multiple_of(PAGE),
            offset: segment.offset - before,
        })
    }

    pub(crate) fn at_bias(elf: Arc<Elf>, bias: u64) -> Option<Image> {
        let low = elf.segments.iter().map(|s| s.vaddr.start).min()?;
        let high = elf.segments.iter().map(|s| s.vaddr.end).max()?;
        Some(Image {
            elf,
            bias,
            range: bias.wrapping_add(low)..bias.wrapping_add(high),
        })
    }

    /// The image of an executable mapping that maps the file's `offset` at `start`.
    pub(crate) fn of_mapping(elf: Arc<Elf>, start: u64, offset: u64) -> Option<Image> {
        let segment = elf.segments.iter().find(|s| {
            s.executable && s.offset / PAGE * PAGE <= offset && offset < s.offset + s.file_size
        })?;
        let svma = segment
            .vaddr
            .start
            .wrapping_add(offset)
            .wrapping_sub(segment.offset);
        let bias = start.wrapping_sub(svma);
        Image::at_bias(elf, bias)
    }
}
