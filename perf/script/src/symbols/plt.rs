//! Synthesizes symbols for the stubs of the procedure linkage table, which are in no symbol table,
//! as in `dso__synthesize_plt_symbols` of `tools/perf/util/symbol-elf.c` (Linux 7.2), for x86.

use super::elf::{NamedTable, Parts};
use super::tree::{Name, NewSymbol, Tree};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader};

/// `STB_GLOBAL`.
const GLOBAL: u8 = 1;
/// `STT_FUNC`.
const FUNC: u8 = 2;
/// `R_X86_64_IRELATIVE`.
const IRELATIVE: u32 = 37;
/// `R_X86_64_GLOB_DAT`.
const GLOB_DAT: u32 = 6;

fn symbol(start: u64, size: u64, name: Name<'_>) -> NewSymbol<'_> {
    NewSymbol {
        start,
        end: start.saturating_add(size),
        binding: GLOBAL,
        kind: FUNC,
        name,
    }
}

/// Size of a stub, bytes: the entry size if it is one used on x86, otherwise by the alignment.
fn entry_size<E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'_, E>,
    section: &E::SectionHeader,
) -> u64 {
    match section.sh_entsize(parts.endian).into() {
        size @ (8 | 16) => size,
        _ if section.sh_addralign(parts.endian).into() == 8 => 8,
        _ => 16,
    }
}

struct Reloc {
    offset: u64,
    symbol: usize,
    kind: u32,
    addend: u64,
}

/// The relocations with addends in the section `name`.
fn relocations<E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'_, E>,
    name: &[u8],
) -> Vec<Reloc> {
    let endian = parts.endian;
    let section = parts.section(name).map(|(_, section)| section);
    let table = section.and_then(|section| section.rela(endian, parts.data).ok().flatten());
    let Some((entries, _)) = table else {
        return Vec::new();
    };
    let reloc = |entry: &E::Rela| Reloc {
        offset: entry.r_offset(endian).into(),
        symbol: entry.r_sym(endian, false) as usize,
        kind: entry.r_type(endian, false).0,
        addend: entry.r_addend(endian).into() as u64,
    };
    entries.iter().map(reloc).collect()
}

/// Adds the PLT stubs of a file to its symbols.
pub(super) fn load<E: FileHeader<Endian = Endianness>>(parts: &Parts<'_, E>, tree: &mut Tree) {
    let endian = parts.endian;
    let Some((_, plt)) = parts.section(b".plt") else {
        return;
    };

    // A symbol of the section before may have been extended over the PLT by `fix`.
    let plt_start: u64 = plt.sh_offset(endian).into();
    if let Some(before) = tree.find(plt_start)
        && tree.range(before).start < plt_start
        && tree.range(before).end > plt_start
    {
        tree.set_end(before, plt_start);
    }

    let size = entry_size(parts, plt);
    let header = tree.insert(symbol(plt_start, size, Name::Made(b".plt")));
    let table = NamedTable::of(parts, b".dynsym", elf::SHT_DYNSYM, tree);
    got(parts, table.as_ref(), tree);

    // Entry 0 of the PLT is the jump to the resolver, not a stub (psABI 5.2).
    let mut at = plt_start.saturating_add(size);
    let mut size = size;
    // With IBT, code calls the stubs of `.plt.sec`; those of `.plt` only bind lazily.
    if let Some((_, secure)) = parts.section(b".plt.sec") {
        size = entry_size(parts, secure);
        tree.set_end(header, plt_start.saturating_add(plt.sh_size(endian).into()));
        at = secure.sh_offset(endian).into();
    }

    let mut relocs = relocations(parts, b".rela.plt");
    // The linker does not keep stubs of indirect functions in relocation order.
    if relocs.iter().any(|reloc| reloc.kind == IRELATIVE) {
        relocs.sort_by_key(|reloc| reloc.offset);
    }

    for reloc in relocs {
        let raw = table
            .as_ref()
            .filter(|_| reloc.symbol != 0)
            .and_then(|table| table.name_at(parts, reloc.symbol));

        if let Some(raw) = raw {
            tree.insert(symbol(at, size, Name::Stub(raw)));
        } else {
            let name = unnamed(parts, tree, &reloc, at);
            tree.insert(symbol(at, size, Name::Made(&name)));
        }

        at = at.saturating_add(size);
    }
}

/// The name of a stub whose relocation has no symbol; that of an indirect function comes from its
/// resolver.
fn unnamed<E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'_, E>,
    tree: &mut Tree,
    reloc: &Reloc,
    at: u64,
) -> Vec<u8> {
    let resolver = (reloc.kind == IRELATIVE)
        .then(|| parts.file_offset(reloc.addend))
        .flatten()
        .and_then(|offset| {
            tree.find(offset)
                .filter(|&at| tree.range(at).start == offset)
        });
    match resolver {
        Some(resolver) => [tree.name(resolver), b"@plt"].concat(),
        None => format!("offset_{at:#x}@plt").into_bytes(),
    }
}

/// Adds the stubs of `.plt.got`, which each jump through a word of the global offset table.
fn got<'d, E: FileHeader<Endian = Endianness>>(
    parts: &Parts<'d, E>,
    table: Option<&NamedTable<'d, E>>,
    tree: &mut Tree,
) {
    let endian = parts.endian;
    let Some((_, section)) = parts.section(b".plt.got") else {
        return;
    };

    let bytes = section.data(endian, parts.data).unwrap_or_default();
    let size = match section.sh_entsize(endian).into() {
        size @ (8 | 16) => size,
        _ => 8,
    };

    // Each stub jumps through the slot of one such relocation.
    let mut relocs = relocations(parts, b".rela.dyn");
    relocs.retain(|reloc| reloc.kind == GLOB_DAT);
    relocs.sort_by_key(|reloc| reloc.offset);

    let offset: u64 = section.sh_offset(endian).into();
    for (stub, number) in bytes.chunks_exact(size as usize).zip(0u64..) {
        // perf uses the file offset as the address: where the two differ, as in a program with
        // fixed addresses, it finds no name.
        let target = jump_slot(stub, offset.wrapping_add(number * size));
        let found = target.and_then(|slot| {
            let at = relocs
                .binary_search_by_key(&slot, |reloc| reloc.offset)
                .ok()?;
            table?.name_at(parts, relocs[at].symbol)
        });

        let start = offset.wrapping_add(number * size);
        let unnamed = format!("offset_{start:#x}@plt").into_bytes();
        let name = found.map_or(Name::Made(&unnamed), Name::Stub);
        tree.insert(symbol(start, size, name));
    }
}

/// The address of the word through which the stub at `address` jumps: `jmp *disp(%rip)`, optionally
/// preceded by `endbr64` and `bnd`.
fn jump_slot(stub: &[u8], address: u64) -> Option<u64> {
    let jump = stub.windows(2).position(|bytes| bytes == [0xff, 0x25])?;
    let displacement = stub.get(jump + 2..jump + 6)?.first_chunk::<4>()?;
    let next = address.wrapping_add(jump as u64 + 6);
    let displacement = i64::from(i32::from_le_bytes(*displacement));
    Some(next.wrapping_add_signed(displacement))
}
