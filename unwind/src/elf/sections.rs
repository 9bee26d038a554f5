//! Finds sections by name and type, or by program header if there are no section headers.

use super::{Compressed, Compression, DebugLink, Elf, ElfError, ElfErrorKind, File, error};
use crate::image::{Bytes, Section, SectionKind};
use alloc::string::String;
use object::elf;
use object::endian::LittleEndian as LE;
use object::read::elf::{ProgramHeader as _, SectionHeader as _};

/// binutils 2.46 `include/elf/common.h`
const SHT_GNU_SFRAME: elf::SectionType = elf::SectionType(0x6fff_fff4);
/// binutils 2.46 `include/elf/common.h`
const PT_GNU_SFRAME: elf::ProgramType = elf::ProgramType(0x6474_e554);
/// Size of `Elf64_Chdr`.
pub(super) const CHDR_SIZE: u64 = 24;
/// The maximum number of sections; the kernel image, which has the most, has about ten.
const SECTIONS_MAX: usize = 1024;
/// The sections that are unwind tables.
const TABLES: [SectionKind; 4] = [
    SectionKind::EhFrame,
    SectionKind::DebugFrame,
    SectionKind::Sframe,
    SectionKind::OrcUnwind,
];
/// The longest file name accepted in `.gnu_debuglink`.
const NAME_LEN_MAX: usize = 255;

/// Reads everything from sections; program headers supply what is missing.
pub(super) fn read(file: &File<'_>, out: &mut Elf) {
    // A debug file has its program's program headers, but not the bytes.
    let (mut has_code, mut lacks_code) = (false, false);
    let by_section = out.parts.text.is_empty();

    for header in file.table.iter() {
        let has_flag = |flag: u64| header.sh_flags(LE).0 & flag != 0;
        let code = has_flag(elf::SHF_ALLOC.0) && has_flag(elf::SHF_EXECINSTR.0);
        if code && header.sh_size(LE) != 0 {
            let is_absent = header.sh_type(LE) == elf::SHT_NOBITS;
            has_code |= !is_absent;
            lacks_code |= is_absent;
        }

        // Without executable segments, sections say where code is.
        if code && by_section {
            let start = header.sh_addr(LE);
            let end = start.saturating_add(header.sh_size(LE));
            if start < end {
                out.parts.text.push(start..end);
            }
        }

        // One damaged section is no reason to lose the others.
        if let Err(error) = read_section(file, header, out) {
            out.problems.push(error);
        }
    }

    let is_debug_file = lacks_code && !has_code;
    if !is_debug_file {
        read_text(file, out);
    }

    // A file without section headers still has these segments.
    for p in file.programs {
        let kind = match p.p_type(LE) {
            elf::PT_GNU_EH_FRAME => SectionKind::EhFrameHdr,
            PT_GNU_SFRAME => SectionKind::Sframe,
            _ => continue,
        };

        // What a section has given already is not read again from its segment.
        if is_debug_file || has(out, kind) || p.p_filesz(LE) == 0 {
            continue;
        }
        match file.bytes(p.p_offset(LE), p.p_filesz(LE), kind.as_str()) {
            Ok(data) => push(out, kind, p.p_vaddr(LE), data),
            Err(error) => out.problems.push(error),
        }
    }

    // `.eh_frame` has no segment of its own, but its header points to it.
    if !has(out, SectionKind::EhFrame)
        && let Err(error) = eh_frame_by_hdr(file, out)
    {
        out.problems.push(error);
    }
}

fn has(out: &Elf, kind: SectionKind) -> bool {
    out.parts.sections.iter().any(|s| s.kind == kind)
}

/// Adds a section unless there are already too many.
fn push(out: &mut Elf, kind: SectionKind, address: u64, data: Bytes) {
    if out.parts.sections.len() >= SECTIONS_MAX {
        return;
    }
    out.parts.sections.push(Section {
        kind,
        address,
        data,
    });
}

/// Reads the bytes of the executable segments, as far as the file contains them.
fn read_text(file: &File<'_>, out: &mut Elf) {
    let code = |p: &&elf::ProgramHeader64<LE>| {
        p.p_type(LE) == elf::PT_LOAD && p.p_flags(LE).0 & elf::PF_X.0 != 0
    };
    for p in file.programs.iter().filter(code) {
        let (offset, size) = (p.p_offset(LE), p.p_filesz(LE));
        let there = (file.data.len() as u64).saturating_sub(offset);
        if size > there {
            out.problems.push(error::cut(file.data, ".text", offset));
        }
        if size.min(there) == 0 {
            continue;
        }
        match file.bytes(offset, size.min(there), ".text") {
            Ok(data) => push(out, SectionKind::Text, p.p_vaddr(LE), data),
            Err(error) => out.problems.push(error),
        }
    }
}

fn read_section(
    file: &File<'_>,
    header: &elf::SectionHeader64<LE>,
    out: &mut Elf,
) -> Result<(), ElfError> {
    let name = file.name(header);
    let kind = match name {
        b".eh_frame" => SectionKind::EhFrame,
        b".eh_frame_hdr" => SectionKind::EhFrameHdr,
        b".debug_frame" => SectionKind::DebugFrame,
        b".zdebug_frame" => return read_zdebug(file, header, SectionKind::DebugFrame, out),
        b".sframe" => SectionKind::Sframe,
        b".orc_unwind" => SectionKind::OrcUnwind,
        b".orc_unwind_ip" => SectionKind::OrcUnwindIp,
        b".orc_header" => SectionKind::OrcHeader,
        // Addresses in `.eh_frame` can be relative to it (DW_EH_PE_datarel).
        b".got" | b".got.plt" => return read_got(header, name, out),
        b".gnu_debuglink" => return read_debug_link(file, header, out),
        b".gnu_debugdata" => {
            out.debug_data = data(file, header, ".gnu_debugdata")?;
            return Ok(());
        }
        // Newer tools give the section a type of its own, whatever its name.
        _ if header.sh_type(LE) == SHT_GNU_SFRAME => SectionKind::Sframe,
        _ => return Ok(()),
    };

    let address = header.sh_addr(LE);
    if header.sh_flags(LE).0 & elf::SHF_COMPRESSED.0 != 0 {
        return read_compressed(file, header, kind, out);
    }

    match data(file, header, kind.as_str())? {
        Some(data) => push(out, kind, address, data),
        // A debug file has the headers of its program's sections, without the bytes.
        None if header.sh_type(LE) == elf::SHT_NOBITS => {}
        None if TABLES.contains(&kind) && !out.empty.contains(&kind) => out.empty.push(kind),
        None => {}
    }
    Ok(())
}

/// The bytes of a section; `None` if it takes no space in the file.
fn data(
    file: &File<'_>,
    header: &elf::SectionHeader64<LE>,
    part: &'static str,
) -> Result<Option<Bytes>, ElfError> {
    match header.file_range(LE) {
        Some((offset, size)) if size != 0 => file.bytes(offset, size, part).map(Some),
        _ => Ok(None),
    }
}

/// Records the address of `_GLOBAL_OFFSET_TABLE_`: `.got.plt`, or `.got` if there is none.
fn read_got(header: &elf::SectionHeader64<LE>, name: &[u8], out: &mut Elf) -> Result<(), ElfError> {
    let is_plt = name == b".got.plt";
    if is_plt {
        out.parts.sections.retain(|s| s.kind != SectionKind::Got);
    }
    if !has(out, SectionKind::Got) {
        let empty = Bytes::from_vec(Default::default());
        push(out, SectionKind::Got, header.sh_addr(LE), empty);
    }
    Ok(())
}

fn read_compressed(
    file: &File<'_>,
    header: &elf::SectionHeader64<LE>,
    kind: SectionKind,
    out: &mut Elf,
) -> Result<(), ElfError> {
    let offset = header.sh_offset(LE);
    let whole = data(file, header, kind.as_str())?;
    let cut = || error::cut(file.data, kind.as_str(), offset);

    let chdr = whole
        .as_deref()
        .and_then(<[u8]>::first_chunk::<{ CHDR_SIZE as usize }>)
        .ok_or_else(cut)?;

    // `Elf64_Chdr`: type, a reserved word, size, alignment (gABI, chapter 4).
    let ch_type = u32::from_le_bytes([chdr[0], chdr[1], chdr[2], chdr[3]]);
    let ch_size = chdr[8..16].try_into().map_or(0, u64::from_le_bytes);

    let compression = match ch_type {
        1 => Compression::Zlib,
        2 => Compression::Zstd,
        other => {
            let what = ElfErrorKind::Compression(other);
            return Err(ElfError::new(what, kind.as_str(), offset));
        }
    };

    // The compressed data follow the header and are unpacked only if somebody asks for them.
    let start = offset.checked_add(CHDR_SIZE).ok_or_else(cut)?;
    let size = header.sh_size(LE).saturating_sub(CHDR_SIZE);
    out.compressed.push(Compressed {
        kind,
        address: header.sh_addr(LE),
        compression,
        size: ch_size,
        offset: start,
        data: file.bytes(start, size, kind.as_str())?,
    });

    Ok(())
}

/// Reads a section in the format before `SHF_COMPRESSED` (binutils' zlib-gnu): `ZLIB`, the
/// size as a big-endian word, and zlib data. Without this header the section is not compressed.
fn read_zdebug(
    file: &File<'_>,
    header: &elf::SectionHeader64<LE>,
    kind: SectionKind,
    out: &mut Elf,
) -> Result<(), ElfError> {
    const HEADER: usize = 12;

    let Some(whole) = data(file, header, kind.as_str())? else {
        return Ok(());
    };

    let size = whole.get(4..HEADER).and_then(<[u8]>::first_chunk);
    let (Some(size), true) = (size, whole.starts_with(b"ZLIB")) else {
        push(out, kind, header.sh_addr(LE), whole);
        return Ok(());
    };

    // The size is big-endian, unlike all else in the file.
    let packed = whole.part(HEADER..whole.len());
    out.compressed.push(Compressed {
        kind,
        address: header.sh_addr(LE),
        compression: Compression::Zlib,
        size: u64::from_be_bytes(*size),
        offset: header.sh_offset(LE).saturating_add(HEADER as u64),
        data: packed.unwrap_or_else(|| Bytes::from_vec(Default::default())),
    });

    Ok(())
}

/// Reads `.gnu_debuglink`: a name, NUL, padding to four bytes, CRC-32.
fn read_debug_link(
    file: &File<'_>,
    header: &elf::SectionHeader64<LE>,
    out: &mut Elf,
) -> Result<(), ElfError> {
    const PART: &str = ".gnu_debuglink";
    let Some(data) = data(file, header, PART)? else {
        return Ok(());
    };
    let parse = || {
        let nul = data.iter().take(NAME_LEN_MAX + 1).position(|&b| b == 0)?;
        let crc = data.get((nul + 1).next_multiple_of(4)..)?.first_chunk()?;
        Some(DebugLink {
            name: String::from_utf8_lossy(&data[..nul]).into_owned(),
            crc: u32::from_le_bytes(*crc),
        })
    };
    let link = parse().ok_or_else(|| error::cut(file.data, PART, header.sh_offset(LE)))?;
    out.debug_link = Some(link);
    Ok(())
}

/// Adds `.eh_frame` if only `.eh_frame_hdr` points to it: from `eh_frame_ptr` to the terminator, as
/// libgcc reads it; behind that may be anything else of the segment.
fn eh_frame_by_hdr(file: &File<'_>, out: &mut Elf) -> Result<(), ElfError> {
    const PART: &str = ".eh_frame_hdr";

    let hdr = out
        .parts
        .sections
        .iter()
        .find(|s| s.kind == SectionKind::EhFrameHdr);
    let Some(hdr) = hdr else { return Ok(()) };

    // Errors name the offset in the file; at an address that is in no segment, it is 0.
    let offset = file.at_address(hdr.address).map_or(0, |found| found.0);
    let error = |what| ElfError::new(what, PART, offset);

    let (&version, &encoding) = match &hdr.data[..] {
        [version, encoding, ..] => (version, encoding),
        _ => return Err(error::cut(file.data, PART, offset)),
    };
    if version != 1 {
        return Err(error(ElfErrorKind::HdrVersion(version)));
    }

    // DW_EH_PE_*: the low four bits are the format of the value, the next three what it is relative
    // to.
    let field = hdr.data.get(4..).unwrap_or_default();
    let four = field.first_chunk().copied();
    let eight = field.first_chunk().copied();

    // `absptr`, `udata8` and `sdata8` have eight bytes, `udata4` and `sdata4` four.
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => eight.map(u64::from_le_bytes),
        0x03 => four.map(|v| u64::from(u32::from_le_bytes(v))),
        0x0b => four.map(|v| i64::from(i32::from_le_bytes(v)).cast_unsigned()),
        _ => return Err(error(ElfErrorKind::HdrEncoding(encoding))),
    };
    let value = value.ok_or_else(|| error::cut(file.data, PART, offset))?;

    let base = match encoding & 0xf0 {
        0x00 => 0,
        // DW_EH_PE_pcrel: relative to this field, which follows the four bytes of the header.
        0x10 => hdr.address.wrapping_add(4),
        // DW_EH_PE_datarel: relative to the start of the header.
        0x30 => hdr.address,
        _ => return Err(error(ElfErrorKind::HdrEncoding(encoding))),
    };

    let address = base.wrapping_add(value);
    let Some((offset, bytes)) = file.at_address(address) else {
        return if value == 0 && counts_none(&hdr.data) {
            Ok(())
        } else {
            Err(error(ElfErrorKind::Pointer(address)))
        };
    };

    let data = file.bytes(offset, to_terminator(bytes) as u64, ".eh_frame")?;
    push(out, SectionKind::EhFrame, address, data);
    Ok(())
}

/// The number of bytes up to the end of the entry of length 0 that ends the table; all of them if
/// there is none.
fn to_terminator(bytes: &[u8]) -> usize {
    const WIDE: u32 = u32::MAX;
    let mut at: usize = 0;
    while let Some(&length) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let after = at + size_of::<u32>();
        let length = match u32::from_le_bytes(length) {
            0 => return after,
            WIDE => {
                let wide = bytes.get(after..).and_then(<[u8]>::first_chunk);
                let wide = wide.and_then(|w| usize::try_from(u64::from_le_bytes(*w)).ok());
                wide.and_then(|length| length.checked_add(size_of::<u64>()))
            }
            length => usize::try_from(length).ok(),
        };
        let next = length.and_then(|length| after.checked_add(length));
        let Some(next) = next.filter(|&next| next <= bytes.len()) else {
            break;
        };
        at = next;
    }
    bytes.len()
}

/// Does an `.eh_frame_hdr` say that there is no FDE? V8 writes one with a pointer of 0 for code
/// without unwind information (`EhFrameWriter::WriteEmptyEhFrame`), and perf copies it into an ELF
/// file.
fn counts_none(hdr: &[u8]) -> bool {
    // Encodings of the pointer, as above, and of the count: omitted, or a plain number.
    let pointer_size = match hdr.get(1).map(|encoding| encoding & 0x0f) {
        Some(0x03 | 0x0b) => 4,
        _ => 8,
    };
    let count = hdr.get(4 + pointer_size..).unwrap_or_default();
    match hdr.get(2) {
        Some(0x03 | 0x0b) => count.first_chunk() == Some(&[0; 4]),
        Some(0x00 | 0x04 | 0x0c) => count.first_chunk() == Some(&[0; 8]),
        _ => false,
    }
}
