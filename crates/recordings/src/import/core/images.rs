//! Files of a core that does not list them: found by their ELF headers in its memory, the program's
//! headers in the auxiliary vector, and the dynamic linker's list.
//!
//! Linux writes `NT_FILE` since 3.7; qemu, valgrind and others do not. Sources: `elf(5)`, `getauxval(3)`,
//! glibc `elf/link.h` (`struct r_debug`, `struct link_map`), which musl has, too.

use super::memory::Memory;
use super::notes::{FileMapping, Notes};
use object::endian::LittleEndian as LE;
use object::read::elf::ProgramHeader as _;
use object::{ReadRef, elf};
use std::collections::{HashMap, HashSet};

const PAGE: u64 = 0x1000;
/// Maximum number of entries of the dynamic linker's list; the list of a damaged core may be endless.
const LINKED_MAX: usize = 1 << 14;
/// Maximum number of program headers, and of entries of a dynamic section.
const HEADERS_MAX: u64 = 1 << 10;
/// Maximum length of a path, bytes (`PATH_MAX`).
const PATH_MAX: u64 = 4096;
/// Dynamic tag `DT_DEBUG`: the address of the dynamic linker's `r_debug`.
const DT_DEBUG: u64 = 21;

/// What was found.
pub(super) struct Found {
    /// The mappings of all images, in any order.
    pub(super) files: Vec<FileMapping>,
    /// Number of images found by their ELF headers.
    pub(super) by_header: usize,
    /// Number of images found only by their name in the dynamic linker's list.
    pub(super) by_name: usize,
}

/// Returns the bytes of the file with this name.
pub(super) type OpenFile<'f> = dyn FnMut(&str) -> Option<unwind_sim_unwind::image::Owner> + 'f;

/// An image at its place.
struct Placed {
    headers: Vec<elf::ProgramHeader64<LE>>,
    /// Address in the process minus address in the file.
    bias: u64,
}

impl Placed {
    fn loads(&self) -> impl Iterator<Item = &elf::ProgramHeader64<LE>> {
        let loads = self.headers.iter();
        loads.filter(|p| p.p_type(LE) == elf::PT_LOAD && p.p_filesz(LE) != 0)
    }

    /// The mappings that a loader makes of it.
    fn mappings(&self, name: &str) -> impl Iterator<Item = FileMapping> {
        let name = name.to_owned();
        self.loads().filter_map(move |p| {
            let start = p.p_vaddr(LE).wrapping_add(self.bias) & !(PAGE - 1);
            let end = p
                .p_vaddr(LE)
                .wrapping_add(self.bias)
                .checked_add(p.p_filesz(LE))?;
            let end = end.checked_next_multiple_of(PAGE)?;
            (start < end).then(|| FileMapping {
                range: start..end,
                file_offset: p.p_offset(LE) & !(PAGE - 1),
                name: name.clone(),
                file_start: None,
                file_end: end,
            })
        })
    }

    /// The address of its dynamic section.
    fn dynamic(&self) -> Option<u64> {
        let mut headers = self.headers.iter();
        let found = headers.find(|p| p.p_type(LE) == elf::PT_DYNAMIC)?;
        Some(found.p_vaddr(LE).wrapping_add(self.bias))
    }

    /// The path of its dynamic linker.
    fn interpreter(&self, memory: &Memory<'_>) -> Option<String> {
        let mut headers = self.headers.iter();
        let found = headers.find(|p| p.p_type(LE) == elf::PT_INTERP)?;
        string(memory, found.p_vaddr(LE).wrapping_add(self.bias))
    }
}

/// Finds the images of a core whose notes list no file. `open` opens a file by its name, for images
/// whose headers were not dumped.
pub(super) fn find(memory: &Memory<'_>, notes: &Notes, open: &mut OpenFile<'_>) -> Found {
    let mut images = by_headers(memory, notes);
    let by_header = images.len();
    let program_name = program_name(memory, notes);
    let mut program = program_at(memory, notes, &images);
    // If its headers were not dumped, those of its file are placed by the entry point.
    if program.is_none()
        && let Some(name) = &program_name
        && let Some(placed) = open(name).and_then(|file| placed_by_entry((*file).as_ref(), notes))
    {
        program = Some(0);
        images.insert(0, placed);
    }

    // Of the program or, if that is not known, of the one that has such a list.
    let lists = program.map_or(0..images.len(), |at| at..at + 1);
    let linked = lists.filter_map(|at| linked(memory, &images[at])).next();
    let linked = linked.unwrap_or_default();
    let mut names: HashMap<u64, String> = HashMap::new();
    for (bias, name) in &linked {
        if name.is_empty() {
            // The program has no name there.
            program = program.or_else(|| images.iter().position(|i| i.bias == *bias));
        } else {
            names.entry(*bias).or_insert_with(|| name.clone());
        }
    }
    // This name comes before that in the linker's list.
    if let Some(at) = program {
        let name = program_name
            .clone()
            .unwrap_or_else(|| super::PROGRAM.into());
        names.insert(images[at].bias, name);
    }
    let interpreter = program.and_then(|at| images[at].interpreter(memory));
    if let (Some(base), Some(path)) = (notes.interpreter, interpreter) {
        names.entry(base).or_insert(path);
    }

    let mut files: Vec<FileMapping> = Vec::new();
    for image in &images {
        let unnamed = || format!("image at {:#x}", image.bias);
        let name = names.get(&image.bias).cloned().unwrap_or_else(unnamed);
        files.extend(image.mappings(&name));
    }
    // Only the file of what is listed has its headers.
    let known: HashSet<u64> = images.iter().map(|image| image.bias).collect();
    let mut by_name = 0;
    for (bias, name) in linked.iter().filter(|(bias, _)| !known.contains(bias)) {
        let file = if name.starts_with('/') {
            open(name)
        } else {
            None
        };
        // Its mappings follow from the headers in the file.
        if let Some(headers) = file.and_then(|file| headers((*file).as_ref())) {
            let placed = Placed {
                headers,
                bias: *bias,
            };
            files.extend(placed.mappings(name));
            by_name += 1;
        }
    }
    Found {
        files,
        by_header,
        by_name,
    }
}

/// The images whose ELF header was dumped: it is at the start of a mapping.
fn by_headers(memory: &Memory<'_>, notes: &Notes) -> Vec<Placed> {
    let mut out = Vec::new();
    let mut covered = 0;
    for segment in memory.segments() {
        let start = segment.range.start;
        // Inside of an image that was found already.
        if start < covered || notes.vdso == Some(start) {
            continue;
        }

        let size = segment.range.end - start;
        let Some(headers) = headers(memory.bytes(start, size)) else {
            continue;
        };

        let mut loads = headers.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD);
        let Some(first) = loads.find(|p| p.p_offset(LE) & !(PAGE - 1) == 0) else {
            continue;
        };

        let bias = start.wrapping_sub(first.p_vaddr(LE) & !(PAGE - 1));
        let placed = Placed { headers, bias };
        // Data of a file that is mapped as a whole has headers, too, but is not an image: nothing
        // of it is executable.
        let is_mapped = placed.mappings("").any(|m| {
            let segment = memory.segment(m.range.start);
            segment.is_some_and(|s| s.executable)
        });

        if is_mapped {
            covered = placed.mappings("").map(|m| m.range.end).max().unwrap_or(0);
            out.push(placed);
        }
    }
    out
}

/// The program headers of the x86-64 ELF file whose first bytes these are.
fn headers(bytes: &[u8]) -> Option<Vec<elf::ProgramHeader64<LE>>> {
    let header: &elf::FileHeader64<LE> = bytes.read_at(0).ok()?;
    let is_image = matches!(header.e_type.get(LE), elf::ET_EXEC | elf::ET_DYN);
    let is_ours =
        bytes.starts_with(b"\x7fELF\x02\x01") && header.e_machine.get(LE) == elf::EM_X86_64;
    let count = usize::from(header.e_phnum.get(LE));
    if !is_ours || !is_image || count as u64 > HEADERS_MAX {
        return None;
    }
    let table = bytes.read_slice_at(header.e_phoff.get(LE), count).ok()?;
    Some(table.to_vec())
}

/// The image in `file`, placed so that its entry point is that of the auxiliary vector.
fn placed_by_entry(file: &[u8], notes: &Notes) -> Option<Placed> {
    let header: &elf::FileHeader64<LE> = file.read_at(0).ok()?;
    let bias = notes.entry?.wrapping_sub(header.e_entry.get(LE));
    let headers = headers(file)?;
    Some(Placed { headers, bias })
}

/// Which image is the program: the one that has the auxiliary vector's entry point.
fn program_at(memory: &Memory<'_>, notes: &Notes, images: &[Placed]) -> Option<usize> {
    let has = |address: u64| {
        let mut images = images.iter();
        images.position(|image| image.mappings("").any(|m| m.range.contains(&address)))
    };
    let by_vector = notes
        .entry
        .and_then(has)
        .or_else(|| has(notes.program_headers?));
    // Valgrind writes no vector. Only a program has an interpreter and its list; a static one is alone.
    let by_list = || {
        let mut images = images.iter();
        images.position(|image| {
            image.interpreter(memory).is_some() && linked(memory, image).is_some()
        })
    };
    let has_vector = notes.entry.or(notes.program_headers).is_some();
    let alone = (images.len() == 1 && !has_vector).then_some(0);
    by_vector.or_else(by_list).or(alone)
}

/// The program's name: its path, as it was executed, or the first word of the command.
pub(super) fn program_name(memory: &Memory<'_>, notes: &Notes) -> Option<String> {
    let executed = notes.executed.and_then(|at| string(memory, at));
    let executed = executed.filter(|path| !path.is_empty());
    let is_path = |path: &Option<String>| path.as_ref().is_some_and(|p| p.starts_with('/'));
    if is_path(&executed) {
        return executed;
    }
    let command = notes.command.clone();
    if is_path(&command) {
        return command;
    }
    // A relative path means nothing without the folder.
    let path = executed.or(command).or_else(|| notes.name.clone())?;
    path.rsplit('/').next().map(str::to_owned)
}

/// The dynamic linker's list, if `image` leads to it: the bias and the path of each image.
fn linked(memory: &Memory<'_>, image: &Placed) -> Option<Vec<(u64, String)>> {
    let dynamic = image.dynamic()?;

    let entries = (0..HEADERS_MAX).map_while(|n| {
        let at = dynamic.checked_add(16 * n)?;
        let tag = memory.word(at)?;
        Some((tag, memory.word(at + 8)?)).filter(|_| tag != 0)
    });

    // The dynamic linker stores the address of its `struct r_debug` in DT_DEBUG (`elf/link.h`).
    let mut entries = entries.filter(|(tag, _)| *tag == DT_DEBUG);
    let debug = entries.next()?.1;

    // r_version, then r_map.
    if debug == 0 || memory.word(debug)? as u32 == 0 {
        return None;
    }

    let mut next = memory.word(debug.checked_add(8)?)?;
    let mut out = Vec::new();
    // The list comes from the dump, and may be damaged or circular.
    while next != 0 && out.len() < LINKED_MAX {
        // l_addr, l_name, l_ld, l_next.
        let word = |n: u64| memory.word(next.checked_add(8 * n)?);
        let (Some(bias), Some(name), Some(after)) = (word(0), word(1), word(3)) else {
            break;
        };
        out.push((bias, string(memory, name).unwrap_or_default()));
        next = after;
    }

    (!out.is_empty()).then_some(out)
}

/// The text at `address`, which ends with a NUL.
fn string(memory: &Memory<'_>, address: u64) -> Option<String> {
    let bytes = memory.bytes(address, PATH_MAX);
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests;
