//! Tests of grouping by cause, the content of groups, and their order.

use super::*;
use crate::verify::fixture::{BIAS, CODE, FUNCTIONS, START, finding_at, image, results, row};
use crate::verify::places::PlaceId;
use crate::whole::one_row::rows;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;

/// The distance between the images.
const APART: u64 = 0x10_0000;

/// Images with these names, each with the same two functions.
fn images(names: &[&str]) -> Vec<Mapping> {
    let biases = (1..).map(|number| number * APART);
    let all = names.iter().zip(biases);
    all.map(|(name, bias)| image(name, bias, &CODE, &FUNCTIONS))
        .collect()
}

/// Results of a run with three libraries.
fn run(findings: Vec<Finding>) -> Results {
    let mappings = images(&["/lib/one", "/lib/two", "/lib/three"]);
    Results {
        findings,
        ..results(&mappings, &[])
    }
}

fn address(place: PlaceId, svma: u64) -> u64 {
    BIAS + u64::from(place) * APART + svma
}

/// A wrong CFA.
fn wrong(place: PlaceId, svma: u64) -> Finding {
    finding_at(place, CodeAddress::Instruction(address(place, svma)))
}

/// The finding with this row of a derived table.
fn by_row(finding: Finding, unit: u64, offset: u64) -> Finding {
    let mut finding = finding;
    finding.contradiction.row = Some(row(TableKind::OrcDerived, unit, offset));
    finding
}

/// A row that the format cannot represent.
fn not_held(place: PlaceId, svma: u64, what: &'static str) -> Finding {
    let mut finding = wrong(place, svma);
    finding.contradiction.reason = Some(Reason::NotHeld { what });
    finding
}

/// Executed code without a row.
fn missing(place: PlaceId, svma: u64) -> Finding {
    let mut finding = wrong(place, svma);
    let pc = finding.address;
    (finding.code, finding.reg) = (Code::NoRowForExecuted, Reg::Rip);
    let contradiction = &mut finding.contradiction;
    (contradiction.code, contradiction.reg) = (Code::NoRowForExecuted, Reg::Rip);
    (contradiction.given, contradiction.reason) = (None, Some(Reason::NoRow { pc }));
    finding
}

fn count(findings: Vec<Finding>) -> usize {
    groups(&run(findings)).len()
}

#[test]
fn findings_of_one_row_and_function_have_one_cause() {
    let all = [(0x1000, 9, 2), (0x1001, 4, 3), (0x1004, 7, 5)];
    let all = all.map(|(svma, first, count)| Finding {
        first,
        count,
        ..by_row(wrong(0, svma), 16, 24)
    });
    let results = run(all.to_vec());
    let found = groups(&results);
    let [group] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((group.unwinder, group.class), (0, Class::Wrong));
    let (check, code) = (Check::Instruction, Code::WrongCfa);
    assert_eq!((group.check, group.code), (check, code));
    assert_eq!(group.count, 10);
    // The place where it was first met.
    assert_eq!(group.place.to_string(), "first+0x1");
    assert_eq!(group.first().map(|f| f.first), Some(4));
    assert_eq!(group.images, ["one"]);
    let addresses: Vec<_> = group.findings.iter().map(|f| f.address).collect();
    let expected = [0x1000, 0x1001, 0x1004].map(|svma| address(0, svma));
    assert_eq!(addresses, expected);
}

#[test]
fn without_findings_there_is_no_cause() {
    assert_eq!(count(vec![]), 0);
}

#[test]
fn what_differs_in_one_thing_has_a_cause_of_its_own() {
    let known = || by_row(wrong(0, 0x1001), 16, 24);
    type Change = fn(&mut Finding);
    let changes: [(&str, Change); 11] = [
        ("the unwinder", |f| f.unwinder = 1),
        ("the check", |f| f.check = Check::Walk),
        ("the code", |f| f.code = Code::WrongRegister),
        ("the register", |f| f.reg = Reg::Rbx),
        ("a row of the target", |f| {
            f.contradiction.code = Code::RowOfTarget;
        }),
        ("a loss", |f| {
            f.contradiction.reason = Some(Reason::RegisterNotCarried { reg: Reg::Rbx });
        }),
        ("the unit", |f| *f = by_row(wrong(0, 0x1001), 8, 24)),
        ("the row", |f| *f = by_row(wrong(0, 0x1001), 16, 28)),
        ("no row", |f| *f = wrong(0, 0x1001)),
        ("the function", |f| *f = by_row(wrong(0, 0x1009), 16, 24)),
        ("the image", |f| *f = by_row(wrong(1, 0x1001), 16, 24)),
    ];

    for (what, change) in changes {
        let mut other = known();
        change(&mut other);
        assert_eq!(count(vec![known(), other]), 2, "{what}");
    }

    assert_eq!(count(vec![known(), known()]), 1);
}

#[test]
fn what_a_format_cannot_hold_is_one_cause_in_all_functions() {
    let first = || not_held(0, 0x1001, "a rule");
    assert_eq!(count(vec![first(), not_held(0, 0x1009, "a rule")]), 1);
    assert_eq!(count(vec![first(), not_held(0, 0x1001, "an offset")]), 2);
    assert_eq!(count(vec![first(), not_held(1, 0x1001, "a rule")]), 2);
}

#[test]
fn an_image_is_one_wherever_it_is_mapped_and_its_name_is_not_enough() {
    // Two files of one name and with the same code.
    let [known, same_name] = &images(&["/lib/one", "/opt/one"])[..] else {
        panic!("two images");
    };

    let moved = Mapping {
        range: address(1, START)..address(1, START + 13),
        bias: BIAS + APART,
        ..known.clone()
    };

    let groups_of = |second: &Mapping| {
        let findings = vec![wrong(0, 0x1001), wrong(1, 0x1001)];
        let results = Results {
            findings,
            ..results(&[known.clone(), second.clone()], &[])
        };
        let groups = groups(&results);
        let images = groups.iter().map(|g| g.images.join(" "));
        images.collect::<Vec<_>>()
    };

    assert_eq!(groups_of(&moved), ["one"]);
    assert_eq!(groups_of(same_name), ["one", "one"]);

    // Memory without a name is not an image.
    let bare = Mapping {
        image: None,
        name: String::new(),
        ..moved
    };
    assert_eq!(groups_of(&bare), ["", "one"]);
}

#[test]
fn behind_a_call_the_function_is_that_of_the_call() {
    let results = run(vec![]);
    let at = |pc| location(&finding_at(0, pc), &results.places).to_string();
    let behind = address(0, 0x1009);
    assert_eq!(at(CodeAddress::Instruction(behind)), "second+0x0");
    assert_eq!(at(CodeAddress::Return(behind)), "first+0x9");
    let other = finding_at(1, CodeAddress::Instruction(address(1, 0x100b)));
    let other = location(&other, &results.places);
    assert_eq!(other.function.as_deref(), Some("second"));
    assert_eq!((other.offset, other.image.as_deref()), (2, Some("two")));
}

#[test]
fn causes_are_told_by_unwinder_class_and_check_and_the_most_frequent_first() {
    let of = |unwinder, check, count| Finding {
        unwinder,
        check,
        count,
        ..wrong(0, 0x1001)
    };

    // Met more often than any wrong row, but of classes that are listed after them.
    let mut target = of(0, Check::Instruction, 99);
    target.contradiction.code = Code::RowOfTarget;
    let mut loss = of(0, Check::Instruction, 98);
    loss.contradiction.reason = Some(Reason::NotHeld { what: "a rule" });

    let rare = by_row(of(0, Check::Instruction, 1), 8, 8);
    let frequent = by_row(of(0, Check::Instruction, 9), 16, 16);
    let (walk, other) = (of(0, Check::Walk, 97), of(1, Check::Instruction, 96));

    let results = run(vec![target, other, walk, rare, loss, frequent]);
    let found = groups(&results).into_iter();
    let found: Vec<_> = found
        .map(|g| (g.unwinder, g.class, g.check, g.count))
        .collect();

    let (instruction, walk) = (Check::Instruction, Check::Walk);
    let expected = [
        (0, Class::Wrong, instruction, 9),
        (0, Class::Wrong, instruction, 1),
        (0, Class::Wrong, walk, 97),
        (0, Class::Loss, instruction, 98),
        (0, Class::Target, instruction, 99),
        (1, Class::Wrong, instruction, 96),
    ];

    assert_eq!(found, expected);
}

/// The places, images and counts of all causes if the code at 0x1000 of each library has no row,
/// first met at these instructions.
fn missing_in_three(first: [u64; 3]) -> Vec<(Option<String>, Vec<String>, u64)> {
    let all = (0..).zip(first).map(|(place, first)| Finding {
        first,
        count: 2 + u64::from(place),
        ..missing(place, 0x1000)
    });
    let results = run(all.collect());
    let groups = groups(&results);
    for group in &groups {
        let addresses: Vec<_> = group.findings.iter().map(|f| f.address).collect();
        assert!(addresses.is_sorted(), "{addresses:x?}");
    }
    let groups = groups.into_iter();
    groups.map(|g| (g.place.image, g.images, g.count)).collect()
}

#[test]
fn the_same_code_without_a_row_is_one_cause_in_all_images() {
    for (first, images) in [
        ([1, 2, 3], ["one", "two", "three"]),
        ([2, 3, 1], ["three", "one", "two"]),
        ([3, 1, 2], ["two", "three", "one"]),
        ([3, 2, 1], ["three", "two", "one"]),
    ] {
        let found = missing_in_three(first);
        let place = Some(images[0].to_owned());
        let images = images.map(str::to_owned).to_vec();
        assert_eq!(found, [(place, images, 9)], "{first:?}");
    }
    // Of findings met at the same instruction, the one with the lowest address is first.
    let found = missing_in_three([1, 1, 1]);
    let images = ["one", "two", "three"].map(str::to_owned).to_vec();
    assert_eq!(found, [(Some("one".into()), images, 9)]);
}

#[test]
fn an_image_name_is_told_once() {
    let findings = vec![missing(0, 0x1000), missing(1, 0x1000)];
    let results = Results {
        findings,
        ..results(&images(&["/lib/one", "/opt/one"]), &[])
    };
    let found = groups(&results);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].count, &found[0].images[..]),
        (2, &["one".into()][..])
    );
}

#[test]
fn other_code_without_a_row_has_a_cause_of_its_own() {
    let first = || missing(0, 0x1000);
    assert_eq!(count(vec![first(), missing(1, 0x1000)]), 1);
    // Other instructions of the same function.
    assert_eq!(count(vec![first(), missing(1, 0x1001)]), 2);

    type Change = fn(&mut Finding);
    let changes: [(&str, Change); 5] = [
        ("the unwinder", |f| f.unwinder = 1),
        ("the check", |f| f.check = Check::Walk),
        ("the code", |f| f.code = Code::NoRow),
        ("the class", |f| f.contradiction.code = Code::RowOfTarget),
        ("a row that gives nothing", |f| {
            f.contradiction.reason = Some(Reason::Cycle { pc: 1, sp: 2 });
        }),
    ];

    for (what, change) in changes {
        let mut other = missing(1, 0x1000);
        change(&mut other);
        assert_eq!(count(vec![first(), other.clone()]), 2, "{what}");

        // Nor is it merged with the same finding in another image, unless it is a missing row.
        let mut third = missing(2, 0x1000);
        change(&mut third);
        let is_missing = matches!(what, "the unwinder" | "the check" | "the code");
        let causes = if is_missing { 1 } else { 2 };
        assert_eq!(count(vec![other, third]), causes, "{what}");
    }

    assert_eq!(count(vec![wrong(0, 0x1000), wrong(1, 0x1000)]), 2);
}

#[test]
fn the_same_code_of_functions_with_other_names_has_two_causes() {
    let mappings = [
        image("/lib/one", BIAS, &CODE, &[("main", 0x1000..0x100d)]),
        image(
            "/lib/two",
            BIAS + APART,
            &CODE,
            &[("start", 0x1000..0x100d)],
        ),
    ];
    let results = Results {
        findings: vec![missing(0, 0x1000), missing(1, 0x1000)],
        ..results(&mappings, &[])
    };
    assert_eq!(groups(&results).len(), 2);
}

#[test]
fn where_there_is_no_code_there_is_nothing_to_tell_apart_by() {
    let findings = vec![missing(0, 0x3000), missing(1, 0x3000)];
    assert_eq!(count(findings), 2);
}

/// An image with a row for its code, and a search table with an entry for these addresses.
fn indexed(starts: &[u64]) -> Mapping {
    const HDR: u64 = 0xa000;
    let plain = image("/lib/indexed", BIAS, &CODE, &FUNCTIONS);
    let table = rows(START..START + CODE.len() as u64, 7);
    // The CIE in front has 24 bytes.
    let fde = table.address + 24;
    // Version 1, then the encodings of three pointers (LSB, Core Generic, "The .eh_frame_hdr
    // section").
    let mut hdr = vec![1, 0x1b, 0x03, 0x3b];
    hdr.extend((table.address.wrapping_sub(HDR + 4) as u32).to_le_bytes());
    hdr.extend((starts.len() as u32).to_le_bytes());
    for start in starts {
        hdr.extend((start.wrapping_sub(HDR) as u32).to_le_bytes());
        hdr.extend((fde.wrapping_sub(HDR) as u32).to_le_bytes());
    }

    let hdr = Section {
        kind: SectionKind::EhFrameHdr,
        address: HDR,
        data: Bytes::from_vec(hdr),
    };

    let known = plain.image.as_deref().expect("an image");
    let parts = ImageParts {
        name: known.name().into(),
        text: known.text().to_vec(),
        sections: [known.sections(), &[table, hdr]].concat(),
        ..ImageParts::default()
    };

    Mapping {
        image: Some(Arc::new(Image::new(parts))),
        ..plain
    }
}

#[test]
fn a_row_that_the_index_does_not_lead_to_is_not_a_missing_one() {
    let unfound = |starts: &[u64], code| {
        let results = results(&[indexed(starts)], &[]);
        let finding = Finding {
            code,
            ..finding_at(0, CodeAddress::Instruction(BIAS + START))
        };
        unfound_row(&finding, &results.places)
    };
    let missing = Code::NoRowForExecuted;
    assert_eq!(unfound(&[], missing), Some(24));
    // The search ends before all entries.
    assert_eq!(unfound(&[START + 0x100], missing), Some(24));
    assert_eq!(unfound(&[START], missing), None);
    assert_eq!(unfound(&[], Code::WrongCfa), None);
}
