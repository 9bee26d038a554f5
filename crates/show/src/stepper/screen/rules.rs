//! The code with the rules of the unwinders beside it, above the other panes.

use super::super::hit::{HitTarget, Pane};
use super::{BAD, FAINT, GOOD, HIGH, MARK, NOW, Painter, STRONG, WIDE, columns, row, scrolled};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unwind_sim_view::code_rules::{CodeRules, RuleLine, SourceLine};

/// The widest column of instructions.
const INSN_MAX: usize = 34;
/// The least width at which the truth is shown: `   cfa=rsp+16`.
const TRUTH_MIN: usize = 13;
/// What the column of the truth is called.
const TRUE: &str = "true";

/// A line of the pane.
enum Shown<'c> {
    Source(&'c SourceLine),
    /// The line with this index.
    Insn(usize, &'c RuleLine),
}

/// A column that has room.
struct Column<'c> {
    /// The index of the unwinder; none for the truth.
    unwinder: Option<usize>,
    name: &'c str,
    width: usize,
}

impl Painter<'_, '_, '_> {
    /// The panes, with the code over the whole width.
    pub(super) fn rules_body(&mut self, body: Rect) {
        let [code, rest] =
            Layout::vertical([Constraint::Percentage(50), Constraint::Fill(1)]).areas(body);
        self.rules(code);

        // A small screen has room for the stack only.
        if body.width < WIDE || body.height < HIGH - 2 {
            return self.stack(rest);
        }
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(rest);
        let matrix = self.matrix_rows() + 1;
        let [unwinders, story] = Layout::vertical([
            Constraint::Length(matrix.min(rest.height / 2)),
            Constraint::Fill(1),
        ])
        .areas(right);
        self.stack(left);
        self.matrix(unwinders);
        self.story(story);
    }

    fn rules(&mut self, area: Rect) {
        let stepper = self.stepper;
        let inside = self.block(stepper.code_title(), area);
        self.hit(area, HitTarget::Pane(Pane::Code));

        let pc = stepper.code_pc;
        let current = stepper.code.as_ref().and_then(|code| code.line_of(pc));
        let listing = stepper.rules.as_ref().map(|rules| &rules.listing);
        let (Some(listing), Some(current)) = (listing, current) else {
            let text = format!("the code at {:#x} is not known", pc.value());
            return self.lines(vec![Line::raw(text)], inside);
        };

        // Source lines are lines of the pane, too.
        let mut all = Vec::new();
        let mut at = 0;
        for (index, line) in listing.lines.iter().enumerate() {
            if index == current {
                at = all.len();
            }
            all.extend(line.source.as_ref().map(Shown::Source));
            all.push(Shown::Insn(index, line));
        }

        // The names of the columns stay above.
        let height = usize::from(inside.height).saturating_sub(1);
        let first = scrolled(
            at.saturating_sub(height / 3),
            stepper.scroll.code,
            all.len(),
            height,
        );
        let shown: Vec<&Shown<'_>> = all.iter().skip(first).take(height).collect();

        let insns = shown.iter().filter_map(|shown| match shown {
            Shown::Insn(_, line) => Some(columns(&line.insn.text)),
            Shown::Source(_) => None,
        });
        let start = listing.lines.first().map_or(0, |line| line.insn.address);
        // `+1f  ` and the mark.
        let insn = insns.max().unwrap_or(0).min(INSN_MAX);
        let left = 7 + insn;
        let room = usize::from(inside.width).saturating_sub(left);
        let fitting = self.fitting(listing, &shown, room);

        let mut lines = vec![self.rules_head(&fitting, left)];
        let mut is_first = true;
        for (nth, shown) in shown.iter().enumerate() {
            let line = match shown {
                Shown::Source(source) => Line::from(self.span(source.to_string(), STRONG)),
                Shown::Insn(index, line) => {
                    self.hit(row(inside, nth + 1), HitTarget::Code(line.insn.address));
                    let is_now = *index == current;
                    let line = self.rules_line(line, start, (is_now, is_first), insn, &fitting);
                    is_first = false;
                    line
                }
            };
            lines.push(line);
        }
        self.lines(lines, inside);
    }

    /// The columns that have room: first the unwinder that is chosen, then the truth, then the others.
    fn fitting<'c>(
        &self,
        listing: &'c CodeRules,
        shown: &[&Shown<'_>],
        room: usize,
    ) -> Vec<Column<'c>> {
        let insns: Vec<&RuleLine> = shown
            .iter()
            .filter_map(|shown| match shown {
                Shown::Insn(_, line) => Some(*line),
                Shown::Source(_) => None,
            })
            .collect();

        let unwinders = listing.titles.iter().enumerate().map(|(index, name)| {
            let cells = insns.iter().enumerate();
            let cells = cells.map(|(nth, line)| columns(&line.cells[index].drawn(nth == 0)));
            Column {
                unwinder: Some(index),
                name,
                width: cells.max().unwrap_or(0).max(columns(name) + 2) + 1,
            }
        });
        let truths = insns.iter().filter_map(|line| line.truth.as_deref());
        let truth = truths.map(columns).max().map(|width| Column {
            unwinder: None,
            name: TRUE,
            width: width.max(TRUE.len()) + 3,
        });
        let all: Vec<Column<'_>> = unwinders.chain(truth).collect();

        let stepper = self.stepper;
        let chosen = stepper.walkers.get(stepper.walker);
        let rank = |column: &Column<'_>| match column.unwinder {
            Some(index) if chosen.is_some_and(|w| w.unwinder == listing.columns[index]) => 0,
            None => 1,
            Some(_) => 2,
        };
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|&index| rank(&all[index]));

        // The first one is shown in any case, cut off where there is no room. So is the truth, which is
        // the last column, if there is room for what matters most of it: the CFA.
        let mut used = 0;
        let mut fits = vec![false; all.len()];
        for (nth, &index) in order.iter().enumerate() {
            let width = all[index].width;
            let needed = match all[index].unwinder {
                None => width.min(TRUTH_MIN),
                Some(_) => width,
            };
            if nth == 0 || used + needed <= room {
                used += width;
                fits[index] = true;
            }
        }
        let pairs = all.into_iter().zip(fits);
        pairs
            .filter_map(|(column, fits)| fits.then_some(column))
            .collect()
    }

    fn rules_head(&self, fitting: &[Column<'_>], left: usize) -> Line<'static> {
        let stepper = self.stepper;
        let mut spans = vec![Span::raw(" ".repeat(left))];
        for column in fitting {
            // Above derived rows stands more than the name.
            let name = column.name.trim_end_matches("(derived)");
            let is_chosen = stepper.walkers[stepper.walker].unwinder == name;
            let style = if is_chosen { STRONG } else { FAINT };
            let name = format!("   {:<1$}", column.name, column.width - 3);
            spans.push(self.span(name, style));
        }
        Line::from(spans)
    }

    fn rules_line(
        &self,
        line: &RuleLine,
        start: u64,
        (is_now, is_first): (bool, bool),
        insn: usize,
        fitting: &[Column<'_>],
    ) -> Line<'static> {
        let now = if is_now { NOW } else { Style::new() };
        let text: String = line.insn.text.chars().take(insn).collect();
        let mark = if is_now { ">" } else { " " };
        let distance = line.insn.address - start;
        let mut spans = vec![
            Span::raw(mark),
            self.span(format!("+{distance:<5x}"), FAINT),
            self.span(text.clone(), now),
            Span::raw(" ".repeat(insn.saturating_sub(columns(&text)))),
        ];

        for column in fitting {
            let (text, style) = match column.unwinder.map(|index| &line.cells[index]) {
                Some(cell) => {
                    // What is wrong stands out at each instruction, not only where its row starts.
                    let style = match (cell.wrong.is_empty(), cell.starts) {
                        (false, _) => BAD,
                        (true, true) => MARK,
                        (true, false) => FAINT,
                    };
                    (format!(" {}", cell.drawn(is_first)), style)
                }
                None => {
                    let truth = line.truth.as_deref().unwrap_or("");
                    (format!("   {truth}"), GOOD)
                }
            };
            let pad = column.width.saturating_sub(columns(&text));
            spans.push(self.span(text, style));
            spans.push(Span::raw(" ".repeat(pad)));
        }
        Line::from(spans)
    }
}
