//! Code without a row that a function reaches: its FDE ends too early, or begins too late.
//!
//! Only what is surely the function's own counts. A jump with everything as at entry may as well be a
//! tail call to a function that has no FDE, as hand-written assembly often has none; padding and data
//! are not reached.

use super::guesses::Guesses;
use super::holes;
use super::rows::{Rows, path};
use super::{FunctionWalk, Walker};
use crate::proof::body::{BYTES_MAX, Bits, Body, is_nop, is_padding};
use crate::proof::claim::Subject;
use crate::proof::derive;
use crate::proof::lsda::CallSite;
use crate::proof::plt;
use crate::proof::program::{Entry, Program, Unit};
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::{Contradiction, FunctionVerdict};
use crate::table::{Function, Row, Table};
use hashbrown::HashMap;
use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl};
use std::ops::Range;
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value as RuleValue};

/// The unwinders that read tables with functions, one bit for each. DWARF's reads two tables.
pub(super) const DWARF: u8 = 1;
pub(super) const SFRAME: u8 = 2;
const UNWINDERS: [u8; 2] = [DWARF, SFRAME];

/// The maximum distance from a function's end to code that is followed as its own, bytes.
const DISTANCE_MAX: u64 = 1 << 20;
/// The maximum number of addresses of one function at which is kept how they were reached.
const ARRIVALS_MAX: usize = 256;

/// What compilers align functions to, bytes.
const ALIGN: u64 = 16;
/// The maximum number of instructions of a stub of a procedure linkage table.
const STUB_MAX: usize = 4;

/// What the row of code without one says.
const NO_ROW: Rule = Rule {
    kind: RuleKind::Call,
    by_frame_pointer: false,
    cfa: RuleValue::Undefined,
    ra: RuleValue::Undefined,
    sp: RuleValue::Unspecified,
    saved: [RuleValue::Undefined; 6],
};

/// The unwinder that reads tables of this kind; 0 if its tables have no functions.
pub(super) const fn unwinder(kind: TableKind) -> u8 {
    match kind {
        TableKind::EhFrame | TableKind::DebugFrame => DWARF,
        TableKind::Sframe => SFRAME,
        _ => 0,
    }
}

/// How an address without a row was reached first.
struct Arrival {
    sp: Value,
    right: Option<Rule>,
    trail: Option<u32>,
}

/// The addresses of a function's code, or of what belongs to it, at which rows are missing.
#[derive(Default)]
pub(super) struct MissingRows {
    /// The unwinders that have rows where the function starts, so that it must have them everywhere.
    pub(super) expected: u8,
    /// Where (svma) SFrame has no row and should, although it has none at the function's start or elsewhere.
    holes: Vec<Range<u64>>,
    /// For each of [`UNWINDERS`]: the offsets of instructions that were reached without a row.
    at: [Bits; 2],
    arrivals: HashMap<u64, Arrival>,
}

impl MissingRows {
    /// For the function `unit`, which has `rows`.
    pub(super) fn of(program: &Program<'_>, rows: &[Rows<'_>], unit: &Unit) -> MissingRows {
        let mut expected = 0;
        for (number, table) in program.tables.iter().enumerate() {
            let bit = unwinder(table.kind());
            let own = rows.iter().find(|rows| rows.number == number);
            let own = own.map_or(&[][..], |rows| &rows.rows);
            if bit != 0 && covers_start(table, own, &unit.range) {
                expected |= bit;
            }
        }
        let holes = match expected & SFRAME {
            0 => holes::unexplained(program, rows, &unit.range),
            _ => Vec::new(),
        };
        MissingRows {
            expected,
            holes,
            ..MissingRows::default()
        }
    }

    /// The unwinders that must have a row at `pc` (svma).
    pub(super) fn expected_at(&self, pc: u64) -> u8 {
        if self.holes.is_empty() {
            return self.expected;
        }
        let at = self.holes.partition_point(|hole| hole.end <= pc);
        if self.holes.get(at).is_some_and(|hole| hole.start <= pc) {
            self.expected | SFRAME
        } else {
            self.expected
        }
    }

    /// Adds the instruction `offset` bytes from the start of `body`, at `pc` (svma).
    #[cold]
    pub(super) fn add(
        &mut self,
        unwinders: u8,
        len: usize,
        (offset, pc): (usize, u64),
        state: &State,
        trail: Option<u32>,
    ) {
        for (bit, bits) in UNWINDERS.into_iter().zip(&mut self.at) {
            if unwinders & bit == 0 {
                continue;
            }
            if bits.is_empty() {
                *bits = Bits::new(len);
            }
            bits.set(offset);
        }
        self.arrive(pc, state, trail);
    }

    /// Keeps how the address `pc` (svma), at which there is no row, was reached first.
    fn arrive(&mut self, pc: u64, state: &State, trail: Option<u32>) {
        if self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.entry(pc).or_insert_with(|| Arrival {
                sp: state.reg(Reg::Rsp),
                right: derive::rule(state),
                trail,
            });
        }
    }
}

/// Whether `table`, which has `rows` there, should have them from the start of `range` (svma) on, and has
/// none behind a hole: an FDE that ends too early is one thing, several with holes between them another.
/// Rows that begin too late, and rows behind instructions that are malformed, are missing: an unwinder
/// stops there. What is only not understood here may be right.
fn covers_start(table: &Table, rows: &[Row<'_>], range: &Range<u64>) -> bool {
    let Some(function) = fde(table, rows, range) else {
        return false;
    };
    if !matches!(
        &function.error,
        None | Some((_, Reason::MalformedRow { .. }))
    ) {
        return false;
    }
    let mut end = None;
    rows.iter().all(|row| {
        let follows = end.is_none_or(|end| end == row.start);
        end = Some(row.end);
        follows
    })
}

/// The FDE of `table`, which has `rows` for code in `range` (svma), that has its start, or which begins
/// inside, behind the function's first instructions.
fn fde<'t>(table: &'t Table, rows: &[Row<'_>], range: &Range<u64>) -> Option<&'t Function> {
    let first = rows.first().map_or(range.start, |row| row.start);
    let inside = || {
        table
            .function_at(first)
            .filter(|f| f.range.start > range.start)
    };
    table.function_at(range.start).or_else(inside)
}

impl<'p> Walker<'p, '_> {
    /// Opens the code at `target` (svma), which no table has, if it belongs to the function that leads
    /// there from `from`. Whether it does.
    pub(super) fn open_beyond(
        &mut self,
        part: usize,
        (from, target): (u64, u64),
        state: &State,
    ) -> bool {
        // On a way that may not exist, code without a row is no finding; nor is it if nobody has
        // rows here.
        if state.is_guessed || state.is_dead || self.parts[part].missing.expected == 0 {
            return false;
        }
        let program = self.program;
        let Some(around) = between(program, target) else {
            return false;
        };
        // If a bound cannot be exceeded, GCC has no code for that case, and the jump leads to whatever the
        // linker has put there: then only a symbol can tell.
        let owner = self.owner(part, target);
        let is_sized = owner.is_some_and(|owner| says_its_size(program, owner).is_some());
        if tests_a_bound(program, from) && !is_sized {
            return false;
        }
        let is_own = match owner {
            Some(owner) => {
                // Code that runs on is the function's, except where functions start.
                let runs_on = from.wrapping_add(1) == target && !target.is_multiple_of(ALIGN);
                let as_at_entry = state.is_as_at_entry() && !runs_on;
                let from = self.parts[part].function;
                is_part_of(program, owner, (from, target), as_at_entry)
            }
            None => false,
        };
        let function = match owner {
            Some(owner) if is_own => owner,
            // Nobody can be called with such a stack: this is code of the function that jumps there.
            _ if is_within_frame(state) && !tests_a_bound(program, from) => {
                self.parts[part].function
            }
            _ => return false,
        };

        // The function may be one that was not followed so far; then it is opened first.
        let is_known = |p: &FunctionWalk<'_>| p.is_listed && p.function == function;
        if !self.parts.iter().any(is_known) && self.open(function).is_none() {
            return false;
        }

        // The code that is read is bounded in both directions: symbols limit it, and else a
        // distance.
        let start = around.start.max(target.saturating_sub(DISTANCE_MAX));
        let start = last_symbol(program, start, target).unwrap_or(start);
        let end = around.end.min(target.saturating_add(BYTES_MAX >> 4));
        let end = next_symbol(program, target, end, is_own);

        // Without bytes in the file there is nothing to follow.
        let mut body = self.spare.pop().unwrap_or_default();
        if !body.read(program.file, start..end) {
            return false;
        }
        // Where a function runs on into no-operations before the next one, nothing is said of them.
        if from.wrapping_add(1) == target && body.skip_nops(program.file, target).is_none() {
            self.recycle(body);
            return false;
        }

        // Landing pads are those of the function that the code belongs to.
        let mut all = self.parts.iter();
        let sites = all.find(|p| p.is_listed && p.function == function);
        let sites = sites.map_or(Vec::new(), |p| p.sites.clone());
        self.open_bare(function, body, sites, self.parts[part].missing.expected);
        true
    }

    /// Opens code without a row that belongs to `function`.
    fn open_bare(&mut self, function: usize, body: Body, sites: Vec<CallSite>, expected: u8) {
        let missing = MissingRows {
            expected,
            ..MissingRows::default()
        };
        let start = self.program.functions[function].range.start;
        let (convention, _) = self.program.convention(start);
        self.parts.push(FunctionWalk {
            below_sp: Bits::new(body.len()),
            function,
            is_listed: false,
            is_signal: false,
            convention,
            rows: Vec::new(),
            sites,
            args: Vec::new(),
            body,
            verdict: FunctionVerdict::default(),
            missing,
            guesses: Guesses::default(),
        });
    }

    /// Whether the code behind the last instruction of a part, `next` (svma), which is a call or a
    /// system call, is surely its function's, and so goes on there. Else what is called never returns.
    pub(super) fn goes_on_beyond(&self, part: usize, next: u64) -> bool {
        let (program, here) = (self.program, &self.parts[part]);
        if here.body.range.end != next || !here.is_listed || here.missing.expected == 0 {
            return false;
        }
        let function = here.function;
        if self.owner(part, next) != Some(function) || between(program, next).is_none() {
            return false;
        }
        let bytes = program.file.bytes(next);
        let behind = Decoder::with_ip(64, bytes, next, DecoderOptions::NONE).decode();
        let is_code = !behind.is_invalid() && !is_padding(&behind) && bytes.first() != Some(&0);
        // Where functions start, another one may.
        let is_sure = !next.is_multiple_of(ALIGN) || says_its_size(program, function).is_some();
        is_code && is_sure && is_part_of(program, function, (function, next), false)
    }

    /// Whether the FDE ends inside of the instruction at `pc` (svma), which the function's code goes on
    /// with. If it is a call, its caller is looked up where there is no row.
    pub(super) fn ends_inside(
        &mut self,
        part: usize,
        pc: u64,
        state: &State,
        trail: Option<u32>,
    ) -> bool {
        let (program, here) = (self.program, &mut self.parts[part]);
        let (end, function) = (here.body.range.end, here.function);

        // Decoded by itself, since the body ends with the FDE.
        let bytes = program.file.bytes(pc);
        let insn = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();

        let is_own = here.is_listed
            && here.missing.expected != 0
            && !insn.is_invalid()
            && insn.next_ip() > end
            && between(program, end).is_some()
            && is_part_of(program, function, (function, end), false);
        if !is_own || state.is_guessed || state.is_dead {
            return false;
        }

        // One finding for each unwinder that should have a row there.
        let expected = here.missing.expected;
        here.missing.arrive(end, state, trail);
        for bit in UNWINDERS.into_iter().filter(|bit| expected & bit != 0) {
            let run = end..insn.next_ip();
            let path = |trail| path(&self.jumps, trail);
            let found = contradiction(program, (function, bit), run, &here.missing, path);
            here.verdict.contradictions.extend(found);
        }

        true
    }

    /// The stubs (svma) of a procedure linkage table that its FDE leaves out, opened.
    pub(super) fn stubs_beyond(&mut self, index: usize) -> Vec<u64> {
        let (program, unit) = (self.program, &self.program.functions[index]);
        let section = program.file.code_at(unit.range.start);
        let is_inside = section.is_some_and(|section| section.range.contains(&unit.range.end));
        let Some(around) = between(program, unit.range.end).filter(|_| is_inside) else {
            return Vec::new();
        };
        let expected = self.parts.first().map_or(0, |p| p.missing.expected);
        let mut body = self.spare.pop().unwrap_or_default();
        if expected == 0 || !body.read(program.file, around.clone()) {
            return Vec::new();
        }
        let stubs = plt::stubs(program.file, &(unit.range.start..around.end));
        let stubs = stubs.into_iter().filter(|s| around.contains(s));
        let stubs: Vec<u64> = stubs.filter(|&s| jumps_on(&mut body, program, s)).collect();
        self.open_bare(index, body, Vec::new(), expected);
        stubs
    }

    /// The function that ends before `target` (svma), with no other between: one that is being
    /// followed, or a part of one, which are entered anywhere.
    fn owner(&self, part: usize, target: u64) -> Option<usize> {
        let functions = &self.program.functions;
        let after = functions.partition_point(|f| f.range.end <= target);
        let before = after.checked_sub(1)?;
        let is_followed = |p: &FunctionWalk<'_>| p.function == before;
        let is_followed = self.parts[part].function == before || self.parts.iter().any(is_followed);
        let is_part = functions[before].entry == Entry::Part;
        (is_followed || is_part).then_some(before)
    }

    /// Puts what is missing into the verdicts of the functions that it is missing in.
    pub(super) fn report_missing(&mut self) {
        // Findings are by part, and verdicts by function: a function may have been followed in
        // several parts.
        for number in 0..self.parts.len() {
            let part = &mut self.parts[number];
            let missing = std::mem::take(&mut part.missing);
            let mut found = Vec::new();
            for (bit, bits) in UNWINDERS.into_iter().zip(&missing.at) {
                // A run of instructions without a row is one finding, not one for each instruction.
                for run in runs(self.program, &mut part.body, bits) {
                    found.extend(contradiction(
                        self.program,
                        (part.function, bit),
                        run,
                        &missing,
                        |trail| path(&self.jumps, trail),
                    ));
                }
            }

            if found.is_empty() {
                continue;
            }

            let (function, verdict) = (part.function, std::mem::take(&mut part.verdict));
            // What was followed beyond an FDE is a part by itself, and counts for the function it
            // belongs to.
            let mut all = self.parts.iter_mut();
            let listed = all.find(|p| p.is_listed && p.function == function);
            let into = match listed {
                Some(part) => part,
                None => &mut self.parts[number],
            };

            into.verdict.add(verdict);
            into.verdict.contradictions.extend(found);
        }
    }
}

/// The addresses (svma) without a function around `target`: within its section, from the function
/// before it to the next one. `None` if it is not code, or a function has it.
fn between(program: &Program<'_>, target: u64) -> Option<Range<u64>> {
    let code = program.file.code_at(target)?.range.clone();
    let functions = &program.functions;
    let after = functions.partition_point(|f| f.range.end <= target);
    let next = functions.get(after).map_or(u64::MAX, |f| f.range.start);
    let before = after.checked_sub(1).map_or(0, |i| functions[i].range.end);
    (target < next).then(|| code.start.max(before)..code.end.min(next))
}

/// Whether the instruction at `from` (svma) is a jump behind a comparison with a bound, as that of a switch.
pub(crate) fn tests_a_bound(program: &Program<'_>, from: u64) -> bool {
    let bytes = program.file.bytes(from);
    let jump = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE).decode();
    matches!(
        jump.condition_code(),
        ConditionCode::a | ConditionCode::ae | ConditionCode::b | ConditionCode::be
    )
}

/// Where (svma) function `index` ends, if a symbol says so.
fn says_its_size(program: &Program<'_>, index: usize) -> Option<u64> {
    let start = program.functions[index].range.start;
    let symbols = program.file.image().symbols();
    let first = symbols.partition_point(|s| s.address < start);
    let named = symbols[first..].iter();
    let named = named.take_while(|s| s.address == start && s.size > 0);
    named.map(|s| s.address.saturating_add(s.size)).max()
}

/// Whether the code at `target` (svma), behind the end of function `owner`, is a part of that function.
/// `from` is the function that leads there. If everything is `as_at_entry`, only a symbol can tell: it may as
/// well be another function.
fn is_part_of(
    program: &Program<'_>,
    owner: usize,
    (from, target): (usize, u64),
    as_at_entry: bool,
) -> bool {
    // Code of a function stays in its section, and a linker puts it near.
    let unit = &program.functions[owner];
    let section = program.file.code_at(unit.range.start);
    let is_near = section.is_some_and(|section| section.range.contains(&target))
        && target.wrapping_sub(unit.range.end) <= DISTANCE_MAX;
    if !is_near {
        return false;
    }

    // A symbol with a size is the surest sign there is.
    if let Some(end) = says_its_size(program, owner) {
        return target < end;
    }

    // What others name or lead to is a function of its own.
    let symbols = program.file.image().symbols();
    let first = symbols.partition_point(|s| s.address < unit.range.start);
    let between = symbols.partition_point(|s| s.address <= target) > first
        && symbols[first..]
            .iter()
            .take_while(|s| s.address <= target)
            .any(|s| s.address > unit.range.start);
    let is_named = between || program.is_pointed_to(target) || program.is_called(target);

    // Where other functions jump to, a function is likely to start.
    let references = program.references();
    !as_at_entry
        && !is_named
        && !references.leads_to(target)
        && !references.has_jump_from_other(target, |f| f == owner || f == from)
}

/// Whether one of the first instructions at `stub` (svma) is a jump.
fn jumps_on(body: &mut Body, program: &Program<'_>, stub: u64) -> bool {
    let mut at = stub;
    for _ in 0..STUB_MAX {
        let insn = body.offset(at).and_then(|o| body.insn(program.file, o));
        let Some(insn) = insn else {
            return false;
        };
        match insn.flow_control() {
            FlowControl::Next => at = insn.next_ip(),
            flow => {
                return matches!(
                    flow,
                    FlowControl::IndirectBranch | FlowControl::UnconditionalBranch
                );
            }
        }
    }
    false
}

/// Whether rsp is in the function's own frame, below where it was at entry.
fn is_within_frame(state: &State) -> bool {
    matches!(
        state.reg(Reg::Rsp),
        Value::Entry {
            reg: Reg::Rsp,
            offset: ..0
        }
    )
}

/// The last symbol at or before `target` (svma), from `start` on.
fn last_symbol(program: &Program<'_>, start: u64, target: u64) -> Option<u64> {
    let symbols = program.file.image().symbols();
    let after = symbols.partition_point(|s| s.address <= target);
    let symbol = symbols.get(after.checked_sub(1)?)?;
    (symbol.address >= start).then_some(symbol.address)
}

/// Where the code at `target` (svma) ends before `end`: at the next symbol, or where the symbol of the
/// function that it is a part of ends.
fn next_symbol(program: &Program<'_>, target: u64, end: u64, is_own: bool) -> u64 {
    let symbols = program.file.image().symbols();
    let after = symbols.partition_point(|s| s.address <= target);
    let mut next = symbols[after..].iter().filter(|s| s.size > 0 || !is_own);
    next.next().map_or(end, |s| s.address.min(end))
}

/// The runs of instructions (svma) in `bits` that follow each other, without those of
/// no-operations alone.
fn runs(program: &Program<'_>, body: &mut Body, bits: &Bits) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    if bits.is_empty() {
        return runs;
    }

    let mut does_something = false;
    let start = body.range.start;
    let mut last: Option<Range<u64>> = None;

    // Bits are by byte, and only starts of instructions are set.
    for offset in 0..body.len() {
        if !bits.has(offset) {
            continue;
        }
        let Some(insn) = body.insn(program.file, offset) else {
            continue;
        };

        let at = start + offset as u64;

        // Instructions that touch are one run.
        match &mut last {
            Some(run) if at <= run.end => run.end = run.end.max(at + insn.len() as u64),
            _ => {
                runs.extend(last.take().filter(|_| does_something));
                does_something = false;
                last = Some(at..at + insn.len() as u64);
            }
        }

        does_something |= !is_nop(&insn);
    }

    // The last run has no instruction behind it that would end it.
    runs.extend(last.filter(|_| does_something));
    runs
}

/// The finding for the addresses `run` (svma), at which one unwinder has no row for `function`.
fn contradiction(
    program: &Program<'_>,
    (function, unwinder_bit): (usize, u8),
    run: Range<u64>,
    missing: &MissingRows,
    path: impl Fn(Option<u32>) -> Vec<(u64, u64)>,
) -> Option<Contradiction> {
    let range = &program.functions[function].range;

    // The tables of one unwinder are those that a walk would ask in turn.
    let tables = program.tables.iter();
    let mut tables = tables.filter(|table| unwinder(table.kind()) == unwinder_bit);

    // The FDE to blame is the one whose rows end before the gap, or else one of the function.
    let (table, fde) = tables.find_map(|table| {
        let rows = table.rows_in(range);
        let before = rows.iter().rfind(|row| row.start <= run.start);
        let before = before.and_then(|row| table.function_at(row.start));
        Some((table, before.or_else(|| fde(table, &rows, range))?))
    })?;

    // How the first address was reached is told with the finding.
    let first = missing.arrivals.get(&run.start);
    Some(Contradiction {
        table: table.kind(),
        row_offset: fde.offset,
        pc: run.start,
        row: run,
        rule: NO_ROW,
        subject: Subject::Row,
        found: Value::Unknown,
        sp: first.map_or(Value::Unknown, |first| first.sp),
        right: first.and_then(|first| first.right),
        fits: None,
        path: first.map_or(Vec::new(), |first| path(first.trail)),
    })
}
