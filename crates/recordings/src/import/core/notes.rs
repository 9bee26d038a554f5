//! The headers and notes of a core.
//!
//! Layouts for x86-64: `struct elf_prstatus` and `struct elf_prpsinfo` (Linux
//! `include/linux/elfcore.h`), `struct user_regs_struct` (`arch/x86/include/asm/user_64.h`),
//! `NT_FILE` (`fs/binfmt_elf.c`, `fill_files_note`).

use super::super::error::{CoreErrorKind, ImportError};
use super::memory::Segment;
use crate::crash::{Crash, SIGTRAP};
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use object::{ReadRef, elf};
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, regs_from};
use unwind_sim_unwind::regs::Regs;

/// Offsets of `pr_cursig`, `pr_pid` and `pr_reg` in `struct elf_prstatus`, bytes.
const PRSTATUS_SIGNAL: usize = 12;
const PRSTATUS_PID: usize = 32;
const PRSTATUS_REGS: usize = 112;
/// Offsets of `pr_pid` and `pr_fname` in `struct elf_prpsinfo`, bytes.
const PRPSINFO_PID: usize = 24;
const PRPSINFO_NAME: Range<usize> = 40..56;
/// Offset of `pr_psargs`, which holds up to 80 bytes of the command.
const PRPSINFO_COMMAND: Range<usize> = 56..136;
/// Types of entries of the auxiliary vector (Linux `include/uapi/linux/auxvec.h`): the program's
/// headers, the interpreter's base, the program's entry, the vdso's address, the executed path.
const AT_PHDR: u64 = 3;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;
/// Maximum numbers of threads, segments and mapped files.
const THREADS_MAX: usize = 1 << 16;
const SEGMENTS_MAX: usize = 1 << 18;
const FILES_MAX: u64 = 1 << 18;

/// Size of a `siginfo_t`, bytes.
const SIGINFO_SIZE: usize = 128;

/// Indices of `orig_rax`, `fs_base` and `gs_base` in `struct user_regs_struct`, words.
const ORIG_RAX: usize = 15;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;

pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) regs: Regs,
    /// The system call that the thread was in; negative if none.
    pub(super) orig_rax: u64,
    pub(super) fs_base: u64,
    pub(super) gs_base: u64,
    /// x87 and SSE state, as stored by FXSAVE64 (`NT_PRFPREG`).
    pub(super) fx: Option<Box<[u8; 512]>>,
    /// The signal that the thread died of or was stopped by; 0 if none.
    signal: u32,
    /// The thread's `siginfo_t` (`NT_SIGINFO`).
    siginfo: Option<Vec<u8>>,
}

impl Thread {
    /// How it crashed, if it is the thread that the core was written for.
    fn crash(&self) -> Option<Crash> {
        let siginfo = self.siginfo.as_deref();
        // qemu-user and valgrind write no siginfo_t, gdb leaves out the signal of a thread that it did
        // not stop by one.
        let of_info = siginfo.and_then(|info| half(info, 0).ok());
        let signal = Some(self.signal).filter(|&signal| signal != 0);
        Crash::new(self.tid, signal.or(of_info)?, siginfo)
    }
}

/// A mapping of a file.
pub(super) struct FileMapping {
    pub(super) range: Range<u64>,
    /// Offset in the file, bytes.
    pub(super) file_offset: u64,
    pub(super) name: String,
    /// Address of the file's first byte: in the nearest mapping of it at or below this one.
    pub(super) file_start: Option<u64>,
    /// End of the last mapping of the file with the same `file_start`.
    pub(super) file_end: u64,
}

impl FileMapping {
    /// The file offset of an address in the mapping.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        self.file_offset
            .wrapping_add(address.wrapping_sub(self.range.start))
    }
}

/// File mappings, sorted by address.
#[derive(Default)]
pub(super) struct Files(Vec<FileMapping>);

impl Files {
    /// The mapping that contains `address`.
    pub(super) fn find(&self, address: u64) -> Option<&FileMapping> {
        let after = self.0.partition_point(|f| f.range.start <= address);
        let last = self.0.get(after.checked_sub(1)?)?;
        last.range.contains(&address).then_some(last)
    }

    /// The last mapping below `range` and the first one above it, if none lies in it.
    pub(super) fn around(&self, range: &Range<u64>) -> Option<(&FileMapping, &FileMapping)> {
        let at = self.0.partition_point(|f| f.range.start < range.start);
        let (before, after) = (self.0.get(at.checked_sub(1)?)?, self.0.get(at)?);
        let apart = before.range.end <= range.start && range.end <= after.range.start;
        apart.then_some((before, after))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &FileMapping> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn set(&mut self, mut files: Vec<FileMapping>) {
        files.sort_by_key(|f| f.range.start);
        let mut starts: HashMap<String, u64> = HashMap::new();
        for file in &mut files {
            if file.file_offset == 0 {
                starts.insert(file.name.clone(), file.range.start);
            }
            file.file_start = starts.get(&file.name).copied();
        }
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for file in files.iter_mut().rev() {
            let end = file.file_start.unwrap_or(file.range.start);
            file.file_end = *ends.entry(end).or_insert(file.range.end);
        }
        self.0 = files;
    }
}

/// The contents of the notes.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) pid: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) threads: Vec<Thread>,
    pub(super) files: Files,
    pub(super) vdso: Option<u64>,
    /// The first word of the command.
    pub(super) command: Option<String>,
    /// From the auxiliary vector: the address of the program's headers, its entry point, the base
    /// address of its interpreter, and the address of the executed path.
    pub(super) program_headers: Option<u64>,
    pub(super) entry: Option<u64>,
    pub(super) interpreter: Option<u64>,
    pub(super) executed: Option<u64>,
    /// Where the notes are in the file.
    pub(super) offset: u64,
    /// gdb wrote the core: it has a note of its own, since gdb 12.
    pub(super) is_of_gdb: bool,
    /// The first offset of NT_FILE that is impossible in pages, and was taken as bytes.
    pub(super) offset_in_bytes: Option<u64>,
}

impl Notes {
    /// The thread that crashed: writers of cores put it first.
    pub(super) fn crash(&self) -> Option<Crash> {
        let crash = self.threads.first()?.crash();
        // In gdb, a program also stops so at a breakpoint, and after a step.
        crash.filter(|crash| !(self.is_of_gdb && crash.signal == SIGTRAP))
    }
}

/// The location and alignment of a `PT_NOTE` segment.
pub(in crate::import) struct NoteRange {
    offset: u64,
    size: u64,
    align: u64,
}

impl NoteRange {
    /// Those of this program header.
    pub(in crate::import) fn of(header: &elf::ProgramHeader64<LE>) -> NoteRange {
        NoteRange {
            offset: header.p_offset(LE),
            size: header.p_filesz(LE),
            align: header.p_align(LE),
        }
    }
}

fn error(what: CoreErrorKind, section: &'static str, offset: u64) -> ImportError {
    ImportError::Core {
        what,
        section,
        offset,
    }
}

/// Checks the ELF header and reads the program headers.
pub(super) fn headers(bytes: &[u8]) -> Result<(Vec<Segment>, Vec<NoteRange>), ImportError> {
    let file = bytes.len() as u64;
    let cut = |section, offset| error(CoreErrorKind::OutOfFile { file }, section, offset);
    // Class and byte order first: they say how to read the rest (gABI, "ELF Identification").
    match (bytes.get(4), bytes.get(5)) {
        // ELFCLASS64 and ELFDATA2LSB; 2 in the place of the latter is ELFDATA2MSB.
        (Some(2), Some(1)) => {}
        (Some(2), Some(2)) => return Err(error(CoreErrorKind::BigEndian, "file header", 5)),
        (Some(&class), Some(_)) => {
            return Err(error(CoreErrorKind::Class(class), "file header", 4));
        }
        _ => return Err(cut("file header", 0)),
    }

    let header: &elf::FileHeader64<LE> = bytes.read_at(0).map_err(|()| cut("file header", 0))?;
    let (machine, kind) = (header.e_machine(LE), header.e_type(LE));

    // `e_type` is at offset 16, `e_machine` at 18.
    if machine != elf::EM_X86_64 {
        return Err(error(CoreErrorKind::Machine(machine.0), "file header", 18));
    }
    if kind != elf::ET_CORE {
        return Err(error(CoreErrorKind::Type(kind.0), "file header", 16));
    }

    let programs = header
        .program_headers(LE, bytes)
        .map_err(|_| cut("program headers", header.e_phoff(LE)))?;

    let (mut segments, mut notes) = (Vec::new(), Vec::new());
    // The number of headers is from the file.
    for p in programs.iter().take(SEGMENTS_MAX) {
        let (offset, size) = (p.p_offset(LE), p.p_filesz(LE));
        match p.p_type(LE) {
            // Sizes are from the file, so an end must not wrap.
            elf::PT_LOAD => segments.push(Segment {
                range: p.p_vaddr(LE)..p.p_vaddr(LE).saturating_add(p.p_memsz(LE)),
                file: offset..offset.saturating_add(size),
                readable: p.p_flags(LE).0 & elf::PF_R.0 != 0,
                writable: p.p_flags(LE).0 & elf::PF_W.0 != 0,
                executable: p.p_flags(LE).0 & elf::PF_X.0 != 0,
            }),
            elf::PT_NOTE => notes.push(NoteRange::of(p)),
            _ => {}
        }
    }

    Ok((segments, notes))
}

/// Reads all notes; an invalid one is a problem.
pub(super) fn read(bytes: &[u8], ranges: &[NoteRange], problems: &mut Vec<ImportError>) -> Notes {
    let mut out = Notes {
        offset: ranges.first().map_or(0, |range| range.offset),
        ..Notes::default()
    };
    for range in ranges {
        each(bytes, range, &mut |note| match note {
            Ok(note) => take(&note, range.offset, &mut out, problems),
            Err(error) => problems.push(error),
        });
    }
    out
}

/// Passes the notes of a segment to `take`, then an error if they do not fit into it, or if it does
/// not fit into the file.
pub(in crate::import) fn each<'m>(
    bytes: &'m [u8],
    range: &NoteRange,
    take: &mut dyn FnMut(Result<Note<'m>, ImportError>),
) {
    let NoteRange {
        offset,
        size,
        align,
    } = *range;

    let file = bytes.len() as u64;
    // The file may have been cut inside of the notes.
    let have = file.saturating_sub(offset).min(size);
    // Linux wrote an alignment of 0 for years, and meant 4 (`fs/binfmt_elf.c`).
    let align = if align == 8 { 8 } else { 4 };
    let data = bytes.read_bytes_at(offset.min(file), have).ok();
    let found = data.and_then(|data| NoteIterator::new(LE, align, data).ok());
    let mut invalid = found.is_none();

    if let Some(mut found) = found {
        loop {
            match found.next() {
                Ok(Some(note)) => take(Ok(note)),
                Ok(None) => break,
                Err(_) => {
                    invalid = true;
                    break;
                }
            }
        }
    }

    // Last, so that all notes before the damage are used.
    let missing = size - have;
    if missing > 0 {
        let what = CoreErrorKind::Cut { missing, file };
        take(Err(error(what, "notes", offset)));
    } else if invalid {
        take(Err(error(CoreErrorKind::Note, "notes", offset)));
    }
}

pub(in crate::import) type Note<'n> = object::read::elf::Note<'n, elf::FileHeader64<LE>>;

fn take(note: &Note<'_>, offset: u64, out: &mut Notes, problems: &mut Vec<ImportError>) {
    out.is_of_gdb |= note.name() == b"GDB";
    if note.name() != b"CORE" {
        return;
    }
    let data = note.desc();
    let (section, done) = match note.n_type(LE) {
        elf::NT_PRSTATUS => ("NT_PRSTATUS", prstatus(data, out)),
        elf::NT_SIGINFO => ("NT_SIGINFO", siginfo(data, out)),
        elf::NT_PRFPREG => ("NT_PRFPREG", fpregset(data, out)),
        elf::NT_PRPSINFO => ("NT_PRPSINFO", prpsinfo(data, out)),
        elf::NT_AUXV => ("NT_AUXV", auxv(data, out)),
        elf::NT_FILE => ("NT_FILE", files(data, out)),
        _ => return,
    };
    if let Err(need) = done {
        let have = data.len() as u64;
        let what = CoreErrorKind::Short { need, have };
        problems.push(error(what, section, offset));
    }
}

/// The word at `at`, or the number of bytes needed.
fn word(data: &[u8], at: usize) -> Result<u64, u64> {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|b| u64::from_le_bytes(*b)).ok_or(at as u64 + 8)
}

fn half(data: &[u8], at: usize) -> Result<u32, u64> {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|b| u32::from_le_bytes(*b)).ok_or(at as u64 + 4)
}

/// The registers of an `NT_PRSTATUS`, or the number of bytes needed.
pub(in crate::import) fn prstatus_regs(data: &[u8]) -> Result<Regs, u64> {
    // `struct user_regs_struct` starts like `struct pt_regs`.
    let words = (PT_REGS_LEN / 8) as usize - 1;
    (0..words).try_for_each(|index| word(data, PRSTATUS_REGS + 8 * index).map(drop))?;
    Ok(regs_from(&data[PRSTATUS_REGS..]))
}

fn prstatus(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    let tid = half(data, PRSTATUS_PID)?;
    // `pr_cursig` is a short, before two bytes of padding.
    let signal = half(data, PRSTATUS_SIGNAL)? & 0xffff;
    let regs = prstatus_regs(data)?;
    let other = |index: usize| word(data, PRSTATUS_REGS + 8 * index);
    let thread = Thread {
        tid,
        regs,
        orig_rax: other(ORIG_RAX)?,
        fs_base: other(FS_BASE)?,
        gs_base: other(GS_BASE)?,
        fx: None,
        signal,
        siginfo: None,
    };
    if out.threads.len() < THREADS_MAX {
        out.threads.push(thread);
    }
    Ok(())
}

/// Belongs to the thread of the preceding `NT_PRSTATUS`.
fn siginfo(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    half(data, 0)?;
    let data = &data[..data.len().min(SIGINFO_SIZE)];
    if let Some(thread) = out.threads.last_mut() {
        thread.siginfo.get_or_insert_with(|| data.to_vec());
    }
    Ok(())
}

/// Belongs to the thread of the preceding `NT_PRSTATUS`.
fn fpregset(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    let area = data.first_chunk::<512>().ok_or(512_u64)?;
    if let Some(thread) = out.threads.last_mut() {
        thread.fx = Some(Box::new(*area));
    }
    Ok(())
}

fn prpsinfo(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    out.pid = Some(half(data, PRPSINFO_PID)?);
    let name = data.get(PRPSINFO_NAME).ok_or(PRPSINFO_NAME.end as u64)?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    out.name = Some(String::from_utf8_lossy(&name[..end]).into_owned());
    let command = data.get(PRPSINFO_COMMAND).unwrap_or_default();
    let mut words = command.split(|&b| b == 0 || b == b' ');
    let first = words.next().filter(|word| !word.is_empty());
    out.command = first.map(|word| String::from_utf8_lossy(word).into_owned());
    Ok(())
}

fn auxv(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    let words = data.as_chunks::<8>().0.iter();
    let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
    let pairs = words.as_chunks::<2>().0;
    let value = |kind| pairs.iter().find(|p| p[0] == kind).map(|p| p[1]);
    out.vdso = value(AT_SYSINFO_EHDR);
    out.program_headers = value(AT_PHDR);
    out.entry = value(AT_ENTRY);
    out.interpreter = value(AT_BASE).filter(|&base| base != 0);
    out.executed = value(AT_EXECFN);
    Ok(())
}

/// Parses `count`, `page_size`, `count` times {start, end, offset in pages}, then the names.
fn files(data: &[u8], out: &mut Notes) -> Result<(), u64> {
    let (count, page_size) = (word(data, 0)?, word(data, 8)?);
    // The count is from the core: the ranges must lie within the note, and are bounded.
    let names_at = count
        .checked_mul(24)
        .and_then(|size| size.checked_add(16))
        .filter(|&at| count <= FILES_MAX && at <= data.len() as u64)
        .ok_or(count.saturating_mul(24).saturating_add(16))?;

    // The names follow the ranges, each with a zero (`fs/binfmt_elf.c`, `fill_files_note`).
    let mut names = data[names_at as usize..].split(|&b| b == 0);
    let mut files = Vec::new();

    // createdump of .NET was seen to write bytes. All offsets of a program's files are then multiples of
    // 4096, which in pages would be multiples of 16 MiB.
    let offsets = (0..count as usize).map(|index| word(data, 32 + 24 * index));
    let offsets = offsets.collect::<Result<Vec<u64>, u64>>()?;
    let whole = |offset: &u64| offset.is_multiple_of(page_size.max(1));
    out.offset_in_bytes = offsets.iter().copied().find(|&offset| offset != 0);
    if page_size <= 1 || !offsets.iter().all(whole) {
        out.offset_in_bytes = None;
    }

    let unit = match out.offset_in_bytes {
        Some(_) => 1,
        None => page_size,
    };

    for (index, offset) in offsets.into_iter().enumerate() {
        let at = 16 + 24 * index;
        let (start, end) = (word(data, at)?, word(data, at + 8)?);
        let name = names.next().ok_or(data.len() as u64 + 1)?;
        files.push(FileMapping {
            range: start..end,
            file_offset: offset.wrapping_mul(unit),
            name: String::from_utf8_lossy(name).into_owned(),
            file_start: None,
            file_end: end,
        });
    }

    out.files.set(files);
    Ok(())
}
