//! Adds the contents of separate debug files, `.gnu_debugdata` and compressed sections to a file.
//!
//! Sources: gdb's manual, "Debugging Information in Separate Files" and "MiniDebugInfo"; gABI,
//! "Section Compression".

use super::candidates::{below, in_tree};
use super::{FileProblemKind, FinderOptions};
use crate::mapped::map_file;
use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use object::read::elf::CompressionHeader;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, Compression, Elf, unpack};
use unwind_sim_unwind::image::{Owner, Section, SectionKind, Symbol};

/// Maximum memory for the window of xz, KiB.
const XZ_WINDOW_KIB_MAX: u32 = 128 << 10;

type Problem = (String, FileProblemKind);

/// Adds further data to `elf`, which was read from `path`. Returns its separate debug file, and the
/// problems.
pub(super) fn complete(
    elf: &mut Elf,
    path: &Path,
    options: &FinderOptions,
) -> (Option<Owner>, Vec<Problem>) {
    let mut problems = Vec::new();
    let name = path.to_string_lossy().into_owned();
    unpack_sections(elf, &name, &mut problems);
    let mut file = None;
    if let Some((debug, owner)) = debug_file(elf, path, options, &mut problems) {
        merge(elf, debug, Order::DebugFirst);
        file = Some(owner);
    }
    if let Some(data) = elf.debug_data.take().filter(|_| !elf.has_symtab) {
        match mini_debug_info(&data, options) {
            // It has what is not in the dynamic table: local symbols.
            Ok(debug) => merge(elf, debug, Order::OwnFirst),
            Err(kind) => problems.push((name, kind)),
        }
    }
    (file, problems)
}

/// The separate debug file of the ELF file `owner`, which was read from `path`: found, checked and
/// opened as that of a mapped file. `None` if there is none.
pub fn debug_file_of(owner: &Owner, path: &Path, options: &FinderOptions) -> Option<Owner> {
    let read = elf::ReadOptions {
        symbols: false,
        plt: false,
        producers: false,
    };
    let elf = elf::read(&path.to_string_lossy(), owner.clone(), &read).ok()?;
    let (_, file) = debug_file(&elf, path, options, &mut Vec::new())?;
    Some(file)
}

/// Whose symbols come first at one address: an image prefers the first one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// A debug file's table has all symbols, the preferred ones in front.
    DebugFirst,
    OwnFirst,
}

/// Takes symbols and `.debug_frame` from `debug` if the file itself has none.
fn merge(elf: &mut Elf, debug: Elf, order: Order) {
    if debug.has_symtab && !elf.has_symtab {
        let own = std::mem::take(&mut elf.parts.symbols);
        let (first, later) = match order {
            Order::DebugFirst => (debug.parts.symbols, own),
            Order::OwnFirst => (own, debug.parts.symbols),
        };
        let known: HashSet<(u64, &str)> =
            first.iter().map(|s| (s.address, s.name.as_str())).collect();
        let is_new = |s: &Symbol| !known.contains(&(s.address, s.name.as_str()));
        let later: Vec<Symbol> = later.into_iter().filter(is_new).collect();
        elf.parts.symbols = first;
        elf.parts.symbols.extend(later);
        elf.has_symtab = true;
    }
    let is_frame = |s: &Section| s.kind == SectionKind::DebugFrame;
    if !elf.parts.sections.iter().any(is_frame) {
        let sections = debug.parts.sections.into_iter();
        elf.parts.sections.extend(sections.filter(is_frame));
    }
}

/// Unpacks the compressed sections of `elf` and adds them to its parts.
fn unpack_sections(elf: &mut Elf, name: &str, problems: &mut Vec<Problem>) {
    for error in elf.unpack() {
        let kind = FileProblemKind::unpack(error.section.as_str(), error.offset, error.what);
        problems.push((name.to_owned(), kind));
    }
}

/// The data of a compressed section; `None` if it is damaged or too long.
pub(super) fn unpacked<H: CompressionHeader>(
    header: &H,
    endian: H::Endian,
    data: &[u8],
) -> Option<Vec<u8>> {
    let compression = match header.ch_type(endian) {
        ELFCOMPRESS_ZLIB => Compression::Zlib,
        ELFCOMPRESS_ZSTD => Compression::Zstd,
        _ => return None,
    };
    unpack::unpack(compression, data).ok()
}

/// Unpacks the contents of `.gnu_debugdata`: an ELF file, compressed with xz, with the symbols that
/// are not in `.dynsym`.
///
/// # Errors
/// If the data is damaged or unpacks to more than the limit.
pub fn unpack_debug_data(data: &[u8]) -> Result<Vec<u8>, FileProblemKind> {
    let reader = lzma_rust2::XzReader::new_mem_limit(data, true, XZ_WINDOW_KIB_MAX);
    let unpacked = unpack::read_to_end(reader);
    unpacked.map_err(|what| FileProblemKind::unpack(".gnu_debugdata", 0, what))
}

fn mini_debug_info(data: &[u8], options: &FinderOptions) -> Result<Elf, FileProblemKind> {
    let bytes = unpack_debug_data(data)?;
    let mut elf = elf::read("", Arc::new(bytes), &options.elf).map_err(FileProblemKind::Elf)?;
    unpack_sections(&mut elf, "", &mut Vec::new());
    Ok(elf)
}

/// The separate debug file of `elf`, by build id or by `.gnu_debuglink`.
fn debug_file(
    elf: &Elf,
    path: &Path,
    options: &FinderOptions,
    problems: &mut Vec<Problem>,
) -> Option<(Elf, Owner)> {
    let id = &elf.parts.build_id;
    let mut by_id: Vec<PathBuf> = Vec::new();
    for dir in &options.debug_dirs {
        by_id.extend(in_tree(dir, id, ".debug"));
    }
    let cached = options.perf_cache.as_deref();
    by_id.extend(cached.and_then(|cache| Some(in_tree(cache, id, "")?.join("debug"))));

    // A build ID names one build; a debug link is only a file name.
    let linked = elf
        .debug_link
        .as_ref()
        .map_or(Vec::new(), |link| linked_places(path, &link.name, options));

    for candidate in by_id.into_iter().chain(linked) {
        // A link may lead back to the file itself.
        if candidate == path {
            continue;
        }
        match open_debug_file(elf, &candidate, options) {
            Ok((mut debug, owner)) => {
                let name = candidate.to_string_lossy().into_owned();
                unpack_sections(&mut debug, &name, problems);
                return Some((debug, owner));
            }
            // Most candidates do not exist.
            Err(FileProblemKind::NotFound) => {}
            Err(kind) => problems.push((candidate.to_string_lossy().into_owned(), kind)),
        }
    }
    None
}

/// The paths where gdb looks for a `.gnu_debuglink`: next to the file, in `.debug`, and below each
/// debug directory.
fn linked_places(path: &Path, link: &str, options: &FinderOptions) -> Vec<PathBuf> {
    // A name with a directory in it could point anywhere.
    let Some(name) = Path::new(link).file_name().filter(|name| *name == link) else {
        return Vec::new();
    };
    let Some(dir) = path.parent() else {
        return Vec::new();
    };
    let mut out = vec![dir.join(name), dir.join(".debug").join(name)];
    let inside = options
        .symfs
        .as_deref()
        .map_or(dir, |symfs| dir.strip_prefix(symfs).unwrap_or(dir));
    for debug_dir in &options.debug_dirs {
        out.push(below(Some(debug_dir), inside).join(name));
    }
    out
}

/// Opens a debug file if it belongs to `elf`: it has the same build ID, or else the CRC stated in
/// `.gnu_debuglink`.
fn open_debug_file(
    elf: &Elf,
    path: &Path,
    options: &FinderOptions,
) -> Result<(Elf, Owner), FileProblemKind> {
    let owner: Owner = map_file(path).map_err(FileProblemKind::from_io)?;
    let name = path.to_string_lossy();
    let read = elf::ReadOptions {
        // A debug file has no code.
        plt: false,
        ..options.elf
    };
    let debug = elf::read(&name, owner.clone(), &read).map_err(FileProblemKind::Elf)?;

    // A debug file of another build has addresses of other code.
    let (ours, theirs) = (&elf.parts.build_id, &debug.parts.build_id);
    if !ours.is_empty() && !theirs.is_empty() {
        if ours == theirs {
            return Ok((debug, owner));
        }
        return Err(FileProblemKind::BuildId {
            expected: ours.clone(),
            found: theirs.clone(),
        });
    }

    // Without build IDs, only the link's checksum can show that the file belongs to it.
    let Some(link) = &elf.debug_link else {
        return Err(FileProblemKind::BuildId {
            expected: ours.clone(),
            found: theirs.clone(),
        });
    };

    // Of all bytes of the file (gdb's manual, "Debugging Information in Separate Files").
    let mut crc = flate2::Crc::new();
    crc.update((*owner).as_ref());
    if crc.sum() == link.crc {
        return Ok((debug, owner));
    }
    Err(FileProblemKind::Crc {
        expected: link.crc,
        found: crc.sum(),
    })
}
