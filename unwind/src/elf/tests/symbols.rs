//! Which symbols are code, and where they are read from.

use super::build::*;
use super::*;
use alloc::string::String;

const FUNC: u8 = 2;
const OBJECT: u8 = 1;
const NOTYPE: u8 = 0;
const IFUNC: u8 = 10;

/// Code at 0x1000, data at 0x2000, the symbols and their strings.
fn with(kind: u32, symbols: &[[u8; 24]], strings: &[u8]) -> [Sec; 4] {
    let mut table = sec(".table", kind, 0, 0, &symbols.concat());
    table.link = 4;
    [
        sec(".text", PROGBITS, ALLOC | EXEC, 0x1000, &[0x90; 16]),
        sec(".data", PROGBITS, ALLOC, 0x2000, &[0; 16]),
        table,
        sec(".strings", STRTAB, 0, 0, strings),
    ]
}

#[test]
fn functions_and_labels_in_code_are_taken() {
    let cases = [
        (FUNC, 1, 0x1000, true),
        (FUNC, 2, 0x9000, true),
        (FUNC, 0, 0x1000, false),
        (IFUNC, 1, 0x1000, true),
        (IFUNC, 0, 0x1000, false),
        (OBJECT, 1, 0x1000, false),
        (OBJECT, 2, 0x2000, false),
        // A label in a section of code and at an address of code.
        (NOTYPE, 1, 0x1000, true),
        (NOTYPE, 1, 0x100f, true),
        (NOTYPE, 1, 0x1010, false),
        (NOTYPE, 1, 0xfff, false),
        (NOTYPE, 2, 0x1000, false),
        (NOTYPE, 0, 0x1000, false),
        (NOTYPE, 99, 0x1000, false),
    ];

    for (info, section, address, taken) in cases {
        let entry = symbol(1, info, section, address);
        let elf = elf_of(&with(SYMTAB, &[entry], b"\0f\0"), &[]);

        let expected = [(address, String::from("f"))];
        let expected = if taken { &expected[..] } else { &[] };
        assert_eq!(symbols(&elf), expected, "{info} {section} {address:#x}");
        assert!(elf.has_symtab && elf.problems.is_empty());
    }
}

/// The bindings are in the upper half of `st_info`.
#[test]
fn of_several_names_global_comes_before_weak_before_local() {
    const GLOBAL: u8 = 1 << 4;
    const WEAK: u8 = 2 << 4;
    let names = [
        (1, FUNC),
        (6, FUNC | WEAK),
        (10, FUNC | GLOBAL),
        (14, FUNC | GLOBAL),
        // What the resolver at this address chooses.
        (18, IFUNC | GLOBAL),
    ];
    let entries = names.map(|(name, info)| symbol(name, info, 1, 0x1000));
    let strings = b"\0aloc\0bar\0foo\0fox\0any\0";
    let elf = elf_of(&with(SYMTAB, &entries, strings), &[]);
    let image = elf.into_image();
    let found: Vec<&str> = image.symbols().iter().map(|s| s.name.as_str()).collect();
    assert_eq!(found, ["foo", "fox", "bar", "aloc", "any"]);
}

/// A function with the first name, whose `st_size` is 0.
fn unsized_at(address: u64) -> [u8; 24] {
    let mut entry = symbol(1, FUNC, 1, address);
    entry[16..].fill(0);
    entry
}

/// The dynamic table has only what is exported, so other functions may follow.
#[test]
fn an_exported_symbol_without_a_size_names_nothing_behind_it() {
    let named = |kind: u32, svma: u64| {
        let entries = [unsized_at(0x1000)];
        let image = elf_of(&with(kind, &entries, b"\0f\0"), &[]).into_image();
        image.symbol(svma).map(|s| s.name.clone())
    };
    let f = || Some(String::from("f"));
    assert_eq!((named(SYMTAB, 0x1000), named(SYMTAB, 0x1008)), (f(), f()));
    assert_eq!((named(DYNSYM, 0x1000), named(DYNSYM, 0x1008)), (f(), None));
}

/// Start files have symbols without sizes in `.init`; a procedure linkage table follows.
#[test]
fn the_code_of_init_and_fini_has_a_name_and_an_end() {
    let mut sections = with(SYMTAB, &[unsized_at(0x3000)], b"\0_init\0").to_vec();
    for (name, address) in [(".init", 0x3000), (".plt", 0x3010), (".fini", 0x3020)] {
        sections.push(sec(name, PROGBITS, ALLOC | EXEC, address, &[0x90; 16]));
    }
    let image = elf_of(&sections, &[]).into_image();
    let named = |svma| image.symbol(svma).map(|s| s.name.as_str());
    let names = [0x3000, 0x300f, 0x3010, 0x3020, 0x302f, 0x3030].map(named);
    let (init, fini) = (Some("_init"), Some("_fini"));
    assert_eq!(names, [init, init, Some(".plt"), fini, fini, None]);
}

#[test]
fn code_may_lie_in_ranges_that_overlap() {
    let mut sections = with(SYMTAB, &[], b"\0f\0").to_vec();
    let addresses = [
        0x1018, 0x1020, 0x1028, 0x1030, 0x1040, 0x104f, 0x1060, 0x1050, 0x105f, 0x1070,
    ];
    let entries = addresses.map(|address| symbol(1, NOTYPE, 1, address));
    sections[2].data = entries.concat();
    // 0x1000..0x1040 contains 0x1010..0x1018; 0x1030..0x1050 starts within it. More follows after a
    // gap.
    for (address, len) in [(0x1060, 0x10), (0x1030, 0x20), (0x1010, 8), (0x1000, 0x40)] {
        sections.push(sec(
            ".code",
            PROGBITS,
            ALLOC | EXEC,
            address,
            &vec![0x90; len],
        ));
    }
    let found: Vec<_> = symbols(&elf_of(&sections, &[]))
        .iter()
        .map(|s| s.0)
        .collect();
    assert_eq!(found, addresses[..7]);
}

#[test]
fn a_table_that_is_empty_or_left_out_gives_way_to_the_dynamic_one() {
    let entry = symbol(1, FUNC, 1, 0x1000);
    let dynamic = with(DYNSYM, &[entry], b"\0f\0");
    let expected = [(0x1000, String::from("f"))];
    assert_eq!(symbols(&elf_of(&dynamic, &[])), expected);
    // The table of a stripped program, then that of a program whose debug file has it.
    for (kind, len) in [(SYMTAB, 0), (SYMTAB, 24)] {
        let mut table = sec(".symtab", kind, 0, 0, &vec![0; len]);
        table.link = 4;
        let sections = [&dynamic[..], &[table]].concat();
        let elf = elf_of(&sections, &[]);
        assert_eq!(symbols(&elf).len(), usize::from(len == 0), "{len}");
        assert!(elf.problems.is_empty());
    }
}

#[test]
fn a_table_without_strings_is_a_problem_that_names_it() {
    for (kind, name) in [(SYMTAB, ".symtab"), (DYNSYM, ".dynsym")] {
        let mut sections = with(kind, &[symbol(1, FUNC, 1, 0x1000)], b"\0f\0");
        sections[2].link = 77;
        let elf = elf_of(&sections, &[]);
        let problem = elf.problems[0];
        assert_eq!(
            (problem.section, problem.what),
            (name, ElfErrorKind::Symbols)
        );
        assert_eq!(elf.parts.symbols.len(), 0);
    }
}

#[test]
fn names_may_have_as_many_bytes_as_the_limit_says() {
    let mut strings = vec![b'x'; 1 << 15];
    strings.push(0);
    for (more, problems) in [(0, 0), (1, 1)] {
        let mut entries = vec![symbol(0, FUNC, 1, 0x1000); 32];
        entries.extend(vec![symbol((1 << 15) - 1, FUNC, 1, 0x1000); more]);
        let elf = elf_of(&with(SYMTAB, &entries, &strings), &[]);
        assert_eq!(
            (elf.parts.symbols.len(), elf.problems.len()),
            (32, problems)
        );
    }
}

/// A file without section headers. Besides the dynamic entries, it has a segment at 0x1000 with a
/// hash table for `chain` symbols, the symbols, then the strings.
fn dynamic(chain: Option<u32>, strings_len: u64) -> Vec<(u64, String)> {
    const AT: u64 = 0x1000;
    let entries = [
        symbol(0, 0, 0, 0),
        symbol(1, FUNC, 1, 0x10),
        symbol(3, FUNC, 1, 0x20),
    ];
    // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_NULL.
    let tags = [if chain.is_some() { 4 } else { 99 }, 5, 6, 10, 0];
    let values = [AT, AT + 8 + 72, AT + 8, strings_len, 0];

    let mut tagged = Vec::new();
    for (tag, value) in tags.into_iter().zip(values) {
        tagged.extend(u64::to_le_bytes(tag));
        tagged.extend(value.to_le_bytes());
    }

    let mut bytes = Vec::new();
    bytes.extend([1u32.to_le_bytes(), chain.unwrap_or(0).to_le_bytes()].concat());
    bytes.extend(entries.concat());
    bytes.extend(b"\0f\0g\0");

    // This would be a symbol if the table did not end where the strings start.
    bytes.resize(8 + 4 * 24, 0);
    bytes.extend(symbol(1, FUNC, 1, 0x30));

    let section = sec(".all", PROGBITS, ALLOC, AT, &bytes);
    let tagged = sec(".dynamic", PROGBITS, ALLOC, 0x3000, &tagged);
    let mut file = file(&[section, tagged], &[(1, 5, 0), (2, 6, 1)]);
    // `e_shoff`, then `e_shnum` and `e_shstrndx`.
    file[40..48].fill(0);
    file[60..64].fill(0);
    symbols(&super::parse(file).expect("an ELF file"))
}

#[test]
fn without_section_headers_the_dynamic_segment_tells() {
    let (f, g) = ((0x10, String::from("f")), (0x20, String::from("g")));
    let both = [f.clone(), g];
    assert_eq!(dynamic(Some(3), 5), both);
    assert_eq!(dynamic(Some(2), 5), both[..1]);
    assert_eq!(dynamic(Some(1), 5), []);
    // The table ends where the strings start, or where the segment does.
    assert_eq!(dynamic(None, 5), both);
    let more = dynamic(Some(0x10_0000), 5);
    assert_eq!((&more[..2], more.len()), (&both[..], 3));
    // A name that does not end within the strings is dropped.
    assert_eq!(dynamic(None, 4), [f]);
}
