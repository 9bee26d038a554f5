//! Tests of the report: counts, causes, stores, and how many of them are shown.

use super::*;
use unwind_sim_judge::check::Contradiction;
use unwind_sim_judge::verify::Disagreement;
use unwind_sim_judge::verify::PlaceId;
use unwind_sim_judge::verify::fixture::{
    BIAS, CODE, FUNCTIONS, START, finding_at, image, results, row,
};
use unwind_sim_judge::verify::{Check, Finding};
use unwind_sim_judge::verify::{SlotStores, Writer};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::row::TableKind;

/// The distance between the images.
const APART: u64 = 0x10_0000;

/// The report of a run with two unwinders.
fn report(results: &Results, all: bool) -> String {
    let names = ["dwarf", "orc"].map(str::to_owned);
    text(&Subject {
        names: &names,
        results,
        coverage: &[],
        again: &|name, address| format!("again {name} {address:#x}"),
        all,
    })
}

/// Results of a run that found nothing, with one program.
fn nothing() -> Results {
    let program = image("/bin/program", BIAS, &CODE, &FUNCTIONS);
    let mut results = results(&[program], &[]);
    results.tallies = vec![Tally::default(); 2];
    results
}

fn found(findings: Vec<Finding>) -> Results {
    let mut results = nothing();
    results.findings = findings;
    results
}

fn stored(all: Vec<SlotStore>) -> Results {
    let mut results = nothing();
    results.stores = SlotStores { all };
    results
}

/// A wrong CFA at an instruction of the program.
fn wrong(svma: u64) -> Finding {
    finding_at(0, CodeAddress::Instruction(BIAS + svma))
}

/// A wrong CFA from the row of a unit: each unit is a cause.
fn of_unit(unit: u64) -> Finding {
    let mut finding = wrong(0x1001);
    finding.contradiction.row = Some(row(TableKind::EhFrame, unit, unit + 8));
    finding
}

fn lost(finding: Finding) -> Finding {
    let mut finding = finding;
    finding.contradiction.reason = Some(Reason::NotHeld { what: "a rule" });
    finding
}

fn of_target(finding: Finding) -> Finding {
    let mut finding = finding;
    finding.contradiction.code = Code::RowOfTarget;
    finding
}

/// The lines of a report that start with `begin`.
fn lines<'a>(report: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = report.lines();
    lines.filter(|line| line.starts_with(begin)).collect()
}

/// A store of `first+0x4` into a slot of a frame of `second`.
fn store(slot: Slot, count: u64, same: u64) -> SlotStore {
    SlotStore {
        writer: Writer {
            address: BIAS + 0x1004,
            place: 0,
            call: None,
        },
        slot,
        count,
        same,
        taken: 5,
        restored: 6,
        first: 77,
        address: 0x7000,
        owner: BIAS + 0x100b,
        owner_place: 0,
        old: 0xaa,
        new: 0xbb,
    }
}

#[test]
fn a_report_begins_with_what_was_executed_and_how_well_it_is_known() {
    let mut results = nothing();
    results.instructions = 12;
    results.addresses = 7;
    let truth = &mut results.truth;
    (truth.unknown, truth.mismatched, truth.unheld) = (3, 4, 5);
    let report = report(&results, false);
    let first = "12 instructions at 7 addresses; truth unknown at 3, self-check failures 9";
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines[..2], [first, ""]);
    // The table, and nothing else.
    assert_eq!(lines.len(), 5, "{report}");
}

fn table_of(names: &[&str], tallies: &[Tally]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
    let mut out = String::new();
    table(&mut out, &names, tallies);
    out.lines().map(str::to_owned).collect()
}

#[test]
fn each_count_of_an_unwinder_has_its_column() {
    let tally = Tally {
        checked: 1000,
        wrong: 1,
        lost: 2,
        target: 3,
        calls: 4,
        calls_wrong: 5,
        calls_wrong_at_return: 6,
        walks: 7,
        walks_wrong: 8,
        rows: 9,
        ..Tally::default()
    };

    // Each number occurs once, so that a column with another's number would be seen.
    let lines = table_of(&["dwarf"], &[tally]);

    // Columns are separated by two spaces, since headings have single ones in them.
    let words = |line: &str| -> Vec<String> {
        let columns = line.split("  ").map(str::trim).filter(|c| !c.is_empty());
        columns.map(str::to_owned).collect()
    };

    let heads = [
        "checked",
        "right",
        "lost",
        "rows",
        "calls",
        "wrong @ra-1",
        "wrong @ra",
        "walks",
        "walks wrong",
    ];
    assert_eq!(words(&lines[0]), heads);

    let values = [
        "dwarf",
        "1000",
        "99.9000 %",
        "2",
        "9",
        "4",
        "5",
        "6",
        "7",
        "8",
    ];
    assert_eq!(words(&lines[1]), values);
}

#[test]
fn names_are_padded_to_eight_or_the_longest() {
    let start = |names: &[&str]| {
        let lines = table_of(names, &vec![Tally::default(); names.len()]);
        assert_eq!(lines.len(), 1 + names.len());
        let ends: Vec<_> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|&end| end == ends[0]), "{lines:?}");
        let checked = lines[0].find("checked").expect("a heading") + "checked".len();
        // The count ends below its heading. The column has 12 characters, two after the name.
        assert!(lines[1..].iter().all(|line| {
            let end: String = line.chars().take(checked).collect();
            end.ends_with("  0")
        }));
        checked - 12 - 2
    };
    assert_eq!(start(&["orc"]), 8);
    assert_eq!(start(&["12345678", "orc"]), 8);
    assert_eq!(start(&["orc", "sframe:kernel-v3", "fp"]), 16);
    // Characters are counted, not bytes.
    assert_eq!(start(&["ääääääääää", "fp"]), 10);
    assert_eq!(table_of(&[], &[]).len(), 1);
}

#[test]
fn the_share_that_is_right_is_rounded_down() {
    let of = |checked, wrong| {
        share(&Tally {
            checked,
            wrong,
            ..Tally::default()
        })
    };
    assert_eq!(of(0, 0), "-");
    assert_eq!(of(1, 0), "100.0000 %");
    assert_eq!(of(1, 1), "0.0000 %");
    assert_eq!(of(4, 1), "75.0000 %");
    assert_eq!(of(3, 1), "66.6666 %");
    assert_eq!(of(2000, 1999), "0.0500 %");
    assert_eq!(of(1_000_000, 1), "99.9999 %");
    assert_eq!(of(u64::MAX, 1), "99.9999 %");
    assert_eq!(of(u64::MAX, 0), "100.0000 %");
}

#[test]
fn without_stores_nothing_is_told_of_them() {
    assert!(!report(&nothing(), true).contains("slot"));
}

#[test]
fn stores_are_counted_with_those_that_changed_nothing() {
    let saved = Slot::Saved(0);
    let told = |all: Vec<SlotStore>| {
        let report = report(&stored(all), false);
        let line = report.lines().find(|line| line.contains("live slot"));
        line.expect("the count").to_owned()
    };
    assert_eq!(
        told(vec![store(saved, 1, 0)]),
        "1 store changed a live slot, 0 stored the value that was already there"
    );
    assert_eq!(
        told(vec![store(saved, 2, 3), store(Slot::ReturnAddress, 4, 5)]),
        "6 stores changed a live slot, 8 stored the value that was already there"
    );
}

#[test]
fn the_most_frequent_stores_are_told_first() {
    let saved = |index, count, same| store(Slot::Saved(index), count, same);
    let all = vec![
        saved(0, 1, 2),
        saved(1, 0, 9),
        saved(2, 5, 0),
        saved(3, 1, 3),
        saved(4, 5, 0),
    ];
    let report = report(&stored(all), false);
    let told = lines(&report, "  at first+0x4, the slot of the caller's ");
    let registers = told.iter().map(|line| line.split([' ', ':']).nth(9));
    let registers: Vec<_> = registers.flatten().collect();
    assert_eq!(registers, ["r12", "r14", "r13", "rbx", "rbp"], "{report}");
}

#[test]
fn twenty_stores_are_told_or_all() {
    let told = |number: u64, all| {
        let stores = (0..number).map(|_| store(Slot::Saved(0), 1, 0));
        let report = report(&stored(stores.collect()), all);
        let more = lines(&report, "  and ").join("|");
        (lines(&report, "  at first+0x4").len(), more)
    };
    assert_eq!(told(20, false), (20, String::new()));
    let more = "  and 1 more instruction (--all)".to_owned();
    assert_eq!(told(21, false), (20, more));
    let more = "  and 5 more instructions (--all)".to_owned();
    assert_eq!(told(25, false), (20, more));
    assert_eq!(told(25, true), (25, String::new()));
}

fn store_lines(store: &SlotStore) -> Vec<String> {
    let mut out = String::new();
    store_text(&mut out, &nothing().places, store);
    out.lines().map(str::to_owned).collect()
}

#[test]
fn a_store_that_changed_nothing_is_one_line() {
    let (address, saved) = (Slot::ReturnAddress, Slot::Saved(1));
    assert_eq!(
        store_lines(&store(address, 0, 1)),
        ["  at first+0x4, a return address: stored the same value 1 time"]
    );
    assert_eq!(
        store_lines(&store(saved, 0, 2)),
        ["  at first+0x4, the slot of the caller's rbp: stored the same value 2 times"]
    );
}

const CHANGE: &str = "      instruction 77: 0x7000, of second+0x2: 0xaa became 0xbb";

#[test]
fn a_changed_return_address_is_told_with_what_came_of_it() {
    let address = Slot::ReturnAddress;
    assert_eq!(
        store_lines(&store(address, 1, 0)),
        [
            "  at first+0x4, a return address: changed 1 time, returned through 5, put back 6",
            CHANGE
        ]
    );
    assert_eq!(
        store_lines(&store(address, 9, 2)),
        [
            "  at first+0x4, a return address: changed 9 times, returned through 5, put back 6; \
             stored the same value 2 more",
            CHANGE
        ]
    );
}

#[test]
fn a_changed_register_is_told_without() {
    let saved = Slot::Saved(5);
    assert_eq!(
        store_lines(&store(saved, 1, 1)),
        [
            "  at first+0x4, the slot of the caller's r15: changed 1 time; stored the same value 1 \
             more",
            CHANGE
        ]
    );
    let mut call = store(saved, 2, 0);
    call.writer.call = Some("read");
    assert_eq!(
        store_lines(&call),
        [
            "  read at first+0x4, the slot of the caller's r15: changed 2 times",
            CHANGE
        ]
    );
}

#[test]
fn each_class_of_each_unwinder_has_a_heading() {
    let of_second = Finding {
        unwinder: 1,
        ..wrong(0x1001)
    };
    let results = found(vec![
        of_second,
        of_target(of_unit(1)),
        lost(of_unit(2)),
        of_unit(3),
    ]);

    // Only groups that have findings have a heading, in a fixed order of unwinders and classes.
    let report = report(&results, false);
    let headings = report.lines().filter(|line| line.contains(" from "));
    let expected = [
        "dwarf: 1 contradiction, from 1 cause",
        "dwarf: 1 place that a derived table cannot represent (counted with --strict), from 1 \
         cause",
        "dwarf: 1 row for the frame that is jumped to (not counted as wrong), from 1 cause",
        "orc: 1 contradiction, from 1 cause",
    ];
    assert_eq!(headings.collect::<Vec<_>>(), expected);
    // Below it are its causes, and no others.
    for (heading, unwinder) in [("\norc: ", "orc"), ("\ndwarf: ", "dwarf")] {
        let at = report.find(heading).expect("a heading") + 1;
        let section = report[at..].split("\n\n").next().unwrap_or_default();
        let again = lines(section, "      again ");
        assert_eq!(again, [format!("      again {unwinder} 0x101001")]);
    }
}

#[test]
fn headings_count_findings_and_causes() {
    let all = |change: fn(Finding) -> Finding| {
        let one = [0x1000, 0x1001].map(wrong);
        let findings = one.into_iter().chain([of_unit(1)]).map(change);
        let report = report(&found(findings.collect()), false);
        let heading = lines(&report, "dwarf: ");
        heading.join("|")
    };
    assert_eq!(all(|f| f), "dwarf: 3 contradictions, from 2 causes");
    let lost = all(lost);
    assert!(lost.starts_with("dwarf: 3 places that "), "{lost}");
    let target = all(of_target);
    assert!(
        target.starts_with("dwarf: 3 rows for the frame "),
        "{target}"
    );
}

#[test]
fn twenty_causes_are_told_or_all() {
    let told = |number, all| {
        let report = report(&found((0..number).map(of_unit).collect()), all);
        let more = lines(&report, "  and ").join("|");
        (lines(&report, "  US501 wrong CFA at ").len(), more)
    };
    assert_eq!(told(20, false), (20, String::new()));
    let more = "  and 1 more causes (--all)".to_owned();
    assert_eq!(told(21, false), (20, more));
    let more = "  and 4 more causes (--all)".to_owned();
    assert_eq!(told(24, false), (20, more));
    assert_eq!(told(24, true), (24, String::new()));
}

/// The text of the only cause.
fn cause(results: &Results) -> Vec<String> {
    let report = report(results, false);
    let lines = report
        .lines()
        .skip_while(|line| !line.starts_with("dwarf: "));
    lines.skip(1).map(str::to_owned).collect()
}

#[test]
fn a_cause_is_told_with_its_first_finding_row_and_code() {
    let first = Finding {
        first: 42,
        ..of_unit(16)
    };
    let expected = [
        "  US501 wrong CFA at first+0x1, 1 time, by instruction",
        "      instruction 42: cfa is 0x2, the row gives 0x1",
        "      call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)",
        "      eh_frame row .eh_frame+0x18 (unit +0x10), addresses 0x1000..0x1004",
    ];
    let told = cause(&found(vec![first]));
    assert_eq!(told[..4], expected);
    let marked: Vec<_> = told.iter().filter(|line| line.contains(" > ")).collect();
    assert_eq!(marked.len(), 1, "{told:?}");
    assert!(marked[0].contains("101001"), "{told:?}");
    assert_eq!(
        told.last().map(|s| &**s),
        Some("      again dwarf 0x101001")
    );
}

#[test]
fn a_cause_counts_addresses_and_times() {
    let of = |svma, first, count| Finding {
        check: Check::Walk,
        first,
        count,
        ..wrong(svma)
    };

    // The place is that of the earliest finding, the counts are sums.
    let head = |findings: Vec<Finding>| cause(&found(findings)).swap_remove(0);
    assert_eq!(
        head(vec![of(0x1000, 5, 2)]),
        "  US501 wrong CFA at first+0x0, 2 times, by walk"
    );

    // The second one was found first, and more often.
    let two = vec![of(0x1000, 5, 2), of(0x1001, 3, 3)];
    assert_eq!(
        head(two.clone()),
        "  US501 wrong CFA at first+0x1 and at 1 more address, 5 times, by walk"
    );

    let told = cause(&found(two));
    assert_eq!(
        told[1],
        "      instruction 3: cfa is 0x2, the row gives 0x1"
    );
    assert_eq!(
        told.last().map(|s| &**s),
        Some("      again dwarf 0x101001")
    );

    let three = vec![of(0x1000, 1, 1), of(0x1001, 3, 1), of(0x1004, 2, 1)];
    assert_eq!(
        head(three),
        "  US501 wrong CFA at first+0x0 and at 2 more addresses, 3 times, by walk"
    );
}

/// Findings of code without a row, the same in as many images.
fn in_images(number: u32) -> Results {
    let bias = |place: PlaceId| BIAS + u64::from(place) * APART;
    let mapping = |place| image(&format!("/lib/{place}"), bias(place), &CODE, &FUNCTIONS);
    let mappings: Vec<Mapping> = (0..number).map(mapping).collect();
    let missing = |place| {
        let pc = bias(place) + START;
        let known = finding_at(place, CodeAddress::Instruction(pc));
        let contradiction = Contradiction {
            code: Code::NoRowForExecuted,
            reason: Some(Reason::NoRow { pc }),
            ..known.contradiction
        };
        Finding {
            first: place.into(),
            code: Code::NoRowForExecuted,
            contradiction,
            ..known
        }
    };
    let mut results = results(&mappings, &[]);
    results.tallies = vec![Tally::default(); 2];
    results.findings = (0..number).map(missing).collect();
    results
}

#[test]
fn up_to_eight_images_of_a_cause_are_named() {
    let told = |number| {
        let told = cause(&in_images(number));
        let named = told.iter().filter(|line| line.starts_with("      in "));
        let named: Vec<_> = named.map(|line| line.trim()).collect();
        (told[0].clone(), named.join("|"))
    };
    let begin = "  US504 executed code without a row at first+0x0";
    let end = "by instruction";
    assert_eq!(told(1), (format!("{begin}, 1 time, {end}"), String::new()));
    assert_eq!(
        told(2),
        (
            format!("{begin} and at 1 more address in 2 images, 2 times, {end}"),
            "in 0, 1".into()
        )
    );
    assert_eq!(told(8).1, "in 0, 1, 2, 3, 4, 5, 6, 7");
    assert_eq!(told(9).1, "in 0, 1, 2, 3, 4, 5, 6, 7 and 1 more");
    let (head, named) = told(11);
    assert!(head.contains(" in 11 images, "), "{head}");
    assert_eq!(named, "in 0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
}

#[test]
fn disagreements_are_our_own_bugs() {
    let disagreement = |unwinder, number| Disagreement {
        unwinder,
        address: BIAS + 0x1004,
        place: 0,
        number,
        what: "a walk".into(),
    };
    let mut results = nothing();
    results.disagreements = vec![disagreement(1, 7), disagreement(0, 8)];
    let report = report(&results, false);
    let expected = [(7, "orc"), (8, "dwarf")].map(|(number, name)| {
        format!(
            "bug in unwind-sim: a walk at first+0x4 (instruction {number}) disagrees with the \
             check of single frames, {name}"
        )
    });
    assert_eq!(lines(&report, "bug in unwind-sim"), expected);
}
