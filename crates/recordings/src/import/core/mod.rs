//! ELF cores: each thread's registers and stack, and the mappings.
//!
//! Sources: Linux `fs/binfmt_elf.c` (`NT_PRSTATUS`, `NT_PRPSINFO`, `NT_AUXV`, `NT_FILE`),
//! `Documentation/filesystems/proc.rst` (`coredump_filter`), core(5). Build IDs are read from the
//! first page of each file, which the kernel and gdb dump; the vdso is read completely.
//!
//! ELF headers and notes are read in `notes`, memory in `memory`.

mod generated;
mod images;
mod memory;
pub(super) mod notes;
mod snapshot;

pub use snapshot::{Area, FilePlace, Snapshot, ThreadState, snapshot};

use super::error::{CoreErrorKind, ImportError};
use super::item::{ImportOptions, Imported, Output, Sink, Skip};
use crate::files::{ImageFinder, MappingRequest};
use crate::gdb_jit;
use crate::model::{Event, Item, ProcessMemory, Region, RegionRole, Sample};
use memory::{Memory, Segment};
use notes::{FileMapping, Notes, Thread};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use unwind_sim_unwind::elf;
use unwind_sim_unwind::image::{Bytes, Image, Owner, SectionKind};
use unwind_sim_unwind::memory::MappedMemory;
use unwind_sim_unwind::regs::{Reg, X86_EFLAGS_FIXED};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Size of the psABI's red zone below rsp, bytes.
const RED_ZONE: u64 = 128;
/// How far below a stack nothing else is mapped, bytes (`stack_guard_gap`, Linux `mm/mmap.c`).
const STACK_GUARD_GAP: u64 = 256 << 12;
/// The name of a program whose name is not known.
const PROGRAM: &str = "program";
/// The part of a file that kernels dump although it is not changed: its ELF header, bytes.
const FIRST_PAGE: u64 = 4096;
/// Maximum size of an image read from a core's memory, bytes.
const IMAGE_SIZE_MAX: u64 = 256 << 20;
/// Selector of 32-bit user code (`__USER32_CS`).
const USER32_CS: u64 = 0x23;
/// Selector of 64-bit user code (`__USER_CS`).
const USER_CS: u64 = 0x33;
/// Address of the kernel's vsyscall page, if there is one.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
/// Offsets from the start of `ucontext` in an `rt_sigframe` to its `uc_stack` and to its saved rsp
/// (Linux `arch/x86/include/uapi/asm/sigcontext.h`, `ucontext.h`).
const UC_STACK: usize = 16;
const UC_RSP: usize = 160;
/// Offset of the saved segment selectors, of which cs is the lowest (`struct sigcontext_64`).
const UC_CS: usize = 184;
/// How far above rsp to look for a signal frame, bytes.
const SIGNAL_FRAME_SEARCH: usize = 64 << 10;

/// Imports a core: events for the mappings, then one sample for each thread.
///
/// # Errors
/// If it is not an x86-64 core, or its headers or notes cannot be read.
pub fn import(
    owner: Owner,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let bytes: &[u8] = (*owner).as_ref();
    let (segments, note_ranges) = notes::headers(bytes)?;
    let memory = Memory::new(bytes, segments);
    let mut problems = Vec::new();
    let mut notes = notes::read(bytes, &note_ranges, &mut problems);

    // The first problem is likely to be why no thread was found.
    if notes.threads.is_empty() {
        let first = problems.first().cloned();
        return Err(first.unwrap_or(ImportError::Core {
            what: CoreErrorKind::NoThread,
            section: "notes",
            offset: 0,
        }));
    }

    problems.extend(memory.cut());
    let mut finder = ImageFinder::new(options.files.clone());
    problems.extend(complete_files(&mut notes, &memory, &mut finder, options));
    let mut output = Output::new(&mut finder, sink);
    output.imported.problems = problems;

    let mut importer = Importer {
        notes: &notes,
        memory: &memory,
        options,
        output,
        build_ids: HashMap::new(),
        descriptors: BTreeSet::new(),
        announced: Vec::new(),
        owner: owner.clone(),
        files: HashMap::new(),
        // No two threads have the same stack, so valid cores stay below this.
        stack_bytes_left: (bytes.len() as u64).saturating_mul(2),
    };

    // The sink may stop the import at any item; what was imported so far counts.
    let _ = importer.all();
    Ok(importer.output.finish())
}

/// Makes sure that the mapped files are listed, and that the program's file is the given one. Returns
/// what was wrong with the list.
fn complete_files(
    notes: &mut Notes,
    memory: &Memory<'_>,
    finder: &mut ImageFinder,
    options: &ImportOptions,
) -> Option<ImportError> {
    if !notes.files.is_empty() {
        if let Some(name) = program(notes) {
            finder.set_program(name, options.exe.clone());
        }
        // The list is used in spite of this, but the user should know.
        return notes.offset_in_bytes.map(|offset| ImportError::Core {
            what: CoreErrorKind::FileOffset { offset },
            section: "NT_FILE",
            offset: notes.offset,
        });
    }

    // Without the note, the program's name is in its memory.
    if let Some(name) = images::program_name(memory, notes) {
        finder.set_program(name, options.exe.clone());
    }

    let found = images::find(memory, notes, &mut |name| finder.file_bytes(name));
    notes.files.set(found.files);
    let (by_header, by_name) = (found.by_header, found.by_name);
    Some(ImportError::Core {
        what: CoreErrorKind::NoFiles { by_header, by_name },
        section: "notes",
        offset: notes.offset,
    })
}

/// The name of the program among the mapped files.
fn program(notes: &Notes) -> Option<String> {
    let addresses = [notes.program_headers, notes.entry];
    let mut by_vector = addresses.into_iter().flatten();
    let by_vector = by_vector.find_map(|address| notes.files.find(address));
    // Without a vector, by its name, of which the note has up to 15 bytes.
    let by_name = || {
        let name = notes.name.as_deref()?;
        let is_named = |path: &str| path.rsplit('/').next().is_some_and(|f| f.starts_with(name));
        notes.files.iter().find(|file| is_named(&file.name))
    };
    Some(by_vector.or_else(by_name)?.name.clone())
}

/// An import in progress.
struct Importer<'c, 'm, 'o, 's> {
    notes: &'c Notes,
    memory: &'c Memory<'m>,
    options: &'c ImportOptions,
    output: Output<'o, 's>,
    /// Build IDs by the start address of a file.
    build_ids: HashMap<u64, Vec<u8>>,
    /// Addresses of gdb's JIT descriptors.
    descriptors: BTreeSet<u64>,
    /// The executable mappings so far.
    announced: Vec<generated::Announced>,
    /// The core.
    owner: Owner,
    /// The files on this system that were found, by name.
    files: HashMap<String, Owner>,
    stack_bytes_left: u64,
}

impl<'m> Importer<'_, 'm, '_, '_> {
    fn all(&mut self) -> ControlFlow<()> {
        let notes = self.notes;
        // Valgrind writes 0 into NT_PRPSINFO. A process's first thread has its ID, and later ones have
        // higher ones, unless the numbers wrapped.
        let pid = notes.pid.filter(|&pid| pid != 0);
        let lowest = notes.threads.iter().map(|thread| thread.tid).min();
        let pid = pid.or(lowest).unwrap_or_default();

        self.output.item(Item::Event(Event::Exec { pid }))?;
        // The note has the name of the process, which is that of its first thread.
        if let Some(name) = notes.name.clone() {
            let tid = pid;
            self.output
                .item(Item::Event(Event::Comm { pid, tid, name }))?;
        }

        for segment in self.memory.segments().iter().filter(|s| s.executable) {
            self.map(pid, segment)?;
        }

        // gdb leaves out segments that it can read from files.
        for file in notes.files.iter() {
            if self.memory.segment(file.range.start).is_none() {
                self.map_unlisted(pid, file)?;
            }
        }

        // After all files, because generated code is what none of them describes.
        self.generated(pid)?;

        let process = ProcessMemory {
            memory: Arc::new(self.process_memory()),
            mapped: self.mapped(),
            is_whole: !self.memory.is_cut(),
            crash: notes.crash(),
        };

        for thread in &notes.threads {
            match self.sample(pid, thread, &process) {
                Ok(sample) => self.output.item(Item::Sample(sample))?,
                Err(skip) => self.output.skip(skip, 1),
            }
        }
        ControlFlow::Continue(())
    }

    /// The mappings that the core lists: its segments, and the files that gdb left out of them.
    fn mapped(&self) -> Arc<[Range<u64>]> {
        let segments = self.memory.segments().iter().map(|s| s.range.clone());
        let files = self.notes.files.iter().map(|file| file.range.clone());
        let unlisted = files.filter(|range| self.memory.segment(range.start).is_none());
        let mut all: Vec<Range<u64>> = segments.chain(unlisted).collect();
        all.sort_by_key(|range| range.start);
        all.into()
    }

    /// All memory of the process: the core's, and what it omits because a file has it.
    fn process_memory(&self) -> MappedMemory {
        let files = &self.notes.files;
        let bytes = |address: u64| {
            let mapping = files.find(address)?;
            let owner = self.files.get(&mapping.name)?;
            let start = usize::try_from(mapping.offset_of(address)).ok()?;
            let size = usize::try_from(mapping.range.end - address).ok()?;
            let end = start.checked_add(size)?.min((**owner).as_ref().len());
            Bytes::new(owner.clone(), start..end)
        };
        let unlisted = files.iter().map(|f| f.range.start);
        let unlisted: Vec<u64> = unlisted
            .filter(|&start| self.memory.segment(start).is_none())
            .collect();
        self.memory.process(&self.owner, &bytes, &unlisted)
    }

    /// Maps an executable segment: a part of a file, the vdso, or anonymous memory.
    fn map(&mut self, pid: u32, segment: &Segment) -> ControlFlow<()> {
        let range = segment.range.clone();
        let file = self.notes.files.find(range.start);

        let (name, found) = if let Some(file) = file {
            (file.name.clone(), self.file_image(pid, &range, file))
        } else if self.notes.vdso.is_some_and(|vdso| range.contains(&vdso)) {
            // The vdso is in no file, so it is read from the dumped memory.
            let bytes = self.memory.bytes(range.start, IMAGE_SIZE_MAX).to_vec();
            let finder = &mut *self.output.finder;
            let image = finder.memory_image("[vdso]", range.start, Arc::new(bytes));
            ("[vdso]".to_owned(), image)
        } else if let Some((name, found)) = self.remapped(pid, &range) {
            (name, Some(found))
        } else if self.notes.entry.is_some_and(|entry| range.contains(&entry)) {
            // The program's code, of which neither a note nor its header in memory speaks.
            let name =
                images::program_name(self.memory, self.notes).unwrap_or_else(|| PROGRAM.into());
            let found = self.find(pid, &range, &name, 0, &[]);
            (name, found)
        } else {
            let is_vsyscall = range.start == VSYSCALL;
            let name = if is_vsyscall { "[vsyscall]" } else { "//anon" };
            (name.to_owned(), self.find(pid, &range, name, 0, &[]))
        };

        let offset = file.map_or(0, |f| f.offset_of(range.start));
        self.announce(pid, range, name, offset, found)
    }

    /// The image of anonymous code that lies between two mappings of a file, where that file has code:
    /// a copy of its text, moved there to be in huge pages (BOLT's `--hugify`, V8, HHVM).
    fn remapped(&mut self, pid: u32, range: &Range<u64>) -> Option<(String, (Arc<Image>, u64))> {
        let notes = self.notes;
        let (before, after) = notes.files.around(range)?;
        if before.name != after.name || before.file_start != after.file_start {
            return None;
        }
        let (image, bias) = self.file_image(pid, &before.range, before)?;
        if !image.is_text(range.start.wrapping_sub(bias)) {
            return None;
        }
        Some((before.name.clone(), (image, bias)))
    }

    /// Maps a file mapping without a segment in the core. gdb omits what it can read from the file,
    /// code or not; truncated cores lack segments too.
    fn map_unlisted(&mut self, pid: u32, file: &FileMapping) -> ControlFlow<()> {
        let build_id = self.build_id(file);
        let is_code = self.output.finder.is_code(&MappingRequest {
            pid,
            name: &file.name,
            range: file.range.clone(),
            file_offset: file.file_offset,
            executable: true,
            build_id: &build_id,
        });

        // If the file is not available, it may be code.
        let found = match is_code {
            Some(false) => return ControlFlow::Continue(()),
            Some(true) => self.file_image(pid, &file.range, file),
            None => {
                self.output
                    .imported
                    .without_segment
                    .push(file.range.clone());
                None
            }
        };

        let (range, name) = (file.range.clone(), file.name.clone());
        self.announce(pid, range, name, file.file_offset, found)
    }

    fn announce(
        &mut self,
        pid: u32,
        range: Range<u64>,
        name: String,
        file_offset: u64,
        found: Option<(Arc<Image>, u64)>,
    ) -> ControlFlow<()> {
        self.announced.push(generated::Announced {
            range: range.clone(),
            name: name.clone(),
            bias: found.as_ref().map_or(0, |(_, bias)| *bias),
            image: found.as_ref().map(|(image, _)| image.clone()),
        });

        let (image, bias) = match found {
            Some((image, bias)) => {
                // `__jit_debug_descriptor` leads to the code that the program generated (gdb
                // manual, "JIT Compilation Interface").
                let descriptor = gdb_jit::descriptor(&image);
                let descriptor = descriptor.map(|svma| svma.wrapping_add(bias));
                self.descriptors.extend(descriptor);
                let (index, flow) = self.output.index(image);
                flow?;
                (Some(index), bias)
            }
            // Without an image, SVMAs are file offsets.
            None => (None, range.start.wrapping_sub(file_offset)),
        };

        self.output.item(Item::Event(Event::Map {
            pid,
            range,
            bias,
            image,
            name,
        }))
    }

    /// The build ID of a mapped file; empty if its first bytes were not dumped.
    fn build_id(&mut self, file: &FileMapping) -> Vec<u8> {
        let memory = self.memory;
        let Some(start) = file.file_start else {
            return Vec::new();
        };
        let entry = self.build_ids.entry(start);
        entry.or_insert_with(|| build_id(memory, start)).clone()
    }

    fn find(
        &mut self,
        pid: u32,
        range: &Range<u64>,
        name: &str,
        file_offset: u64,
        build_id: &[u8],
    ) -> Option<(Arc<Image>, u64)> {
        let (image, bias) = self.output.finder.mapping_for(&MappingRequest {
            pid,
            name,
            range: range.clone(),
            file_offset,
            executable: true,
            build_id,
        });
        Some((image?, bias))
    }

    /// The image of a mapped file: from the file system if the build is the same, else from memory
    /// if its code was dumped.
    fn file_image(
        &mut self,
        pid: u32,
        range: &Range<u64>,
        file: &FileMapping,
    ) -> Option<(Arc<Image>, u64)> {
        let memory = self.memory;
        let build_id = self.build_id(file);
        let offset = file.offset_of(range.start);
        let found = self.find(pid, range, &file.name, offset, &build_id);

        if let Some((mut image, bias)) = found {
            // The bytes of a file's code are a part of the file.
            if let Some(text) = image.section(SectionKind::Text) {
                let owner = text.data.owner().clone();
                self.files.entry(file.name.clone()).or_insert(owner);
            }
            // Without a build ID, only its start in memory can show that the file is of another
            // build.
            if let Some(start) = file.file_start.filter(|_| build_id.is_empty()) {
                let start = unchanged_start(memory, start);
                image = self.output.finder.check_start(&file.name, image, start);
            }
            return Some((image, bias));
        }

        // Nothing of the file was dumped here.
        if memory.bytes(range.start, 1).is_empty() {
            return None;
        }

        let start = file.file_start?;
        let size = file.file_end.checked_sub(start);
        // The list of files may be damaged; a copy must not be larger than memory.
        let size = size.filter(|&size| size <= IMAGE_SIZE_MAX)?;
        let copy = Arc::new(memory.copy(start, size));
        self.output.finder.memory_image(&file.name, start, copy)
    }

    /// The sample of one thread.
    fn sample(
        &mut self,
        pid: u32,
        thread: &Thread,
        process: &ProcessMemory,
    ) -> Result<Sample<'m>, Skip> {
        let mut regs = thread.regs;
        if regs.get(Reg::Cs) == Some(USER32_CS) {
            return Err(Skip::Bits32);
        }

        // A core has hardware registers, whatever a tool wrote into the flags.
        if regs.get_or_zero(Reg::Rflags) & X86_EFLAGS_FIXED == 0 {
            regs.forget(Reg::Rflags);
        }

        let mut regions: Vec<Region<'m>> = Vec::new();
        regions.extend(self.region(regs.rsp(), RegionRole::Stack));
        // In a signal handler on an alternate stack, the interrupted frames are on another stack.
        if let Some(interrupted) = regions.first().and_then(interrupted_rsp) {
            let other = self.region(interrupted, RegionRole::OtherStack);
            regions.extend(other.filter(|other| other.bounds != regions[0].bounds));
        }

        Ok(Sample {
            pid,
            tid: thread.tid,
            // All threads of a core are of one moment.
            time: 0,
            regs: SampleRegs::hardware(regs),
            regions,
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: None,
            process_memory: Some(process.clone()),
        })
    }

    /// The stack from `rsp`, with its red zone. A stack that overflowed has rsp below its lowest page.
    fn region(&mut self, rsp: u64, role: RegionRole) -> Option<Region<'m>> {
        let below = || {
            self.memory
                .segment_above(rsp, STACK_GUARD_GAP)
                .filter(|s| s.writable)
        };
        let bounds = self.memory.segment(rsp).or_else(below)?.range.clone();
        let address = rsp.saturating_sub(RED_ZONE).max(bounds.start);
        let stack_bytes_max = self.options.stack_bytes_max;
        let wanted = stack_bytes_max.saturating_add(rsp.saturating_sub(address));
        let bytes = self
            .memory
            .bytes(address, wanted.min(self.stack_bytes_left));
        self.stack_bytes_left -= bytes.len() as u64;
        (!bytes.is_empty()).then_some(Region {
            role,
            bounds,
            next_sp: 0,
            address,
            bytes: Cow::Borrowed(bytes),
        })
    }
}

/// The first bytes of a file that is mapped at `start`, as far as nobody changes them in memory: a
/// page, or only its headers if it has code, in which debuggers set breakpoints, or data.
fn unchanged_start<'m>(memory: &Memory<'m>, start: u64) -> &'m [u8] {
    const FILE_HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    let page = memory.bytes(start, FIRST_PAGE);
    let segment = memory.segment(start);
    if segment.is_some_and(|s| !s.executable && !s.writable) {
        return page;
    }
    let count = page.get(56..).and_then(<[u8]>::first_chunk);
    let count = count.map_or(0, |count| usize::from(u16::from_le_bytes(*count)));
    let size = FILE_HEADER + count * PROGRAM_HEADER;
    &page[..size.min(page.len())]
}

/// The build ID of a file whose first bytes are mapped at `start`; empty if they were not dumped.
fn build_id(memory: &Memory<'_>, start: u64) -> Vec<u8> {
    const SPAN: u64 = 64 << 10;
    const BUILD_ID_ONLY: elf::ReadOptions = elf::ReadOptions {
        symbols: false,
        plt: false,
        producers: false,
    };
    let header = memory.bytes(start, SPAN).to_vec();
    elf::read("", Arc::new(header), &BUILD_ID_ONLY)
        .map(|elf| elf.parts.build_id)
        .unwrap_or_default()
}

/// Where the stack continues if this is an alternate signal stack: its signal frame says that this
/// stack is in use (`uc_stack`), and holds the interrupted rsp.
fn interrupted_rsp(stack: &Region<'_>) -> Option<u64> {
    let bytes = &stack.bytes[..stack.bytes.len().min(SIGNAL_FRAME_SEARCH)];
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    (0..bytes.len()).step_by(8).find_map(|at| {
        let (first, size) = (word(at + UC_STACK)?, word(at + UC_STACK + 16)?);
        let here = stack.address.checked_add(at as u64)?;
        let holds = first <= here && here < first.checked_add(size)? && size != 0;
        let rsp = word(at + UC_RSP)?;
        let holds = holds && word(at + UC_CS)? & 0xffff == USER_CS;
        let outside = rsp < first || rsp >= first.saturating_add(size);
        (holds && outside && rsp != 0).then_some(rsp)
    })
}

#[cfg(test)]
mod tests;
