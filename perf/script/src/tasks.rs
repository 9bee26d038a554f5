//! Tasks as perf tracks them: names, and mappings of processes and of the kernel.
//!
//! Follows perf's own rules (`tools/perf/util/machine.c`, `thread.c`, `maps.c`), not the kernel's:
//! an exec does not clear the mappings, new mappings replace old ones where they overlap, and an
//! exited task is forgotten at once, so that its later samples have no name and no mappings.

use crate::symbols::Symbols;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_perf_data::{
    Comm, KernelPart, Ksymbol, Mmap, MmapIdentity, Object, PerfFile, Task, is_core, misc,
    module_name,
};

/// Maximum number of mappings copied after forks. Beyond it, a process that shares its mappings
/// loses them when it maps something. A child that maps nothing costs nothing: a million forks of a
/// process with a thousand mappings copy none.
const COPIED_MAX: usize = 4 << 20;
/// `PROT_EXEC`.
const PROT_EXEC: u32 = 4;
/// `MAP_HUGETLB`.
const MAP_HUGETLB: u32 = 0x40000;
/// Bit of a fork record's misc word: the recorder synthesized the record for a task that was
/// already running (`PERF_RECORD_MISC_FORK_EXEC`).
const MISC_FORK_EXEC: u16 = 1 << 13;

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Added to an address of the process, gives the address in the object.
    pub bias: u64,
    /// The object's number ([`Tasks::object`]).
    pub object: u32,
}

impl Map {
    /// Whether it contains `address`.
    #[inline]
    pub(super) fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// The mappings of a process, ascending, without overlaps.
pub(super) type Maps = Arc<Vec<Map>>;

/// A thread.
#[derive(Clone, Debug)]
struct Thread {
    pid: i32,
    /// Index into `spaces`.
    space: usize,
    comm: Option<Arc<[u8]>>,
}

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Kernel,
    Module,
    File,
    Anonymous,
    /// Generated code, with its length in bytes.
    Generated(u64),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ObjectKey {
    kind: Kind,
    path: Vec<u8>,
    build_id: Vec<u8>,
}

/// All tasks at one point of a recording.
#[derive(Debug, Default)]
pub struct Tasks {
    /// By thread id.
    threads: hashbrown::HashMap<i32, Thread>,
    spaces: Vec<Maps>,
    kernel: Vec<Map>,
    /// Address range of the symbols of the kernel itself; set when its first address is looked up.
    kernel_symbols: OnceCell<Option<Range<u64>>>,
    objects: Vec<ObjectKey>,
    object_ids: HashMap<ObjectKey, u32>,
    /// Build ids in the file, by path.
    build_ids: HashMap<Vec<u8>, Vec<u8>>,
    /// Those of the kernel's modules by name, and of the kernel itself by an empty name.
    kernel_build_ids: HashMap<Vec<u8>, Vec<u8>>,
    copied: usize,
}

impl Tasks {
    /// Only the idle task, and the build ids of `file`.
    pub fn new(file: &PerfFile<'_>) -> Self {
        let ids = file.build_ids().filter_map(Result::ok);
        let build_ids = ids
            .filter(|id| id.pid == -1)
            .map(|id| (id.path.to_vec(), id.id.to_vec()));

        // The key is the module's name, and empty for the kernel itself.
        let of_kernel = file.build_ids().filter_map(Result::ok);
        let of_kernel = of_kernel.filter(|id| id.pid == -1 && id.kernel).map(|id| {
            let name = if is_core(id.path) {
                Vec::new()
            } else {
                module_name(id.path)
            };
            (name, id.id.to_vec())
        });

        let mut tasks = Self {
            build_ids: build_ids.collect(),
            kernel_build_ids: of_kernel.collect(),
            ..Self::default()
        };

        // The idle task has no record of its own.
        tasks.comm(&Comm {
            pid: 0,
            tid: 0,
            exec: false,
            name: b"swapper",
        });
        tasks
    }

    /// The object with this number.
    pub fn object(&self, number: u32) -> Option<Object<'_>> {
        let key = self.objects.get(number as usize)?;
        let (path, build_id) = (&key.path[..], &key.build_id[..]);
        Some(match key.kind {
            Kind::Kernel => Object::Kernel(KernelPart::Core),
            Kind::Module => Object::Kernel(KernelPart::Module(path)),
            Kind::File => Object::File { path, build_id },
            Kind::Anonymous => Object::Anonymous { path },
            Kind::Generated(length) => Object::Generated { name: path, length },
        })
    }

    /// The build ID of the kernel or of a module, if the object with this number is one; empty if
    /// not known.
    pub fn kernel_build_id(&self, number: u32) -> &[u8] {
        let object = self.objects.get(number as usize);
        let of_kernel = object.filter(|key| matches!(key.kind, Kind::Kernel | Kind::Module));
        of_kernel.map_or(&[], |key| &key.build_id)
    }

    /// The name that perf prints in brackets for the object with this number.
    pub fn object_name(&self, number: u32) -> Vec<u8> {
        match self.object(number) {
            None => b"[unknown]".to_vec(),
            Some(Object::Kernel(KernelPart::Core)) => b"[kernel.kallsyms]".to_vec(),
            Some(Object::Kernel(KernelPart::Module(name))) => [b"[", name, b"]"].concat(),
            Some(Object::File { path, .. } | Object::Anonymous { path }) => path.to_vec(),
            Some(Object::Generated { name, .. }) => name.to_vec(),
        }
    }

    fn object_number(&mut self, kind: Kind, path: &[u8], build_id: &[u8]) -> u32 {
        let key = ObjectKey {
            kind,
            path: path.to_vec(),
            build_id: build_id.to_vec(),
        };
        let objects = &mut self.objects;
        *self.object_ids.entry(key).or_insert_with_key(|key| {
            objects.push(key.clone());
            (objects.len() - 1) as u32
        })
    }

    /// The name of a thread; `None` if unknown.
    pub fn name(&self, tid: i32) -> Option<&[u8]> {
        self.threads.get(&tid)?.comm.as_deref()
    }

    /// The process id of a thread; -1 if unknown.
    pub(super) fn pid(&self, tid: i32) -> i32 {
        self.threads.get(&tid).map_or(-1, |thread| thread.pid)
    }

    /// The kernel mapping that contains `address`. The recorded mapping of the kernel itself ends
    /// after its code; once perf has loaded its symbols, the mapping reaches from the first symbol
    /// to the end of the last (`map__fixup_start`, `map__fixup_end` in `tools/perf/util/map.c`),
    /// and so includes `.init.text`.
    pub fn kernel_map(&self, address: u64, symbols: &mut dyn Symbols) -> Option<Map> {
        let found = find(&self.kernel, address);
        let is_core = |map: &Map| {
            let object = self.objects.get(map.object as usize);
            object.is_some_and(|object| object.kind == Kind::Kernel)
        };
        match (found, self.kernel_symbols.get()) {
            (Some(map), None) if is_core(map) => {
                self.kernel_symbols.get_or_init(|| symbols.kernel_range());
                Some(*map)
            }
            (Some(map), Some(Some(range))) if is_core(map) => {
                Some(*map).filter(|_| range.contains(&address))
            }
            (None, Some(Some(range))) if range.contains(&address) => {
                self.kernel.iter().find(|map| is_core(map)).copied()
            }
            (found, _) => found.copied(),
        }
    }

    /// The mappings of a thread's process.
    pub fn maps(&self, tid: i32) -> &[Map] {
        let thread = self.threads.get(&tid);
        thread
            .and_then(|thread| self.spaces.get(thread.space))
            .map_or(&[], |maps| maps)
    }

    /// A shared snapshot of the mappings of a thread's process.
    pub(super) fn shared_maps(&self, tid: i32) -> Maps {
        let thread = self.threads.get(&tid);
        thread
            .and_then(|thread| self.spaces.get(thread.space).cloned())
            .unwrap_or_default()
    }

    fn new_space(&mut self) -> usize {
        self.spaces.push(Maps::default());
        self.spaces.len() - 1
    }

    /// Creates the thread if it is unknown. Threads of a process share their leader's mappings.
    pub fn thread(&mut self, pid: i32, tid: i32) {
        match self.threads.get(&tid) {
            Some(known) if known.pid == pid || pid == -1 => return,
            Some(known) if known.pid != -1 => return,
            _ => {}
        }
        let space = match self.threads.get(&pid) {
            Some(leader) if pid != tid => leader.space,
            _ => {
                let space = self.new_space();
                if pid != tid && pid != -1 {
                    let leader = Thread {
                        pid,
                        space,
                        comm: None,
                    };
                    self.threads.insert(pid, leader);
                }
                space
            }
        };
        let comm = self.threads.remove(&tid).and_then(|old| old.comm);
        self.threads.insert(tid, Thread { pid, space, comm });
    }

    /// Handles a new name of a thread.
    pub fn comm(&mut self, comm: &Comm<'_>) {
        self.thread(comm.pid, comm.tid);
        if let Some(thread) = self.threads.get_mut(&comm.tid) {
            thread.comm = Some(comm.name.into());
        }
    }

    /// Handles a fork.
    pub fn fork(&mut self, task: &Task, misc: u16) {
        let erroneous = |known: &Thread| known.pid != task.ppid;
        if self.threads.get(&task.ptid).is_some_and(erroneous) {
            self.threads.remove(&task.ptid);
        }
        self.thread(task.ppid, task.ptid);
        if task.tid != task.ptid {
            self.threads.remove(&task.tid);
        }
        self.thread(task.pid, task.tid);
        let Some(parent) = self.threads.get(&task.ptid).cloned() else {
            return;
        };
        let Some(thread) = self.threads.get_mut(&task.tid) else {
            return;
        };
        if parent.comm.is_some() {
            thread.comm = parent.comm;
        }
        if parent.pid != thread.pid && misc & MISC_FORK_EXEC == 0 {
            let space = thread.space;
            self.spaces[space] = self.spaces[parent.space].clone();
        }
    }

    /// Handles the exit of a task.
    pub fn exit(&mut self, task: &Task) {
        self.threads.remove(&task.tid);
    }

    /// Handles a new mapping.
    pub fn mmap(&mut self, mmap: &Mmap<'_>, misc_word: u16) {
        // An empty mapping covers nothing.
        let (start, end) = (mmap.address, mmap.address.saturating_add(mmap.length));
        if start >= end {
            return;
        }

        let mode = misc_word & misc::CPUMODE_MASK;
        if mode == misc::CPUMODE_KERNEL {
            return self.kernel_mmap(mmap.path, start, end);
        }

        // Mode 0 is unknown, which perf takes for user space.
        if !matches!(mode, misc::CPUMODE_USER | 0) {
            return;
        }

        let (object, bias) = self.user_object(mmap, start);
        self.thread(mmap.pid, mmap.tid);
        let Some(thread) = self.threads.get(&mmap.tid) else {
            return;
        };

        // Shared since a fork, or with samples that wait for their frames: whoever maps makes a
        // copy, and the size of all copies is bounded.
        let maps = &mut self.spaces[thread.space];
        if Arc::strong_count(maps) > 1 {
            self.copied += maps.len();
            if self.copied > COPIED_MAX {
                *maps = Maps::default();
            }
        }

        let map = Map {
            start,
            end,
            bias,
            object,
        };
        insert(Arc::make_mut(maps), map);
    }

    fn kernel_mmap(&mut self, path: &[u8], start: u64, end: u64) {
        let object = if is_core(path) {
            let build_id = self.kernel_build_ids.get(&b""[..]).cloned();
            self.object_number(Kind::Kernel, b"", &build_id.unwrap_or_default())
        } else {
            let name = module_name(path);
            let build_id = self.kernel_build_ids.get(&name).cloned();
            self.object_number(Kind::Module, &name, &build_id.unwrap_or_default())
        };
        let map = Map {
            start,
            end,
            bias: 0,
            object,
        };
        insert(&mut self.kernel, map);
    }

    /// The object number and the bias of a process's mapping.
    fn user_object(&mut self, mmap: &Mmap<'_>, start: u64) -> (u32, u64) {
        let path = mmap.path;
        let is_anonymous = path.starts_with(b"//anon")
            || path.starts_with(b"/dev/zero")
            || path.starts_with(b"/anon_hugepage")
            || mmap.flags & MAP_HUGETLB != 0;

        let without_file =
            path.starts_with(b"[stack") || path.starts_with(b"/SYSV") || path == b"[heap]";

        // Code without a file is generated: perf looks for the map that a JIT compiler writes.
        if is_anonymous || without_file {
            let generated = format!("/tmp/perf-{}.map", mmap.pid).into_bytes();
            let executable = mmap.protection & PROT_EXEC != 0;
            let path = if executable { &generated } else { path };
            return (self.object_number(Kind::Anonymous, path, b""), 0);
        }

        let build_id = match mmap.identity {
            MmapIdentity::BuildId(id) => id,
            _ => &self.build_ids.get(path).cloned().unwrap_or_default(),
        };

        // The vDSO has no file, so a file offset means nothing.
        let object = self.object_number(Kind::File, path, build_id);
        let offset = if path == b"[vdso]" {
            0
        } else {
            mmap.file_offset
        };

        (object, offset.wrapping_sub(start))
    }

    /// Handles kernel code that was added or removed.
    pub fn ksymbol(&mut self, symbol: &Ksymbol<'_>) {
        let (start, end) = (
            symbol.address,
            symbol.address.saturating_add(symbol.length.into()),
        );
        if symbol.flags & 1 != 0 {
            self.kernel.retain(|map| map.start != start);
        } else if start < end && find(&self.kernel, start).is_none() {
            let kind = Kind::Generated(symbol.length.into());
            let object = self.object_number(kind, symbol.name, b"");
            let map = Map {
                start,
                end,
                bias: start.wrapping_neg(),
                object,
            };
            insert(&mut self.kernel, map);
        }
    }
}

/// The mapping that contains `address`. `maps` must be ascending.
pub(super) fn find(maps: &[Map], address: u64) -> Option<&Map> {
    let after = maps.partition_point(|map| map.start <= address);
    let map = &maps[after.checked_sub(1)?];
    (address < map.end).then_some(map)
}

/// Inserts a mapping; it replaces the parts of others that it covers.
fn insert(maps: &mut Vec<Map>, new: Map) {
    let first = maps.partition_point(|map| map.end <= new.start);
    let last = maps.partition_point(|map| map.start < new.end);
    let mut parts = Vec::with_capacity(3);
    if let Some(map) = maps[first..last]
        .first()
        .filter(|map| map.start < new.start)
    {
        parts.push(Map {
            end: new.start,
            ..*map
        });
    }
    parts.push(new);
    if let Some(map) = maps[first..last].last().filter(|map| map.end > new.end) {
        parts.push(Map {
            start: new.end,
            ..*map
        });
    }
    maps.splice(first..last, parts);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, object: u32) -> Map {
        Map {
            start,
            end,
            bias: 0,
            object,
        }
    }

    #[test]
    fn a_new_mapping_cuts_a_hole() {
        let mut maps = Vec::new();
        insert(&mut maps, map(10, 50, 0));
        insert(&mut maps, map(60, 70, 1));
        insert(&mut maps, map(20, 30, 2));
        insert(&mut maps, map(45, 65, 3));
        let expected = [
            (10, 20, 0),
            (20, 30, 2),
            (30, 45, 0),
            (45, 65, 3),
            (65, 70, 1),
        ];
        assert_eq!(maps, expected.map(|(a, b, c)| map(a, b, c)));
        assert_eq!(find(&maps, 64).unwrap().object, 3);
        assert_eq!(find(&maps, 9), None);
        assert_eq!(find(&maps, 70), None);
    }

    #[test]
    fn names_of_modules_have_no_hyphen() {
        assert_eq!(module_name(b"/lib/modules/6/nf-tables.ko.xz"), b"nf_tables");
        assert_eq!(module_name(b"[nf_tables]"), b"nf_tables");
    }

    #[test]
    fn a_child_has_its_parents_name_and_mappings_and_goes_its_own_way() {
        let bytes = include_bytes!("../corpus/perfdata/dwarf.data");
        let mut tasks = Tasks::new(&PerfFile::parse(bytes).unwrap());
        let name = |pid, tid, name| Comm {
            pid,
            tid,
            exec: false,
            name,
        };

        tasks.comm(&name(10, 10, b"parent"));

        // The same addresses in each process.
        let file = |pid, address, path| Mmap {
            pid,
            tid: pid,
            address,
            length: 0x1000,
            file_offset: 0,
            identity: MmapIdentity::Path,
            protection: 0,
            flags: 0,
            path,
        };
        tasks.mmap(&file(10, 0x1000, b"/bin/a"), misc::CPUMODE_USER);

        let made = |pid, tid| Task {
            pid,
            ppid: 10,
            tid,
            ptid: 10,
            time: 0,
        };
        // A process with its own mappings, and a thread that shares them.
        tasks.fork(&made(11, 11), 0);
        tasks.fork(&made(10, 12), 0);

        // A name is inherited, and so are the mappings until one of both changes them.
        assert_eq!(tasks.name(11), Some(&b"parent"[..]));
        tasks.mmap(&file(11, 0x1000, b"/bin/b"), misc::CPUMODE_USER);

        let path = |tasks: &Tasks, tid| {
            let map = find(tasks.maps(tid), 0x1234)?;
            Some(tasks.object_name(map.object))
        };
        assert_eq!(path(&tasks, 10), Some(b"/bin/a".to_vec()));
        assert_eq!(path(&tasks, 11), Some(b"/bin/b".to_vec()));
        assert_eq!(path(&tasks, 12), Some(b"/bin/a".to_vec()));

        // After its end nothing is known of a task.
        tasks.exit(&made(11, 11));
        assert_eq!((tasks.name(11), path(&tasks, 11)), (None, None));
    }
}
