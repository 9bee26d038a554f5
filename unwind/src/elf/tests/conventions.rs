//! What files say of the conventions of their code, by sections made by hand.

use super::build::*;
use super::*;
use crate::convention::{Convention, Evidence};

const TEXT: u64 = 0x1000;

/// Go's table of functions: one from `start` on, 32 bytes long.
fn go_table(said: u64) -> Vec<u8> {
    let mut out = 0xffff_fff1u32.to_le_bytes().to_vec();
    out.extend([0, 0, 1, 8]);
    for word in [1, 1, said, 0, 0, 0, 0, 72] {
        out.extend(word.to_le_bytes());
    }
    for half in [0u32, 16, 32, 0] {
        out.extend(half.to_le_bytes());
    }
    out.resize(72 + 64, 0);
    out
}

/// A compilation unit: who made it, its language, its code, and its functions: their code, calling
/// convention, and whether they are exported.
type Unit<'a> = (&'a str, u8, Range<u64>, &'a [(Range<u64>, u8, u8)]);

const ZIG: u8 = 0x27;
const C99: u8 = 0x0c;
/// `DW_CC_normal`
const NORMAL: u8 = 1;

/// The sections of the debugging information (DWARF 4).
fn dwarf(units: &[Unit<'_>]) -> [Sec; 2] {
    // DW_TAG_compile_unit with producer, language, low_pc and high_pc; DW_TAG_subprogram with
    // low_pc, high_pc, calling_convention and external.
    let abbreviations = [
        &[
            1, 0x11, 1, 0x25, 0x08, 0x13, 0x0b, 0x11, 0x01, 0x12, 0x06, 0, 0,
        ][..],
        &[
            2, 0x2e, 0, 0x11, 0x01, 0x12, 0x06, 0x36, 0x0b, 0x3f, 0x0c, 0, 0,
        ],
        &[0],
    ];

    let code = |range: &Range<u64>| {
        let length = (range.end - range.start) as u32;
        [&range.start.to_le_bytes()[..], &length.to_le_bytes()].concat()
    };

    let mut info = Vec::new();
    for (producer, language, range, functions) in units {
        // Version 4, abbreviations at 0, addresses of 8 bytes; then abbreviation 1.
        let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
        unit.extend(producer.bytes().chain([0, *language]));
        unit.extend(code(range));
        for (range, convention, external) in *functions {
            unit.push(2);
            unit.extend(code(range));
            unit.extend([*convention, *external]);
        }
        unit.push(0);
        info.extend((unit.len() as u32).to_le_bytes());
        info.extend(unit);
    }

    [
        sec(".debug_abbrev", PROGBITS, 0, 0, &abbreviations.concat()),
        sec(".debug_info", PROGBITS, 0, 0, &info),
    ]
}

/// An image of 64 bytes of code and these sections.
fn image(sections: &[Sec]) -> Image {
    let text = sec(".text", PROGBITS, ALLOC | EXEC, TEXT, &[0x90; 64]);
    let all = [&[text][..], sections].concat();
    let options = ReadOptions {
        producers: true,
        ..ReadOptions::default()
    };
    let bytes = Arc::new(file(&all, &[(1, 5, 0)]));
    super::super::read("test", bytes, &options)
        .expect("an ELF file")
        .into_image()
}

/// The convention at every eighth byte of the code, by its first letter.
fn text(image: &Image) -> String {
    let letter = |n: u64| image.convention(TEXT + 8 * n).0.as_str().chars().next();
    (0..8).filter_map(letter).collect()
}

use alloc::string::String;

fn pclntab(name: &'static str, said: u64) -> Sec {
    sec(name, PROGBITS, ALLOC, 0x2000, &go_table(said))
}

#[test]
fn gos_table_says_which_functions_are_gos() {
    let program = image(&[pclntab(".gopclntab", TEXT + 16)]);
    assert_eq!(text(&program), "ssggggss");
    assert_eq!(program.convention(TEXT + 16).1, Evidence::GoFunctions);
    assert_eq!(program.convention(TEXT).1, Evidence::Nothing);
    let shared = image(&[pclntab(".data.rel.ro.gopclntab", TEXT)]);
    assert_eq!(text(&shared), "ggggssss");
    // The loader fills in where the first function is: R_X86_64_RELATIVE.
    let place = (0x2000 + 24u64).to_le_bytes();
    let relocation = [&place[..], &8u64.to_le_bytes(), &(TEXT + 8).to_le_bytes()].concat();
    let relocations = sec(".rela.dyn", RELA, ALLOC, 0x3000, &relocation);
    let loaded = image(&[pclntab(".data.rel.ro.gopclntab", 0), relocations]);
    assert_eq!(text(&loaded), "sggggsss");
    // Without that, it is where the code starts.
    assert_eq!(text(&image(&[pclntab(".gopclntab", 0)])), "ggggssss");
}

#[test]
fn what_is_no_table_of_gos_leaves_code_system_v() {
    let note = sec(
        ".note.go.buildid",
        7,
        ALLOC,
        0x4000,
        b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd",
    );
    assert_eq!(text(&image(&[note])), "ssssssss");
    let mut damaged = pclntab(".gopclntab", TEXT);
    damaged.data[0] ^= 8;
    assert_eq!(text(&image(&[damaged])), "ssssssss");
    let outside = pclntab(".gopclntab", 0x7000);
    assert_eq!(text(&image(&[outside])), "ssssssss");
}

#[test]
fn a_unit_is_of_the_convention_of_its_compiler() {
    let of = |producer: &str, language| {
        let code = TEXT + 16..TEXT + 32;
        let found = image(&dwarf(&[(producer, language, code, &[])]));
        let (convention, evidence) = found.convention(TEXT + 16);
        assert_eq!(found.convention(TEXT).0, Convention::SystemV, "{producer}");
        let is_said = convention != Convention::SystemV;
        assert_eq!(evidence == Evidence::Producer, is_said, "{producer}");
        convention
    };
    assert_eq!(of("Go cmd/compile go1.22.1", 0x16), Convention::Go);
    assert_eq!(
        of(
            "The Glorious Glasgow Haskell Compilation System 9.0.2",
            0x18
        ),
        Convention::Ghc
    );
    assert_eq!(of("zig 0.15.1", ZIG), Convention::Zig);
    // By way of LLVM, Zig keeps C's registers.
    assert_eq!(of("zig 0.15.1", C99), Convention::SystemV);
    assert_eq!(of("GNU C17 12.2.0", C99), Convention::SystemV);
    assert_eq!(of("ziggurat 1", ZIG), Convention::SystemV);
}

#[test]
fn a_functions_own_word_overrules_its_unit_and_a_unit_overrules_gos_table() {
    let functions = [
        (TEXT..TEXT + 8, NORMAL, 0),
        (TEXT + 8..TEXT + 16, NORMAL, 1),
        (TEXT + 16..TEXT + 24, 0xcd, 0),
    ];

    let zig = ("zig 0.15.1", ZIG, TEXT..TEXT + 32, &functions[..]);
    let found = image(&dwarf(&[zig]));
    assert_eq!(text(&found), "zspzssss");
    assert_eq!(
        found.convention(TEXT + 8),
        (Convention::SystemV, Evidence::Function)
    );
    assert_eq!(found.convention(TEXT + 16).0, Convention::PreserveNone);

    // C beside Go, in a table that claims its code, too.
    let c = ("GNU C17 12.2.0", C99, TEXT + 16..TEXT + 24, &[][..]);
    let both = [&[pclntab(".gopclntab", TEXT)], &dwarf(&[c])[..]].concat();
    let mixed = image(&both);
    assert_eq!(text(&mixed), "ggsgssss");
    assert_eq!(mixed.convention(TEXT + 16).1, Evidence::Producer);

    // An assembler is no compiler.
    let assembler = ("GNU AS 2.40", 1, TEXT + 16..TEXT + 24, &[][..]);
    let both = [&[pclntab(".gopclntab", TEXT)], &dwarf(&[assembler])[..]].concat();
    assert_eq!(text(&image(&both)), "ggggssss");
}

#[test]
fn clangs_conventions_are_known_by_number() {
    let numbers = [
        (0xc1, Convention::Ms),
        (0xc9, Convention::PreserveMost),
        (0xca, Convention::PreserveAll),
        (0xcb, Convention::Regcall),
        (0xcd, Convention::PreserveNone),
        (0xc8, Convention::SystemV),
        (NORMAL, Convention::SystemV),
    ];
    for (number, convention) in numbers {
        let functions = [(TEXT..TEXT + 8, number, 0)];
        let unit = ("clang version 19.1.7", C99, TEXT..TEXT + 32, &functions[..]);
        let found = image(&dwarf(&[unit]));
        assert_eq!(found.convention(TEXT).0, convention, "{number:#x}");
        assert_eq!(found.convention(TEXT + 8).0, Convention::SystemV);
    }
}

#[test]
fn damaged_debugging_information_says_nothing_wrong() {
    let functions = [(TEXT..TEXT + 8, 0xcd, 0)];
    let unit = ("zig 0.15.1", ZIG, TEXT..TEXT + 32, &functions[..]);
    let good = dwarf(&[unit]);
    let whole = text(&image(&good));
    for section in 0..2 {
        for at in 0..good[section].data.len() {
            let mut cut = good.clone();
            cut[section].data.truncate(at);
            let found = text(&image(&cut));
            assert!(found.chars().all(|c| "szp".contains(c)), "{found}");
            let mut changed = good.clone();
            changed[section].data[at] ^= 0xff;
            let _ = image(&changed);
        }
    }
    assert_eq!(whole, "pzzzssss");
}

/// The image keeps what was said, without the file.
#[test]
fn an_image_has_its_conventions_as_bytes() {
    let program = image(&[pclntab(".gopclntab", TEXT + 16)]);
    let section = program.section(SectionKind::Conventions).expect("said");
    let parts = ImageParts {
        sections: vec![section.clone()],
        ..ImageParts::default()
    };
    assert_eq!(text(&Image::new(parts)), "ssggggss");
    assert!(image(&[]).section(SectionKind::Conventions).is_none());
}
