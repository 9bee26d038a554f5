//! Runs the proof over all functions of a file.

use super::cover::gaps;
use super::rounds::{FollowOutcome, FunctionOutcome, Outcomes, follow};
use super::{Checked, Report, Unchecked};
use crate::file::File;
use crate::index;
use crate::proof::body::{Body, Reached};
use crate::proof::claims::UserChoice;
use crate::proof::entry::instructions;
use crate::proof::no_throw;
use crate::proof::program::{Effect, Entry, Pops, Program, Returns, Unit};
use crate::proof::verdict::{Assumption, Assumptions, Doubt, FunctionVerdict, Verdict};
use crate::proof::walk::{Misfit, REACHED, tests_a_bound};
use crate::table::{Row, Table};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use std::ops::Range;
use unwind_sim_unwind::rule::RuleKind;

/// How to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The number of threads; the report does not depend on it.
    pub threads: usize,
    /// What proofs may rest on.
    pub assume: Assumptions,
    /// The conventions and claims that the user chooses.
    pub choice: UserChoice,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 1,
            assume: Assumptions::ALL,
            choice: UserChoice::default(),
        }
    }
}

/// A program whose functions were followed.
pub(crate) struct Proven<'f> {
    /// The program, which knows which of its functions return.
    pub(crate) program: Program<'f>,
    /// For each function: how its rows turned out.
    pub(crate) functions: Vec<Checked>,
    /// For each function: the numbers of those that lead into it.
    pub(crate) owners: Vec<Vec<u32>>,
    steps: u64,
}

/// Proves what can be proven of all rows of `file`.
pub fn check(file: &File, options: &Options) -> Report {
    prove(Program::new(file), options).report().1
}

/// Follows all functions of `program`.
pub(crate) fn prove<'f>(mut program: Program<'f>, options: &Options) -> Proven<'f> {
    program.choose(options.choice);
    let outcomes = follow(&mut program, options.threads);
    proven(program, outcomes, options)
}

/// What following all functions of `program` gave.
pub(crate) fn proven<'f>(
    program: Program<'f>,
    outcomes: Outcomes,
    options: &Options,
) -> Proven<'f> {
    let steps = outcomes.iter().flatten().map(|o| u64::from(o.steps)).sum();
    let mut owners = vec![Vec::new(); outcomes.len()];
    for (owner, outcome) in (0..).zip(&outcomes) {
        for part in outcome.iter().flat_map(|o| &o.parts) {
            owners[part.function].push(owner);
        }
    }
    Proven {
        functions: merge(&program, outcomes, options),
        program,
        owners,
        steps,
    }
}

impl<'f> Proven<'f> {
    /// The report, and the program that it is of.
    pub(crate) fn report(self) -> (Program<'f>, Report) {
        // Tables of one kind stand next to each other.
        let program = self.program;
        let mut kinds: Vec<_> = program.tables.iter().map(Table::kind).collect();
        kinds.dedup();

        let mut report = Report {
            tables: kinds,
            index: index::check(program.file, &program.tables),
            gaps: gaps(&program),
            steps: self.steps,
            functions: self.functions,
            unchecked: Unchecked::of(program.tables.iter()),
            ..Report::default()
        };

        // Problems of a table are those of its bytes; the proof goes on with what could be read.
        for table in &program.tables {
            let problems = table.problems().iter();
            report.problems.extend(problems.map(ToString::to_string));
        }

        // Nothing was followed there, but the report has every function of the tables.
        report.functions.extend(
            program
                .hidden
                .iter()
                .map(|range| doubted(&program, range, Doubt::Overlap)),
        );

        // Such an FDE has rows for addresses at which there is no code.
        let misplaced = program.without_code.misplaced.iter();
        report
            .functions
            .extend(misplaced.map(|range| doubted(&program, range, Doubt::NoCode)));

        // The order of the report is that of addresses, whatever a function's part in it.
        report.functions.sort_by_key(|f| f.range.start);
        report.problems.extend(absence(program.file));
        (program, report)
    }
}

/// Puts together what each function's own analysis and those of others found in it.
fn merge(program: &Program<'_>, outcomes: Outcomes, options: &Options) -> Vec<Checked> {
    let mut merged: Vec<Option<FunctionOutcome>> = Vec::new();
    merged.resize_with(outcomes.len(), || None);

    // What its effect says, its callers were followed with.
    let breaks = |target: &u64| {
        let callee = program.starting_at(*target).map(|c| &outcomes[c]);
        callee.is_some_and(|o| o.as_ref().is_some_and(|o| o.breaks_the_abi))
            && program.effect(*target) == Effect::default()
    };
    let broken: Vec<bool> = outcomes
        .iter()
        .map(|o| o.as_ref().is_some_and(|o| o.called.iter().any(breaks)))
        .collect();

    let misread = misread(program, &outcomes);

    // Misfits are put aside until all is known of where they lead.
    let mut misfits = Vec::new();
    // For each function: those that lead into it.
    let mut leaders = vec![Vec::new(); outcomes.len()];
    for (function, outcome) in outcomes.into_iter().enumerate() {
        let Some(outcome) = outcome else { continue };
        misfits.extend(outcome.misfits.into_iter().map(|m| (function, m)));
        for part in outcome.parts {
            if part.function != function {
                leaders[part.function].push(function);
            }

            // A function may have been followed from several others; what each has found is added.
            match &mut merged[part.function] {
                Some(known) => known.add(part),
                place => *place = Some(part),
            }
        }
    }

    // A misfit is compared with all that reaches its target, so that all parts are merged before.
    for (from, misfit) in misfits {
        settle(program, &mut merged, from, misfit, &leaders);
    }

    let functions = merged.into_iter().zip(&program.functions).zip(broken);
    functions
        .zip(misread)
        .map(|(((part, unit), broken), misread)| {
            let mut verdict = match part {
                Some(part) => part.finish(program),
                // What nobody followed is told why: by its convention, as a part, or without code.
                None => {
                    let mut verdict = FunctionVerdict::default();
                    let doubt = match unit.entry {
                        _ if !program.convention(unit.range.start).0.is_called() => {
                            Doubt::Convention
                        }
                        Entry::Part => Doubt::NoEntry,
                        _ => Doubt::NoCode,
                    };
                    verdict.doubt(doubt, unit.range.start);
                    verdict
                }
            };

            // A proof by an assumption that was not allowed is none.
            let is_too_much = verdict.assumptions.iter().any(|a| !options.assume.has(a));
            if is_too_much && verdict.verdict() == Verdict::Proven {
                verdict.doubt(Doubt::Assumption, unit.range.start);
            }
            // Behind such a mark, walks look up the return address itself (see `misread`).
            if misread {
                verdict.doubt(Doubt::SignalFrame, unit.range.start);
            }
            // It was followed as if all callees kept the registers of psABI 3.2.1, and one does
            // not.
            if broken && verdict.verdict() == Verdict::Proven {
                verdict.doubt(Doubt::Callee, unit.range.start);
            }

            // Doubts and contradictions come in the order of addresses, whoever found them.
            verdict.sort();
            let (convention, evidence) = program.convention(unit.range.start);
            Checked {
                range: unit.range.clone(),
                entry: unit.entry,
                table: program.tables.get(unit.table).map(Table::kind),
                convention,
                evidence,
                verdict,
            }
        })
        .collect()
}

/// For each function, whether it is called, though marked as a signal frame, and walks read a wrong
/// row for its callers because of that: they look up the return address itself. There, the frame is
/// that of the call only if the function returns, and pops nothing.
fn misread(program: &Program<'_>, outcomes: &[Option<Box<FollowOutcome>>]) -> Vec<bool> {
    let functions = program.functions.iter().zip(outcomes);
    let is_misread = |(unit, outcome): (&Unit, &Option<Box<FollowOutcome>>)| {
        let table = program.tables.get(unit.table);
        let row = table.and_then(|table| table.row_at(unit.range.start));
        let is_marked = row.is_some_and(|row| row.rule.kind == RuleKind::Signal);
        let keeps_frame = outcome.as_ref().is_none_or(|outcome| {
            outcome.effect.pops == Pops::default() && outcome.returns != Returns::Never
        });
        is_marked && unit.entry == Entry::Call && !keeps_frame
    };
    functions.map(is_misread).collect()
}

/// What of the file is elsewhere: a file of debug information has the headers of its program.
fn absence(file: &File) -> Vec<String> {
    let mut out = Vec::new();
    if file.is_debug_file() {
        out.push(String::from(
            "a debug file: its sections with code have no bytes here, so nothing is checked; check the \
             program",
        ));
    }
    let absent = file.absent_tables();
    if !absent.is_empty() {
        let names = absent.join(", ");
        out.push(format!(
            "without bytes here (NOBITS), they are in the program: {names}"
        ));
    }
    out
}

/// A function that is not followed: another one has its code, too, or there is none.
fn doubted(program: &Program<'_>, range: &Range<u64>, doubt: Doubt) -> Checked {
    let (convention, evidence) = program.convention(range.start);
    let mut verdict = FunctionVerdict::default();
    verdict.doubt(doubt, range.start);
    Checked {
        range: range.clone(),
        entry: Entry::Call,
        table: program.tables.first().map(Table::kind),
        convention,
        evidence,
        verdict,
    }
}

/// A way whose frame does not fit, where others do. It is impossible only if that is shown; otherwise one
/// of the two frames is wrong, or nobody takes that way. Parts with different names at one address are
/// those of both functions: a linker has folded them.
fn settle(
    program: &Program<'_>,
    merged: &mut [Option<FunctionOutcome>],
    from: usize,
    mut misfit: Misfit,
    owners: &[Vec<usize>],
) {
    // Where in the function the way arrives, which may be behind its start.
    let start = program.functions[misfit.function].range.start;
    let offset = usize::try_from(misfit.target.wrapping_sub(start)).unwrap_or(usize::MAX);
    let known = merged[misfit.function].as_ref();
    let is_reached = |p: &FunctionOutcome| p.reached.as_ref().is_none_or(|r| r.has(offset));
    let is_alive = |p: &FunctionOutcome| p.reached.as_ref().is_none_or(|r| r.is_alive(offset));
    let is_doubtful = throws_nothing(program, misfit.from) || tests_a_bound(program, misfit.from);

    // Behind what never returns, nothing says which frame is right.
    let fits = known.is_some_and(|p| is_alive(p) || is_doubtful && is_reached(p));

    // A call that throws nothing never takes the way to a landing pad.
    if fits && throws_nothing(program, misfit.from) {
        if let Some(part) = &mut merged[from] {
            part.verdict.assumptions.add(Assumption::Unreachable);
        }
        return;
    }

    // A frame that fits is there already, and the code at the address is one function's own: the
    // way may not exist.
    if fits && !is_folded(program, misfit.target) {
        if let Some(part) = &mut merged[misfit.function] {
            part.verdict.doubt(Doubt::Guessed, misfit.target);
        }
        return;
    }

    if fits {
        let others = owners[misfit.function]
            .iter()
            .filter(|&&other| other != from);
        let other = others
            .filter_map(|&other| jump_to(program, other, misfit.target))
            .next();
        // A finding then shows a way that fits as well.
        for wrong in &mut misfit.verdict.contradictions {
            wrong.fits = other.map(|other| (other, misfit.target));
        }
    }

    // What is found counts for the function that it leads into.
    match &mut merged[misfit.function] {
        Some(part) => part.verdict.add(misfit.verdict),
        place => {
            *place = Some(FunctionOutcome {
                function: misfit.function,
                verdict: misfit.verdict,
                reached: Some(Reached::default()),
                is_whole: false,
                marks: Vec::new(),
            });
        }
    }
}

/// Whether the symbols at `target` (svma) name more than one piece of code there. One without a size is
/// only a place, as that of a part which has no instructions.
fn is_folded(program: &Program<'_>, target: u64) -> bool {
    let symbols = program.file.image().symbols().iter();
    let mut names = symbols
        .filter(|s| s.address == target && s.size > 0)
        .map(|s| &s.name);
    let first = names.next();
    first.is_some_and(|first| names.any(|name| name != first))
}

/// Whether the instruction at `from` (svma) is a call that throws nothing: of a function known by name, or
/// of one of the same file that calls nothing.
fn throws_nothing(program: &Program<'_>, from: u64) -> bool {
    let insn = Decoder::with_ip(64, program.file.bytes(from), from, DecoderOptions::NONE).decode();
    if insn.flow_control() != FlowControl::Call || insn.op0_kind() != OpKind::NearBranch64 {
        return false;
    }
    let target = insn.near_branch64();
    if program.file.names_at(target).any(no_throw::is_known) {
        return true;
    }
    let Some(callee) = program.starting_at(target) else {
        return false;
    };
    let range = &program.functions[callee].range;
    let stays = |insn: Instruction| match insn.flow_control() {
        FlowControl::Next | FlowControl::Return => true,
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
            range.contains(&insn.near_branch64())
        }
        _ => false,
    };
    instructions(program.file, range).all(stays)
}

/// The address (svma) of a jump in function `index` that leads to `target`.
fn jump_to(program: &Program<'_>, index: usize, target: u64) -> Option<u64> {
    let mut insns = instructions(program.file, &program.functions[index].range);
    let jump = insns.find(|insn| {
        insn.op0_kind() == OpKind::NearBranch64
            && insn.flow_control() != FlowControl::Call
            && insn.near_branch64() == target
    });
    jump.map(|jump| jump.ip())
}

impl FunctionOutcome {
    fn add(&mut self, other: FunctionOutcome) {
        self.verdict.add(other.verdict);
        self.is_whole |= other.is_whole;
        match (&mut self.reached, &other.reached) {
            (Some(mine), Some(theirs)) => mine.add_all(theirs),
            (mine, _) => *mine = None,
        }
        for (number, marks) in other.marks {
            match self.marks.iter_mut().find(|m| m.0 == number) {
                Some((_, mine)) => {
                    for (mine, theirs) in mine.iter_mut().zip(marks) {
                        *mine |= theirs;
                    }
                }
                None => self.marks.push((number, marks)),
            }
        }
    }

    fn finish(self, program: &Program<'_>) -> FunctionVerdict {
        let mut verdict = self.verdict;
        let range = &program.functions[self.function].range;
        let mut unreached = Vec::new();

        // Without a list of what was reached, all of it was.
        if let Some(reached) = self.reached
            && let Some(mut body) = Body::new(program.file, range.clone())
        {
            body.reached = reached;
            unreached = body.all_unreached(program.file);
            if let Some(first) = unreached.first() {
                verdict.doubt(Doubt::Unreached, first.start);
            }
        }
        for (number, marks) in &self.marks {
            verdict.rows += marks.len() as u32;

            // A row counts as proven only if it was reached, and nothing speaks against it.
            let are_right = marks.iter().filter(|&&mark| mark == REACHED).count() as u32;
            verdict.rows_proven += are_right;
            if unreached.is_empty() || are_right == 0 {
                continue;
            }

            // Nothing is known of a row at addresses that nothing reached.
            let rows = program.tables[*number].rows_in(range);
            let is_open = |row: &Row<'_>| {
                let mut open = unreached.iter();
                open.any(|code| code.start < row.end && row.start < code.end)
            };

            // Rows that cover unreached code are open, though what was reached of them is right.
            let rows = rows.iter().zip(marks);
            let open = rows.filter(|(row, mark)| **mark == REACHED && is_open(row));
            verdict.rows_proven -= open.count() as u32;
        }
        verdict
    }
}
