//! The source of a resumed thread's registers and memory: an ELF core, or a sample together with
//! the code in the mapped files.

use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD};
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use std::collections::HashMap;
use std::path::PathBuf;
use unwind_sim_emulator::address_space::Content;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, MapError, Permissions};
use unwind_sim_recordings::import::ImportError;
use unwind_sim_recordings::import::core::{Area, FilePlace, Snapshot, snapshot};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::image::{Bytes, Mapping, Owner};
use unwind_sim_unwind::regs::{Reg, Regs};

const PAGE: u64 = 4096;
/// The bytes below rsp that a leaf function may use (psABI).
const RED_ZONE: u64 = 128;
/// Bytes of stack that are mapped below what is recorded. Nothing live is there.
const STACK_BELOW: u64 = 1 << 20;
/// The maximum number of pages that a resumed thread may use.
const PAGES_MAX: usize = 1 << 20;
/// The values of rax while a system call is to be restarted (Linux `include/linux/errno.h`:
/// ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK), and the result of a call
/// that a signal ended (`EINTR`).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
const EINTR: i64 = -4;
/// Why a sample cannot be resumed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotResumable {
    /// A register was not recorded.
    #[error("{} is not recorded", .0.as_str())]
    Register(Reg),
    /// The red zone below rsp was not recorded.
    #[error("the {RED_ZONE} bytes below rsp are not recorded")]
    RedZone,
    /// The core has no such thread.
    #[error("the core has no thread {0}")]
    Thread(u32),
    /// The recorded memory cannot be mapped.
    #[error("the recorded memory cannot be mapped: {0:?}")]
    Map(MapError),
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("{}: {source}", path.printable())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a usable core.
    #[error(transparent)]
    Core(#[from] ImportError),
}

/// Where registers and memory come from.
pub struct Source {
    /// A core's bytes and their content. Without a core, the stacks of each sample and the code in
    /// the image files are used.
    core: Option<(Bytes, Snapshot)>,
    files: Files,
}

/// The mapped files.
struct Files {
    symfs: Option<PathBuf>,
    /// The files by path; `None` for one that cannot be read.
    known: HashMap<String, Option<Bytes>>,
}

impl Files {
    fn get(&mut self, path: &str) -> Option<Bytes> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let place = match &self.symfs {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        };
        let is_path = path.starts_with('/');
        let bytes = is_path.then(|| map_file(&place).ok()).flatten();
        let bytes = bytes.and_then(whole);
        self.known.insert(path.to_owned(), bytes.clone());
        bytes
    }
}

fn whole(owner: Owner) -> Option<Bytes> {
    let len = (*owner).as_ref().len();
    Bytes::new(owner, 0..len)
}

impl Source {
    /// A source that uses the samples themselves. Files are looked up below `symfs`, if given.
    pub fn samples(symfs: Option<PathBuf>) -> Source {
        let known = HashMap::new();
        Source {
            core: None,
            files: Files { symfs, known },
        }
    }

    /// A source that uses a core.
    ///
    /// # Errors
    /// If the file cannot be read or is not a core.
    pub fn core(core: &InputFile, symfs: Option<PathBuf>) -> Result<Source, SourceError> {
        let bytes = core.whole().map_err(|source| SourceError::Io {
            path: core.path().into(),
            source,
        })?;
        let snapshot = snapshot(&bytes)?;
        Ok(Source {
            core: Some((bytes, snapshot)),
            ..Source::samples(symfs)
        })
    }

    /// The state of the sample's thread.
    ///
    /// # Errors
    /// If too little was recorded.
    pub fn core_at(&mut self, view: &View<'_>) -> Result<Core, NotResumable> {
        let files = &mut self.files;
        let Some((bytes, snapshot)) = &self.core else {
            return of_sample(view, files);
        };

        let tid = view.sample.tid;
        let thread = snapshot.threads.iter().find(|t| t.tid == tid);
        let thread = thread.ok_or(NotResumable::Thread(tid))?;

        let mut memory = AddressSpace::new(PAGES_MAX);
        for area in &snapshot.areas {
            map_area(&mut memory, area, bytes, snapshot, files)?;
        }

        let mut core = Core::new(memory);
        set_registers(&mut core, &thread.regs)?;
        // Thread-local variables are found through the base of fs.
        core.state.set_gpr(reg::FS, thread.fs_base);
        core.state.set_gpr(reg::GS, thread.gs_base);

        if let Some(fx) = &thread.fx {
            // An image that no processor can have written leaves the state of a new program.
            let _ = core.set_fx_image(fx);
        }

        // Nobody restarts the call here: for the program, the signal has ended it.
        let rax = core.state.gpr(reg::RAX).cast_signed();
        if thread.in_call.is_some() && RESTARTS.contains(&rax) {
            core.state.set_gpr(reg::RAX, EINTR.cast_unsigned());
        }

        Ok(core)
    }
}

/// Maps the dumped part of an area, and the rest from its file if it was not writable.
fn map_area(
    memory: &mut AddressSpace,
    area: &Area,
    core: &Bytes,
    snapshot: &Snapshot,
    files: &mut Files,
) -> Result<(), NotResumable> {
    let permissions = Permissions::new(area.readable, area.writable, area.executable);
    let length = area.range.end - area.range.start;
    let dumped = (area.dumped.len() as u64).min(length) & !(PAGE - 1);
    let middle = area.range.start + dumped;

    // What is not whole pages cannot be mapped.
    if !area.range.start.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) {
        return Ok(());
    }

    if dumped > 0
        && let Some(part) = core.part(area.dumped.clone())
    {
        let first = area.range.start..middle;
        match memory.map_file(first, permissions, Content::held(part), 0) {
            // The vsyscall page is not in user space.
            Ok(()) | Err(MapError::Range { .. }) => {}
            Err(error) => return Err(NotResumable::Map(error)),
        }
    }

    // core(5): private mappings of files are not dumped by default, but what was never writable is
    // still in the file.
    if middle < area.range.end
        && !area.writable
        && let Some(place) = &area.file
        && let Some(file) = files.get(&place.path)
        && is_same_file(place, &file, core, snapshot)
    {
        let rest = middle..area.range.end;
        let offset = place.offset + dumped;
        let mapped = memory.map_file(rest, permissions, Content::held(file), offset);
        mapped.map_err(NotResumable::Map)?;
    }

    Ok(())
}

/// Whether the file starts with the bytes that the core has for it. The build id is there.
fn is_same_file(place: &FilePlace, file: &Bytes, core: &Bytes, snapshot: &Snapshot) -> bool {
    let begins = |area: &&Area| {
        let of_it = |f: &FilePlace| f.path == place.path && f.offset == 0;
        area.file.as_ref().is_some_and(of_it) && area.dumped.len() as u64 >= PAGE
    };
    let first = snapshot.areas.iter().find(begins);
    first.is_some_and(|area| {
        let start = area.dumped.start;
        let page = core.get(start..start + PAGE as usize);
        page.is_some() && page == file.get(..PAGE as usize)
    })
}

fn set_registers(core: &mut Core, regs: &Regs) -> Result<(), NotResumable> {
    let get = |reg| regs.get(reg).ok_or(NotResumable::Register(reg));
    for (number, reg) in Reg::BY_NUMBER.into_iter().enumerate() {
        core.state.set_gpr(number, get(reg)?);
    }
    core.state.rip = get(Reg::Rip)?;
    core.state.set_rflags(get(Reg::Rflags)?);
    Ok(())
}

/// The recorded stacks, and the read-only parts of the image files.
fn of_sample(view: &View<'_>, files: &mut Files) -> Result<Core, NotResumable> {
    let regs = view.sample.regs.live().copied().unwrap_or_default();
    let mut core = Core::new(AddressSpace::new(PAGES_MAX));
    set_registers(&mut core, &regs)?;

    let memory = &mut core.memory;
    let rsp = regs.rsp();

    // Leaf functions use the red zone below rsp (psABI 3.2.2), so it must have been recorded.
    let stack = view.sample.regions.iter().find(|r| {
        let end = r.address.saturating_add(r.bytes.len() as u64);
        (r.address..end).contains(&rsp) && r.address <= rsp.saturating_sub(RED_ZONE)
    });
    let stack = stack.ok_or(NotResumable::RedZone)?;

    // Files first: recorded memory is mapped over them.
    for mapping in view.space.mappings() {
        map_file_of(memory, mapping, files);
    }

    for region in &view.sample.regions {
        // A page that is known only in part is not mapped. Below rsp nothing is live.
        let is_stack = std::ptr::eq(region, stack);
        let start = if is_stack {
            region.address & !(PAGE - 1)
        } else {
            region.address.next_multiple_of(PAGE)
        };
        let end = (region.address + region.bytes.len() as u64) & !(PAGE - 1);

        if start >= end {
            continue;
        }

        let below = if is_stack { STACK_BELOW } else { 0 };
        let range = start.saturating_sub(below)..end;
        let mapped = memory.map(range, Permissions::READ_WRITE);
        mapped.map_err(NotResumable::Map)?;

        let from = start.max(region.address);
        let skipped = (from - region.address) as usize;
        let bytes = &region.bytes[skipped..skipped + (end - from) as usize];
        // It was just mapped.
        let _ = memory.poke(from, bytes);
    }

    Ok(core)
}

/// Maps the read-only parts of the file of `mapping`, if it is the recorded one.
fn map_file_of(memory: &mut AddressSpace, mapping: &Mapping, files: &mut Files) {
    let Some(image) = &mapping.image else {
        return;
    };
    let Some(file) = files.get(&mapping.name) else {
        return;
    };

    // A file of another build would give other code at these addresses.
    if image.build_id().is_empty() || !has_build_id(&file, image.build_id()) {
        return;
    }

    let segments = FileHeader64::<LE>::parse(&*file).and_then(|h| h.program_headers(LE, &*file));
    for segment in segments.unwrap_or_default() {
        let flags = segment.p_flags(LE).0;
        if segment.p_type(LE) != PT_LOAD || flags & PF_W.0 != 0 {
            continue;
        }

        // gABI, "Program Loading": a segment may start within a page, so its first page is mapped
        // as a whole.
        let (address, offset) = (segment.p_vaddr(LE), segment.p_offset(LE));
        let start = mapping.bias.wrapping_add(address) & !(PAGE - 1);
        let size = (address % PAGE).saturating_add(segment.p_filesz(LE));
        let Some(end) = start
            .checked_add(size)
            .and_then(|e| e.checked_next_multiple_of(PAGE))
        else {
            continue;
        };

        let permissions = Permissions::new(true, false, flags & PF_X.0 != 0);
        // What does not fit is left out, and ends the run if it is used.
        let _ = memory.map_file(
            start..end,
            permissions,
            Content::held(file.clone()),
            offset & !(PAGE - 1),
        );
    }
}

fn has_build_id(file: &Bytes, wanted: &[u8]) -> bool {
    use object::Object as _;
    use object::read::elf::ElfFile64;
    let file: Option<ElfFile64<'_, LE>> = ElfFile64::parse(&**file).ok();
    file.is_some_and(|f| f.build_id().is_ok_and(|id| id == Some(wanted)))
}
