//! The kernel's code as its unwinders ask about it: what is text, which ORC entry an address has,
//! and the few functions that they know by name.
//!
//! `orc_find` (Linux `arch/x86/kernel/unwind_orc.c`) and `__kernel_text_address`
//! (`kernel/extable.c`). Images come from an [`AddressSpace`]: the one with the symbol `_stext` is
//! the kernel, the others are modules. Generated code is a mapping without an image, under the
//! name that the kernel itself gives it (below).

use super::version::Version;
use crate::image::{AddressSpace, Image, ImageId, Mapping};
use crate::orc::{Blocks, Encoding, Entry, Index, Malformed};
use crate::reason::Reason;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// Code that the kernel made while it ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Generated {
    /// A trampoline of ftrace, a copy of `ftrace_regs_caller` or of `ftrace_caller`.
    Ftrace {
        /// Of the former (`FTRACE_OPS_FL_SAVE_REGS`).
        saves_regs: bool,
    },
    /// A BPF program, with the part of it in which its frame pointer is set up, if it says so.
    Bpf {
        /// Addresses, relative to the mapping.
        frame_pointer: Option<Range<u64>>,
    },
    /// Copied instructions of kprobes.
    Kprobe,
}

/// Names of mappings of generated code: as perf's `PERF_RECORD_KSYMBOL` has them, with what the
/// unwinder needs to know behind a colon.
const FTRACE: &str = "ftrace_trampoline";
const BPF: &str = "bpf_";
const KPROBES: [&str; 2] = ["kprobe_insn_page", "kprobe_optinsn_page"];

impl Generated {
    /// What a mapping of this name is: `ftrace_trampoline`, `ftrace_trampoline:regs`, `bpf_NAME`,
    /// `bpf_NAME:START-END` with the offsets (hexadecimal) between which its frame pointer is set
    /// up, `kprobe_insn_page`, `kprobe_optinsn_page`.
    pub fn from_name(name: &str) -> Option<Generated> {
        let (plain, detail) = match name.split_once(':') {
            Some((plain, detail)) => (plain, Some(detail)),
            None => (name, None),
        };
        if plain == FTRACE {
            let saves_regs = detail == Some("regs");
            return Some(Generated::Ftrace { saves_regs });
        }
        if KPROBES.contains(&plain) {
            return Some(Generated::Kprobe);
        }
        plain.starts_with(BPF).then(|| {
            let bounds = detail.and_then(|d| d.split_once('-'));
            let number = |s| u64::from_str_radix(s, 16).ok();
            let frame_pointer = bounds.and_then(|(a, b)| Some(number(a)?..number(b)?));
            Generated::Bpf { frame_pointer }
        })
    }

    /// The name of a trampoline of ftrace.
    pub fn ftrace_name(saves_regs: bool) -> String {
        match saves_regs {
            true => alloc::format!("{FTRACE}:regs"),
            false => FTRACE.into(),
        }
    }
}

/// The symbol that the kernel has and no module.
const START: &str = "_stext";

/// Functions that the unwinders know by name (addresses as loaded); 0 where the kernel has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Known {
    pub return_to_handler: u64,
    pub arch_rethook_trampoline: u64,
    pub ftrace_caller: u64,
    pub ftrace_regs_caller: u64,
    pub ret_from_fork: u64,
    pub ret_from_fork_asm: u64,
}

/// Where the entry that the unwinder uses comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A table.
    Table {
        /// Which of [`Code::images`].
        image: u32,
        /// The place of the entry in the order of addresses ([`Code::row`]).
        position: u32,
    },
    /// `null_orc_entry`, for ip 0.
    Null,
    /// `orc_fp_entry`, for a BPF program that is known to have a frame pointer.
    Bpf,
    /// `orc_fp_entry`, because nothing is known; the walk is no longer reliable.
    FramePointer,
}

/// An ORC entry and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    /// The entry.
    pub entry: Entry,
    /// Where it comes from.
    pub source: Source,
}

/// Where an ORC entry is, and what it speaks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRow {
    /// Offset of the entry in `.orc_unwind`, bytes.
    pub offset: u64,
    /// The first address that it speaks for, as loaded.
    pub start: u64,
    /// The first address behind it, as loaded.
    pub end: u64,
}

/// An image with its table.
#[derive(Debug)]
struct Part {
    image: Arc<Image>,
    bias: u64,
    /// As loaded.
    range: Range<u64>,
    table: Option<Index>,
}

/// A kernel's code.
#[derive(Debug)]
pub struct Code {
    version: Version,
    /// The kernel first, if it is there.
    parts: Vec<Part>,
    has_core: bool,
    core_text: Range<u64>,
    init_text: Range<u64>,
    entry_text: Range<u64>,
    blocks: Option<Blocks>,
    generated: Vec<(Range<u64>, Generated)>,
    known: Known,
    problem: Option<Malformed>,
}

/// What [`Code::find`] found before.
#[derive(Debug, Default)]
pub struct Finds(Vec<Option<(u64, Option<FoundEntry>)>>);

/// Finds that are kept; a power of two.
const FINDS: usize = 4096;

impl Code {
    /// The kernel whose images are mapped in `space`, which behaves as `version` does. Of modules
    /// `encoding` is believed too, else what their tables look like.
    pub fn new(space: &AddressSpace, version: Version, told: Option<Encoding>) -> Code {
        let mut code = Code {
            version,
            parts: Vec::new(),
            has_core: false,
            core_text: 0..0,
            init_text: 0..0,
            entry_text: 0..0,
            blocks: None,
            generated: Vec::new(),
            known: Known::default(),
            problem: None,
        };
        // The kernel first: its many entries show their layout, which its modules share.
        let is_core = |m: &&Mapping| {
            let symbols = m.image.as_ref().map(|i| i.symbols());
            symbols.is_some_and(|s| s.iter().any(|s| s.name == START))
        };
        let core = space.mappings().iter().find(is_core);
        if let Some(core) = core {
            code.add(core, told);
        }
        let shared = || {
            let table = code.parts.first()?.table.as_ref()?;
            table.encoding()
        };
        let told = told.or_else(|| code.has_core.then(shared)?);
        for mapping in space.mappings() {
            code.add(mapping, told);
        }
        code
    }

    fn add(&mut self, mapping: &Mapping, told: Option<Encoding>) {
        let Some(image) = &mapping.image else {
            if let Some(generated) = Generated::from_name(&mapping.name) {
                self.generated.push((mapping.range.clone(), generated));
            }
            return;
        };
        if let Some(part) = self.parts.iter_mut().find(|p| p.image.id() == image.id()) {
            part.range.end = part.range.end.max(mapping.range.end);
            return;
        }
        let symbols = Symbols {
            image,
            bias: mapping.bias,
        };
        let core_text = symbols.range(START, "_etext");
        let is_core = core_text.is_some() && !self.has_core;
        let table = Index::new(image, told).unwrap_or_else(|problem| {
            self.problem.get_or_insert(problem);
            None
        });
        let part = Part {
            image: image.clone(),
            bias: mapping.bias,
            range: mapping.range.clone(),
            table,
        };
        if !is_core {
            self.parts.push(part);
            return;
        }
        self.has_core = true;
        self.core_text = core_text.unwrap_or(0..0);
        let init = symbols.range("_sinittext", "_einittext");
        self.init_text = init.unwrap_or(0..0);
        let entry = symbols.range("__entry_text_start", "__entry_text_end");
        self.entry_text = entry.unwrap_or(0..0);
        self.blocks = part.table.as_ref().and_then(|index| {
            let svma = |avma: u64| avma.wrapping_sub(part.bias);
            let (start, end) = (svma(self.core_text.start), svma(self.core_text.end));
            Blocks::new(&index.table().ok()?, start, end)
        });
        let address = |names: &[&str]| names.iter().find_map(|n| symbols.address(n)).unwrap_or(0);
        self.known = Known {
            return_to_handler: address(&["return_to_handler"]),
            arch_rethook_trampoline: address(&[
                "arch_rethook_trampoline",
                "__kretprobe_trampoline",
                "kretprobe_trampoline",
            ]),
            ftrace_caller: address(&["ftrace_caller"]),
            ftrace_regs_caller: address(&["ftrace_regs_caller"]),
            ret_from_fork: address(&["ret_from_fork"]),
            ret_from_fork_asm: address(&["ret_from_fork_asm"]),
        };
        self.parts.insert(0, part);
    }

    /// The kernel's version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The images, the kernel's own first.
    pub fn images(&self) -> impl Iterator<Item = &Arc<Image>> {
        self.parts.iter().map(|p| &p.image)
    }

    /// The identity and the bias of one of them.
    pub fn image(&self, number: u32) -> (Option<ImageId>, u64) {
        let part = self.parts.get(number as usize);
        part.map_or((None, 0), |p| (Some(p.image.id()), p.bias))
    }

    /// The row of [`Source::Table`].
    pub fn row(&self, image: u32, position: u32) -> Option<FoundRow> {
        let part = self.parts.get(image as usize)?;
        let index = part.table.as_ref()?;
        let (table, position) = (index.table().ok()?, position as usize);
        let end = table.ip(position + 1).unwrap_or(index.text().end);
        Some(FoundRow {
            offset: (table.stored(position)? * crate::orc::ENTRY_LEN) as u64,
            start: table.ip(position)?.wrapping_add(part.bias),
            end: end.wrapping_add(part.bias),
        })
    }

    /// The functions that the unwinders know by name.
    pub const fn known(&self) -> &Known {
        &self.known
    }

    /// Is the kernel itself among the images, with the symbols that bound its text?
    pub const fn has_core(&self) -> bool {
        self.has_core
    }

    /// Has it ORC tables (`CONFIG_UNWINDER_ORC`)?
    pub fn has_orc(&self) -> bool {
        self.has_core && self.blocks.is_some()
    }

    /// What is wrong with the first table that cannot be used.
    pub fn problem(&self) -> Option<Reason> {
        self.problem.map(Reason::from)
    }

    /// `in_entry_code`.
    pub fn is_entry_text(&self, address: u64) -> bool {
        self.entry_text.contains(&address)
    }

    /// `__kernel_text_address`: may this be a return address?
    #[inline]
    pub fn is_text(&self, address: u64) -> bool {
        self.core_text.contains(&address) || self.is_other_text(address)
    }

    fn is_other_text(&self, address: u64) -> bool {
        if self.init_text.contains(&address) {
            return true;
        }
        let modules = &self.parts[usize::from(self.has_core)..];
        let in_module =
            |p: &Part| p.range.contains(&address) && p.image.is_text(address.wrapping_sub(p.bias));
        modules.iter().any(in_module) || self.generated_at(address).is_some()
    }

    fn generated_at(&self, address: u64) -> Option<&(Range<u64>, Generated)> {
        self.generated
            .iter()
            .find(|(range, _)| range.contains(&address))
    }

    /// `orc_find`, remembering what it found. `None` where the kernel has no entry.
    #[inline]
    pub fn find<'f>(&self, ip: u64, finds: &'f mut Finds) -> Option<&'f FoundEntry> {
        if finds.0.is_empty() {
            finds.0.resize(FINDS, None);
        }
        // By reference: copied bit by bit it would have to be put together again.
        let slot = &mut finds.0[(ip ^ ip >> 12) as usize % FINDS];
        if slot.as_ref().is_none_or(|(address, _)| *address != ip) {
            *slot = Some((ip, self.search(ip, true)));
        }
        slot.as_ref()?.1.as_ref()
    }

    fn search(&self, ip: u64, trampolines: bool) -> Option<FoundEntry> {
        if ip == 0 {
            let (entry, source) = (Entry::NULL, Source::Null);
            return Some(FoundEntry { entry, source });
        }
        if self.core_text.contains(&ip) {
            return self.in_table(0, ip, true);
        }
        if self.init_text.contains(&ip) {
            return self.in_table(0, ip, false);
        }
        let first = usize::from(self.has_core);
        let module = self.parts[first..]
            .iter()
            .position(|p| p.range.contains(&ip));
        if let Some(found) = module.and_then(|i| self.in_table(first + i, ip, false)) {
            return Some(found);
        }
        let (range, generated) = self.generated_at(ip)?;
        let offset = ip - range.start;
        match generated {
            Generated::Bpf {
                frame_pointer: Some(part),
            } if self.version.knows_bpf_frame_pointers() && part.contains(&offset) => {
                let (entry, source) = (Entry::FRAME_POINTER, Source::Bpf);
                Some(FoundEntry { entry, source })
            }
            Generated::Ftrace { saves_regs } if trampolines => {
                let original = match saves_regs {
                    true => self.known.ftrace_regs_caller,
                    false => self.known.ftrace_caller,
                };
                let exact = self.version.maps_ftrace_trampolines();
                let address = original.wrapping_add(if exact { offset } else { 0 });
                self.search(address, false)
            }
            _ => None,
        }
    }

    fn in_table(&self, part: usize, ip: u64, by_block: bool) -> Option<FoundEntry> {
        let (number, part) = (part, self.parts.get(part)?);
        let index = part.table.as_ref()?;
        let table = index.table().ok()?;
        let svma = ip.wrapping_sub(part.bias);
        let position = match by_block {
            true => self.blocks.as_ref()?.find(&table, svma)?,
            false => table.find(svma)?,
        };
        let stored = table.stored(position)?;
        let entry = table
            .table()
            .entry(stored, index.encoding()?.layout)?
            .ok()?;
        let source = Source::Table {
            image: number as u32,
            position: u32::try_from(position).ok()?,
        };
        Some(FoundEntry { entry, source })
    }
}

/// An image's symbols by name.
struct Symbols<'a> {
    image: &'a Image,
    bias: u64,
}

impl Symbols<'_> {
    fn address(&self, name: &str) -> Option<u64> {
        let found = self.image.symbols().iter().find(|s| s.name == name)?;
        Some(found.address.wrapping_add(self.bias))
    }

    fn range(&self, start: &str, end: &str) -> Option<Range<u64>> {
        let range = self.address(start)?..self.address(end)?;
        (range.start < range.end).then_some(range)
    }
}
