//! Derived rows of a function: the formula of a PLT, and limits of the formats.

use super::*;
use crate::image::{Bytes, ImageParts, Section};
use crate::orc::derived::OrcEntry;
use crate::sframe::derived::SframeV3;
use alloc::vec;
use alloc::vec::Vec;

const START: u64 = 0x1000;
/// rsp + 8 + 8 * (rip & 15 >= 11), as written by a linker.
const PLT: [u8; 13] = [
    0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
];

/// `.eh_frame` with a typical CIE (rsp + 8) and one function of `len` bytes with this program.
fn image(len: u64, program: &[u8]) -> Image {
    images_of(1, len, program)
}

/// The same with `functions` such functions, one after the other.
fn images_of(functions: u64, len: u64, program: &[u8]) -> Image {
    let entry = |body: Vec<u8>| {
        let mut body = body;
        // Zeros are `DW_CFA_nop`.
        body.resize(body.len().next_multiple_of(8), 0);
        let len = (body.len() as u32).to_le_bytes().to_vec();
        [len, body].concat()
    };

    // No augmentation, code alignment 1, data alignment -8, ra in column 16, CFA = rsp + 8, ra at
    // CFA - 8.
    let cie = entry(vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);

    let mut data = cie;
    for number in 0..functions {
        let mut fde = (data.len() as u32 + 4).to_le_bytes().to_vec();
        fde.extend((START + number * len).to_le_bytes());
        fde.extend(len.to_le_bytes());
        fde.extend(program);
        data.extend(entry(fde));
    }

    let data = Bytes::from_vec(data);

    Image::new(ImageParts {
        text: core::iter::once(0..u64::MAX).collect(),
        sections: vec![Section {
            kind: SectionKind::EhFrame,
            address: 0x8000,
            data,
        }],
        ..ImageParts::default()
    })
}

fn cfa<F: Format>(image: &Image, svma: u64, cache: &mut Cache) -> Result<Value, &'static str> {
    match find::<F>(image, svma, cache) {
        Ok(row) => Ok(cache.rule(row).cfa),
        Err(Reason::NotHeld { what }) => Err(what),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_plt_is_written_out_to_its_last_byte() {
    for len in [1, 11, 12, 16, 17, 27, 28, 48] {
        let image = image(len, &PLT);
        let derived = derive_all::<SframeV3>(&image, &mut Cache::new());
        let starts = (0..len).filter(|at| matches!(at % 16, 0 | 11)).count();
        assert_eq!(derived.rows as usize, starts, "{len}");
        assert_eq!(derived.losses.iter().count(), 0, "{len}");
        let mut cache = Cache::new();
        for at in 0..len {
            let offset = if at % 16 < 11 { 8 } else { 16 };
            let found = cfa::<SframeV3>(&image, START + at, &mut cache);
            assert_eq!(found, Ok(Value::reg(Reg::Rsp, offset)), "{at} of {len}");
        }
    }
}

#[test]
fn the_limit_of_plt_rows_is_exact() {
    // Two rows per 16 bytes.
    let most = 8 * PLT_ROWS_MAX as u64;
    for (len, lost) in [(most, 0), (most + 1, 1)] {
        let image = image(len, &PLT);
        let derived = derive_all::<SframeV3>(&image, &mut Cache::new());
        assert_eq!(derived.losses.count(Loss::TooManyRows), lost);
        assert_eq!(derived.losses.rows_lost(), lost);
        assert_eq!(derived.rows as usize, PLT_ROWS_MAX + lost as usize);
    }
}

/// Each PLT claims a megabyte.
#[test]
fn of_many_plts_most_are_compiled_when_they_are_asked_for() {
    const MEGABYTE: u64 = 8 * PLT_ROWS_MAX as u64;
    let image = images_of(8, MEGABYTE, &PLT);
    let mut cache = Cache::new();
    let derived = derive_all::<SframeV3>(&image, &mut cache);
    // The second PLT starts before the budget is spent and ends after it.
    assert_eq!(derived.rows as usize, 2 * PLT_ROWS_MAX + 6);
    assert_eq!(derived.losses.count(Loss::TooManyRows), 6);
    for function in [0, 1, 2, 7] {
        let svma = START + function * MEGABYTE + 16;
        for (at, offset) in [(0, 8), (11, 16)] {
            let expected = Ok(Value::reg(Reg::Rsp, offset));
            let alone = cfa::<SframeV3>(&image, svma + at, &mut Cache::new());
            assert_eq!(alone, expected, "{function}");
            assert_eq!(
                cfa::<SframeV3>(&image, svma + at, &mut cache),
                expected,
                "{function}"
            );
        }
    }
}

#[test]
fn a_function_of_4_gib_is_too_large() {
    for (len, lost) in [(u64::from(u32::MAX), 0), (1 << 32, 1)] {
        let derived = derive_all::<SframeV3>(&image(len, &[]), &mut Cache::new());
        assert_eq!(
            (derived.rows, derived.losses.count(Loss::TooLarge)),
            (1, lost)
        );
    }
}

#[test]
fn a_function_has_as_many_rows_as_the_format_counts() {
    // Every row except the first is one byte further and has another CFA.
    let rows = |count: usize| {
        let row = |i: usize| [0x41, 0x0e, [16, 8][i % 2]];
        let program: Vec<u8> = (1..count).flat_map(row).collect();
        image(count as u64, &program)
    };

    // One row too many removes all of them.
    let most = SframeV3::ROWS_MAX;
    for (count, lost) in [(most, 0), (most + 1, most + 1)] {
        let image = rows(count);
        let mut cache = Cache::new();
        let derived = derive_all::<SframeV3>(&image, &mut cache);
        assert_eq!(
            (derived.rows as usize, derived.losses.rows_lost() as usize),
            (count, lost)
        );
        assert_eq!(derived.losses.count(Loss::TooManyRows) as usize, lost);

        let found = cfa::<SframeV3>(&image, START + 2, &mut cache);
        let too_many = Loss::TooManyRows.description();
        let expected = if lost == 0 {
            Ok(Value::reg(Reg::Rsp, 16))
        } else {
            Err(too_many)
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn each_format_expresses_what_it_can() {
    // CFA = r11 + 8.
    let image = image(0x10, &[0x0c, 11, 8]);
    let mut cache = Cache::new();
    for _ in 0..2 {
        let sframe = cfa::<SframeV3>(&image, START, &mut cache);
        assert_eq!(sframe, Ok(Value::reg(Reg::R11, 8)));
        assert!(cfa::<OrcEntry>(&image, START, &mut cache).is_err());
    }
}

#[test]
fn rows_derived_during_a_walk_are_counted() {
    let image = image(0x10, &[0x41, 0x0e, 16, 0x41, 0x0e, 8]);
    let mut cache = Cache::new();
    for at in [0, 1, 2] {
        assert!(cfa::<SframeV3>(&image, START + at, &mut cache).is_ok());
    }
    let rows = cache.derived(image.id(), SframeV3::TABLE).rows;
    assert_eq!(rows, 3);
}

/// Whether `rule` is an ordinary frame's. If so, `F` must say of it what [`RuleKey::of_frame`]
/// says.
fn is_of_frame<F: Format>(rule: &Rule) -> bool {
    let key = RuleKey::of(rule);
    let Some((short, registers)) = key.and_then(RuleKey::of_frame) else {
        return false;
    };
    let made = transcribe::<F>(rule);
    assert_eq!(
        (made.rule, RuleKey::of(&made.rule)),
        (short.frame_rule(), Some(short)),
        "{rule}"
    );
    assert_eq!(
        made.lost,
        Lost {
            row: None,
            registers
        },
        "{rule}"
    );
    true
}

#[test]
fn every_format_says_of_an_ordinary_frame_what_its_short_form_says() {
    const { assert!(SframeV3::HOLDS_FRAMES && OrcEntry::HOLDS_FRAMES) };

    let slot = Value::at_cfa(-16);
    // On both sides of what the short form has room for.
    let values = [
        Value::Unspecified,
        Value::Same,
        Value::Undefined,
        slot,
        Value::at_cfa(-8),
        Value::at_cfa(-2016),
        Value::at_cfa(-2024),
        Value::at_cfa(-12),
        Value::reg(Reg::Rbp, 8),
    ];
    let offsets = [0, 8, 12, -8, 0x7fff, 0x8000, -0x8000, -0x8001, i32::MAX];
    let kinds = [
        RuleKind::Call,
        RuleKind::Signal,
        RuleKind::PtRegs,
        RuleKind::Iret,
        RuleKind::Outermost,
    ];

    // All combinations, since the short form and the rule must agree for each of them.
    let (mut usual, mut others) = (0, 0);
    for base in [Reg::Rsp, Reg::Rbp, Reg::R10] {
        for offset in offsets {
            for kind in kinds {
                let call = Rule {
                    kind,
                    ..Rule::call(Value::reg(base, offset))
                };
                let mut rules = vec![call];
                for value in values {
                    rules.push(Rule { ra: value, ..call });
                    rules.push(Rule { sp: value, ..call });
                    for reg in Reg::CALLEE_SAVED {
                        rules.push(call.with_saved(reg, value));
                        let both = call.with_saved(Reg::Rbp, slot);
                        rules.push(both.with_saved(reg, value));
                    }
                }

                for rule in &rules {
                    let is = is_of_frame::<SframeV3>(rule);
                    assert_eq!(is_of_frame::<OrcEntry>(rule), is);
                    *(if is { &mut usual } else { &mut others }) += 1;
                }
            }
        }
    }

    assert!(usual > 500 && others > 1000, "{usual} of {others}");
}
