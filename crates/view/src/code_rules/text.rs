//! Code with rules as text.

use super::{CodeRules, RuleCell, RuleLine};
use std::fmt::Write as _;
use std::ops::Range;
use unwind_sim_unwind::printable::printable;

/// The widest column of instructions; longer ones reach into the next.
const INSN_MAX: usize = 40;
/// The widest column of rules.
const RULE_MAX: usize = 72;
/// What the column of the truth is called.
const TRUE: &str = "true";

/// What is drawn at the left of a rule: a row starts, or the one above goes on.
const STARTS: &str = "┌ ";
const GOES_ON: &str = "│ ";

impl RuleCell {
    /// The cell of a listing: the whole rule where its row starts, and at the `first` line that is
    /// shown; below that only what is wrong.
    pub fn drawn(&self, first: bool) -> String {
        let line = if self.starts { STARTS } else { GOES_ON };
        let mut text = line.to_owned();
        if self.starts || first {
            text.push_str(&self.marked());
            return text;
        }
        for name in &self.wrong {
            let _ = write!(text, "!{name} ");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

impl CodeRules {
    /// These lines as text for a person, with the names of the columns above. `place` writes an
    /// address; the line `current` is marked.
    pub fn text(
        &self,
        lines: Range<usize>,
        current: Option<usize>,
        place: &dyn Fn(u64) -> String,
    ) -> String {
        let first = lines.start;
        let shown = self.lines.get(lines).unwrap_or(&[]);
        let code: Vec<String> = shown
            .iter()
            .map(|line| format!("{} {}", place(line.insn.address), line.insn.text))
            .collect();
        let has_truth = shown.iter().any(|line| line.truth.is_some());

        // The first column is the instruction, the last one the truth, which may be long.
        let columns = self.titles.len();
        let mut widths = vec![0; columns];
        for (nth, line) in shown.iter().enumerate() {
            for (width, cell) in widths.iter_mut().zip(&line.cells) {
                *width = cell
                    .drawn(nth == 0)
                    .chars()
                    .count()
                    .min(RULE_MAX)
                    .max(*width);
            }
        }
        for (width, name) in widths.iter_mut().zip(&self.titles) {
            // Names stand above the rules, behind the line at their left.
            *width = (name.chars().count() + 2).max(*width);
        }
        let longest = code.iter().map(|text| text.chars().count());
        let insn = longest.max().unwrap_or(0).min(INSN_MAX);

        let mut out = String::new();
        let mut head = format!("  {:insn$}", "");
        for (width, name) in widths.iter().zip(&self.titles) {
            let _ = write!(head, "   {name:<0$}", width - 2);
        }
        if has_truth {
            let _ = write!(head, "   {TRUE}");
        }
        push_line(&mut out, &head);

        for (nth, (line, code)) in shown.iter().zip(&code).enumerate() {
            if let Some(source) = &line.source {
                push_line(&mut out, &printable(&source.to_string()));
            }
            let mark = if current == Some(first + nth) {
                '>'
            } else {
                ' '
            };
            let text = row(line, code, (mark, nth == 0), (insn, &widths));
            push_line(&mut out, &text);
        }
        out
    }
}

/// An instruction with its cells.
fn row(
    line: &RuleLine,
    code: &str,
    (mark, first): (char, bool),
    (insn, widths): (usize, &[usize]),
) -> String {
    let mut text = format!("{mark} {code:<insn$}");
    for (cell, &width) in line.cells.iter().zip(widths) {
        let _ = write!(text, " {:<width$}", cell.drawn(first));
    }
    if let Some(truth) = &line.truth {
        let _ = write!(text, "   {truth}");
    }
    text
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}
