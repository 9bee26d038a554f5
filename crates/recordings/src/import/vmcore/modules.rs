//! The modules of a dump with their ORC tables and symbols, and its generated code.
//!
//! Sources: Linux `include/linux/module.h` (`struct module`, `mod_kallsyms`; `mem` since 6.4,
//! `core_layout` before), `arch/x86/include/asm/module.h` (`struct mod_arch_specific`),
//! `include/linux/filter.h` (`struct bpf_ksym`), `include/linux/ftrace.h`.

use super::error::Problem;
use super::layout::Layout;
use super::pages::KernelMemory;
use super::symbols::Symbols;
use super::tasks::list;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::kernel::Generated;
use unwind_sim_unwind::orc::ENTRY_LEN;

/// Maximum number of modules, and of pieces of generated code.
const MODULES_MAX: usize = 65_536;
/// Size of `name` in `struct module`, bytes.
const NAME_LEN: usize = 56;
/// Maximum size of one module's code, bytes: `MODULES_LEN`.
const CODE_MAX: u64 = 1 << 30;
/// Maximum number of ORC entries and symbols of all modules together.
const ENTRIES_MAX: u64 = 4 << 20;
/// Size of `Elf64_Sym`, and maximum length of a name, bytes.
const SYM_LEN: usize = 24;
const SYMBOL_NAME_MAX: usize = 512;
/// `FTRACE_OPS_FL_SAVE_REGS`
const SAVE_REGS: u64 = 1 << 2;

/// Loaded code: a module, or generated code.
#[derive(Clone, Debug)]
pub struct LoadedCode {
    /// A module's name; generated code has a name known to [`Generated::from_name`].
    pub name: String,
    /// Its addresses.
    pub range: Range<u64>,
    /// A module's image, with load addresses.
    pub image: Option<Arc<Image>>,
}

/// Reads modules and generated code.
pub(super) struct Reader<'a> {
    pub(super) memory: &'a dyn KernelMemory,
    pub(super) layout: &'a Layout<'a>,
    pub(super) symbols: &'a Symbols,
    pub(super) bias: u64,
}

/// The number of entries that may still be read.
struct Budget(u64);

impl Budget {
    fn take(&mut self, count: u64) -> bool {
        let left = self.0.checked_sub(count);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

impl Reader<'_> {
    fn head(&self, symbol: &str) -> Option<u64> {
        Some(self.symbols.get(symbol)?.wrapping_add(self.bias))
    }

    /// All modules.
    pub(super) fn modules(&self, problems: &mut Vec<Problem>) -> Vec<LoadedCode> {
        let mut out = Vec::new();
        let links = self.layout.find("module", "list");
        let (Some(head), Some(link)) = (self.head("modules"), links) else {
            return out;
        };
        let mut budget = Budget(ENTRIES_MAX);
        for at in list(self.memory, "modules", head, MODULES_MAX, problems) {
            let address = at.wrapping_sub(link);
            match self.module(address, &mut budget) {
                Ok(module) => out.push(module),
                Err(problem) => problems.push(problem),
            }
        }
        out
    }

    fn module(&self, address: u64, budget: &mut Budget) -> Result<LoadedCode, Problem> {
        let bad = |what| Problem::Module { address, what };
        let at = |offset: u64| address.wrapping_add(offset);

        let name = self.layout.needed("module", "name")?;
        let name = self.memory.text(at(name), NAME_LEN);
        // The first memory type is text (`MOD_TEXT`).
        let (base, size) = match self.layout.find("module", "mem.base") {
            Some(base) => (base, self.layout.needed("module", "mem.size")?),
            None => (
                self.layout.needed("module", "core_layout.base")?,
                self.layout.needed("module", "core_layout.text_size")?,
            ),
        };

        let start = self.memory.u64(at(base))?;
        let size = u64::from(self.memory.u32(at(size))?);
        // The size comes from the dump.
        let end = start.checked_add(size).filter(|_| size <= CODE_MAX);
        let range = start..end.ok_or_else(|| bad("its code is too large for a module"))?;
        if range.is_empty() {
            return Err(bad("it has no code"));
        }

        let mut sections = Vec::new();
        if let Some((count, ips, entries)) = self.orc(address)? {
            // The counts come from the dump, so all modules together are bounded.
            if !budget.take(count) {
                return Err(bad("too many ORC entries"));
            }
            let len = count as usize;
            let section = |kind, address, bytes| Section {
                kind,
                address,
                data: Bytes::from_vec(bytes),
            };
            // Only the addresses depend on where their table is, so the entries' place is not kept.
            let table = self.memory.bytes(entries, len * ENTRY_LEN)?;
            sections.push(section(SectionKind::OrcUnwind, 0, table));
            let table = self.memory.bytes(ips, len * 4)?;
            sections.push(section(SectionKind::OrcUnwindIp, ips, table));
        }

        let image = Image::new(ImageParts {
            name: name.clone(),
            text: vec![range.clone()],
            sections,
            // A module without readable symbols can still be unwound.
            symbols: self.symbols_of(address, &range, budget).unwrap_or_default(),
            ..ImageParts::default()
        });
        Ok(LoadedCode {
            name,
            range,
            image: Some(Arc::new(image)),
        })
    }

    /// The number of ORC entries, and the addresses of both tables.
    fn orc(&self, module: u64) -> Result<Option<(u64, u64, u64)>, Problem> {
        let member = |member| {
            let offset = self.layout.find("module", member)?;
            Some(module.wrapping_add(offset))
        };
        let (Some(count), Some(ips), Some(entries)) = (
            member("arch.num_orcs"),
            member("arch.orc_unwind_ip"),
            member("arch.orc_unwind"),
        ) else {
            return Ok(None);
        };
        let count = u64::from(self.memory.u32(count)?);
        let (ips, entries) = (self.memory.u64(ips)?, self.memory.u64(entries)?);
        Ok((count > 0).then_some((count, ips, entries)))
    }

    /// The module's code symbols, as far as the kernel kept them.
    fn symbols_of(
        &self,
        module: u64,
        range: &Range<u64>,
        budget: &mut Budget,
    ) -> Option<Vec<Symbol>> {
        let kallsyms = module.wrapping_add(self.layout.find("module", "kallsyms")?);

        let kallsyms = self.memory.u64(kallsyms).ok()?;

        let member = |member| {
            let offset = self.layout.find("mod_kallsyms", member)?;
            Some(kallsyms.wrapping_add(offset))
        };

        let table = self.memory.u64(member("symtab")?).ok()?;
        let names = self.memory.u64(member("strtab")?).ok()?;
        let count = u64::from(self.memory.u32(member("num_symtab")?).ok()?);
        // The count comes from the dump, and the budget is for all modules together.
        if !budget.take(count) {
            return None;
        }

        let bytes = self.memory.bytes(table, count as usize * SYM_LEN).ok()?;
        let mut out = Vec::new();
        for sym in bytes.as_chunks::<SYM_LEN>().0 {
            // `Elf64_Sym`: st_name at 0, st_value at 8, st_size at 16.
            let word = |at: usize| sym[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
            let name = sym.first_chunk().map(|b| u32::from_le_bytes(*b))?;
            // In a loaded module, `st_value` is an address (`simplify_symbols`,
            // `kernel/module/main.c`).
            let (address, size) = (word(8)?, word(16)?);

            // An `st_name` of 0 is no name (gABI, "Symbol Table").
            if name != 0 && range.contains(&address) {
                let name = names.wrapping_add(u64::from(name));
                out.push(Symbol {
                    address,
                    size,
                    name: self.memory.text(name, SYMBOL_NAME_MAX),
                });
            }
        }

        out.sort_by_key(|s| s.address);
        Some(out)
    }

    /// BPF programs and ftrace trampolines.
    pub(super) fn generated(&self, problems: &mut Vec<Problem>) -> Vec<LoadedCode> {
        let mut out = Vec::new();
        self.each("bpf_kallsyms", "bpf_ksym", "lnode", problems, |at| {
            let member = |member| Some(at.wrapping_add(self.layout.find("bpf_ksym", member)?));
            let start = self.memory.u64(member("start")?).ok()?;
            let end = self.memory.u64(member("end")?).ok()?;
            // "bpf_prog_TAG_NAME"
            let name = self.memory.text(member("name")?, SYMBOL_NAME_MAX);

            // Not all kernels have these members.
            let frame_pointer = || {
                let start = self.memory.u32(member("fp_start")?).ok()?;
                let end = self.memory.u32(member("fp_end")?).ok()?;
                Some(format!("{name}:{start:x}-{end:x}"))
            };
            let name = frame_pointer().unwrap_or(name.clone());
            // The name says what kind of code it is, which decides how it is unwound.
            Generated::from_name(&name)?;

            out.push(LoadedCode {
                name,
                range: start..end,
                image: None,
            });
            Some(())
        });

        let list = "ftrace_ops_trampoline_list";
        self.each(list, "ftrace_ops", "list", problems, |at| {
            let word = |member| {
                let offset = self.layout.find("ftrace_ops", member)?;
                self.memory.u64(at.wrapping_add(offset)).ok()
            };

            let start = word("trampoline").filter(|start| *start != 0)?;
            let end = start.checked_add(word("trampoline_size")?)?;
            out.push(LoadedCode {
                name: Generated::ftrace_name(word("flags")? & SAVE_REGS != 0),
                range: start..end,
                image: None,
            });
            Some(())
        });

        // A damaged list may have any address.
        out.retain(|c| !c.range.is_empty() && c.range.end - c.range.start <= CODE_MAX);
        out
    }

    /// Calls `take` with each element of the list at `head`.
    fn each(
        &self,
        head: &'static str,
        of: &str,
        link: &str,
        problems: &mut Vec<Problem>,
        mut take: impl FnMut(u64) -> Option<()>,
    ) {
        let link = self.layout.find(of, link);
        if let (Some(at), Some(link)) = (self.head(head), link) {
            for element in list(self.memory, head, at, MODULES_MAX, problems) {
                take(element.wrapping_sub(link));
            }
        }
    }
}
