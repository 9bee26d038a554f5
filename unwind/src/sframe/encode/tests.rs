//! Encoded rows: the smallest size that fits, and the order of the words.

use super::*;

fn of(reg: Option<Reg>, deref: bool, offset: i32) -> Location {
    Location { reg, deref, offset }
}

fn row(cfa: Location, ra: Option<Location>, fp: Option<Location>) -> SframeRow {
    let track = |l: Option<Location>| l.map_or(Track::Absent, Track::At);
    SframeRow::Tracked {
        cfa,
        ra: track(ra),
        fp: track(fp),
    }
}

const SLOT: Location = Location {
    reg: None,
    deref: true,
    offset: -16,
};

fn bytes(row: &SframeRow, flex: bool) -> (u8, alloc::vec::Vec<u8>) {
    let (info, bytes) = row.encode(flex);
    (info, bytes.to_vec())
}

#[test]
fn sizes_change_where_a_byte_or_two_no_longer_hold_the_word() {
    for (word, size) in [
        (0, 0),
        (0x7f, 0),
        (0x80, 1),
        (-0x80, 0),
        (-0x81, 1),
        (0x7fff, 1),
        (0x8000, 2),
        (-0x8000, 1),
        (-0x8001, 2),
    ] {
        assert_eq!(signed_size(word), size, "{word:#x}");
        // In a flexible row, offsets determine the size; control words do not.
        assert_eq!(flex_size(&[0x83, word]), size, "{word:#x}");
        assert_eq!(flex_size(&[0x83, 1, 0x83, word]), size, "{word:#x}");
        assert_eq!(flex_size(&[0x83, word, 0, 0x83, 1]), size, "{word:#x}");
    }
    assert_eq!(flex_size(&[]), 0);
    assert_eq!(flex_size(&[0, 0x83, 0x80]), 1);
}

#[test]
fn default_rows_have_offsets_only() {
    let sp = of(Some(Reg::Rsp), false, 8);
    let bp = of(Some(Reg::Rbp), false, 16);
    // The info byte: whether the base is rsp; count from bit 1; size from bit 5.
    assert_eq!(bytes(&row(sp, None, None), false), (1 | 1 << 1, [8].into()));
    let with_fp = row(bp, None, Some(SLOT));
    assert_eq!(bytes(&with_fp, false), (2 << 1, [16, 0xf0].into()));
    let wide = row(of(Some(Reg::Rsp), false, 0x1234), None, Some(SLOT));
    let expected = [0x34, 0x12, 0xf0, 0xff].into();
    assert_eq!(bytes(&wide, false), (1 | 2 << 1 | 1 << 5, expected));
    let wider = row(of(Some(Reg::Rsp), false, 0x12345), None, None);
    let expected = [0x45, 0x23, 1, 0].into();
    assert_eq!(bytes(&wider, false), (1 | 1 << 1 | 2 << 5, expected));
    for flex in [false, true] {
        assert_eq!(bytes(&SframeRow::RaUndefined, flex), (0, [].into()));
    }
}

#[test]
fn flexible_rows_have_a_control_word_before_each_offset() {
    let sp = of(Some(Reg::Rsp), false, 8);
    let control = |reg: Reg, deref: u8| (reg as u8) << 3 | deref << 1 | 1;
    let (c, fp) = (control(Reg::Rsp, 0), Some(SLOT));
    let ra = Some(of(Some(Reg::Rdx), false, 0));
    let d = control(Reg::Rdx, 0);
    let cases: [(SframeRow, &[u8]); 4] = [
        (row(sp, None, None), &[c, 8]),
        // Without a return address, rbp follows a padding word.
        (row(sp, None, fp), &[c, 8, 0, 2, 0xf0]),
        (row(sp, ra, None), &[c, 8, d, 0]),
        (row(sp, ra, fp), &[c, 8, d, 0, 2, 0xf0]),
    ];
    for (row, expected) in cases {
        let info = (expected.len() as u8) << 1;
        assert_eq!(bytes(&row, true), (info, expected.to_vec()));
    }
    let loaded = row(of(Some(Reg::Rbp), true, -8), None, None);
    let expected = [control(Reg::Rbp, 1), 0xf8].into();
    assert_eq!(bytes(&loaded, true), (2 << 1, expected));
}

#[test]
fn default_rows_cannot_say_everything() {
    let sp = of(Some(Reg::Rsp), false, 8);
    let cases = [
        (SframeRow::RaUndefined, true),
        (row(sp, None, None), true),
        (row(of(Some(Reg::Rbp), false, 8), None, Some(SLOT)), true),
        (row(of(Some(Reg::R10), false, 8), None, None), false),
        (row(of(Some(Reg::Rsp), true, 8), None, None), false),
        (row(of(None, false, 8), None, None), false),
        (row(sp, Some(SLOT), None), false),
        (row(sp, None, Some(of(Some(Reg::Rsp), true, 8))), false),
        (row(sp, None, Some(of(None, false, 8))), false),
    ];
    for (row, expected) in cases {
        assert_eq!(row.is_default(), expected, "{row:?}");
    }
}

#[test]
fn a_return_address_in_its_usual_place_takes_no_words() {
    let rule = |ra| Rule {
        ra,
        ..Rule::call(Value::reg(Reg::Rsp, 8))
    };
    let ra = |value| match SframeRow::from_rule(&rule(value)) {
        Ok(SframeRow::Tracked { ra, .. }) => ra,
        other => panic!("{other:?}"),
    };
    assert_eq!(ra(Value::at_cfa(-8)), Track::Absent);
    let at = |offset| Track::At(of(None, true, offset));
    assert_eq!(ra(Value::at_cfa(8)), at(8));
    assert_eq!(ra(Value::at_cfa(-16)), at(-16));
}
