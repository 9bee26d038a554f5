//! Generated code: executable memory without a file, the unwind tables that the program registers
//! for it, and the names of its functions.
//!
//! A program registers tables by calling a function that does nothing else: `__register_frame` and
//! its relatives (libgcc `unwind-dw2-fde.c`, LLVM's `UnwindLevel1-gcc-ext.c`), or
//! `__jit_debug_register_code` (gdb's manual, "JIT Compilation Interface"). The executor says when
//! such a function is entered ([`Jit::is_hook`], [`Jit::entered`]). A third way is a jitdump file
//! ([`Jit::called`] sees what is written to it, and once one is open, calls of `fwrite` count as
//! entered functions). Tables count from then on until they are deregistered, their code is
//! unmapped or, in a jitdump file, replaced.
//!
//! Names come from gdb's images and, at the end of the run, from `perf-PID.map` and jitdump files.

mod dump;
mod frames;
mod hooks;

use dump::Dumps;
use frames::Frames;
use hashbrown::HashMap;
use hooks::Hook;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_recordings::files::perf_map;
use unwind_sim_recordings::gdb_jit::{FILE_SIZE_MAX, symbol_file};
use unwind_sim_recordings::jitdump::{self, Dump, Function};
use unwind_sim_unwind::image::{self, Bytes, Image, Mapping, SectionKind, Symbol};
use unwind_sim_unwind::kernel::Generated;

/// The name of an image of generated code without a table.
pub(crate) const BARE: &str = "[jit]";
/// The name of a mapping whose image is a registered table.
pub const REGISTERED: &str = "[jit]";
/// The maximum number of tables that are registered at the same time in a process; the oldest are
/// forgotten.
const TABLES_MAX: usize = 1 << 16;

/// What the generated code of a process has registered.
#[derive(Clone, Debug, Default)]
pub struct Jit {
    hooks: HashMap<u64, Hook>,
    /// Functions that are hooks once a jitdump file is open.
    writers: BTreeSet<u64>,
    tables: Vec<Table>,
    /// The jitdump files that are being written.
    dumps: Dumps,
    /// Has the program opened or mapped a jitdump file?
    writes_dump: bool,
    /// The paths of jitdump files.
    dump_paths: BTreeSet<Vec<u8>>,
    symbols: Vec<Symbol>,
}

/// A registered table.
#[derive(Clone, Debug)]
struct Table {
    /// What the program names it by.
    key: TableKey,
    /// The code that it describes, as far as it is still mapped.
    code: Vec<Range<u64>>,
    /// AVMA - SVMA: 0 unless a jitdump file says that the code was moved.
    bias: u64,
    image: Arc<Image>,
}

/// What identifies a registered table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TableKey {
    /// The argument of `__register_frame`.
    Frames(u64),
    /// The address of a `struct jit_code_entry`.
    Entry(u64),
    /// A function of a jitdump file.
    Dump,
}

/// Is this a mapping of generated code? Either it has no file, or a program made the file in
/// memory, or a kernel has generated it.
pub fn is_generated(mapping: &Mapping) -> bool {
    let image = mapping.image.as_ref();
    mapping.name == REGISTERED
        || has_no_file(&mapping.name) && image.is_none_or(|image| image.name() == BARE)
        || image.is_none() && Generated::from_name(&mapping.name).is_some()
}

/// Is this the name of memory without a file, or with one that has no path?
pub fn has_no_file(name: &str) -> bool {
    name.is_empty()
        || name.starts_with("/memfd:")
        || name.starts_with("/dev/zero")
        || name.starts_with("/dev/shm/")
}

impl Jit {
    /// Executable memory was mapped: looks for functions that register tables.
    pub fn mapped(&mut self, mapping: &Mapping) {
        if let Some(image) = &mapping.image {
            self.hooks.extend(hooks::of(image, mapping));
            self.writers.extend(hooks::writers(image, mapping));
            self.watch_writers();
        }
    }

    /// Calls of `fwrite` are looked at from when a jitdump file is open.
    fn watch_writers(&mut self) {
        if self.writes_dump {
            let writers = self.writers.iter();
            self.hooks
                .extend(writers.map(|address| (*address, Hook::Write)));
        }
    }

    /// A file was mapped. A jitdump file is mapped executable, so that perf records its path.
    pub fn file_mapped(&mut self, path: &[u8]) {
        if !jitdump::is_name(&String::from_utf8_lossy(path)) {
            return;
        }
        if path.starts_with(b"/") {
            self.dump_paths.insert(path.to_vec());
        }
        self.writes_dump = true;
        self.watch_writers();
    }

    /// Memory was unmapped, or other memory mapped over it.
    pub fn unmapped(&mut self, range: &Range<u64>) {
        self.hooks.retain(|address, _| !range.contains(address));
        self.writers.retain(|address| !range.contains(address));
        self.cut(range, |_| true);
    }

    /// What is in this range is no longer what the tables `of` these kinds describe.
    fn cut(&mut self, range: &Range<u64>, of: impl Fn(TableKey) -> bool) {
        for table in self.tables.iter_mut().filter(|table| of(table.key)) {
            let parts = table.code.drain(..).flat_map(|code| {
                let left = code.start..code.end.min(range.start);
                let right = code.start.max(range.end)..code.end;
                [left, right].into_iter().filter(|part| !part.is_empty())
            });
            table.code = parts.collect();
        }
        self.tables.retain(|table| !table.code.is_empty());
    }

    /// Can the program say anything of its generated code? It has a function that registers tables,
    /// or has mapped a jitdump.
    pub fn can_tell(&self) -> bool {
        !self.hooks.is_empty() || !self.dump_paths.is_empty()
    }

    /// Is a function at this address that registers or deregisters tables?
    #[inline]
    pub fn is_hook(&self, address: u64) -> bool {
        !self.hooks.is_empty() && self.hooks.contains_key(&address)
    }

    /// Whether such a function is there, or may come later. For callers that look at code only
    /// once.
    #[inline]
    pub fn may_be_hook(&self, address: u64) -> bool {
        self.is_hook(address) || self.writers.contains(&address)
    }

    /// The function at `address` was entered, with `args` as its first arguments (rdi, rsi, rdx,
    /// rcx). Returns the code whose tables have changed.
    pub fn entered(
        &mut self,
        address: u64,
        args: [u64; 4],
        memory: &AddressSpace,
    ) -> Vec<Range<u64>> {
        let begin = args[0];
        match self.hooks.get(&address).copied() {
            None => Vec::new(),
            Some(Hook::Frames { single, bases }) => {
                // `__register_frame_info_bases(begin, object, text, data)` of libgcc.
                let data = bases.then_some(args[3]);
                let read = frames::read(memory, begin, single, data);
                self.register(TableKey::Frames(begin), read, memory)
            }
            Some(Hook::Tables) => {
                // `__register_frame_info_table(begin, object)`: a list of addresses of tables, up
                // to a zero.
                let parts = frames::list(memory, begin);
                let parts = parts.into_iter();
                let read = |part| Some((part, frames::read(memory, part, false, None)?));
                let read: Vec<(u64, Frames)> = parts.filter_map(read).collect();
                let mut changed = Vec::new();
                for (part, frames) in read {
                    changed.extend(self.register(TableKey::Frames(part), Some(frames), memory));
                }
                changed
            }
            Some(Hook::Deregister) => {
                let mut changed = self.drop_table(TableKey::Frames(begin));
                // It may have been registered as a list.
                if changed.is_empty() {
                    for part in frames::list(memory, begin) {
                        changed.extend(self.drop_table(TableKey::Frames(part)));
                    }
                }
                changed
            }
            // gdb's interface has one function without arguments; what is new stands in the
            // descriptor (`__jit_debug_register_code`).
            Some(Hook::Gdb { descriptor }) => self.gdb(descriptor, memory),
            Some(Hook::Write) => {
                let functions = self.dumps.streamed(args, memory);
                self.written(&functions)
            }
        }
    }

    /// gdb's interface: the descriptor says which entry was added or removed.
    fn gdb(&mut self, descriptor: u64, memory: &AddressSpace) -> Vec<Range<u64>> {
        /// `JIT_REGISTER_FN` and `JIT_UNREGISTER_FN` of `jit_actions_t`.
        const REGISTER: u32 = 1;
        const UNREGISTER: u32 = 2;
        // struct jit_descriptor: version, action_flag, relevant_entry, first_entry.
        let mut action = [0; 4];
        let read = memory.read(descriptor.wrapping_add(4), &mut action);
        let entry = memory.read_u64(descriptor.wrapping_add(8));
        let (Ok(()), Ok(entry)) = (read, entry) else {
            return Vec::new();
        };

        match u32::from_le_bytes(action) {
            UNREGISTER => self.drop_table(TableKey::Entry(entry)),
            REGISTER => {
                // struct jit_code_entry: next_entry, prev_entry, symfile_addr, symfile_size.
                let word = |offset: u64| memory.read_u64(entry.wrapping_add(offset)).ok();
                let (Some(address), Some(size)) = (word(16), word(24)) else {
                    return Vec::new();
                };
                // The size comes from the program.
                let mut bytes = if size <= FILE_SIZE_MAX {
                    vec![0; size as usize]
                } else {
                    return Vec::new();
                };
                let read = memory.read(address, &mut bytes);
                let Some(file) = read.ok().and_then(|()| symbol_file(&bytes)) else {
                    return Vec::new();
                };
                // A file without a table still has names.
                self.symbols.extend(file.symbols.iter().cloned());
                let frames = file.table.map(|table| Frames {
                    kind: table.kind,
                    symbols: file.symbols,
                    ..Frames::eh_frame(table.address, table.data.to_vec())
                });
                self.register(TableKey::Entry(entry), frames, memory)
            }
            _ => Vec::new(),
        }
    }

    /// A system call was answered: what was written to a jitdump file may register tables. Returns
    /// the code whose tables have changed.
    pub fn called(&mut self, call: &SystemCall, memory: &AddressSpace) -> Vec<Range<u64>> {
        if let Some(path) = dump::opened(call, memory) {
            self.file_mapped(&path);
        }
        let functions = self.dumps.called(call, memory);
        self.written(&functions)
    }

    /// Functions were written to a jitdump file. Returns the code whose tables have changed.
    fn written(&mut self, functions: &[Function]) -> Vec<Range<u64>> {
        let mut changed = Vec::new();
        for function in functions {
            let name = format!("[jit {:#x}]", function.address);
            let Some(entry) = function.entry(&name) else {
                continue;
            };
            // It replaces what was there.
            self.cut(&entry.range, |key| key == TableKey::Dump);
            changed.push(entry.range.clone());
            if entry.image.section(SectionKind::EhFrame).is_some() {
                self.add(Table {
                    key: TableKey::Dump,
                    code: vec![entry.range],
                    bias: entry.bias,
                    image: entry.image,
                });
            }
        }
        changed
    }

    fn register(
        &mut self,
        key: TableKey,
        frames: Option<Frames>,
        memory: &AddressSpace,
    ) -> Vec<Range<u64>> {
        let mut changed = self.drop_table(key);
        let Some((frames, code)) = frames.and_then(|f| f.code().map(|code| (f, code))) else {
            return changed;
        };
        changed.extend(code.iter().cloned());
        let image = Arc::new(frames.image(&code, memory));
        self.add(Table {
            key,
            code,
            bias: 0,
            image,
        });
        changed
    }

    fn add(&mut self, table: Table) {
        if self.tables.len() >= TABLES_MAX {
            self.tables.remove(0);
        }
        self.tables.push(table);
    }

    fn drop_table(&mut self, key: TableKey) -> Vec<Range<u64>> {
        match self.tables.iter().position(|table| table.key == key) {
            Some(at) => self.tables.remove(at).code,
            None => Vec::new(),
        }
    }

    /// Has the process tables for code in `range`?
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let touches = |code: &Range<u64>| code.start < range.end && range.start < code.end;
        self.tables.iter().any(|t| t.code.iter().any(touches))
    }

    /// The mappings of `range`, as far as it is generated code in `space`: what the registered
    /// tables cover, and the rest without an image. A table that was registered later replaces
    /// earlier ones.
    pub fn layout(&self, space: &image::AddressSpace, range: &Range<u64>) -> Vec<Mapping> {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start)..a.end.min(b.end);
        let generated = space.mappings().iter().filter(|m| is_generated(m));
        let parts = generated.map(|m| (meet(&m.range, range), m));
        let mut out = Vec::new();

        // First all of a part without an image, then the tables over it.
        for (part, mapping) in parts.filter(|(part, _)| !part.is_empty()) {
            out.push(Mapping {
                range: part.clone(),
                bias: 0,
                image: None,
                name: match mapping.name.as_str() {
                    REGISTERED => String::new(),
                    name => name.to_owned(),
                },
            });

            // In the order of registration: later ones are mapped over earlier ones.
            let tables = self.tables.iter();
            let codes = tables.flat_map(|t| t.code.iter().map(move |code| (code, t)));
            for (code, table) in codes {
                let range = meet(code, &part);
                if !range.is_empty() {
                    out.push(Mapping {
                        range,
                        bias: table.bias,
                        image: Some(table.image.clone()),
                        name: REGISTERED.to_owned(),
                    });
                }
            }
        }
        out
    }

    /// The functions with an unwind table in the jitdump files as they are now, in the order of the
    /// files. `file` reads a file as the process sees it.
    pub fn written_at_last(
        &self,
        file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Vec<jitdump::Entry> {
        let mut entries = Vec::new();
        for path in &self.dump_paths {
            let dump = file(path).map(|bytes| Dump::parse(Bytes::from_vec(bytes)));
            let Some(Ok(dump)) = dump else {
                continue;
            };
            let of = dump.functions.iter().filter_map(|function| {
                let name = format!("[jit {:#x}]", function.address);
                function.entry(&name)
            });
            entries.extend(of.filter(|e| e.image.section(SectionKind::EhFrame).is_some()));
        }
        entries
    }

    /// The names of all generated functions of process `pid`, as far as the program told them.
    /// `file` reads a file as the process sees it. Of several names of an address the last one
    /// counts.
    pub fn names(&self, pid: u32, file: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<Symbol> {
        let mut symbols = self.symbols.clone();
        for path in &self.dump_paths {
            let dump = file(path).map(|bytes| Dump::parse(Bytes::from_vec(bytes)));
            if let Some(Ok(dump)) = dump {
                symbols.extend(dump.functions.iter().map(Function::symbol));
            }
        }
        let path = format!("/tmp/perf-{pid}.map");
        if let Some(text) = file(path.as_bytes()) {
            symbols.extend(perf_map(&text[..]));
        }
        // For one address the last one counts.
        symbols.reverse();
        symbols.sort_by_key(|s| s.address);
        symbols.dedup_by_key(|s| s.address);
        symbols
    }
}
