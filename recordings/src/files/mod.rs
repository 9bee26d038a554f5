//! From what a mapping says (path, offset, build id) to its image: finding and loading files.
//!
//! [`ImageFinder::mapping_for`] looks for the file where it was, below `--symfs`, in build-id
//! trees, in the caches of perf, in `/proc/PID`, and adds what separate debug files know
//! (`debug`). A file whose build id is not the expected one is not used. Code that a JIT compiler
//! made gets its symbols from `perf-PID.map` (`jit`).
//!
//! Not here: reading ELF (`unwind_sim_unwind::elf`), and who maps what (importers, recorders).

mod candidates;
mod debug;
mod jit;
mod problem;
mod system;
#[cfg(test)]
mod tests;

pub use debug::unpack_debug_data;
pub(crate) use debug::unpacked;
pub use problem::{FileProblem, FileProblemKind};
pub use system::own_vdso;

use crate::mapped::map_open_file;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_unwind::elf::{self, Elf};
use unwind_sim_unwind::image::{Image, ImageParts, Owner, Symbol};

/// Most files kept loaded; when there are more, those that nobody else holds are dropped.
const LOADED_MAX: usize = 4096;
/// Most answers remembered.
const ANSWERS_MAX: usize = 1 << 16;
/// Most problems kept; the others are only counted.
const PROBLEMS_MAX: usize = 1000;

/// Where to look for files.
#[derive(Clone, Debug, Default)]
pub struct FinderOptions {
    /// The root below which all paths lie, as `perf script --symfs`; `/` if `None`.
    pub symfs: Option<PathBuf>,
    /// Directories with a `.build-id` tree, such as `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// The cache of perf: `~/.debug`.
    pub perf_cache: Option<PathBuf>,
    /// Where `perf-PID.map` files are: `/tmp`.
    pub jit_dir: Option<PathBuf>,
    /// The processes are running now and the pids are theirs: what `/proc/PID` says is trusted.
    pub live: bool,
    /// Look for separate debug files, and unpack `.gnu_debugdata` and compressed sections.
    pub debug_files: bool,
    /// What to read from the files.
    pub elf: elf::ReadOptions,
}

impl FinderOptions {
    /// The usual places of this machine.
    pub fn system() -> FinderOptions {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        FinderOptions {
            debug_dirs: vec!["/usr/lib/debug".into()],
            perf_cache: home.map(|home| home.join(".debug")),
            jit_dir: Some("/tmp".into()),
            debug_files: true,
            ..FinderOptions::default()
        }
    }
}

/// What is known of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingRequest<'a> {
    /// The process.
    pub pid: u32,
    /// The path, or the kernel's name: `[vdso]`, `//anon`.
    pub name: &'a str,
    /// Addresses (avma).
    pub range: Range<u64>,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Is it executable?
    pub executable: bool,
    /// The expected build id; empty if unknown.
    pub build_id: &'a [u8],
}

/// A file that was read.
#[derive(Debug)]
struct Loaded {
    image: Arc<Image>,
    /// Its segments; the parts went into the image.
    elf: Elf,
}

/// A file as the system knows it, under the name that its image has.
#[derive(PartialEq, Eq, Hash, Debug)]
struct FileKey {
    name: String,
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// Finds images and keeps them, each file once.
#[derive(Debug, Default)]
pub struct ImageFinder {
    options: Arc<FinderOptions>,
    loaded: HashMap<FileKey, Arc<Loaded>>,
    answers: HashMap<(u32, String, Vec<u8>), Option<Arc<Loaded>>>,
    jit: HashMap<u32, Arc<Vec<Symbol>>>,
    problems: Vec<FileProblem>,
    problem_count: u64,
}

impl ImageFinder {
    /// A finder that has found nothing yet.
    pub fn new(options: FinderOptions) -> ImageFinder {
        ImageFinder {
            options: Arc::new(options),
            ..ImageFinder::default()
        }
    }

    /// The options.
    pub fn options(&self) -> &FinderOptions {
        &self.options
    }

    /// What went wrong with files so far: the first thousand.
    pub fn problems(&self) -> &[FileProblem] {
        &self.problems
    }

    /// How many things went wrong, those not kept included.
    pub fn problem_count(&self) -> u64 {
        self.problem_count
    }

    /// The image of a mapping and its bias (avma - svma, modulo 2^64). Without an image the bias
    /// makes svma an offset in the file.
    pub fn mapping_for(&mut self, request: &MappingRequest<'_>) -> (Option<Arc<Image>>, u64) {
        let Range { start, end } = request.range;
        let no_image = (None, start.wrapping_sub(request.file_offset));
        let found = if names_a_file(request.name) {
            self.find(request)
        } else {
            None
        };
        match found {
            Some(loaded) => {
                let length = end.saturating_sub(start);
                let (offset, executable) = (request.file_offset, request.executable);
                match loaded.elf.bias(start, length, offset, executable) {
                    Some(bias) => (Some(loaded.image.clone()), bias),
                    None => {
                        self.problem(request.name, FileProblemKind::NoSegment { offset });
                        no_image
                    }
                }
            }
            None if request.executable && may_be_jit(request.name) => {
                match self.jit_image(request) {
                    Some(image) => (Some(image), 0),
                    None => no_image,
                }
            }
            None => no_image,
        }
    }

    /// Is what a request maps exactly the executable pages of its file, whatever the request says?
    /// `None` if the file is not at hand.
    pub fn is_code(&mut self, request: &MappingRequest<'_>) -> Option<bool> {
        let loaded = self.find(request).filter(|_| names_a_file(request.name))?;
        let length = request.range.end.saturating_sub(request.range.start);
        Some(loaded.elf.is_code(length, request.file_offset))
    }

    /// An image from memory: the vdso of a core file, or a program whose file is gone. `memory`
    /// begins at the ELF header. The bias is that of memory beginning at `address`.
    pub fn memory_image(
        &mut self,
        name: &str,
        address: u64,
        memory: Owner,
    ) -> Option<(Arc<Image>, u64)> {
        let length = (*memory).as_ref().len() as u64;
        let read = system::read_memory_image(name, memory, &self.options.elf);
        match read {
            Ok(mut elf) => {
                let bias = elf.bias(address, length, 0, false)?;
                let parts = std::mem::take(&mut elf.parts);
                Some((Arc::new(Image::new(parts)), bias))
            }
            Err(error) => {
                self.problem(name, FileProblemKind::Elf(error));
                None
            }
        }
    }

    /// The file of a request, from the memory of earlier answers or by looking for it.
    fn find(&mut self, request: &MappingRequest<'_>) -> Option<Arc<Loaded>> {
        // The same path may be another file in another process only where we look into /proc.
        let whose = if self.options.live || request.build_id.is_empty() {
            request.pid
        } else {
            0
        };
        let key = (whose, request.name.to_owned(), request.build_id.to_vec());
        if let Some(known) = self.answers.get(&key) {
            return known.clone();
        }
        let found = self.look(request);
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(key, found.clone());
        found
    }

    fn look(&mut self, request: &MappingRequest<'_>) -> Option<Arc<Loaded>> {
        if request.name == "[vdso]" {
            let found = self.vdso(request);
            if found.is_some() {
                return found;
            }
        }
        let mut seen = FileProblemKind::NotFound;
        let options = self.options.clone();
        for path in candidates::candidates(&options, request) {
            match self.load(&path, request.name) {
                Ok(loaded) => match check_build_id(&loaded, request.build_id) {
                    Ok(()) => return Some(loaded),
                    Err(mismatch) => seen = mismatch,
                },
                Err(other) if seen == FileProblemKind::NotFound => seen = other,
                Err(_) => {}
            }
        }
        self.problem(request.name, seen);
        None
    }

    /// Our own vdso, if it is the one that was mapped there.
    fn vdso(&mut self, request: &MappingRequest<'_>) -> Option<Arc<Loaded>> {
        if request.build_id.is_empty() && !self.options.live {
            return None;
        }
        let memory: Owner = Arc::new(system::own_vdso()?);
        let elf = system::read_memory_image(request.name, memory, &self.options.elf).ok()?;
        let loaded = loaded(elf);
        check_build_id(&loaded, request.build_id).ok()?;
        Some(loaded)
    }

    /// Loads a file, or hands out the one loaded before.
    fn load(&mut self, path: &Path, name: &str) -> Result<Arc<Loaded>, FileProblemKind> {
        let file = File::open(path).map_err(FileProblemKind::from_io)?;
        let metadata = file.metadata().map_err(FileProblemKind::from_io)?;
        let key = FileKey {
            name: name.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        };
        if let Some(loaded) = self.loaded.get(&key) {
            return Ok(loaded.clone());
        }
        let owner = map_open_file(&file, &metadata).map_err(FileProblemKind::from_io)?;
        let mut elf = elf::read(name, owner, &self.options.elf).map_err(FileProblemKind::Elf)?;
        for problem in std::mem::take(&mut elf.problems) {
            self.problem(name, FileProblemKind::Elf(problem));
        }
        if self.options.debug_files {
            for (path, kind) in debug::complete(&mut elf, path, &self.options) {
                self.problem(&path, kind);
            }
        }
        let loaded = loaded(elf);
        if self.loaded.len() >= LOADED_MAX {
            self.answers.clear();
            self.loaded
                .retain(|_, l| Arc::strong_count(l) + Arc::strong_count(&l.image) > 2);
            if self.loaded.len() >= LOADED_MAX {
                self.loaded.clear();
            }
        }
        self.loaded.insert(key, loaded.clone());
        Ok(loaded)
    }

    /// An image of generated code: the symbols of `perf-PID.map` that lie in the mapping.
    fn jit_image(&mut self, request: &MappingRequest<'_>) -> Option<Arc<Image>> {
        let pid = request.pid;
        if !self.jit.contains_key(&pid) {
            let (symbols, problem) = jit::read(&self.options, pid);
            if let Some((path, kind)) = problem {
                self.problem(&path, kind);
            }
            if self.jit.len() >= LOADED_MAX {
                self.jit.clear();
            }
            self.jit.insert(pid, Arc::new(symbols));
        }
        let symbols = self.jit.get(&pid)?;
        let Range { start, end } = request.range;
        let first = symbols.partition_point(|s| s.address < start);
        let last = symbols.partition_point(|s| s.address < end);
        let inside = symbols
            .get(first..last)
            .filter(|inside| !inside.is_empty())?;
        Some(Arc::new(Image::new(ImageParts {
            name: format!("perf-{pid}.map"),
            text: std::iter::once(request.range.clone()).collect(),
            symbols: inside.to_vec(),
            ..ImageParts::default()
        })))
    }

    fn problem(&mut self, path: &str, kind: FileProblemKind) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(FileProblem {
                path: path.to_owned(),
                kind,
            });
        }
    }
}

fn loaded(mut elf: Elf) -> Arc<Loaded> {
    let parts = std::mem::take(&mut elf.parts);
    Arc::new(Loaded {
        image: Arc::new(Image::new(parts)),
        elf,
    })
}

fn check_build_id(loaded: &Loaded, expected: &[u8]) -> Result<(), FileProblemKind> {
    let found = loaded.image.build_id();
    if expected.is_empty() || same_build_id(expected, found) {
        return Ok(());
    }
    Err(FileProblemKind::BuildId {
        expected: expected.to_vec(),
        found: found.to_vec(),
    })
}

/// perf pads ids of 16 bytes with zeros to 20 in old recordings, and cuts them to 20.
fn same_build_id(expected: &[u8], found: &[u8]) -> bool {
    const PERF_BUILD_ID_SIZE: usize = 20;
    let cut = &found[..found.len().min(PERF_BUILD_ID_SIZE)];
    if cut.is_empty() {
        return false;
    }
    expected == found
        || expected
            .strip_prefix(cut)
            .is_some_and(|rest| rest.iter().all(|&b| b == 0))
}

/// Does the kernel's name of a mapping say that a file is behind it (the vdso counts as one)?
fn names_a_file(name: &str) -> bool {
    name == "[vdso]" || (name.starts_with('/') && !is_anonymous(name))
}

/// Names that the kernel and perf give to memory without a file, though they look like paths.
fn is_anonymous(name: &str) -> bool {
    name.starts_with("//anon") || name.starts_with("/dev/zero") || name.starts_with("/SYSV")
}

/// Can generated code be there? Compilers also write it into files without a name.
fn may_be_jit(name: &str) -> bool {
    !name.starts_with('/') && !matches!(name, "[vdso]" | "[vsyscall]" | "[vectors]" | "[sigpage]")
        || is_anonymous(name)
        || name.starts_with("/memfd:")
        || name.starts_with("/dev/shm/")
}
