//! The modules of a kernel that the machine executes: their tables, code and symbols, as the kernel has
//! them in memory once it has loaded a module.

use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_recordings::kernel::{Btf, KernelImage};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol};

/// The function that a module's table is handed to, once all is relocated (Linux
/// `arch/x86/kernel/unwind_orc.c`): `unwind_module_init(mod, orc_ip, orc_ip_size, orc, orc_size)`.
const LOADED: &str = "unwind_module_init";
/// The functions that free the memory of code, which is the first argument: before 6.10, and since.
const FREED: [&str; 2] = ["module_memfree", "execmem_free"];

/// The maximum size of a module's tables and code, bytes.
const BYTES_MAX: u64 = 64 << 20;
/// The maximum number of a module's symbols.
const SYMBOLS_MAX: u64 = 1 << 20;
/// The maximum length of the name of a symbol (Linux `KSYM_NAME_LEN`).
const NAME_MAX: usize = 512;
/// Size of `Elf64_Sym`, bytes.
const SYMBOL_LEN: usize = 24;
const PAGE: u64 = 4096;

/// Where a module's memory is described: the offsets in `struct module` of a base address and of a size,
/// which has 4 bytes.
type Region = (u64, u64);

/// The parts of `struct module` that are read, as offsets in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Layout {
    name: (u64, u64),
    regions: Vec<Region>,
    /// The pointer to `struct mod_kallsyms`, and in that the pointer to symbols, their number, and the
    /// pointer to strings.
    symbols: Option<[u64; 4]>,
}

impl Layout {
    fn of(btf: &Btf) -> Option<Layout> {
        let offset = |path: &str| btf.offset("module", path);
        let symbol = |path: &str| btf.offset("mod_kallsyms", path);
        let symbols = || {
            Some([
                offset("kallsyms")?,
                symbol("symtab")?,
                symbol("num_symtab")?,
                symbol("strtab")?,
            ])
        };

        // An array of regions since 6.4; before, what stays, and what is freed after the start.
        let array = || {
            let (_, all) = btf.extent("module", "mem")?;
            let (base, size) = (offset("mem.base")?, offset("mem.size")?);
            let one = btf.size_of("module_memory").filter(|&one| one != 0)?;
            let starts = (0..all / one).map(|number| number * one);
            Some(starts.map(|at| (base + at, size + at)).collect())
        };
        let two = || {
            let layouts = ["core_layout", "init_layout"];
            let regions = layouts.map(|layout| {
                let base = offset(&format!("{layout}.base"))?;
                Some((base, offset(&format!("{layout}.text_size"))?))
            });
            regions.into_iter().collect()
        };
        Some(Layout {
            name: btf.extent("module", "name")?,
            regions: array().or_else(two)?,
            symbols: symbols(),
        })
    }
}

/// The modules that are loaded.
#[derive(Clone, Debug)]
pub struct KernelModules {
    layout: Layout,
    loaded_at: u64,
    freed_at: Vec<u64>,
    /// The code of loaded modules.
    code: Vec<Range<u64>>,
}

/// The arguments of a function of the kernel, in order.
pub const ARGUMENTS: [usize; 5] = [7, 6, 2, 1, 8];

impl KernelModules {
    /// None yet, of `kernel`, moved up by `slide`. `None` if the kernel does not say what modules look like:
    /// it has no types, or loads no tables.
    pub fn of(kernel: &KernelImage, slide: u64) -> Option<KernelModules> {
        let at = |name: &&str| {
            let mut all = kernel.symbols.iter();
            let found = all.find(|symbol| symbol.name == *name)?;
            Some(found.address + slide)
        };
        Some(KernelModules {
            layout: Layout::of(kernel.btf.as_ref()?)?,
            loaded_at: at(&LOADED)?,
            freed_at: FREED.iter().filter_map(at).collect(),
            code: Vec::new(),
        })
    }

    /// Whether [`KernelModules::entered`] wants to know of a call of the function at `address`.
    pub fn is_hook(&self, address: u64) -> bool {
        address == self.loaded_at || self.freed_at.contains(&address)
    }

    /// The function at `rip` was entered, with these [`ARGUMENTS`]. Returns what is mapped now where a
    /// module's code has come or gone: without an image, it is code without a table again.
    pub fn entered(&mut self, rip: u64, args: [u64; 5], memory: &AddressSpace) -> Vec<Mapping> {
        if rip != self.loaded_at {
            return self.free(args[0]);
        }
        let [module, ips, ips_size, rows, rows_size] = args;
        let Some(table) = Table::read(memory, (ips, ips_size), (rows, rows_size)) else {
            return Vec::new();
        };
        let regions = self.layout.regions.iter();
        let regions = regions.filter_map(|&region| code_region(memory, module, region));
        let regions: Vec<Range<u64>> = regions.filter(|region| table.describes(region)).collect();
        self.code.extend(regions.iter().cloned());

        let name = self.name(module, memory);
        let image = Arc::new(Image::new(ImageParts {
            name: name.clone(),
            symbols: self.symbols(module, &regions, memory),
            sections: table.sections(&regions, memory),
            text: regions.clone(),
            ..ImageParts::default()
        }));
        let mapping = |range| Mapping {
            range,
            bias: 0,
            image: Some(image.clone()),
            name: name.clone(),
        };
        regions.into_iter().map(mapping).collect()
    }

    /// The memory at `address` is freed.
    fn free(&mut self, address: u64) -> Vec<Mapping> {
        let of = self.code.iter().position(|code| code.contains(&address));
        let freed = of.map(|index| self.code.swap_remove(index));
        let mapping = |range| Mapping {
            range,
            bias: 0,
            image: None,
            name: String::new(),
        };
        freed.into_iter().map(mapping).collect()
    }

    /// The name as a kernel's message has it.
    fn name(&self, module: u64, memory: &AddressSpace) -> String {
        let (offset, size) = self.layout.name;
        let name = text(memory, module.wrapping_add(offset), size as usize);
        match name.is_empty() {
            true => format!("[module {module:#x}]"),
            false => format!("[{name}]"),
        }
    }

    /// The symbols of the module's code.
    fn symbols(&self, module: u64, code: &[Range<u64>], memory: &AddressSpace) -> Vec<Symbol> {
        let word = |at: u64| memory.read_u64(at).ok();
        let tables = || {
            let [all, symbols, count, strings] = self.layout.symbols?;
            let all = word(module.wrapping_add(all))?;
            let count = word(all.wrapping_add(count))? & u64::from(u32::MAX);
            let symbols = word(all.wrapping_add(symbols))?;
            let size = count.min(SYMBOLS_MAX) * SYMBOL_LEN as u64;
            Some((
                bytes(memory, symbols, size)?,
                word(all.wrapping_add(strings))?,
            ))
        };
        let Some((symbols, strings)) = tables() else {
            return Vec::new();
        };

        // `Elf64_Sym`: st_name, st_info, st_other, st_shndx, st_value, st_size.
        let (symbols, _) = symbols.as_chunks::<SYMBOL_LEN>();
        let symbol = |symbol: &[u8; SYMBOL_LEN]| {
            let (words, _) = symbol.as_chunks();
            let [name, address, size] = [words[0], words[1], words[2]].map(u64::from_le_bytes);
            if !code.iter().any(|code| code.contains(&address)) {
                return None;
            }
            let name = strings.wrapping_add(name & u64::from(u32::MAX));
            let name = text(memory, name, NAME_MAX);
            // The padding that may become a prologue, and sections, are no functions.
            let is_name = !name.is_empty() && !name.starts_with("__pfx_") && !name.starts_with('.');
            is_name.then_some(Symbol {
                address,
                size,
                name,
            })
        };
        symbols.iter().filter_map(symbol).collect()
    }
}

/// A module's table, in memory.
struct Table {
    ips_at: u64,
    ips: Vec<u8>,
    rows_at: u64,
    rows: Vec<u8>,
}

impl Table {
    /// The table whose addresses and rows are at these places, each with its size in bytes.
    fn read(memory: &AddressSpace, ips: (u64, u64), rows: (u64, u64)) -> Option<Table> {
        Some(Table {
            ips_at: ips.0,
            ips: bytes(memory, ips.0, ips.1)?,
            rows_at: rows.0,
            rows: bytes(memory, rows.0, rows.1)?,
        })
    }

    /// Whether there is a row for this code.
    fn describes(&self, code: &Range<u64>) -> bool {
        let (ips, _) = self.ips.as_chunks();
        let mut ips = (self.ips_at..).step_by(4).zip(ips).map(|(at, &relative)| {
            let relative = i32::from_le_bytes(relative);
            at.wrapping_add_signed(relative.into())
        });
        ips.any(|ip| code.contains(&ip))
    }

    /// The table, and the bytes of code.
    fn sections(self, code: &[Range<u64>], memory: &AddressSpace) -> Vec<Section> {
        let section = |kind, address, data| Section {
            kind,
            address,
            data: Bytes::from_vec(data),
        };
        let text = code.iter().filter_map(|code| {
            let bytes = bytes(memory, code.start, code.end - code.start)?;
            Some(section(SectionKind::Text, code.start, bytes))
        });
        let mut sections: Vec<Section> = text.collect();
        sections.push(section(SectionKind::OrcUnwindIp, self.ips_at, self.ips));
        sections.push(section(SectionKind::OrcUnwind, self.rows_at, self.rows));
        sections
    }
}

/// The memory of a region of a module, in whole pages; `None` if it has none.
fn code_region(memory: &AddressSpace, module: u64, region: Region) -> Option<Range<u64>> {
    let word = |offset: u64| memory.read_u64(module.wrapping_add(offset)).ok();
    let (base, size) = (word(region.0)?, word(region.1)? & u64::from(u32::MAX));
    let is_region = base != 0 && size != 0 && size <= BYTES_MAX;
    is_region.then(|| base..base.saturating_add(size.next_multiple_of(PAGE)))
}

fn bytes(memory: &AddressSpace, at: u64, size: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size.min(BYTES_MAX)).ok()?];
    memory.read(at, &mut bytes).ok()?;
    Some(bytes)
}

/// A text that ends with a zero, or is of this length.
fn text(memory: &AddressSpace, at: u64, len: usize) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    let all = (at..).take(len);
    for at in all {
        if memory.read(at, &mut byte).is_err() || byte == [0] {
            break;
        }
        text.extend(byte);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests;
