//! Rules beside instructions: their text, where rows begin, what is true and what is wrong.

use super::*;
use std::borrow::Cow;
use unwind_sim_recordings::model::{Region, RegionRole, Sample};
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::cache::{NewRow, RowId, UnitKey};
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::regs::{RegMask, Regs};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

/// An unwinder with these rows for the addresses from 0x1000 to 0x1010.
struct Rows(Vec<(u64, Rule)>);

impl Finder for Rows {
    fn name(&self) -> &str {
        "rows"
    }

    fn carries(&self) -> RegMask {
        RegMask::ALL
    }

    fn find(&self, _: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        let key = UnitKey {
            table: TableKind::EhFrame,
            image: None,
            offset: 0,
            block: 0,
        };
        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            None => {
                let row = |&(start, rule): &(u64, Rule)| NewRow {
                    start,
                    offset: start - 0x1000,
                    rule,
                };
                cache.add_unit(key, 0x1000..0x1010, self.0.iter().map(row), None)
            }
        };
        cache.find_row(unit, svma)
    }
}

fn at_rsp(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

/// Instructions of four bytes from 0x1000 on.
fn insns(count: u64) -> Vec<RuleInsn> {
    let insn = |at: u64| RuleInsn {
        address: 0x1000 + 4 * at,
        end: 0x1004 + 4 * at,
        text: format!("insn {at}"),
    };
    (0..count).map(insn).collect()
}

fn space() -> AddressSpace {
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0x1000..0x2000,
        bias: 0,
        image: None,
        name: "text".into(),
    });
    space
}

/// The code with the rules of `finder`, and what `observed` knows.
fn rules(finder: &Rows, count: u64, observed: Option<&Observed>) -> CodeRules {
    let space = space();
    let mapping = space.find(0x1000).expect("it is mapped");
    let mut cache = Cache::new();
    let mut columns = [RuleColumn {
        name: "rows".to_owned(),
        finder,
        cache: &mut cache,
    }];
    let sources = (&SourceLines::default(), &mut SourceTexts::default());
    CodeRules::new(mapping, insns(count), &mut columns, observed, sources)
}

/// Adds what is seen where `rip` is next, rsp is 0x7000, the CFA lies at a distance from it, and rbp
/// below it.
fn see(observed: &mut Observed, space: &AddressSpace, finder: &Rows, (rip, distance): (u64, u64)) {
    let mut regs = Regs::UNKNOWN;
    let cfa = 0x7000 + distance;
    for (reg, value) in [(Reg::Rip, rip), (Reg::Rsp, 0x7000), (Reg::Rbp, cfa - 16)] {
        regs.set(reg, value);
    }

    // Every word is the return address: what a wrong CFA leads to is another matter.
    let words = (0..32).flat_map(|_| 0x1800_u64.to_le_bytes());
    let bytes: Vec<u8> = words.collect();
    let frame = |pc, cfa, kind| TrueFrame {
        pc,
        cfa,
        kind,
        saved: None,
    };
    let sample = Sample {
        pid: 1,
        tid: 1,
        time: 0,
        regs: SampleRegs::hardware(regs),
        regions: vec![Region {
            role: RegionRole::Stack,
            bounds: 0..0,
            next_sp: 0,
            address: 0x7000,
            bytes: Cow::Owned(bytes),
        }],
        truth: Truth::Complete(vec![
            frame(rip, cfa, TrueKind::Top),
            frame(0x1800, 0, TrueKind::Call),
        ]),
        recorded: Vec::new(),
        branches: Vec::new(),
        kernel: None,
        process_memory: None,
    };
    let view = View {
        number: 0,
        sample: &sample,
        space,
        pristine: None,
        stitched: &[],
        world: None,
    };
    let mut cache = Cache::new();
    let mut columns = [RuleColumn {
        name: "rows".to_owned(),
        finder,
        cache: &mut cache,
    }];
    let dwarf = (&Dwarf::new(), &mut Cache::new());
    observed.add(&view, MemoryView::Cpu, 1, &mut columns, dwarf);
}

#[test]
fn a_rule_has_one_form() {
    let rbp = Rule::FRAME_POINTER;
    let signal = Rule {
        kind: RuleKind::Signal,
        sp: Value::reg(Reg::Rdx, 8),
        ..at_rsp(0).with_saved(Reg::R12, Value::Undefined)
    };
    let loaded = Value::Load {
        base: Base::Reg(Reg::Rbp),
        offset: -8,
        addend: 16,
    };
    for (rule, text) in [
        (rbp, "cfa=rbp+16 ra=[cfa-8] rbp=[cfa-16]"),
        (
            at_rsp(8).with_saved(Reg::Rbx, Value::Same),
            "cfa=rsp+8 ra=[cfa-8]",
        ),
        (signal, "signal cfa=rsp ra=[cfa-8] sp=rdx+8 r12=undefined"),
        (Rule::call(loaded), "cfa=[rbp-8]+16 ra=[cfa-8]"),
        (Rule::OUTERMOST, "outermost"),
    ] {
        assert_eq!(rule_text(&rule), text);
    }
}

#[test]
fn a_row_is_drawn_from_where_it_starts() {
    // The last row starts within an instruction, so it holds from the next one on.
    let finder = Rows(vec![
        (0x1000, at_rsp(8)),
        (0x1004, at_rsp(16)),
        (0x1009, at_rsp(24)),
    ]);
    let rules = rules(&finder, 5, None);
    let drawn: Vec<String> = rules
        .lines
        .iter()
        .map(|line| line.cells[0].drawn(false))
        .collect();
    assert_eq!(
        drawn,
        [
            "┌ cfa=rsp+8 ra=[cfa-8]",
            "┌ cfa=rsp+16 ra=[cfa-8]",
            "│ ",
            "┌ cfa=rsp+24 ra=[cfa-8]",
            // The rows end at 0x1010.
            "┌ (no row)",
        ]
        .map(str::trim_end)
    );
    assert_eq!(
        rules.lines[2].cells[0].drawn(true),
        "│ cfa=rsp+16 ra=[cfa-8]"
    );
    assert_eq!((rules.line(0x1007), rules.line(0x1014)), (Some(1), None));
}

/// A row that is the same rule again is another row.
#[test]
fn rows_with_one_rule_have_a_boundary() {
    let finder = Rows(vec![(0x1000, at_rsp(8)), (0x1004, at_rsp(8))]);
    let starts: Vec<bool> = rules(&finder, 3, None)
        .lines
        .iter()
        .map(|line| line.cells[0].starts)
        .collect();
    assert_eq!(starts, [true, true, false]);
}

#[test]
fn what_was_seen_is_beside_the_instruction() {
    let finder = Rows(vec![(0x1000, at_rsp(8))]);
    let (mut observed, space) = (Observed::default(), space());
    see(&mut observed, &space, &finder, (0x1000, 8));
    see(&mut observed, &space, &finder, (0x1004, 16));
    let rules = rules(&finder, 3, Some(&observed));
    let truths: Vec<Option<&str>> = rules
        .lines
        .iter()
        .map(|line| line.truth.as_deref())
        .collect();
    let true_at = |text| Some(text);
    assert_eq!(
        truths,
        [
            true_at("cfa=rsp+8 ra=[cfa-8]"),
            true_at("cfa=rsp+16 ra=[cfa-8]"),
            None
        ]
    );
    let wrong: Vec<&[&str]> = rules
        .lines
        .iter()
        .map(|line| &line.cells[0].wrong[..])
        .collect();
    assert_eq!(wrong, [&[][..], &["cfa"], &[]]);
    assert_eq!(rules.lines[1].cells[0].drawn(false), "│ !cfa");
    let text = rules.text(0..3, Some(1), &|address| format!("{address:x}"));
    let wanted = [
        "                rows                   true",
        "  1000 insn 0 ┌ cfa=rsp+8 ra=[cfa-8]   cfa=rsp+8 ra=[cfa-8]",
        "> 1004 insn 1 │ !cfa                   cfa=rsp+16 ra=[cfa-8]",
        "  1008 insn 2 │",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

/// Where rsp moves, as behind `alloca`, the distance from rbp stays.
#[test]
fn what_differs_from_time_to_time_is_not_said() {
    let finder = Rows(vec![(0x1000, at_rsp(8))]);
    let (mut observed, space) = (Observed::default(), space());
    see(&mut observed, &space, &finder, (0x1000, 32));
    see(&mut observed, &space, &finder, (0x1000, 48));
    let rules = rules(&finder, 1, Some(&observed));
    let truth = rules.lines[0].truth.as_deref();
    assert_eq!(truth, Some("cfa=rbp+16 ra=[cfa-8]"));
}

/// A row that is missing where code runs.
#[test]
fn code_without_a_row_is_wrong_where_it_ran() {
    let finder = Rows(vec![(0x1000, at_rsp(8))]);
    let (mut observed, space) = (Observed::default(), space());
    see(&mut observed, &space, &finder, (0x1010, 8));
    let rules = rules(&finder, 5, Some(&observed));
    assert_eq!(rules.lines[4].cells[0].marked(), "(no row) !row");
}
