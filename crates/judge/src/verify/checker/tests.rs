//! Tests of the checker on programs of a few instructions, with tables made for them.

use super::unwinders::CACHE_MIN;
use super::*;
use crate::verify::findings::Check;
use crate::verify::stores::{Hit, Slot, SlotStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use unwind_sim_emulator::linux::ProcessObserver;
use unwind_sim_emulator::machine::{Exit, Machine};
use unwind_sim_emulator::{AddressSpace, Permissions};
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::cache::{Cache, NewRow, RowId, UnitKey};
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol};
use unwind_sim_unwind::reason::{Code as ReasonCode, Reason};
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, Value};

mod calls;
mod edges;
mod left_out;
mod process;
mod quiet;
mod slots;
mod stacked;
mod work;

/// The address of the program; offsets are relative to it.
const CODE: u64 = 0x40_1000;
const CODE_END: u64 = CODE + 0x1000;
const STACK: std::ops::Range<u64> = 0x7ff0_0000..0x7ff1_0000;
/// rsp at the start.
const SP: u64 = STACK.end - 0x1000;

/// main: call f; hlt. f calls g three times and saves rbx; g sets up a frame pointer.
const CALLS: &[u8] = &[
    0xe8, 0x0b, 0, 0, 0,    // 00 call f
    0xf4, // 05 hlt
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
    0x53, // 10 f: push rbx
    0xbb, 3, 0, 0, 0, // 11 mov ebx, 3
    0xe8, 0x15, 0, 0, 0, // 16 call g
    0x83, 0xeb, 1, // 1b sub ebx, 1
    0x75, 0xf6, // 1e jne 16
    0x5b, // 20 pop rbx
    0xc3, // 21 ret
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
    0x55, // 30 g: push rbp
    0x48, 0x89, 0xe5, // 31 mov rbp, rsp
    0x90, // 34 nop
    0x5d, // 35 pop rbp
    0xc3, // 36 ret
];

/// main: call f; hlt. f has a loop of `rounds` rounds.
fn counting(rounds: u16) -> Vec<u8> {
    let [low, high] = rounds.to_le_bytes();
    vec![
        0xe8, 1, 0, 0, 0,    // 00 call f
        0xf4, // 05 hlt
        0xb9, low, high, 0, 0,    // 06 f: mov ecx, rounds
        0x90, // 0b nop
        0x83, 0xe9, 1, // 0c sub ecx, 1
        0x75, 0xfa, // 0f jne 0b
        0xc3, // 11 ret
    ]
}

/// A rule whose CFA is rsp + `offset`.
const fn above(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

/// The right rows of [`CALLS`].
fn right() -> Vec<(u64, Rule)> {
    vec![
        (0, Rule::OUTERMOST),
        (0x10, above(8)),
        (0x11, above(16).with_saved(Reg::Rbx, Value::at_cfa(-16))),
        (0x21, above(8)),
        (0x30, above(8)),
        (0x31, above(16).with_saved(Reg::Rbp, Value::at_cfa(-16))),
        (0x34, Rule::FRAME_POINTER),
        (0x36, above(8)),
    ]
}

/// The rows of [`right`], but with this row.
fn with(at: u64, rule: Rule) -> Vec<(u64, Rule)> {
    let mut rows = right();
    rows.retain(|row| row.0 != at);
    rows.push((at, rule));
    rows.sort_by_key(|row| row.0);
    rows
}

/// A table of rows, by the offset of their first instruction.
struct Rows {
    rows: Vec<(u64, Rule)>,
    /// Offsets without a row.
    gap: std::ops::Range<u64>,
    lookup: Lookup,
    carries: RegMask,
    /// A rule that may be used only in the topmost frame.
    topmost_only: Option<Rule>,
    /// How often a row was looked up, and how often all rows were compiled.
    finds: Arc<AtomicU64>,
    compiled: Arc<AtomicU64>,
}

impl Rows {
    fn of(rows: Vec<(u64, Rule)>) -> Rows {
        Rows {
            rows,
            gap: 0..0,
            lookup: Lookup::InsideCall,
            carries: RegMask::CALLEE_SAVED,
            topmost_only: None,
            finds: Arc::default(),
            compiled: Arc::default(),
        }
    }
}

impl Finder for Rows {
    fn name(&self) -> &str {
        "rows"
    }
    fn lookup(&self) -> Lookup {
        self.lookup
    }
    fn carries(&self) -> RegMask {
        self.carries
    }
    fn find(&self, mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
        self.finds.fetch_add(1, Relaxed);
        if self.gap.contains(&(svma - CODE)) {
            return Err(Reason::NoRow { pc: svma });
        }

        let key = UnitKey {
            table: TableKind::EhFrame,
            image: mapping.image.as_ref().map(|i| i.id()),
            offset: 0,
            block: 0,
        };

        let row = |(index, &(start, rule)): (usize, &(u64, Rule))| NewRow {
            start: CODE + start,
            offset: index as u64,
            rule,
        };

        // All rows are compiled at the first look-up, as those of an FDE are.
        let unit = match cache.unit(&key) {
            Some(unit) => unit?,
            None => {
                self.compiled.fetch_add(1, Relaxed);
                let rows = self.rows.iter().enumerate().map(row);
                cache.add_unit(key, CODE..CODE_END, rows, None)
            }
        };

        cache.find_row(unit, svma)
    }
    fn permits(&self, rule: &Rule, topmost: bool) -> Result<(), Reason> {
        if !topmost && self.topmost_only == Some(*rule) {
            Err(Reason::NoRow { pc: 1 })
        } else {
            Ok(())
        }
    }
}

fn engines(tables: Vec<Rows>) -> Vec<Engine> {
    let engine = |rows| Engine::Table(Box::new(rows));
    tables.into_iter().map(engine).collect()
}

/// The code's mapping, with an image.
fn mapping(code: &[u8]) -> Mapping {
    let mut text = code.to_vec();
    // int3 behind the code: what runs there by mistake traps.
    text.resize((CODE_END - CODE) as usize, 0xcc);

    let image = Image::new(ImageParts {
        name: "program".into(),
        text: std::iter::once(CODE..CODE_END).collect(),
        sections: vec![Section {
            kind: SectionKind::Text,
            address: CODE,
            data: Bytes::from_vec(text),
        }],
        symbols: vec![Symbol {
            address: CODE + 0x30,
            size: 7,
            name: "g".into(),
        }],
        ..ImageParts::default()
    });

    Mapping {
        range: CODE..CODE_END,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "program".into(),
    }
}

/// A machine that is about to execute `code`.
fn machine(code: &[u8]) -> Machine {
    let mut memory = AddressSpace::default();
    for (range, permissions) in [
        (CODE..CODE_END, Permissions::READ_EXECUTE),
        (STACK, Permissions::READ_WRITE),
    ] {
        memory.map(range, permissions).expect("whole pages");
    }
    memory.poke(CODE, code).expect("it is mapped");
    let mut core = Core::new(memory);
    core.state.rip = CODE;
    core.state.set_gpr(4, SP);
    Machine::new(core)
}

/// A checker for the program.
fn checker<'a>(engines: &'a [Engine], machine: &Machine, code: &[u8], elide: bool) -> Checker<'a> {
    let checker = Checker::new(engines, Images::new(None), Setting::default(), elide);
    let mut checker = checker.keeping_each();
    checker.started(&machine.core, STACK.end);
    checker.mapped.map(mapping(code), Permissions::READ_EXECUTE);
    checker
}

/// Runs `code` to its `hlt`.
fn run(code: &[u8], tables: Vec<Rows>, elide: bool) -> Results {
    let engines = engines(tables);
    let mut machine = machine(code);
    let mut checker = checker(&engines, &machine, code, elide);
    assert_eq!(machine.run(100_000, &mut checker), Exit::Halt);
    checker.finish().0
}

/// A finding in short: unwinder, check, offset of the address, reason code, register, count.
type Told = (usize, Check, u64, ReasonCode, Reg, u64);

fn told(results: &Results) -> Vec<Told> {
    let one = |f: &Finding| {
        let address = f.address - CODE;
        (f.unwinder, f.check, address, f.code, f.reg, f.count)
    };
    results.findings.iter().map(one).collect()
}

/// The findings of one table on [`CALLS`], which must be the same if nothing is skipped.
fn findings(rows: impl Fn() -> Rows) -> Vec<Told> {
    let quick = run(CALLS, vec![rows()], true);
    let slow = run(CALLS, vec![rows()], false);
    assert_eq!(told(&quick), told(&slow));
    assert_eq!(quick.tallies, slow.tallies);
    assert_eq!(quick.disagreements, []);
    told(&quick)
}

#[test]
fn right_rows_are_right_at_every_instruction_and_call() {
    let results = run(CALLS, vec![Rows::of(right())], true);
    assert_eq!(told(&results), []);
    assert_eq!(results.disagreements, []);
    let tally = results.tallies[0];
    let expected = Tally {
        // All instructions except those of main, which has no caller.
        checked: 28,
        calls: 3,
        rows: 8,
        walks: tally.walks,
        ..Tally::default()
    };
    assert_eq!(results.tallies, [expected]);
    assert_eq!((results.instructions, results.addresses), (30, 14));
    let truth = results.truth;
    assert_eq!((truth.calls, truth.returns, truth.unknown), (4, 4, 0));
    // At the first visit of each call.
    assert_eq!(tally.walks, 2);
}

#[test]
fn each_table_is_blamed_for_its_own_rows() {
    let tables = || {
        let wrong = Rows::of(with(0x35, above(24)));
        let gap = Rows {
            gap: 0x35..0x36,
            ..Rows::of(right())
        };
        vec![Rows::of(right()), wrong, Rows::of(right()), gap]
    };

    for elide in [true, false] {
        let results = run(CALLS, tables(), elide);
        let found = told(&results);

        let at = |which| (which, Check::Instruction, 0x35);
        // g is called three times.
        let expected = [
            (at(1), ReasonCode::WrongCfa, Reg::Rsp, 3),
            (at(3), ReasonCode::NoRowForExecuted, Reg::Rip, 3),
        ];

        let found: Vec<_> = found
            .into_iter()
            .map(|(which, check, at, code, reg, count)| ((which, check, at), code, reg, count))
            .collect();
        assert_eq!(found, expected);

        let wrong: Vec<_> = results.tallies.iter().map(|t| t.wrong).collect();
        assert_eq!(wrong, [0, 3, 0, 3]);
    }
}

/// Both claim the frame one instruction too long at the end of f.
#[test]
fn equal_tables_are_wrong_together() {
    let rows = || {
        let mut rows = right();
        rows.retain(|row| row.0 != 0x21);
        Rows::of(rows)
    };
    for elide in [true, false] {
        let results = run(CALLS, vec![rows(), rows()], elide);
        let at = |which| {
            (
                which,
                Check::Instruction,
                0x21,
                ReasonCode::WrongCfa,
                Reg::Rsp,
                1,
            )
        };
        assert_eq!(told(&results), [at(0), at(1)]);
    }
}

/// The code for a frame pointer says where in its function it is, not that a row is wrong.
#[test]
fn a_frame_pointer_is_not_yet_there_or_gone() {
    let engines = [Engine::Table(Box::new(unwind_sim_unwind::fp::FramePointer))];
    let mut machine = machine(CALLS);
    let mut checker = checker(&engines, &machine, CALLS, true);
    assert_eq!(machine.run(100, &mut checker), Exit::Halt);
    let found = told(&checker.finish().0);
    let at = |offset| {
        let mut all = found
            .iter()
            .filter(|t| (t.1, t.2) == (Check::Instruction, offset));
        all.next().map(|t| t.3)
    };
    assert_eq!(at(0x30), Some(ReasonCode::FramePointerNotYet));
    assert_eq!(at(0x31), Some(ReasonCode::FramePointerNotYet));
    assert_eq!((at(0x34), at(0x35)), (None, None));
    assert_eq!(at(0x36), Some(ReasonCode::FramePointerGone));
    // f has no frame pointer.
    assert_eq!(at(0x1b), Some(ReasonCode::NoFramePointer));
}

/// Rules that are not a register plus a constant, in a table before and after others.
#[test]
fn rules_of_other_shapes_are_checked_too() {
    // The CFA is the word at rsp + 8, which g pushed before: rbp.
    let loaded = |offset| {
        Rule::call(Value::Load {
            base: unwind_sim_unwind::rule::Base::Reg(Reg::Rsp),
            offset,
            addend: 0,
        })
    };
    let slow = || Rows::of(with(0x35, loaded(0)));
    for elide in [true, false] {
        let tables = vec![Rows::of(right()), slow(), Rows::of(right())];
        let results = run(CALLS, tables, elide);
        let found = told(&results);
        assert_eq!(found.len(), 1, "{found:?}");
        let (which, check, at, .., count) = found[0];
        assert_eq!((which, check, at, count), (1, Check::Instruction, 0x35, 3));
        assert_eq!(results.disagreements, []);
    }
}

/// f returns by a word whose write was not seen. From there on nothing is known until a call
/// returns.
#[test]
fn nothing_is_checked_while_the_truth_is_in_doubt() {
    const CODE: &[u8] = &[
        0xe8, 0x0b, 0, 0, 0,    // 00 call f
        0xf4, // 05 hlt
        0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
        0x48, 0x8d, 0x05, 0x11, 0, 0, 0, // 10 f: lea rax, [28]
        0x48, 0x8d, 0x4c, 0x24, 0xf8, // 17 lea rcx, [rsp - 8]
        0x48, 0x89, 0x01, // 1c mov [rcx], rax
        0x48, 0x83, 0xec, 8,    // 1f sub rsp, 8
        0xc3, // 23 ret
        0xcc, 0xcc, 0xcc, 0xcc, //
        0xe8, 2, 0, 0, 0,    // 28 call g
        0xc3, // 2d ret
        0xcc, //
        0x90, // 2f g: nop
        0xc3, // 30 ret
    ];

    // All rows are wrong.
    let rows = Rows::of(vec![(0, above(0x100))]);
    let results = run(CODE, vec![rows], true);

    let truth = results.truth;
    assert_eq!((truth.unheld, truth.unknown), (1, 3));
    let tally = results.tallies[0];
    // In f, and after g's return.
    assert_eq!((tally.checked, tally.wrong, tally.calls), (6, 6, 0));
}

/// main: mov ecx, 12; 05 call 20; `behind`; sub ecx, 1; jne 05; hlt
fn main_of(behind: &[u8], function: &[u8]) -> Vec<u8> {
    let mut code = vec![0xb9, 12, 0, 0, 0, 0xe8, 0x16, 0, 0, 0];
    code.extend(behind);
    let back = -(10 + behind.len() as i8);
    code.extend([0x83, 0xe9, 1, 0x75, back.to_le_bytes()[0], 0xf4]);
    code.resize(0x20, 0xcc);
    code.extend(function);
    code
}
