//! Tables of several functions with several CIEs, with and without a header.

use super::super::{Dwarf, compile_all};
use super::*;
use crate::finder::Finder;
use crate::image::Mapping;
use crate::regs::Reg;
use crate::rule::Value;
use alloc::sync::Arc;

/// The starts of functions of 0x100 bytes, and the offsets of their CFAs from rsp.
const FUNCTIONS: [(u64, i32); 3] = [(0x1000, 8), (0x2000, 16), (0x3000, 8)];
const HDR: u64 = 0x7000;

/// Three functions with two CIEs, the second of which stores addresses in four bytes.
fn eh_frame() -> (Vec<u8>, [usize; 3]) {
    let usual = Cie::default();
    let small = Cie {
        augmentation: "zR",
        data: &[1, 0x03],
        program: &[0x0c, 7, 16, 0x90, 1],
        ..Cie::default()
    };

    let mut out = usual.bytes(0);
    let second = out.len();
    out.extend(small.bytes(0));

    // The FDE in the middle belongs to the second CIE, with a shorter start and length.
    let mut offsets = [0; 3];
    for (i, (start, _)) in FUNCTIONS.into_iter().enumerate() {
        let at = out.len() + 4;
        let mut body = Vec::new();
        if i == 1 {
            // A CIE is found by the distance to it from this field (LSB 5.0).
            body.extend(((at - second) as u32).to_le_bytes());
            body.extend((start as u32).to_le_bytes());
            body.extend(0x100u32.to_le_bytes());
            body.push(0);
        } else {
            body.extend((at as u32).to_le_bytes());
            body.extend(start.to_le_bytes());
            body.extend(0x100u64.to_le_bytes());
        }

        offsets[i] = out.len();
        out.extend(entry(&body));
    }

    (out, offsets)
}

/// The image, with a header of this format that lists the first `count` functions.
fn with_header(format: Option<[u8; 4]>, count: usize) -> Image {
    let (bytes, offsets) = eh_frame();

    let section = |kind, address, bytes| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    };
    let mut sections = alloc::vec![section(SectionKind::EhFrame, ADDRESS, bytes)];

    if let Some(format) = format {
        let mut hdr = format.to_vec();
        // `eh_frame_ptr`, which is not used here.
        hdr.extend(0u32.to_le_bytes());
        hdr.extend((count as u32).to_le_bytes());

        // Pairs of a function and its FDE, relative to the header.
        for (i, (start, _)) in FUNCTIONS.into_iter().take(count).enumerate() {
            for to in [start, ADDRESS + offsets[i] as u64] {
                hdr.extend((to.wrapping_sub(HDR) as u32).to_le_bytes());
            }
        }
        sections.push(section(SectionKind::EhFrameHdr, HDR, hdr));
    }

    Image::new(ImageParts {
        text: alloc::vec![0..u64::MAX],
        sections,
        ..ImageParts::default()
    })
}

/// The CFA at the start of each function.
fn found(image: Image, cache: &mut Cache) -> [Result<Value, Reason>; 3] {
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    };
    FUNCTIONS.map(|(svma, _)| {
        let row = Dwarf::new().find(&mapping, svma + 0xff, cache)?;
        let source = cache.source(row);
        assert_eq!((source.start, source.end), (svma, svma + 0x100));
        Ok(cache.rule(row).cfa)
    })
}

#[test]
fn each_function_is_read_under_its_own_cie() {
    let expected = FUNCTIONS.map(|(_, cfa)| Ok(Value::reg(Reg::Rsp, cfa)));
    assert_eq!(found(with_header(None, 0), &mut Cache::new()), expected);
    let image = with_header(None, 0);
    let starts = FUNCTIONS.map(|(start, _)| start..start + 0x100);
    let (_, offsets) = eh_frame();
    let all = units(&image, TableKind::EhFrame).map(|unit| unit.expect("a function"));
    let all: Vec<_> = all.map(|unit| (unit.range, unit.offset as usize)).collect();
    let expected: Vec<_> = starts.into_iter().zip(offsets).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_header_in_the_usual_format_is_the_index() {
    let none = |pc| Err(Reason::NoRow { pc });
    let cfa = |offset| Ok(Value::reg(Reg::Rsp, offset));
    for format in [[1, 0x1b, 0x03, 0x3b], [1, 0x3b, 0x03, 0x3b]] {
        let all = found(with_header(Some(format), 3), &mut Cache::new());
        assert_eq!(all, [cfa(8), cfa(16), cfa(8)]);
        // A function missing from the header is not searched elsewhere.
        let some = found(with_header(Some(format), 1), &mut Cache::new());
        assert_eq!(some, [cfa(8), none(0x20ff), none(0x30ff)]);
    }
    // A header in another format or with an incomplete table is ignored.
    let other = found(
        with_header(Some([1, 0x1b, 0x03, 0x3a]), 1),
        &mut Cache::new(),
    );
    assert_eq!(other, [cfa(8), cfa(16), cfa(8)]);
}

#[test]
fn a_table_compiled_whole_is_counted() {
    for (header, count) in [(None, 0), (Some([1, 0x1b, 0x03, 0x3b]), 3)] {
        let compiled = compile_all(
            &with_header(header, count),
            TableKind::EhFrame,
            &mut Cache::new(),
        );
        let counts = (compiled.units, compiled.rows, compiled.malformed);
        assert_eq!(counts, (3, 3, 0));
    }

    // The first function's program starts with an unknown instruction.
    let (mut bytes, offsets) = eh_frame();
    bytes[offsets[0] + 24] = 0x3f;
    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    let mut cache = Cache::new();
    let compiled = compile_all(&image, TableKind::EhFrame, &mut cache);
    assert_eq!((compiled.units, compiled.malformed), (3, 1));
    assert_eq!(cache.unit_len(), 3);

    // Compiled one by one, they are the same units.
    assert_eq!(
        compile_unit(&image, TableKind::EhFrame, offsets[1] as u64, &mut cache).map(|_| ()),
        Ok(())
    );
    assert_eq!(cache.unit_len(), 3);
}

#[test]
fn the_unwinder_has_a_name() {
    assert_eq!(Finder::name(&Dwarf::new()), "dwarf");
}
