//! Entries of the procedure linkage table, named after the slots that they jump through.

use super::build::*;
use super::*;
use alloc::format;
use alloc::string::String;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// The address of the code; the slots are at `SLOTS`.
const PLT: u64 = 0x1000;
const SLOTS: u64 = 0x4000;

const JUMP_SLOT: u32 = 7;
const GLOB_DAT: u32 = 6;

/// `jmp *slot(%rip)` at `address`, preceded by `before` and padded to `size` bytes.
fn entry(address: u64, before: &[u8], slot: u64, size: usize) -> Vec<u8> {
    let next = address + before.len() as u64 + 6;
    let mut code = before.to_vec();
    code.extend([0xff, 0x25]);
    code.extend((slot.wrapping_sub(next) as u32).to_le_bytes());
    code.resize(size, 0x90);
    code
}

fn relocation(slot: u64, kind: u32, symbol: u32) -> Vec<u8> {
    let mut out = slot.to_le_bytes().to_vec();
    out.extend((u64::from(symbol) << 32 | u64::from(kind)).to_le_bytes());
    out.extend([0; 8]);
    out
}

/// Reads code, two symbols `f` and `g`, and relocations given as type, linked table and bytes.
fn read(
    name: &'static str,
    code: &[u8],
    relocations: &[(u32, u32, Vec<u8>)],
) -> Vec<(u64, String)> {
    let entries = [symbol(0, 0, 0, 0), symbol(1, 2, 0, 0), symbol(3, 2, 0, 0)];
    with(name, code, &entries, b"\0f\0g\0", relocations)
}

fn with(
    name: &'static str,
    code: &[u8],
    entries: &[[u8; 24]],
    strings: &[u8],
    relocations: &[(u32, u32, Vec<u8>)],
) -> Vec<(u64, String)> {
    let mut table = sec(".dynsym", DYNSYM, ALLOC, 0, &entries.concat());
    // The number of the section with its strings.
    table.link = 3;

    let mut sections = vec![
        sec(name, PROGBITS, ALLOC | EXEC, PLT, code),
        table,
        sec(".dynstr", STRTAB, ALLOC, 0, strings),
    ];

    for (kind, link, bytes) in relocations {
        let mut section = sec(".rela", *kind, ALLOC, 0, bytes);
        section.link = *link;
        sections.push(section);
    }

    // Only the symbols made from PLT entries count here.
    let options = ReadOptions {
        plt: true,
        ..ReadOptions::default()
    };
    let bytes = Arc::new(file(&sections, &[]));
    let elf = super::super::read("test", bytes, &options).expect("an ELF file");
    let found = symbols(&elf).into_iter();
    found.filter(|s| s.1.ends_with("@plt")).collect()
}

fn names(found: &[(u64, &str)]) -> Vec<(u64, String)> {
    found
        .iter()
        .map(|&(at, name)| (at, format!("{name}@plt")))
        .collect()
}

#[test]
fn entries_of_each_kind_are_named_by_their_slots() {
    let relocations = [
        relocation(SLOTS, JUMP_SLOT, 1),
        relocation(SLOTS + 8, GLOB_DAT, 2),
    ];
    let slots = [(RELA, 2, relocations.concat())];

    // `endbr64`, and then the `bnd` prefix of the jump.
    let bnd: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2];
    for before in [&[][..], &ENDBR64, &[0xf2], bnd] {
        let first = entry(PLT, before, SLOTS, 16);
        let code = [first, entry(PLT + 16, before, SLOTS + 8, 16)].concat();
        for name in [".plt", ".plt.sec"] {
            let expected = names(&[(PLT, "f"), (PLT + 16, "g")]);
            assert_eq!(read(name, &code, &slots), expected, "{name} {before:x?}");
        }
        assert_eq!(read(".text", &code, &slots), []);
    }

    // Entries of .plt.got are half as long, unless they start with endbr64.
    let short = [entry(PLT, &[], SLOTS, 8), entry(PLT + 8, &[], SLOTS + 8, 8)].concat();
    let expected = names(&[(PLT, "f"), (PLT + 8, "g")]);
    assert_eq!(read(".plt.got", &short, &slots), expected);

    // With `endbr64`, all entries are 16 bytes long.
    let long = [
        entry(PLT, &ENDBR64, SLOTS, 16),
        entry(PLT + 16, &ENDBR64, SLOTS + 8, 16),
    ];
    let expected = names(&[(PLT, "f"), (PLT + 16, "g")]);
    assert_eq!(read(".plt.got", &long.concat(), &slots), expected);
}

#[test]
fn only_relocations_of_functions_by_the_dynamic_symbols_name_slots() {
    let code = [
        entry(PLT, &[], SLOTS, 16),
        entry(PLT + 16, &[], SLOTS + 8, 16),
    ]
    .concat();

    let (f, g) = (
        relocation(SLOTS, JUMP_SLOT, 1),
        relocation(SLOTS + 8, JUMP_SLOT, 2),
    );

    // The second entry is named in each case, so that only the first one can fail.
    let found = |slots: &[_]| read(".plt", &code, slots);
    let only_g = names(&[(PLT + 16, "g")]);
    let good = (RELA, 2, g.clone());
    assert_eq!(found(core::slice::from_ref(&good)), only_g);

    // Relocations for other symbols, in another type of section, of another type, without a symbol.
    assert_eq!(found(&[(RELA, 1, f.clone()), good.clone()]), only_g);
    assert_eq!(found(&[(PROGBITS, 2, f.clone()), good.clone()]), only_g);
    assert_eq!(
        found(&[(RELA, 2, relocation(SLOTS, 8, 1)), good.clone()]),
        only_g
    );
    assert_eq!(
        found(&[(RELA, 2, relocation(SLOTS, JUMP_SLOT, 9)), good.clone()]),
        only_g
    );
    assert_eq!(
        found(&[(RELA, 2, f), good]),
        names(&[(PLT, "f"), (PLT + 16, "g")])
    );
}

#[test]
fn the_limits_of_slots_and_names_are_exact() {
    // Two entries, one using the last slot that is read and one the next slot.
    let code = |last: u64| {
        let first = entry(PLT, &[], SLOTS + 8 * last, 16);
        [first, entry(PLT + 16, &[], SLOTS + 8 * (last + 1), 16)].concat()
    };
    let slots = |count: u64| {
        let all = (0..count).flat_map(|i| relocation(SLOTS + 8 * i, JUMP_SLOT, 1));
        [(RELA, 2, all.collect())]
    };
    let many = read(".plt", &code((1 << 16) - 1), &slots((1 << 16) + 1));
    assert_eq!(many, names(&[(PLT, "f")]));
    // 256 names of 64 KiB are 16 MiB.
    let mut strings = vec![b'x'; 1 << 16];
    strings.push(0);
    let entries = [symbol(0, 0, 0, 0), symbol(0, 2, 0, 0)];
    let found = with(".plt", &code(255), &entries, &strings, &slots(257));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].0, found[0].1.len()), (PLT, (1 << 16) + 4));
}

#[test]
fn the_limit_of_plt_entries_is_exact() {
    let slots = [(RELA, 2, relocation(SLOTS, JUMP_SLOT, 1))];
    let most = 1 << 16;
    for (at, found) in [(most - 1, true), (most, false)] {
        let mut code = vec![0x90; 16 * most];
        code.extend(vec![0x90; 16]);
        let address = PLT + 16 * at as u64;
        code[16 * at..][..16].copy_from_slice(&entry(address, &[], SLOTS, 16));
        assert_eq!(!read(".plt", &code, &slots).is_empty(), found, "{at}");
    }
}

/// The first entry of a `.plt` calls the dynamic linker; no relocation names it. In a static
/// program none names any.
#[test]
fn what_has_no_name_is_named_after_the_section() {
    let mut code = vec![
        0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0,
    ];
    code.extend(entry(PLT + 16, &[], SLOTS, 16));
    let sections = [
        sec(".init", PROGBITS, ALLOC | EXEC, PLT - 16, &[0x90; 12]),
        sec(".plt", PROGBITS, ALLOC | EXEC, PLT, &code),
    ];
    let bytes = Arc::new(file(&sections, &[]));
    let options = ReadOptions::default();
    let image = image_from_elf("test", bytes, &options).expect("an ELF file");
    let named = |svma| image.symbol(svma).map(|s| (s.name.as_str(), s.size));
    let names = [PLT - 16, PLT - 2, PLT + 6, PLT + 16].map(named);
    let plt = Some((".plt", 0));
    assert_eq!(names, [Some(("_init", 12)), None, plt, plt]);
}
