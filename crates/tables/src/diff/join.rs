//! Goes through two tables side by side.

use super::cause::{Cause, Causes};
use super::compare::{Function, RowContext, RowSide, compare};
use super::format::Format;
use super::segments::{FunctionRange, Segment, Segments, TableAnswer};
use super::{Claim, Diff, Difference, Input, TableSide};
use crate::file::File;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe;

/// A comparison under way.
pub(super) struct Join<'a> {
    inputs: [Input<'a>; 2],
    formats: [Format; 2],
    /// The starts of functions that no reader of the table finds.
    unread: [BTreeSet<u64>; 2],
    diff: Diff,
    /// The function of each table that is being compared with the other table.
    open: [OpenFunction; 2],
    function: Function<'a>,
    /// Subtracted from addresses of the second file.
    shift: u64,
}

/// A function of one table, while it is compared.
#[derive(Clone, Copy, Debug, Default)]
struct OpenFunction {
    range: FunctionRange,
    /// Whether the other table has any row for it.
    is_known: bool,
    /// What the other table's format could not express of it.
    loss: Option<Loss>,
    /// The number of differences before it.
    first: usize,
}

const SIDES: [TableSide; 2] = [TableSide::First, TableSide::Second];

impl<'a> Join<'a> {
    pub(super) fn new(first: Input<'a>, second: Input<'a>) -> Self {
        let inputs = [first, second];
        Join {
            inputs,
            formats: inputs.map(|input| Format::of(input.file, input.table)),
            unread: inputs.map(|input| match input.table.kind() {
                TableKind::Sframe => unread(input.file),
                _ => BTreeSet::new(),
            }),
            diff: Diff::default(),
            open: [OpenFunction::default(); 2],
            function: Function {
                file: first.file,
                range: 0..0,
                code: OnceCell::new(),
            },
            shift: 0,
        }
    }

    /// Compares the rows for these addresses of the first file. Those of the second file are
    /// higher by `shift` (modulo 2^64).
    pub(super) fn window(&mut self, range: Range<u64>, shift: u64) {
        self.shift = shift;
        let other = match shift {
            0 => range.clone(),
            _ => range.start.wrapping_add(shift)..range.end.wrapping_add(shift),
        };

        // Both tables are gone through once, in the order of addresses.
        let [first, second] = self.inputs.map(|input| input.table);
        let mut a = Segments::new(first, range);
        let mut b = Segments::new(second, other).map(|mut segment| {
            // In addresses of the first file, by which both are compared.
            segment.start = segment.start.wrapping_sub(shift);
            segment.end = segment.end.wrapping_sub(shift);
            segment.function.start = segment.function.start.wrapping_sub(shift);
            segment.function.end = segment.function.end.wrapping_sub(shift);
            segment
        });

        let mut now = [a.next(), b.next()];
        let mut at = 0;
        loop {
            // A damaged table can have a segment that ends before it starts.
            let is_over = |s: Option<Segment>, at| s.is_some_and(|s| s.end <= s.start.max(at));
            while is_over(now[0], at) {
                now[0] = a.next();
            }
            while is_over(now[1], at) {
                now[1] = b.next();
            }

            // The next address at which either table says something.
            let starts = now.iter().flatten().map(|s| s.start.max(at));
            let Some(start) = starts.min() else { break };
            let active = now.map(|s| s.filter(|s| s.start <= start));
            // Nothing changes before one that is active ends, or the other starts.
            let limits = now
                .iter()
                .flatten()
                .map(|s| if s.start <= start { s.end } else { s.start });
            let end = limits.min().unwrap_or(u64::MAX);
            self.visit(start..end, active);
            at = end;
        }

        // The last functions have no successor that would close them.
        for side in [0, 1] {
            self.close(side);
        }
    }

    /// Compares what the tables say of a range of addresses.
    fn visit(&mut self, range: Range<u64>, said: [Option<Segment>; 2]) {
        // Functions may begin and end in one table only, so each side is told by itself.
        for (side, segment) in said.iter().enumerate() {
            let Some(segment) = segment else { continue };
            // Another function begins: nothing more will be known of the last one.
            if self.open[side].range != segment.function {
                self.close(side);
                self.open[side] = OpenFunction {
                    range: segment.function,
                    first: self.diff.differences.len(),
                    ..OpenFunction::default()
                };
            }
            self.open[side].is_known |= said[1 - side].is_some();
        }

        // What cannot be read differs from whatever the other table says there.
        let is_malformed =
            |s: &Option<Segment>| matches!(s.map(|s| s.said), Some(TableAnswer::Malformed(_)));
        if said.iter().any(is_malformed) {
            return self.differ(range, said, Causes::one(Cause::Malformed));
        }

        let rule = |s: Option<Segment>| match s.map(|s| s.said) {
            Some(TableAnswer::Row(rule, _)) => Some(rule),
            _ => None,
        };

        // A row against nothing is a missing row, on one side or the other.
        match (rule(said[0]), rule(said[1])) {
            (Some(_), Some(_)) => self.compare(range, said),
            (Some(_), None) => self.missing(range, said, 1),
            (None, Some(_)) => self.missing(range, said, 0),
            (None, None) => {}
        }
    }

    fn compare(&mut self, range: Range<u64>, said: [Option<Segment>; 2]) {
        self.diff.rows += 1;
        self.diff.bytes += range.end - range.start;

        // Both have a row; what differs is compared in normal form.
        let side = |i: usize| match said[i].map(|s| s.said) {
            Some(TableAnswer::Row(rule, _)) => Some(RowSide {
                rule,
                format: self.formats[i],
                section: self.inputs[i].table.section(),
            }),
            _ => None,
        };

        let (Some(a), Some(b)) = (side(0), side(1)) else {
            return;
        };

        // The code of the function is decoded only if it is asked for.
        self.enter(said[0]);
        let place = RowContext {
            address: range.start,
            function: &self.function,
        };

        let found = compare(&a, &b, &place);

        // The table whose format is the poorer one has lost it.
        if let Some(loss) = found.loss {
            let narrow = |format: Format| match loss {
                Loss::SignalFrame => !format.marks_signals(),
                _ => format != Format::Dwarf,
            };
            let which = if narrow(b.format) { 1 } else { 0 };
            self.lose(which, loss, &range);
        }

        if !found.causes.is_empty() {
            self.differ_in_code(range, said, found.causes);
        }
    }

    /// Makes the function of a segment the one whose code is asked for.
    fn enter(&mut self, segment: Option<Segment>) {
        let Some(segment) = segment else { return };
        let FunctionRange { start, end } = segment.function;
        if self.function.range != (start..end) {
            self.function.range = start..end;
            self.function.code = OnceCell::new();
        }
    }

    /// Adds differences in the code of the current function. What is said of padding behind what ends a
    /// way is about nothing.
    fn differ_in_code(&mut self, range: Range<u64>, said: [Option<Segment>; 2], causes: Causes) {
        for code in self.function.code().without_padding(&range) {
            self.differ(code, said, causes);
        }
    }

    /// The table `side` has no row, the other has one.
    fn missing(&mut self, range: Range<u64>, said: [Option<Segment>; 2], side: usize) {
        let other = 1 - side;
        let Some(TableAnswer::Row(rule, _)) = said[other].map(|s| s.said) else {
            return;
        };
        match self.formats[side].loss(&rule) {
            Some(loss) => {
                self.open[other].loss = Some(loss);
                self.lose(side, loss, &range);
            }
            None => {
                self.enter(said[other]);
                self.differ_in_code(range, said, Causes::one(Cause::MissingRow));
            }
        }
    }

    fn lose(&mut self, side: usize, loss: Loss, range: &Range<u64>) {
        let lost = self.diff.losses.entry((SIDES[side], loss)).or_default();
        lost.rows += 1;
        lost.bytes += range.end - range.start;
    }

    /// Adds a difference, or extends the last one.
    fn differ(&mut self, range: Range<u64>, said: [Option<Segment>; 2], causes: Causes) {
        let function = said[0].or(said[1]).map(|s| s.function).unwrap_or_default();
        let function = function.start..function.end;

        // What both tables say is kept with the difference, as it was compared.
        let claims = said.map(|segment| match segment.map(|s| s.said) {
            Some(TableAnswer::Row(rule, offset)) => Claim::Row { rule, offset },
            Some(TableAnswer::Malformed(reason)) => Claim::Malformed(reason),
            Some(TableAnswer::Nothing) | None => Claim::Nothing,
        });

        // The next row differs in the same way: one difference, however many rows it has.
        if let Some(last) = self.diff.differences.last_mut()
            && last.range.end == range.start
            && last.causes == causes
            && last.function == function
            && has_rows(&last.claims) == has_rows(&claims)
        {
            // Its range grows, and the claims stay those of the first row.
            last.range.end = range.end;
            last.rows += 1;
            return;
        }

        self.diff.differences.push(Difference {
            other: range.start.wrapping_add(self.shift),
            range,
            function,
            causes,
            claims,
            rows: 1,
        });
    }

    /// Ends the current function of the table `side`: if the other table has no row for it at all,
    /// its missing rows have another cause, or are lost with the one that could not be expressed.
    fn close(&mut self, side: usize) {
        let open = std::mem::take(&mut self.open[side]);
        if open.is_known || open.range.end == 0 {
            return;
        }

        let other = 1 - side;
        // What a table has unread lies at addresses of its own file.
        let of_second = match other {
            0 => open.range.start,
            _ => open.range.start.wrapping_add(self.shift),
        };
        let cause = if self.unread[other].contains(&of_second) {
            Cause::Unread
        } else {
            Cause::MissingFunction
        };

        let missing = Causes::one(Cause::MissingRow);
        let range = open.range.start..open.range.end;
        // Those that were added since the function began.
        let mut rest = self
            .diff
            .differences
            .split_off(open.first.min(self.diff.differences.len()));
        // Only what was missing of this very function changes its cause.
        for difference in &mut rest {
            let is_missing = has_rows(&difference.claims)[other];
            if is_missing || difference.causes != missing || difference.function != range {
                continue;
            }
            difference.causes = Causes::one(cause);
        }

        // If the format could not express the function, its missing rows are a loss, not a
        // difference.
        if let (Some(loss), Cause::MissingFunction) = (open.loss, cause) {
            let (lost, kept): (Vec<_>, Vec<_>) = rest
                .into_iter()
                .partition(|d| d.causes == Causes::one(cause) && d.function == range);
            rest = kept;
            for difference in lost {
                let entry = self.diff.losses.entry((SIDES[other], loss)).or_default();
                entry.rows += difference.rows;
                entry.bytes += difference.range.end - difference.range.start;
            }
        }

        self.diff.differences.extend(rest);
    }

    pub(super) fn finish(self) -> Diff {
        self.diff
    }
}

/// Which of the claims are rows.
fn has_rows(claims: &[Claim; 2]) -> [bool; 2] {
    claims
        .each_ref()
        .map(|claim| matches!(claim, Claim::Row { .. }))
}

/// The starts of the functions in the second and later tables of a `.sframe` section.
fn unread(file: &File) -> BTreeSet<u64> {
    let mut starts = BTreeSet::new();
    let Some(section) = file.image().section(SectionKind::Sframe) else {
        return starts;
    };
    let parse = |bytes, address| sframe::Table::parse(bytes, address).ok();
    let mut table = parse(&section.data, section.address);
    while let Some(found) = table {
        // Linkers align the next section.
        let tail = found.tail();
        let zeros = tail.iter().take_while(|&&byte| byte == 0).count();
        let tail = tail.get(zeros..).unwrap_or_default();
        let offset = section.data.len() - tail.len();
        table = parse(tail, section.address.wrapping_add(offset as u64));
        let Some(next) = &table else { break };
        starts.extend(next.fdes().flatten().map(|fde| fde.start));
    }
    starts
}
