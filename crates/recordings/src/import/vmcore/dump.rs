//! The container: an ELF core with physical memory, and its notes.
//!
//! Sources: QEMU `dump/dump.c` and `target/i386/arch_dump.c` (`QEMUCPUState`), Linux
//! `fs/proc/vmcore.c` and `kernel/vmcore_info.c` (`VMCOREINFO`).

use super::super::core::notes::{self, Note, NoteRange, prstatus_regs};
use super::super::error::{CoreErrorKind, ImportError};
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{ReadRef, elf};
use std::ops::Range;
use unwind_sim_unwind::regs::Regs;

/// Maximum numbers of segments and processors.
const SEGMENTS_MAX: usize = 1 << 18;
const CPUS_MAX: usize = 8192;
/// Offsets of gs.base, cr3, cr4 and kernel_gs_base in QEMU's `QEMUCPUState`, bytes.
const QEMU_GS_BASE: usize = 288;
const QEMU_CR3: usize = 416;
const QEMU_CR4: usize = 424;
const QEMU_KERNEL_GS_BASE: usize = 432;
/// `X86_CR4_LA57`: five-level page tables.
const CR4_LA57: u64 = 1 << 12;

#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub(super) regs: Regs,
    /// System registers, if QEMU provides them.
    pub(super) system: Option<System>,
}

/// System registers of a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    pub(super) cr3: u64,
    pub(super) five_levels: bool,
    /// Both bases of gs: one of them is the base of the kernel's per-CPU data.
    pub(super) gs_bases: [u64; 2],
}

/// A range of physical memory.
struct Segment {
    physical: Range<u64>,
    /// Offset in the file, bytes.
    offset: usize,
}

/// A dump.
pub(super) struct Dump<'m> {
    bytes: &'m [u8],
    /// Sorted by address, without overlaps.
    segments: Vec<Segment>,
    pub(super) cpus: Vec<Cpu>,
    /// The text of `VMCOREINFO`.
    info: &'m str,
}

/// The name of a known but unsupported dump format.
pub(crate) fn unsupported(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [b'K', b'D', b'U', b'M', b'P', b' ', ..] => "kdump-compressed",
        [b'D', b'I', b'S', b'K', b'D', b'U', b'M', b'P', ..] => "diskdump",
        [b'm', b'a', b'k', b'e', b'd', b'u', b'm', b'p', ..] => "makedumpfile's flattened format",
        [b'E', b'M', b'i', b'L', ..] => "LiME",
        [b'P', b'A', b'G', b'E', b'D', b'U', b'6', b'4', ..] => "a Windows crash dump",
        _ => return None,
    })
}

fn error(what: CoreErrorKind, section: &'static str, offset: u64) -> ImportError {
    ImportError::Core {
        what,
        section,
        offset,
    }
}

type Programs<'m> = &'m [elf::ProgramHeader64<LE>];

/// The program headers of an x86-64 ELF core.
fn programs(bytes: &[u8]) -> Result<Programs<'_>, ImportError> {
    let file = bytes.len() as u64;
    let cut = |section, offset| error(CoreErrorKind::OutOfFile { file }, section, offset);
    match bytes.get(4) {
        Some(2) => {}
        Some(&class) => return Err(error(CoreErrorKind::Class(class), "file header", 4)),
        None => return Err(cut("file header", 0)),
    }
    let header: &elf::FileHeader64<LE> = bytes.read_at(0).map_err(|()| cut("file header", 0))?;
    if bytes.get(5) != Some(&1) {
        return Err(error(CoreErrorKind::BigEndian, "file header", 5));
    }
    let (machine, kind) = (header.e_machine(LE), header.e_type(LE));
    if machine != elf::EM_X86_64 {
        return Err(error(CoreErrorKind::Machine(machine.0), "file header", 18));
    }
    if kind != elf::ET_CORE {
        return Err(error(CoreErrorKind::Type(kind.0), "file header", 16));
    }
    header
        .program_headers(LE, bytes)
        .map_err(|_| cut("program headers", header.e_phoff(LE)))
}

/// Passes all notes to `take`, each with the offset of its segment; an error for an invalid one.
fn each_note<'m>(
    bytes: &'m [u8],
    programs: Programs<'m>,
    take: &mut dyn FnMut(Result<Note<'m>, ImportError>, u64),
) {
    let notes = programs.iter().filter(|p| p.p_type(LE) == elf::PT_NOTE);
    for p in notes.take(SEGMENTS_MAX) {
        let offset = p.p_offset(LE);
        notes::each(bytes, &NoteRange::of(p), &mut |note| take(note, offset));
    }
}

/// Is this ELF core the dump of a machine rather than a process? Decided by its notes.
pub fn is_vmcore(bytes: &[u8]) -> bool {
    let Ok(programs) = programs(bytes) else {
        return false;
    };
    let mut is_it = false;
    each_note(bytes, programs, &mut |note, _| {
        is_it |= note.is_ok_and(|n| matches!(n.name(), b"QEMU" | b"VMCOREINFO"));
    });
    is_it
}

fn word(data: &[u8], at: usize) -> Result<u64, u64> {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|b| u64::from_le_bytes(*b)).ok_or(at as u64 + 8)
}

fn system(data: &[u8]) -> Result<System, u64> {
    Ok(System {
        cr3: word(data, QEMU_CR3)?,
        five_levels: word(data, QEMU_CR4)? & CR4_LA57 != 0,
        // In QEMU before 4.0 the note ends before kernel_gs_base.
        gs_bases: [
            word(data, QEMU_GS_BASE)?,
            word(data, QEMU_KERNEL_GS_BASE).unwrap_or(0),
        ],
    })
}

impl<'m> Dump<'m> {
    /// Reads headers and notes. An invalid note is a problem.
    pub(super) fn open(
        bytes: &'m [u8],
        problems: &mut Vec<ImportError>,
    ) -> Result<Dump<'m>, ImportError> {
        let programs = programs(bytes)?;
        let loads = programs.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD);

        let mut segments = Vec::new();
        // The number of headers is from the file.
        for p in loads.take(SEGMENTS_MAX) {
            // A dump is of physical memory, so p_paddr counts and p_vaddr does not.
            let (start, size) = (p.p_paddr(LE), p.p_filesz(LE).min(p.p_memsz(LE)));
            let left = (bytes.len() as u64).saturating_sub(p.p_offset(LE));
            // A dump that was cut short is used as far as it goes.
            if left < size {
                let (missing, file) = (size - left, bytes.len() as u64);
                let what = CoreErrorKind::Cut { missing, file };
                problems.push(error(what, "PT_LOAD", p.p_offset(LE)));
            }

            let end = start.saturating_add(size.min(left));
            if let (Ok(offset), true) = (usize::try_from(p.p_offset(LE)), start < end) {
                let physical = start..end;
                segments.push(Segment { physical, offset });
            }
        }

        segments.sort_by_key(|s| s.physical.start);
        // Damaged headers may overlap; the segment that starts first counts.
        let mut end = 0;
        segments.retain(|s| {
            let apart = s.physical.start >= end;
            end = if apart { s.physical.end } else { end };
            apart
        });

        let mut dump = Dump {
            bytes,
            segments,
            cpus: Vec::new(),
            info: "",
        };

        let mut systems = Vec::new();
        each_note(bytes, programs, &mut |note, offset| {
            let note = match note {
                Ok(note) => note,
                Err(error) => return problems.push(error),
            };

            let data = note.desc();
            let (section, done) = match (note.name(), note.n_type(LE)) {
                (b"CORE", elf::NT_PRSTATUS) if dump.cpus.len() < CPUS_MAX => (
                    "NT_PRSTATUS",
                    prstatus_regs(data).map(|regs| dump.cpus.push(Cpu { regs, system: None })),
                ),
                (b"QEMU", _) if systems.len() < CPUS_MAX => {
                    ("QEMU", system(data).map(|s| systems.push(s)))
                }
                (b"VMCOREINFO", _) => {
                    // Text up to the first byte that is not UTF-8.
                    let sound = data.utf8_chunks().next().map_or("", |c| c.valid());
                    dump.info = sound;
                    return;
                }
                _ => return,
            };

            if let Err(need) = done {
                let have = data.len() as u64;
                problems.push(error(CoreErrorKind::Short { need, have }, section, offset));
            }
        });

        // QEMU writes the notes of the processors in the same order as their NT_PRSTATUS.
        for (cpu, system) in dump.cpus.iter_mut().zip(systems) {
            cpu.system = Some(system);
        }

        Ok(dump)
    }

    /// The bytes from a physical address to the end of the contiguous memory in the dump.
    pub(super) fn at(&self, physical: u64) -> Option<&'m [u8]> {
        let at = self
            .segments
            .partition_point(|s| s.physical.end <= physical);
        let found = self.segments.get(at)?;
        let skip = usize::try_from(physical.checked_sub(found.physical.start)?).ok()?;
        let len = usize::try_from(found.physical.end - physical).ok()?;
        let start = found.offset.checked_add(skip)?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    /// All memory, as ranges with their physical addresses.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &'m [u8])> {
        let starts = self.segments.iter().map(|s| s.physical.start);
        starts.filter_map(|start| Some((start, self.at(start)?)))
    }

    /// The value of a `KEY=VALUE` line of `VMCOREINFO`.
    pub(super) fn info(&self, key: &str) -> Option<&'m str> {
        let lines = self.info.lines();
        let mut values = lines.filter_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        values.next()
    }

    /// Like [`Dump::info`], as a hexadecimal number, used for `SYMBOL()` and `KERNELOFFSET`.
    pub(super) fn info_hex(&self, key: &str) -> Option<u64> {
        let text = self.info(key)?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    }

    /// Like [`Dump::info`], as a signed decimal number, used for `NUMBER()`.
    pub(super) fn info_number(&self, key: &str) -> Option<u64> {
        self.info(key)?.parse::<i64>().ok().map(|n| n as u64)
    }
}
