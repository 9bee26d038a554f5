//! Rows derived from `.eh_frame`: a derived row equals the original, and losses are counted.

use crate::common::image;
use std::sync::Arc;
use unwind_sim_unwind::cache::{Cache, RowId};
use unwind_sim_unwind::derived::{self, Derived, Format, Loss, Tables};
use unwind_sim_unwind::dwarf::{self, Dwarf};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
use unwind_sim_unwind::orc::{Orc, derived::OrcEntry};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};
use unwind_sim_unwind::sframe::{Profile, Sframe, derived::SframeV3};

const SFRAME: Sframe = Sframe::new(Profile::Spec, Tables::Derived);
const ORC: Orc = Orc::new(None, Tables::Derived);

fn mapping(image: &Arc<Image>) -> Mapping {
    Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    }
}

/// CFA, return address, rbp. "No rule" and "unchanged" are treated alike, as by a walk.
fn frame(rule: &Rule) -> (RuleKind, Value, Value, Value) {
    if rule.kind == RuleKind::Outermost {
        return (
            rule.kind,
            Value::Undefined,
            Value::Undefined,
            Value::Undefined,
        );
    }
    let rbp = match rule.saved(Reg::Rbp) {
        Value::Unspecified => Value::Same,
        value => value,
    };
    (rule.kind, rule.cfa, rule.ra, rbp)
}

/// Compares every row of `image`'s .eh_frame with the derived one. Returns the number compared.
fn compare<F: Format>(image: &Arc<Image>, finder: &dyn Finder) -> (usize, Derived) {
    let mut cache = Cache::new();
    let mapping = mapping(image);
    let eh_frame = image.section(SectionKind::EhFrame).unwrap();

    let mut compared = 0;
    for unit in dwarf::units(image, TableKind::EhFrame) {
        let Ok(unit) = unit else { continue };
        let made = dwarf::compile_unit(image, TableKind::EhFrame, unit.offset, &mut cache);
        let Ok(id) = made else { continue };

        let rows: Vec<RowId> = cache.unit_rows(id).collect();
        for row in rows {
            let source = cache.source(row);
            let rule = derived::simplify(cache.rule(row), &eh_frame.data);

            // An FDE may be hidden by another one, so that the table does not find it.
            let found = Dwarf::new().find(&mapping, source.start, &mut cache);
            if found.ok().map(|r| cache.source(r).unit_offset) != Some(unit.offset) {
                continue;
            }

            // A formula that a format holds although it cannot be simplified is a PLT's.
            let plt = matches!(rule.cfa, Value::Expression(_));

            // The row must be the same from its first address to its last.
            for pc in [
                source.start,
                (source.start + source.end) / 2,
                source.end - 1,
            ] {
                let derived = finder.find(&mapping, pc, &mut cache);
                match derived {
                    Ok(row) if plt => check_plt(cache.rule(row), pc, source.start),
                    Ok(row) => {
                        let at = cache.source(row);
                        assert_eq!(at.table, F::TABLE);
                        assert_eq!((at.start, at.end), (source.start, source.end));
                        assert_eq!(at.row_offset, source.row_offset);
                        let (ours, theirs) = (frame(cache.rule(row)), frame(&rule));
                        assert_eq!(ours, theirs, "{} {pc:#x}", image.name());
                        compared += 1;
                    }
                    Err(Reason::NotHeld { .. }) => {
                        // What the finder does not have, the format cannot express.
                        assert!(F::transcribe(&rule).is_err(), "{rule} {pc:#x}");
                    }
                    Err(other) => panic!("{} {pc:#x}: {other}", image.name()),
                }
            }
        }
    }

    (compared, derived::derive_all::<F>(image, &mut cache))
}

/// A lazy PLT's entry: `jmp` (6 bytes), `push` (5 bytes), `jmp`.
fn check_plt(rule: &Rule, pc: u64, start: u64) {
    let cfa = if pc % 16 >= 11 { 16 } else { 8 };
    assert!(start.is_multiple_of(16));
    assert_eq!(rule.cfa, Value::reg(Reg::Rsp, cfa), "{pc:#x}");
}

#[test]
fn derived_rows_say_what_dwarf_says() {
    // Debian-like systems have the first two. The dynamic linker and libcrypto have hand-written
    // rows.
    let files = [
        ("/bin/ls", true),
        ("/lib/x86_64-linux-gnu/libc.so.6", true),
        ("/lib64/ld-linux-x86-64.so.2", false),
        ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", false),
    ];

    for (path, needed) in files {
        let Some(image) = image(path) else {
            assert!(!needed, "{path}");
            continue;
        };
        for (compared, derived) in [
            compare::<SframeV3>(&image, &SFRAME),
            compare::<OrcEntry>(&image, &ORC),
        ] {
            let lost = derived.losses.rows_lost();
            let losses: Vec<_> = derived.losses.iter().collect();
            println!(
                "{} {compared} {} rows, {losses:?}",
                image.name(),
                derived.rows
            );

            assert!(compared > 100);
            // Compiled code fits, except for a few realigned frames and hand-written ones.
            assert!(lost * 50 <= derived.rows, "{} {losses:?}", image.name());
        }
    }
}

#[test]
fn sframe_can_express_a_sigreturn_frame_and_orc_cannot() {
    let libc = image("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    let mut cache = Cache::new();
    let mapping = mapping(&libc);

    let mut signal = 0;
    let units: Vec<_> = dwarf::units(&libc, TableKind::EhFrame).flatten().collect();
    for unit in units {
        let at = unit.range.start + 1;

        let Ok(row) = Dwarf::new().find(&mapping, at, &mut cache) else {
            continue;
        };
        if cache.rule(row).kind != RuleKind::Signal {
            continue;
        }

        signal += 1;
        let row = SFRAME.find(&mapping, at, &mut cache).unwrap();
        let text = cache.rule(row).to_string();
        assert_eq!(text, "signal cfa=*(rsp+160) ra=*(rsp+168) rbp=*(rsp+120)");

        let lost = ORC.find(&mapping, at, &mut cache);
        let what = Loss::SignalFrame.description();
        assert_eq!(lost, Err(Reason::NotHeld { what }));
    }

    assert_eq!(signal, 1, "__restore_rt");
    let losses = derived::derive_all::<OrcEntry>(&libc, &mut cache).losses;
    assert!(losses.count(Loss::SignalFrame) > 0);
}

/// Writes an `.eh_frame` with one CIE and one FDE of `size` bytes at 0x1000.
fn eh_frame(augmentation: &str, cfi: &[u8], size: u32) -> Arc<Image> {
    let pad = |mut body: Vec<u8>| {
        while body.len() % 8 != 4 {
            body.push(0);
        }
        let mut out = (body.len() as u32).to_le_bytes().to_vec();
        out.extend(body);
        out
    };

    let mut cie = vec![0, 0, 0, 0, 1];
    // Code alignment 1, data alignment -8, the return address in column 16.
    cie.extend(augmentation.bytes().chain([0, 1, 0x78, 16]));
    // cfa = rsp + 8, ra at cfa - 8.
    cie.extend([0x0c, 7, 8, 0x90, 1]);
    let mut data = pad(cie);

    let mut fde = (data.len() as u32 + 4).to_le_bytes().to_vec();
    fde.extend(0x1000_u64.to_le_bytes());
    fde.extend(u64::from(size).to_le_bytes());
    fde.extend(cfi);
    data.extend(pad(fde));
    data.extend([0; 4]);

    let text = 0x1000..0x1000 + u64::from(size);
    Arc::new(Image::new(ImageParts {
        text: vec![text],
        sections: vec![Section {
            kind: SectionKind::EhFrame,
            address: 0x8000,
            data: Bytes::from_vec(data),
        }],
        ..ImageParts::default()
    }))
}

/// The rule or the loss, for SFrame and for ORC.
type Outcomes = [Result<String, String>; 2];

/// Derives this CFI for both formats.
fn derive(augmentation: &str, cfi: &[u8]) -> Outcomes {
    let image = eh_frame(augmentation, cfi, 0x40);
    let finders: [&dyn Finder; 2] = [&SFRAME, &ORC];
    finders.map(|finder| {
        let mut cache = Cache::new();
        match finder.find(&mapping(&image), 0x1004, &mut cache) {
            Ok(row) => Ok(cache.rule(row).to_string()),
            Err(reason @ Reason::NotHeld { what }) => {
                assert_eq!(reason.code(), Code::NoRow);
                let all = Loss::ALL.iter().find(|l| l.description() == what);
                Err(all.unwrap().as_str().into())
            }
            Err(other) => Err(other.to_string()),
        }
    })
}

#[test]
fn every_loss_is_named() {
    let same = |rule: &str| [Ok(rule.into()), Ok(rule.into())];
    let lost = |loss: &str| [Err(loss.into()), Err(loss.into())];
    let orc = |rule: &str, loss: &str| [Ok(rule.into()), Err(loss.into())];

    let cases: &[(&[u8], Outcomes)] = &[
        (&[], same("call cfa=rsp+8 ra=*(cfa-8) rbp=same")),
        // def_cfa rbp 16; offset rbp, rbx
        (
            &[0x0c, 6, 16, 0x86, 2, 0x83, 3],
            same("call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)"),
        ),
        // undefined ra
        (&[0x07, 16], same("outermost")),
        // def_cfa r10 0
        (&[0x0c, 10, 0], same("call cfa=r10 ra=*(cfa-8) rbp=same")),
        // def_cfa r10 8: ORC ignores the offset of such a base
        (
            &[0x0c, 10, 8],
            orc("call cfa=r10+8 ra=*(cfa-8) rbp=same", "cfa-offset"),
        ),
        // def_cfa r11 0
        (
            &[0x0c, 11, 0],
            orc("call cfa=r11 ra=*(cfa-8) rbp=same", "cfa-register"),
        ),
        // def_cfa rsp 0x9000: more than 16 bits
        (
            &[0x0c, 7, 0x80, 0xa0, 0x02],
            orc("call cfa=rsp+36864 ra=*(cfa-8) rbp=same", "cfa-offset"),
        ),
        // def_cfa_expression breg6 -8; deref, and rbp at *(rbp)
        (
            &[0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0],
            same("call cfa=*(rbp-8) ra=*(cfa-8) rbp=*(rbp)"),
        ),
        // breg7 16; deref
        (
            &[0x0f, 3, 0x77, 16, 0x06],
            orc("call cfa=*(rsp+16) ra=*(cfa-8) rbp=same", "cfa-load"),
        ),
        // breg7 0; deref; plus_uconst 8
        (
            &[0x0f, 5, 0x77, 0, 0x06, 0x23, 8],
            [
                Err("cfa-load".into()),
                Ok("call cfa=*(rsp)+8 ra=*(cfa-8) rbp=same".into()),
            ],
        ),
        // breg7 0; deref; deref
        (&[0x0f, 4, 0x77, 0, 0x06, 0x06], lost("cfa-expression")),
        // ra at cfa - 16
        (
            &[0x90, 2],
            orc("call cfa=rsp+8 ra=*(cfa-16) rbp=same", "ra-slot"),
        ),
        // ra in rdx
        (
            &[0x09, 16, 1],
            orc("call cfa=rsp+8 ra=rdx rbp=same", "ra-register"),
        ),
        // ra by val_expression lit0
        (&[0x16, 16, 1, 0x30], lost("ra-expression")),
        // rbp: undefined; in rax; val_offset -16; expression lit0; at cfa - 0x20000
        (&[0x07, 6], lost("rbp-undefined")),
        (
            &[0x09, 6, 0],
            orc("call cfa=rsp+8 ra=*(cfa-8) rbp=rax", "rbp-rule"),
        ),
        (&[0x14, 6, 2], lost("rbp-rule")),
        (&[0x16, 6, 1, 0x30], lost("rbp-expression")),
        (
            &[0x86, 0x80, 0x80, 0x01],
            orc("call cfa=rsp+8 ra=*(cfa-8) rbp=*(cfa-131072)", "rbp-offset"),
        ),
        // val_offset rsp 16
        (&[0x14, 7, 2], lost("sp-rule")),
    ];

    for (cfi, expected) in cases {
        assert_eq!(&derive("", cfi), expected, "{cfi:x?}");
    }

    let signal = derive("S", &[0x10, 16, 3, 0x77, 0xa8, 0x01]);
    assert_eq!(
        signal,
        orc("signal cfa=rsp+8 ra=*(rsp+168) rbp=same", "signal-frame")
    );
    assert_eq!(
        derive("S", &[]),
        same("signal cfa=rsp+8 ra=*(cfa-8) rbp=same")
    );
}

#[test]
fn losses_are_counted_once_for_each_row() {
    // Row 1: rbx saved. Row 2: rbp undefined. Row 3: neither.
    let cfi = [0x83, 2, 0x44, 0x07, 6, 0x44, 0xc6, 0xc3];
    let image = eh_frame("", &cfi, 0x40);

    // Twice, since the second time everything is in the cache.
    let mut cache = Cache::new();
    for _ in 0..2 {
        let made = derived::derive_all::<SframeV3>(&image, &mut cache);
        let losses: Vec<_> = made.losses.iter().collect();
        assert_eq!(losses, [(Loss::RbpUndefined, 1), (Loss::CalleeSaved, 1)]);
        assert_eq!((made.rows, made.losses.rows_lost()), (3, 1));
    }

    let mapping = mapping(&image);
    for (pc, held) in [
        (0x1003, true),
        (0x1004, false),
        (0x1007, false),
        (0x1008, true),
    ] {
        assert_eq!(
            SFRAME.find(&mapping, pc, &mut cache).is_ok(),
            held,
            "{pc:#x}"
        );
    }
}

#[test]
fn sframe_cannot_count_more_than_65535_rows() {
    let mut cfi = Vec::new();
    for row in 0..70_000_u32 {
        // advance_loc 1; def_cfa_offset 8 or 16
        cfi.extend([0x41, 0x0e, if row % 2 == 0 { 8 } else { 16 }]);
    }
    let image = eh_frame("", &cfi, 80_000);
    let mut cache = Cache::new();
    let found = SFRAME.find(&mapping(&image), 0x1004, &mut cache);
    let what = Loss::TooManyRows.description();
    assert_eq!(found, Err(Reason::NotHeld { what }));
    assert!(ORC.find(&mapping(&image), 0x1004, &mut cache).is_ok());
}

#[test]
fn a_real_table_comes_before_a_derived_one() {
    let mut parts = ImageParts {
        text: std::iter::once(0x401000..0x402000).collect(),
        ..ImageParts::default()
    };

    let eh = eh_frame("", &[], 0x40);
    parts.sections.extend(eh.sections().iter().cloned());
    // A recorded section, with functions from 0x401000 on.
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../corpus/sframe/v3.sframe.bin"
    );
    parts.sections.push(Section {
        kind: SectionKind::Sframe,
        address: 0x403000,
        data: Bytes::from_vec(std::fs::read(file).unwrap()),
    });

    let image = Arc::new(Image::new(parts));

    let table = |finder: &dyn Finder, pc| {
        let mut cache = Cache::new();
        let row = finder.find(&mapping(&image), pc, &mut cache);
        row.map(|row| cache.source(row).table).map_err(Reason::code)
    };

    // A section that is there is used alone, even where it has no row.
    let both = Sframe::new(Profile::Spec, Tables::RealOrDerived);
    let real = Sframe::new(Profile::Spec, Tables::Real);
    assert_eq!(table(&both, 0x401000), Ok(TableKind::Sframe));
    assert_eq!(
        table(&both, 0x1000),
        Err(Code::NoRow),
        "not from another table"
    );

    assert_eq!(table(&real, 0x401000), Ok(TableKind::Sframe));
    assert_eq!(table(&SFRAME, 0x1000), Ok(TableKind::SframeDerived));

    let orc = Orc::new(None, Tables::RealOrDerived);
    assert_eq!(table(&orc, 0x1000), Ok(TableKind::OrcDerived));
    assert_eq!(
        table(&Orc::new(None, Tables::Real), 0x1000),
        Err(Code::NoTable)
    );
}

#[test]
fn damaged_eh_frame_is_survived() {
    // A realigned frame, a PLT's formula, and a loss.
    let cfi = [
        0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0c, 10, 0, 0x44, 0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2,
        0x76, 0, 0x48, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22, 0x44,
        0x07, 6,
    ];

    let good = eh_frame("", &cfi, 0x40);
    let data = good.section(SectionKind::EhFrame).unwrap().data.to_vec();
    let finders: [&dyn Finder; 2] = [&SFRAME, &ORC];

    // Every byte is changed, entirely or in its lowest bit.
    for at in 0..data.len() {
        for flip in [0xff, 0x01] {
            let mut data = data.clone();
            data[at] ^= flip;

            let image = Arc::new(Image::new(ImageParts {
                text: std::iter::once(0x1000..0x1040).collect(),
                sections: vec![Section {
                    kind: SectionKind::EhFrame,
                    address: 0x8000,
                    data: Bytes::from_vec(data),
                }],
                ..ImageParts::default()
            }));

            for finder in finders {
                let mut cache = Cache::new();
                for pc in [0x1004, 0x101b] {
                    let rule = |cache: &mut Cache| {
                        let row = finder.find(&mapping(&image), pc, cache)?;
                        let source = cache.source(row);
                        assert!(source.start <= pc && pc < source.end, "{at} {pc:#x}");
                        Ok(*cache.rule(row))
                    };

                    // Earlier lookups make no difference.
                    let (shared, fresh): (Result<_, Reason>, _) =
                        (rule(&mut cache), rule(&mut Cache::new()));
                    assert_eq!(shared, fresh, "{at} {flip:#x} {pc:#x}");
                }

                derived::derive_all::<SframeV3>(&image, &mut cache);
                derived::derive_all::<OrcEntry>(&image, &mut cache);
            }
        }
    }
}

#[test]
fn a_plt_is_written_out() {
    // From the 16th byte: rsp + 8, plus 8 from the 11th byte of every 16.
    let cfi = [
        0x50, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
    ];

    let image = eh_frame("", &cfi, 0x40);
    let finders: [&dyn Finder; 2] = [&SFRAME, &ORC];
    for finder in finders {
        let mut cache = Cache::new();
        for pc in 0x1000..0x1040 {
            let row = finder.find(&mapping(&image), pc, &mut cache).unwrap();
            let offset = if pc >= 0x1010 && pc % 16 >= 11 { 16 } else { 8 };
            assert_eq!(cache.rule(row).cfa, Value::reg(Reg::Rsp, offset), "{pc:#x}");
        }
    }

    // A PLT that pushes after 6 bytes, in a unit that starts within a block.
    let cfi = [
        0x46, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x36, 0x2a, 0x33, 0x24, 0x22,
    ];
    let image = eh_frame("", &cfi, 0x23);

    let mut cache = Cache::new();
    for pc in 0x1006..0x1023 {
        let row = SFRAME.find(&mapping(&image), pc, &mut cache).unwrap();
        let offset = if pc % 16 >= 6 { 16 } else { 8 };
        assert_eq!(cache.rule(row).cfa, Value::reg(Reg::Rsp, offset), "{pc:#x}");
    }
}
