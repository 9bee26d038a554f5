//! The code of the kernel at one point of a perf.data: the kernel itself, its modules, and what it
//! generated.

use crate::bodies::{Ksymbol, Mmap};
use crate::features::BuildId;
use crate::object::{KernelPart, Object};
use std::ops::Range;

/// The name that perf gives the kernel itself.
const CORE: &[u8] = b"[kernel.kallsyms]";
/// Maximum number of mappings kept. No kernel has as many; further ones are ignored.
const MAPPINGS_MAX: usize = 1 << 16;

/// A kind of kernel code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Core,
    Module,
    /// A BPF program, a trampoline.
    Generated,
}

/// A range of kernel code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelMapping {
    /// Its addresses.
    pub range: Range<u64>,
    kind: Kind,
    /// The name of a module without brackets, or of what was generated.
    name: Vec<u8>,
    /// Its build ID; empty if not known.
    pub build_id: Vec<u8>,
}

impl KernelMapping {
    /// The object, and the address of `address` in it.
    pub fn place(&self, address: u64) -> (Object<'_>, u64) {
        let name = &self.name[..];
        match self.kind {
            Kind::Core => (Object::Kernel(KernelPart::Core), address),
            Kind::Module => (Object::Kernel(KernelPart::Module(name)), address),
            Kind::Generated => {
                let length = self.range.end - self.range.start;
                let object = Object::Generated { name, length };
                (object, address.wrapping_sub(self.range.start))
            }
        }
    }

    /// The name that perf shows.
    pub fn shown(&self) -> Vec<u8> {
        match self.kind {
            Kind::Core => CORE.to_vec(),
            Kind::Module => [b"[", &self.name[..], b"]"].concat(),
            Kind::Generated => self.name.clone(),
        }
    }
}

/// The code of the kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelCode {
    /// Ascending, without overlaps.
    mappings: Vec<KernelMapping>,
    /// The build IDs of the kernel and its modules, by name without brackets.
    build_ids: Vec<(Vec<u8>, Vec<u8>)>,
}

impl KernelCode {
    /// Handles a build ID of the recording's table. Those of files are ignored.
    pub fn build_id(&mut self, id: &BuildId<'_>) {
        if id.kernel && self.build_ids.len() < MAPPINGS_MAX {
            let name = if is_core(id.path) {
                CORE.to_vec()
            } else {
                module_name(id.path)
            };
            self.build_ids.push((name, id.id.to_vec()));
        }
    }

    /// The build ID of the kernel itself, or of the module with this name; empty if not known.
    fn known_build_id(&self, name: &[u8]) -> Vec<u8> {
        let found = self.build_ids.iter().find(|(known, _)| known == name);
        found.map(|(_, id)| id.clone()).unwrap_or_default()
    }

    /// The build ID of the kernel itself, if recorded.
    pub fn core_build_id(&self) -> Option<Vec<u8>> {
        Some(self.known_build_id(CORE)).filter(|id| !id.is_empty())
    }

    /// Handles a mapping of the kernel (`PERF_RECORD_MISC_KERNEL`).
    pub fn mmap(&mut self, mmap: &Mmap<'_>) {
        let range = mmap.address..mmap.address.saturating_add(mmap.length);
        let (kind, name) = if is_core(mmap.path) {
            (Kind::Core, Vec::new())
        } else {
            (Kind::Module, module_name(mmap.path))
        };
        let build_id = match kind {
            Kind::Core => self.known_build_id(CORE),
            _ => self.known_build_id(&name),
        };
        self.insert(KernelMapping {
            range,
            kind,
            name,
            build_id,
        });
    }

    /// Handles kernel code that was added or removed.
    pub fn ksymbol(&mut self, symbol: &Ksymbol<'_>) {
        let start = symbol.address;
        let range = start..start.saturating_add(symbol.length.into());
        if symbol.flags & KSYMBOL_UNREGISTER != 0 {
            self.mappings.retain(|map| map.range.start != start);
        } else if self.at(start).is_none() {
            self.insert(KernelMapping {
                range,
                kind: Kind::Generated,
                name: symbol.name.to_vec(),
                build_id: Vec::new(),
            });
        }
    }

    /// Adds a mapping, after unmapping what it overlaps.
    fn insert(&mut self, new: KernelMapping) {
        // Bounded, since every record of the file may map something.
        if new.range.is_empty() || self.mappings.len() >= MAPPINGS_MAX {
            return;
        }

        let (start, end) = (new.range.start, new.range.end);
        // The mappings are sorted and disjoint, so those that overlap are neighbours.
        let first = self.mappings.partition_point(|map| map.range.end <= start);
        let last = self.mappings.partition_point(|map| map.range.start < end);

        // An old mapping loses what the new one covers, and may remain on both sides of it.
        let mut parts = Vec::with_capacity(3);
        for map in &self.mappings[first..last] {
            let before = map.range.start..start.min(map.range.end);
            let behind = end.max(map.range.start)..map.range.end;
            parts.extend(
                [before, behind]
                    .into_iter()
                    .filter(|r| !r.is_empty())
                    .map(|range| KernelMapping {
                        range,
                        ..map.clone()
                    }),
            );
        }

        // The order is that of addresses, on which the binary search depends.
        parts.push(new);
        parts.sort_by_key(|map| map.range.start);
        self.mappings.splice(first..last, parts);
    }

    fn at(&self, address: u64) -> Option<&KernelMapping> {
        let at = self
            .mappings
            .partition_point(|map| map.range.end <= address);
        self.mappings
            .get(at)
            .filter(|map| map.range.contains(&address))
    }

    /// The code at an address. `symbols` gives the range from the start of the first to the end of
    /// the last symbol of the kernel itself, `None` without symbols. The recorded mapping of the
    /// kernel itself ends after its first section of code: with symbols it reaches from the first
    /// to the end of the last, and so includes `.init.text` (`map__fixup_start`, `map__fixup_end`
    /// in `tools/perf/util/map.c`).
    pub fn find(
        &self,
        address: u64,
        symbols: impl FnOnce() -> Option<Range<u64>>,
    ) -> Option<&KernelMapping> {
        let found = self.at(address);
        if found.is_some_and(|map| map.kind != Kind::Core) {
            return found;
        }
        match symbols() {
            Some(range) if range.contains(&address) => {
                self.mappings.iter().find(|map| map.kind == Kind::Core)
            }
            Some(_) => None,
            None => found,
        }
    }
}

/// `PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`.
const KSYMBOL_UNREGISTER: u16 = 1;

/// Whether a path is that of the kernel itself.
pub fn is_core(path: &[u8]) -> bool {
    path.starts_with(CORE) || path.starts_with(b"[kernel]")
}

/// The module's name in a path such as `/lib/modules/6.1/kernel/fs/nf-tables.ko.xz` or
/// `[nf_tables]`.
pub fn module_name(path: &[u8]) -> Vec<u8> {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let file = file.strip_prefix(b"[").unwrap_or(file);
    let file = file.strip_suffix(b"]").unwrap_or(file);
    let end = file.windows(3).position(|part| part == b".ko");
    let name = &file[..end.unwrap_or(file.len())];
    name.iter()
        .map(|&byte| if byte == b'-' { b'_' } else { byte })
        .collect()
}
