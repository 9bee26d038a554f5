//! Compares every row of every FDE in this machine's files with gimli: addresses, CFA, return
//! address, rsp, callee-saved registers, the location of every expression. Unlike readelf, this
//! distinguishes undefined, unchanged and unspecified.

use gimli::{CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindSection};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Image, SectionKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Base, Expression, Rule, RuleKind, Value};

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

fn reg(register: Register) -> Reg {
    Reg::from_dwarf(register.0).expect("a general register")
}

fn expression(expression: gimli::UnwindExpression<usize>, load: bool) -> Value {
    Value::Expression(Expression {
        start: expression.offset as u32,
        len: expression.length as u16,
        load,
    })
}

fn value(rule: Option<RegisterRule<usize>>) -> Value {
    match rule {
        None => Value::Unspecified,
        Some(RegisterRule::Undefined) => Value::Undefined,
        Some(RegisterRule::SameValue) => Value::Same,
        Some(RegisterRule::Offset(offset)) => Value::at_cfa(offset as i32),
        Some(RegisterRule::ValOffset(offset)) => Value::Offset {
            base: Base::Cfa,
            offset: offset as i32,
        },
        Some(RegisterRule::Register(register)) => Value::reg(reg(register), 0),
        Some(RegisterRule::Expression(e)) => expression(e, true),
        Some(RegisterRule::ValExpression(e)) => expression(e, false),
        Some(other) => panic!("{other:?}"),
    }
}

fn rule(row: &gimli::UnwindTableRow<usize>, signal: bool) -> Rule {
    let column = |reg: Reg| value(row.register(Register(reg as u16)));
    let ra = column(Reg::Rip);
    Rule {
        kind: match ra {
            Value::Undefined => RuleKind::Outermost,
            _ if signal => RuleKind::Signal,
            _ => RuleKind::Call,
        },
        by_frame_pointer: false,
        cfa: match *row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Value::reg(reg(register), offset as i32)
            }
            CfaRule::Expression(e) => expression(e, false),
        },
        ra,
        sp: column(Reg::Rsp),
        saved: Reg::CALLEE_SAVED.map(column),
    }
}

/// Gimli's rows of the FDE at `offset`; the last one if several have the same address.
fn theirs(section: &EhFrame<Slice<'_>>, address: u64, offset: u64) -> Vec<(u64, u64, Rule)> {
    let bases = gimli::BaseAddresses::default().set_eh_frame(address);
    let offset = gimli::EhFrameOffset(offset as usize);
    let fde = section.fde_from_offset(&bases, offset, EhFrame::cie_from_offset);
    let fde = fde.unwrap();
    let mut context = gimli::UnwindContext::new();
    let mut table = fde.rows(section, &bases, &mut context).unwrap();
    let mut rows = Vec::new();
    while let Some(row) = table.next_row().unwrap() {
        let (start, end) = (row.start_address(), row.end_address());
        if start < end && start < fde.end_address() {
            let rule = rule(row, fde.is_signal_trampoline());
            rows.push((start, end.min(fde.end_address()), rule));
        }
    }
    rows
}

fn check(image: &Image) -> usize {
    let mut cache = Cache::new();
    let section = image.section(SectionKind::EhFrame).unwrap();
    let eh_frame = EhFrame::new(&section.data, LittleEndian);
    let mut count = 0;
    for unit in dwarf::units(image, TableKind::EhFrame) {
        let offset = unit.unwrap().offset;
        let id = dwarf::compile_unit(image, TableKind::EhFrame, offset, &mut cache).unwrap();
        let ours = cache.unit_rows(id).map(|row| {
            let source = cache.source(row);
            (source.start, source.end, *cache.rule(row))
        });
        let ours: Vec<_> = ours.collect();
        let theirs = theirs(&eh_frame, section.address, offset);
        assert_eq!(ours, theirs, "{} FDE {offset:#x}", image.name());
        count += ours.len();
    }
    count
}

#[test]
fn every_row_equals_gimlis() {
    let images = crate::common::images("every_row_equals_gimlis");
    let rows: usize = images.iter().map(|(_, image)| check(image)).sum();
    assert!(rows > 1000, "only {rows} rows were compared");
}

/// Compiling row by row, in any order of addresses, gives the same rows as compiling the whole.
#[test]
fn rows_found_one_by_one_are_the_rows_of_the_whole() {
    use unwind_sim_unwind::finder::Finder;
    use unwind_sim_unwind::image::Mapping;

    let images = crate::common::images("rows_found_one_by_one_are_the_rows_of_the_whole");
    let Some((_, image)) = images.into_iter().nth(1) else {
        return;
    };
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    };

    // One cache compiles all, the other one row by row.
    let (mut whole, mut parts) = (Cache::new(), Cache::new());
    dwarf::compile_all(&image, TableKind::EhFrame, &mut whole);

    let mut rows = 0;
    for unit in dwarf::units(&image, TableKind::EhFrame) {
        let offset = unit.unwrap().offset;
        let id = dwarf::compile_unit(&image, TableKind::EhFrame, offset, &mut whole).unwrap();
        let mut expected: Vec<_> = whole.unit_rows(id).collect();

        // The middle first, then the ends: parts, then the whole.
        let middle = expected.len() / 2;
        expected.rotate_left(middle);

        let mut found = Vec::new();
        for &row in &expected {
            // The last address of a row is as good as its first.
            let svma = whole.source(row).end - 1;
            let part = dwarf::Dwarf::new().find(&mapping, svma, &mut parts);
            found.push(part.unwrap());
        }

        for (&row, &part) in expected.iter().zip(&found) {
            assert_eq!(whole.rule(row), parts.rule(part), "FDE {offset:#x}");
            assert_eq!(whole.source(row), parts.source(part), "FDE {offset:#x}");
            rows += 1;
        }
    }

    assert!(rows > 1000, "only {rows} rows were compared");
}
