//! The symbols of all files of a recording: which files perf opens for a mapping, in which order,
//! and which symbols it takes from them.

use super::elf;
use super::helper::{Helper, Owner};
use super::inlines::Inlines;
use super::kernel::KernelSymbols;
use super::lines::Lines;
use super::objects::{SourceLine, Symbol, Symbols};
use super::perf_map;
use super::places::Places;
use super::tree::Tree;
use object::Endianness;
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::FileHeader;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_perf_data::Object;

/// Number of files that are found without the map.
const RECENT: usize = 32;
/// A file's path and build ID, and the number of its tree.
type NumberedFile = (Vec<u8>, Vec<u8>, usize);

/// The symbols of all files of a recording.
pub struct Files {
    places: Places,
    helper: &'static dyn Helper,
    kernel: KernelSymbols,
    trees: Vec<Tree>,
    /// The build IDs of the files with a path, and the numbers of their trees.
    numbers: HashMap<Vec<u8>, Vec<(Vec<u8>, usize)>>,
    /// Files that were looked up last.
    recent: [Option<NumberedFile>; RECENT],
    /// The source lines of files, by path and build ID; `None` if the file is missing.
    lines: HashMap<(Vec<u8>, Vec<u8>), Option<Lines>>,
    /// The inlined functions of files, likewise.
    inlines: HashMap<(Vec<u8>, Vec<u8>), Option<Inlines>>,
}

impl Files {
    /// A source that has not opened any file. `helper` opens them.
    pub fn new(places: Places, helper: &'static dyn Helper) -> Files {
        Files {
            kernel: KernelSymbols::new(places.clone(), helper),
            places,
            helper,
            trees: Vec::new(),
            numbers: HashMap::new(),
            recent: [const { None }; RECENT],
            lines: HashMap::new(),
            inlines: HashMap::new(),
        }
    }

    fn tree(
        &mut self,
        path: &[u8],
        build_id: &[u8],
        load: impl FnOnce(&Places, &'static dyn Helper) -> Tree,
    ) -> &mut Tree {
        // A few files have most of the addresses.
        let slot = (path.len() ^ usize::from(build_id.first().copied().unwrap_or(0))) % RECENT;
        let recent = self.recent[slot].as_ref();
        if let Some((known_path, known_id, number)) = recent
            && known_path == path
            && known_id == build_id
        {
            return &mut self.trees[*number];
        }

        if !self.numbers.contains_key(path) {
            self.numbers.insert(path.to_vec(), Vec::new());
        }
        let same_path = self.numbers.get_mut(path);
        let known = same_path.as_ref().and_then(|same| {
            let same = same.iter().find(|(id, _)| id == build_id);
            same.map(|(_, number)| *number)
        });

        // The same path with another build ID is another file: it was replaced during the
        // recording.
        let number = known.unwrap_or_else(|| {
            self.trees.push(load(&self.places, self.helper));
            let number = self.trees.len() - 1;
            if let Some(same) = same_path {
                same.push((build_id.to_vec(), number));
            }
            number
        });

        self.recent[slot] = Some((path.to_vec(), build_id.to_vec(), number));
        &mut self.trees[number]
    }
}

impl Symbols for Files {
    fn symbol(&mut self, object: &Object<'_>, address: u64) -> Option<Symbol<'_>> {
        let tree = match *object {
            Object::Kernel(_) | Object::Generated { .. } => {
                return self.kernel.symbol(object, address);
            }
            Object::File { path, build_id } => self.tree(path, build_id, |places, helper| {
                load_file(places, helper, path, build_id).unwrap_or_else(|| Tree::new(helper))
            }),
            Object::Anonymous { path } => self.tree(path, b"", |places, helper| {
                perf_map::load(places, helper, path)
            }),
        };
        let at = tree.find(address)?;
        Some(Symbol {
            range: tree.range(at),
            name: tree.name(at),
        })
    }

    fn mangled(&mut self, object: &Object<'_>, address: u64) -> Option<&[u8]> {
        let Object::File { path, build_id } = *object else {
            return None;
        };
        let tree = self.tree(path, build_id, |places, helper| {
            load_file(places, helper, path, build_id).unwrap_or_else(|| Tree::new(helper))
        });
        let at = tree.find(address)?;
        tree.mangled(at)
    }

    fn build_id(&mut self, object: &Object<'_>) -> Option<Vec<u8>> {
        let Object::File {
            path,
            build_id: b"",
        } = *object
        else {
            return None;
        };
        let path = self.places.inside(Path::new(OsStr::from_bytes(path)));
        own_build_id(&self.helper.map(&path).ok()?)
    }

    fn inlined(&mut self, object: &Object<'_>, address: u64) -> &[Vec<u8>] {
        let Object::File { path, build_id } = *object else {
            return &[];
        };
        let key = (path.to_vec(), build_id.to_vec());
        let (places, helper) = (&self.places, self.helper);
        let known = self.inlines.entry(key);
        let inlines = known.or_insert_with(|| load_inlines(places, helper, path, build_id));
        inlines.as_mut().map_or(&[], |inlines| inlines.at(address))
    }

    fn source_line(&mut self, object: &Object<'_>, address: u64) -> SourceLine<'_> {
        let Object::File { path, build_id } = *object else {
            return SourceLine::NoLines { address };
        };
        let key = (path.to_vec(), build_id.to_vec());
        let (places, helper) = (&self.places, self.helper);
        let known = self.lines.entry(key);
        let lines = known.or_insert_with(|| load_lines(places, helper, path, build_id));
        match lines {
            Some(lines) => lines.at(address),
            None => SourceLine::NoLines { address },
        }
    }

    fn kernel_range(&mut self) -> Option<std::ops::Range<u64>> {
        self.kernel.kernel_range()
    }
}

impl Places {
    /// The cache directory of perf.
    fn cache(&self) -> Option<PathBuf> {
        match &self.symfs {
            None => std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug")),
            Some(folder) => Some(folder.join(".debug")),
        }
    }

    /// The files in which perf looks for the symbols of `path`, in its order.
    fn candidates(&self, helper: &dyn Helper, path: &Path, build_id: &[u8]) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let file = self.inside(path);

        // `.gnu_debuglink` has only a name, for which perf looks in three folders
        // (`dso__read_binary_type_filename` in `tools/perf/util/dso.c`).
        if let Ok(owner) = helper.map(&file)
            && let Some(link) = debug_link(&owner)
        {
            let link = Path::new(OsStr::from_bytes(&link)).to_owned();

            let folder = path.parent().unwrap_or(Path::new("/"));
            found.push(self.inside(&folder.join(&link)));
            found.push(self.inside(&folder.join(".debug").join(&link)));
            let below = folder.strip_prefix("/").unwrap_or(folder);
            found.push(self.inside(&Path::new("/usr/lib/debug").join(below).join(&link)));
        }

        // The first byte of a build ID is the folder's name, the rest is the file's.
        if let [first, rest @ ..] = build_id
            && !rest.is_empty()
        {
            let folder = format!("{first:02x}");
            let name: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            let cached = self.cache().map(|cache| cache.join(".build-id"));
            found.extend(cached.map(|cached| cached.join(&folder).join(&name).join("elf")));

            let debug = Path::new("/usr/lib/debug/.build-id");
            found.push(self.inside(&debug.join(&folder).join(format!("{name}.debug"))));
        }

        found.push(file);
        found
    }
}

/// The class of an ELF file: 1 for 32 bits.
fn class(file: &Owner) -> Option<u8> {
    (**file).as_ref().get(4).copied()
}

fn debug_link(file: &Owner) -> Option<Vec<u8>> {
    let link = match class(file)? {
        1 => elf::Parts::<FileHeader32<Endianness>>::parse(file)?.debug_link(),
        _ => elf::Parts::<FileHeader64<Endianness>>::parse(file)?.debug_link(),
    };
    link.map(<[u8]>::to_vec)
}

/// The build ID in the file itself.
fn own_build_id(file: &Owner) -> Option<Vec<u8>> {
    let id = match class(file)? {
        1 => elf::Parts::<FileHeader32<Endianness>>::parse(file)?.build_id(),
        _ => elf::Parts::<FileHeader64<Endianness>>::parse(file)?.build_id(),
    };
    id.map(<[u8]>::to_vec)
}

/// The symbols of a mapped file.
fn load_file(
    places: &Places,
    helper: &'static dyn Helper,
    path: &[u8],
    build_id: &[u8],
) -> Option<Tree> {
    if path == b"[vdso]" {
        // The vdso of another machine is not available.
        if places.symfs.is_some() {
            return None;
        }
        let vdso: Owner = Arc::new(helper.vdso()?);
        return load::<FileHeader64<Endianness>>(&[vdso], build_id, helper);
    }
    let (owners, build_id) = open_candidates(places, helper, path, build_id);
    match class(owners.last()?)? {
        1 => load::<FileHeader32<Endianness>>(&owners, &build_id, helper),
        _ => load::<FileHeader64<Endianness>>(&owners, &build_id, helper),
    }
}

/// The files that can describe a path, in perf's order, and the build ID they should have.
fn open_candidates(
    places: &Places,
    helper: &dyn Helper,
    path: &[u8],
    build_id: &[u8],
) -> (Vec<Owner>, Vec<u8>) {
    let path = Path::new(OsStr::from_bytes(path));
    let mut build_id = build_id.to_vec();
    if build_id.is_empty()
        && let Ok(own) = helper.map(&places.inside(path))
    {
        build_id = own_build_id(&own).unwrap_or_default();
    }
    let candidates = places.candidates(helper, path, &build_id);
    let owners = candidates
        .iter()
        .filter_map(|path| helper.map(path).ok())
        .collect();
    (owners, build_id)
}

/// The source lines of a mapped file.
fn load_lines(
    places: &Places,
    helper: &'static dyn Helper,
    path: &[u8],
    build_id: &[u8],
) -> Option<Lines> {
    let (owners, build_id) = open_candidates(places, helper, path, build_id);
    lines_of(&owners, &build_id, helper)
}

/// The inlined functions of a mapped file.
fn load_inlines(
    places: &Places,
    helper: &'static dyn Helper,
    path: &[u8],
    build_id: &[u8],
) -> Option<Inlines> {
    let (owners, build_id) = open_candidates(places, helper, path, build_id);
    match class(owners.last()?)? {
        1 => inlines_among::<FileHeader32<Endianness>>(&owners, &build_id, helper),
        _ => inlines_among::<FileHeader64<Endianness>>(&owners, &build_id, helper),
    }
}

/// The inlined functions of the first of `candidates` that has debug information; the last is the
/// mapped file.
fn inlines_among<E: FileHeader<Endian = Endianness>>(
    candidates: &[Owner],
    build_id: &[u8],
    helper: &'static dyn Helper,
) -> Option<Inlines> {
    let mapped = elf::Parts::<E>::parse(candidates.last()?)?;
    let mut parts = candidates
        .iter()
        .filter_map(|file| fitting::<E>(file, build_id));
    let described = parts.find(|parts| parts.section(b".debug_info").is_some());
    Some(Inlines::load(described.as_ref(), &mapped, helper))
}

/// The source lines of an ELF file; `None` if it is not one.
pub fn source_lines(file: &[u8], helper: &'static dyn Helper) -> Option<Lines> {
    lines_of(&[Arc::new(file.to_vec())], b"", helper)
}

fn lines_of(candidates: &[Owner], build_id: &[u8], helper: &'static dyn Helper) -> Option<Lines> {
    match class(candidates.last()?)? {
        1 => lines_among::<FileHeader32<Endianness>>(candidates, build_id, helper),
        _ => lines_among::<FileHeader64<Endianness>>(candidates, build_id, helper),
    }
}

/// The source lines of the first of `candidates` that has any; the last is the mapped file.
pub(super) fn lines_among<E: FileHeader<Endian = Endianness>>(
    candidates: &[Owner],
    build_id: &[u8],
    helper: &'static dyn Helper,
) -> Option<Lines> {
    let mapped = elf::Parts::<E>::parse(candidates.last()?)?;
    let mut parts = candidates
        .iter()
        .filter_map(|file| fitting::<E>(file, build_id));
    Some(match parts.find(elf::Parts::has_lines) {
        Some(parts) => Lines::load(&parts, &mapped, helper),
        None => Lines::none(&mapped),
    })
}

/// A file's parts, if it can be the one with this build ID.
fn fitting<'d, E: FileHeader<Endian = Endianness>>(
    file: &'d Owner,
    build_id: &[u8],
) -> Option<elf::Parts<'d, E>> {
    let fits = |parts: &elf::Parts<'_, E>| {
        build_id.is_empty() || parts.build_id().is_some_and(|id| same(id, build_id))
    };
    elf::Parts::<E>::parse(file).filter(fits)
}

/// Loads the symbols of the first candidate that has a symbol table. They are converted to file
/// offsets with the first candidate that can have been mapped. If none has a symbol table, the
/// `.gnu_debugdata` of the last one, the mapped file, is used.
fn load<E: FileHeader<Endian = Endianness>>(
    candidates: &[Owner],
    build_id: &[u8],
    helper: &'static dyn Helper,
) -> Option<Tree> {
    let parts = candidates.iter().filter_map(|file| fitting(file, build_id));
    let parts: Vec<elf::Parts<'_, E>> = parts.collect();
    let symbols = parts.iter().find(|parts| parts.has_symtab());
    let runtime = parts.iter().find(|parts| parts.is_runtime());

    if let Some(symbols) = symbols {
        let runtime = runtime.unwrap_or(symbols);
        return Some(elf::load(symbols, runtime, false, helper));
    }

    // Only the mapped file itself, the last candidate, is asked for it.
    // MiniDebugInfo: a compressed ELF file with symbols of functions, inside the stripped one.
    let file = elf::Parts::<E>::parse(candidates.last()?);
    let unpacked = file.and_then(|file| file.debug_data(helper));
    let inner = unpacked.as_ref().and_then(|file| fitting(file, build_id));
    let inner = inner.filter(elf::Parts::has_symtab);

    let symbols = inner.as_ref().or(runtime)?;
    Some(elf::load(
        symbols,
        runtime.unwrap_or(symbols),
        inner.is_some(),
        helper,
    ))
}

/// Whether two build IDs are equal. perf pads short ones with zeros.
fn same(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let (start, rest) = long.split_at(short.len());
    start == short && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
