//! ORC tables in every layout: entries, searches, detection, damage.

use crate::random::Random;
use quickcheck::{Gen, QuickCheck};
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
use unwind_sim_unwind::orc::{
    Blocks, ENTRY_LEN, Encoding, Entry, EntryType, Layout, Orc, OrcReg, Sorted, SpIndirect, Table,
    by_entries,
};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;

const TEXT: u64 = 0xffff_ffff_8100_0000;
const IPS: u64 = 0xffff_ffff_8200_0000;

const CALL: Entry = Entry::NULL;

const fn with(base: Entry, sp_reg: OrcReg, sp_offset: i16) -> Entry {
    Entry {
        sp_reg,
        sp_offset,
        ..base
    }
}

const REGS: Entry = Entry {
    kind: EntryType::Regs,
    signal: true,
    ..with(CALL, OrcReg::Sp, 0)
};

const IRET: Entry = Entry {
    kind: EntryType::RegsPartial,
    ..REGS
};

const END: Entry = Entry {
    kind: EntryType::EndOfStack,
    ..Entry::UNDEFINED
};

/// `.orc_unwind` and `.orc_unwind_ip`, the latter at [`IPS`].
fn sections(entries: &[(u64, Entry)], layout: Layout) -> (Vec<u8>, Vec<u8>) {
    let unwind = entries.iter().flat_map(|(_, e)| e.encode(layout)).collect();
    let slot = |i: usize| IPS + 4 * i as u64;
    let relative = |(i, (ip, _)): (usize, &(u64, Entry))| (ip.wrapping_sub(slot(i))) as i32;
    let ips = entries.iter().enumerate().map(relative);
    (unwind, ips.flat_map(i32::to_le_bytes).collect())
}

fn image_of(unwind: Vec<u8>, ips: Vec<u8>, header: Option<Vec<u8>>) -> Arc<Image> {
    let section = |kind, address, data| Section {
        kind,
        address,
        data: Bytes::from_vec(data),
    };
    let mut sections = vec![
        section(SectionKind::OrcUnwind, IPS + 0x100_0000, unwind),
        section(SectionKind::OrcUnwindIp, IPS, ips),
    ];
    sections.extend(header.map(|h| section(SectionKind::OrcHeader, 0, h)));
    Arc::new(Image::new(ImageParts {
        text: std::iter::once(TEXT..TEXT + 0x1_0000).collect(),
        sections,
        ..ImageParts::default()
    }))
}

fn find(finder: &Orc, image: &Arc<Image>, svma: u64) -> Result<Rule, Reason> {
    find_with(finder, image, svma, &mut Cache::new())
}

fn find_with(
    finder: &Orc,
    image: &Arc<Image>,
    svma: u64,
    cache: &mut Cache,
) -> Result<Rule, Reason> {
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    };
    let row = finder.find(&mapping, svma, cache)?;
    let source = cache.source(row);
    assert!(source.start <= svma && svma < source.end, "{source:?}");
    assert_eq!(source.table, TableKind::Orc);
    Ok(*cache.rule(row))
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn golden_entries() {
    // struct orc_entry, by hand: s16 sp_offset, s16 bp_offset, u16 flags.
    let push_rbp = Entry {
        bp_reg: OrcReg::PrevSp,
        bp_offset: -16,
        ..with(CALL, OrcReg::Bp, 16)
    };

    for (entry, layout, bytes) in [
        (CALL, Layout::V4_14, "080000000500"),
        (CALL, Layout::V6_3, "080000000500"),
        (CALL, Layout::V6_4, "080000000502"),
        (CALL, Layout::V7_1, "080000000302"),
        (push_rbp, Layout::V4_14, "1000f0ff1400"),
        (push_rbp, Layout::V6_4, "1000f0ff1402"),
        (push_rbp, Layout::V7_1, "1000f0ff8402"),
        (REGS, Layout::V4_14, "000000000501"),
        (REGS, Layout::V6_3, "000000000505"),
        (REGS, Layout::V6_4, "00000000050b"),
        (IRET, Layout::V4_14, "000000000502"),
        (IRET, Layout::V7_1, "00000000030c"),
        (END, Layout::V4_14, "000000000004"),
        (END, Layout::V6_3, "000000000008"),
        (END, Layout::V6_4, "000000000001"),
        (Entry::UNDEFINED, Layout::V4_14, "000000000000"),
        (Entry::UNDEFINED, Layout::V7_1, "000000000000"),
    ] {
        // In both directions: the bytes are those of the format, and give the entry back.
        let bytes = hex(bytes);
        assert_eq!(entry.encode(layout).to_vec(), bytes, "{entry:?} {layout:?}");

        let array = bytes.try_into().unwrap();
        assert_eq!(Entry::decode(array, layout), Ok(entry), "{layout:?}");
    }
}

#[test]
fn every_flags_word_decodes_and_encodes_to_itself_or_is_refused() {
    for layout in Layout::ALL {
        let mut accepted = 0;
        for flags in 0..=u16::MAX {
            let [e, f] = flags.to_le_bytes();
            // Any two offsets: they are not checked.
            let bytes = [0x10, 0x80, 0xf0, 0x7f, e, f];
            let Ok(entry) = Entry::decode(bytes, layout) else {
                continue;
            };
            accepted += 1;

            let without_rule = matches!(entry.kind, EntryType::Undefined | EntryType::EndOfStack);
            // Before 6.4, an undefined sp_reg is decisive, whatever the type.
            if !without_rule || layout >= Layout::V6_4 {
                assert_eq!(entry.encode(layout), bytes, "{flags:#x} {layout:?}");
            }
        }

        let expected = match layout {
            // bp_reg 11 x (sp_reg 10 x type 3 + undefined x type 3 x end 2)
            Layout::V4_14 => 11 * (10 * 3 + 3 * 2),
            // the same, with signal
            Layout::V6_3 => 11 * (10 * 3 + 3 * 2) * 2,
            // sp_reg 11 x bp_reg 11 x type 5 x signal 2
            Layout::V6_4 | Layout::V7_1 => 11 * 11 * 5 * 2,
        };
        assert_eq!(accepted, expected, "{layout:?}");
    }
}

#[test]
fn what_entries_mean() {
    let at = |e: Entry, sp| e.rule(sp).map(|r| r.to_string());
    let rule = |e| at(e, SpIndirect::LoadThenAdd).unwrap();
    let base = |reg, offset| rule(with(CALL, reg, offset));

    assert_eq!(base(OrcReg::Sp, 8), "call cfa=rsp+8 ra=*(cfa-8) rbp=same");
    assert_eq!(
        base(OrcReg::BpIndirect, -8),
        "call cfa=*(rbp-8) ra=*(cfa-8) rbp=same"
    );
    assert_eq!(
        base(OrcReg::SpIndirect, 8),
        "call cfa=*(rsp)+8 ra=*(cfa-8) rbp=same"
    );

    // Before 5.12 the offset was added before the load.
    let old = at(with(CALL, OrcReg::SpIndirect, 8), SpIndirect::LoadAtOffset);
    assert_eq!(old.as_deref(), Ok("call cfa=*(rsp+8) ra=*(cfa-8) rbp=same"));

    for (reg, name) in [
        (OrcReg::R10, "r10"),
        (OrcReg::R13, "r13"),
        (OrcReg::Di, "rdi"),
        (OrcReg::Dx, "rdx"),
        (OrcReg::Ax, "rax"),
    ] {
        // These bases ignore sp_offset.
        assert_eq!(
            base(reg, 64),
            format!("call cfa={name} ra=*(cfa-8) rbp=same")
        );
    }
    assert_eq!(
        rule(Entry::FRAME_POINTER),
        "call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)"
    );
    assert_eq!(rule(REGS), "pt_regs cfa=rsp ra=*(cfa-8) rbp=same");
    assert_eq!(rule(IRET), "iret cfa=rsp ra=*(cfa-8) rbp=same");

    // A call with the bit is a signal's frame: its address is exact.
    let signal = Entry {
        signal: true,
        ..CALL
    };
    assert_eq!(rule(signal), "signal cfa=rsp+8 ra=*(cfa-8) rbp=same");

    let bp = Entry {
        bp_reg: OrcReg::Bp,
        bp_offset: 0,
        ..with(CALL, OrcReg::BpIndirect, -8)
    };
    assert_eq!(rule(bp), "call cfa=*(rbp-8) ra=*(cfa-8) rbp=*(rbp)");
    assert_eq!(rule(END), "outermost");

    // These two are never the base of sp.
    for reg in [OrcReg::Undefined, OrcReg::PrevSp] {
        assert!(at(with(CALL, reg, 8), SpIndirect::LoadThenAdd).is_err());
    }
}

#[test]
fn versions_and_hashes_name_their_layout() {
    let name = |v| Encoding::from_kernel_version(v).map(Encoding::as_str);

    for (version, expected) in [
        ("4.13", None),
        ("4.14", Some("4.14")),
        ("5.11.22", Some("4.14")),
        ("5.12", Some("5.12")),
        ("6.1.0-48-cloud-amd64", Some("5.12")),
        ("6.2", Some("5.12")),
        ("6.3.10", Some("6.3")),
        ("6.4", Some("6.4")),
        ("6.12.111", Some("6.4")),
        ("7.0-rc1", Some("6.4")),
        ("7.1", Some("7.1")),
        ("8.0", Some("7.1")),
        // Red Hat changed the layout within one version.
        ("5.14.0-503.11.1.el9_5.x86_64", Some("5.12")),
        ("5.14.0-570.el9.x86_64", Some("6.4")),
        ("", None),
        ("6", None),
        ("six.one", None),
    ] {
        assert_eq!(name(version), expected, "{version}");
    }

    for encoding in Encoding::ALL {
        assert_eq!(
            Encoding::from_kernel_version(encoding.as_str()),
            Some(encoding)
        );
    }
    for layout in Layout::ALL {
        assert_eq!(Layout::from_name(layout.as_str()), Some(layout));
    }

    // A SHA-1 of the definitions in `orc_types.h` (`scripts/orc_hash.sh`).
    let hash = hex("fe5d32bf581bd63b2ca9a5c65ba5a625eab3fe24");
    assert_eq!(Layout::from_hash(&hash), Some(Layout::V6_4));
    assert_eq!(Layout::from_hash(&hash[..19]), None);
}

/// The entries of a small compiled file, and an interrupt entry.
fn ordinary() -> Vec<(u64, Entry)> {
    let rbp = |e: Entry| Entry {
        bp_reg: OrcReg::PrevSp,
        bp_offset: -16,
        ..e
    };
    vec![
        (TEXT, CALL),
        (TEXT + 1, rbp(with(CALL, OrcReg::Sp, 16))),
        (TEXT + 4, rbp(with(CALL, OrcReg::Bp, 16))),
        (TEXT + 0x30, CALL),
        (TEXT + 0x31, Entry::UNDEFINED),
        (TEXT + 0x40, REGS),
        (TEXT + 0x44, with(REGS, OrcReg::SpIndirect, 8)),
        (TEXT + 0x50, END),
        (TEXT + 0x60, with(IRET, OrcReg::Sp, 8)),
        (TEXT + 0x70, with(CALL, OrcReg::R10, 0)),
        (TEXT + 0x300, Entry::UNDEFINED),
    ]
}

#[test]
fn layouts_are_detected_by_header_or_by_entries() {
    for layout in Layout::ALL {
        let (unwind, ips) = sections(&ordinary(), layout);
        let table = Table::new(&unwind, &ips, IPS).unwrap();
        assert_eq!(by_entries(&table), Some(layout));

        let image = image_of(unwind.clone(), ips.clone(), None);
        let auto = Orc::new(None, Tables::Real);
        let told = Orc::new(Some(Encoding::since_5_12(layout)), Tables::Real);
        for pc in TEXT..TEXT + 0x400 {
            assert_eq!(
                find(&auto, &image, pc),
                find(&told, &image, pc),
                "{layout:?}"
            );
        }

        // Only calls: 4.14 and 6.3 do not differ; the others do.
        let calls = &ordinary()[..4];
        let (unwind, ips) = sections(calls, layout);
        let table = Table::new(&unwind, &ips, IPS).unwrap();
        let expected = layout.max(Layout::V6_3);
        assert_eq!(
            by_entries(&table).map(|l| l.max(Layout::V6_3)),
            Some(expected)
        );
    }

    // The header decides, even if the entries fit another layout better.
    let header = hex("fe5d32bf581bd63b2ca9a5c65ba5a625eab3fe24");
    let (unwind, ips) = sections(&[(TEXT, Entry::UNDEFINED), (TEXT + 8, END)], Layout::V6_4);
    let image = image_of(unwind, ips, Some(header));
    let auto = Orc::new(None, Tables::Real);
    assert_eq!(find(&auto, &image, TEXT + 8), Ok(Rule::OUTERMOST));

    // Entries of no layout: the type bits say 7.
    let image = image_of(vec![8, 0, 0, 0, 5, 0xf7], vec![0; 4], None);
    let found = find(&auto, &image, TEXT).map_err(Reason::code);
    assert_eq!(found, Err(Code::MalformedRow));
}

/// `__orc_find`, statement by statement.
fn reference(table: &Sorted<'_>, svma: u64) -> Option<usize> {
    let (mut first, mut last, mut found) = (0, table.len() as i64 - 1, 0);
    if table.is_empty() {
        return None;
    }
    while first <= last {
        let mid = first + (last - first) / 2;
        if table.ip(mid as usize).unwrap() <= svma {
            found = mid;
            first = mid + 1;
        } else {
            last = mid - 1;
        }
    }
    Some(found as usize)
}

#[test]
fn gaps_edges_and_duplicates_are_found_as_linux_finds_them() {
    let layout = Layout::V6_4;
    let mut entries = ordinary();

    // A real entry at the address of a terminator; stored unsorted, the weak one last.
    entries.insert(0, (TEXT + 0x31, with(CALL, OrcReg::Sp, 32)));
    let (unwind, ips) = sections(&entries, layout);

    let table = Table::new(&unwind, &ips, IPS).unwrap();
    let order = table.order(layout).unwrap();
    let sorted = Sorted::new(table, Some(&order));
    for pc in TEXT - 4..TEXT + 0x400 {
        assert_eq!(sorted.find(pc), reference(&sorted, pc), "{pc:#x}");
    }

    let image = image_of(unwind, ips, None);
    let told = Orc::new(Some(Encoding::since_5_12(layout)), Tables::Real);
    let cfa = |pc| find(&told, &image, pc).map(|r| r.cfa.to_string());
    assert_eq!(
        cfa(TEXT + 0x31).as_deref(),
        Ok("rsp+32"),
        "not the weak one"
    );
    assert_eq!(
        cfa(TEXT + 0x3f).as_deref(),
        Ok("rsp+32"),
        "the previous entry covers a gap"
    );
    assert_eq!(cfa(TEXT + 0x2f).as_deref(), Ok("rbp+16"));
    assert_eq!(cfa(TEXT + 0x2ff).as_deref(), Ok("r10"));

    let end = find(&told, &image, TEXT + 0xffff).unwrap();
    assert_eq!(end.cfa.to_string(), "undefined", "US104 rather than US103");
}

#[test]
fn before_the_first_entry_the_first_one_holds() {
    let layout = Layout::V6_4;
    let entries = [
        (TEXT + 0x10, CALL),
        (TEXT + 0x20, with(CALL, OrcReg::Sp, 16)),
    ];
    let (unwind, ips) = sections(&entries, layout);
    let image = image_of(unwind, ips, None);
    let told = Orc::new(Some(Encoding::since_5_12(layout)), Tables::Real);
    assert_eq!(find(&told, &image, TEXT).unwrap().cfa.to_string(), "rsp+8");
}

/// Many entries, some at the same address, generated from `seed`.
fn many(seed: u64) -> Vec<(u64, Entry)> {
    let mut random = Random::new(seed);
    let kinds = [
        CALL,
        REGS,
        IRET,
        END,
        Entry::UNDEFINED,
        Entry::FRAME_POINTER,
    ];
    let mut ip = TEXT;
    let entry = |_| {
        ip += random.below_u64(40);
        (ip, random.pick(&kinds))
    };
    (0..700).map(entry).collect()
}

#[test]
fn blocks_find_what_a_plain_search_finds() {
    for seed in 0..4 {
        let (unwind, ips) = sections(&many(seed), Layout::V6_4);
        let table = Table::new(&unwind, &ips, IPS).unwrap();
        let order = table.order(Layout::V6_4);
        let sorted = Sorted::new(table, order.as_deref());
        let end = TEXT + 0x3801;
        let blocks = Blocks::new(&sorted, TEXT, end).unwrap();
        for pc in TEXT..end {
            assert_eq!(
                blocks.find(&sorted, pc),
                sorted.find(pc),
                "seed {seed} {pc:#x}"
            );
        }
        assert_eq!(blocks.find(&sorted, TEXT - 1), None);
        assert_eq!(blocks.find(&sorted, TEXT + 0x3900), None);
    }
}

#[test]
fn every_address_equals_a_linear_search() {
    let layout = Layout::V7_1;
    for seed in 0..3 {
        let mut entries = many(seed);
        let (unwind, ips) = sections(&entries, layout);
        let image = image_of(unwind, ips, None);
        let told = Orc::new(Some(Encoding::since_5_12(layout)), Tables::Real);
        let weak = |e: &Entry| e.kind == EntryType::Undefined;
        entries.sort_by_key(|(ip, e)| (*ip, !weak(e)));
        let mut cache = Cache::new();
        for pc in (TEXT..TEXT + 0x4000).step_by(3) {
            let last = entries.iter().rev().find(|(ip, _)| *ip <= pc);
            let (_, entry) = last.unwrap_or(&entries[0]);
            let expected = entry.rule(SpIndirect::LoadThenAdd).unwrap();
            let found = find_with(&told, &image, pc, &mut cache);
            assert_eq!(found, Ok(expected), "seed {seed} {pc:#x}");
        }
    }
}

#[test]
fn malformed_tables_say_what_and_where() {
    let wrong = |unwind: &[u8], ips: &[u8]| Table::new(unwind, ips, IPS).unwrap_err().to_string();

    let end = ".orc_unwind+0x6: the section ends within an entry";
    assert_eq!(wrong(&[0; 7], &[0; 4]), end);
    assert_eq!(
        wrong(&[0; 6], &[0; 5]),
        ".orc_unwind_ip+0x4: the section ends within an address"
    );
    assert_eq!(
        wrong(&[0; 12], &[0; 4]),
        ".orc_unwind_ip+0x4: number of addresses differs from number of entries"
    );

    // An entry that no kernel can apply is malformed; the others are not affected.
    let bad = with(CALL, OrcReg::PrevSp, 8);
    let (unwind, ips) = sections(&[(TEXT, CALL), (TEXT + 8, bad)], Layout::V6_4);
    let image = image_of(unwind, ips, None);
    let told = Orc::new(Some(Encoding::since_5_12(Layout::V6_4)), Tables::Real);
    assert!(find(&told, &image, TEXT).is_ok());

    let expected = Reason::MalformedRow {
        section: ".orc_unwind",
        offset: ENTRY_LEN as u64,
        what: "unknown SP base reg",
    };
    assert_eq!(find(&told, &image, TEXT + 9), Err(expected));

    // No entries at all.
    let image = image_of(Vec::new(), Vec::new(), None);
    assert_eq!(
        find(&told, &image, TEXT).map_err(Reason::code),
        Err(Code::NoRow)
    );
}

fn exercise(unwind: Vec<u8>, ips: Vec<u8>) {
    let image = image_of(unwind, ips, None);
    let encodings = Encoding::ALL.map(Some).into_iter().chain([None]);
    for encoding in encodings {
        let orc = Orc::new(encoding, Tables::Real);
        let mut cache = Cache::new();
        for pc in [
            0,
            1,
            TEXT,
            TEXT + 5,
            TEXT + 0x44,
            TEXT + 0x301,
            TEXT + 0x43,
            IPS,
            u64::MAX,
        ] {
            // Earlier lookups make no difference.
            let found = find_with(&orc, &image, pc, &mut cache);
            assert_eq!(found, find(&orc, &image, pc), "{encoding:?} {pc:#x}");
        }
    }
}

#[test]
fn every_flipped_byte_is_survived() {
    for layout in Layout::ALL {
        let (unwind, ips) = sections(&ordinary(), layout);
        for flip in [0xff, 0x01, 0x80] {
            for at in 0..unwind.len() {
                let mut unwind = unwind.clone();
                unwind[at] ^= flip;
                exercise(unwind, ips.clone());
            }
            for at in 0..ips.len() {
                let mut ips = ips.clone();
                ips[at] ^= flip;
                exercise(unwind.clone(), ips);
            }
        }
    }
}

#[test]
fn random_tables_are_survived() {
    fn property(entries: Vec<(i32, u32, u16)>) -> bool {
        let unwind = entries.iter().flat_map(|(_, offsets, flags)| {
            let mut bytes = offsets.to_le_bytes().to_vec();
            bytes.extend(flags.to_le_bytes());
            bytes
        });
        let ips = entries.iter().flat_map(|(ip, ..)| ip.to_le_bytes());
        exercise(unwind.collect(), ips.collect());
        true
    }
    let check = property as fn(Vec<(i32, u32, u16)>) -> bool;
    QuickCheck::new()
        .rng(Gen::new(120))
        .tests(500)
        .quickcheck(check);
}
