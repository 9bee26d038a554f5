//! The panes of the unwinders: the matrix of their verdicts, and the story of one walk.

use super::super::hit::{HitTarget, Pane};
use super::{
    BAD, FAINT, GOOD, OPEN, Painter, STRONG, following, row, scrolled, verdict_style, wrapped,
};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unwind_sim_recordings::counted::counted;
use unwind_sim_view::timeline::{Step, StepKind};

/// The width of an unwinder's name, and of a verdict.
const NAME: usize = 12;
const VERDICT: usize = 8;

impl Painter<'_, '_, '_> {
    /// The number of rows of the matrix.
    pub(super) fn matrix_rows(&self) -> u16 {
        let unwinders = self.stepper.unwinders().len();
        let head = usize::from(self.starts().len() > 1);
        u16::try_from(unwinders + head).unwrap_or(u16::MAX)
    }

    /// The start paths, each once; none if there is only that of the samples.
    fn starts(&self) -> Vec<&'static str> {
        let mut starts = Vec::new();
        for start in self.stepper.walkers.iter().filter_map(|w| w.start) {
            if !starts.contains(&start) {
                starts.push(start);
            }
        }
        starts
    }

    /// Unwinder by start path.
    pub(super) fn matrix(&mut self, area: Rect) {
        let stepper = self.stepper;
        let starts = self.starts();
        let unwinders: Vec<(usize, String)> = stepper
            .unwinders()
            .iter()
            .map(|(first, name)| (*first, (*name).to_owned()))
            .collect();

        // Of many unwinders the first ones are shown, or those up to the chosen one.
        let height = usize::from(area.height.saturating_sub(1));
        let height = height.saturating_sub(usize::from(starts.len() > 1));
        let chosen = unwinders.partition_point(|(first, _)| *first <= stepper.walker);
        let top = following(chosen.saturating_sub(1), height);
        let title = if unwinders.len() > height && height > 0 {
            let (from, to) = (top + 1, top + height);
            format!("unwinders {from} to {to} of {}", unwinders.len())
        } else {
            "unwinders".to_owned()
        };
        let inside = self.block(title, area);

        let mut lines = Vec::new();
        // With one start there is nothing to distinguish.
        if starts.len() > 1 {
            let mut head = format!("  {:NAME$} ", "");
            for start in &starts {
                let short: String = start
                    .trim_start_matches("fake:")
                    .chars()
                    .take(VERDICT - 1)
                    .collect();
                head.push_str(&format!("{short:<VERDICT$}"));
            }
            lines.push(Line::from(self.span(head, FAINT)));
        }

        for (nth, (first, name)) in unwinders.iter().enumerate().skip(top).take(height) {
            // The walks of an unwinder are one behind the other, one for each start.
            let end = unwinders
                .get(nth + 1)
                .map_or(stepper.walkers.len(), |next| next.0);
            let at = row(inside, lines.len());
            let is_chosen = (*first..end).contains(&stepper.walker);
            let short: String = name.chars().take(NAME).collect();
            let mark = if is_chosen { ">" } else { " " };
            let mut spans = vec![Span::raw(format!("{}{mark}{short:<NAME$} ", nth + 1))];
            self.hit(at, HitTarget::Walker(*first));
            for (column, index) in (*first..end).enumerate() {
                let Some(walk) = stepper.state.walks.get(index) else {
                    continue;
                };
                let style = verdict_style(walk.letter);
                let is_told = index == stepper.walker && end - first > 1;
                let short = if is_told {
                    // Brackets, as colour alone must not say which walk is told.
                    format!("[{}]", walk.verdict.short)
                } else {
                    walk.verdict.short.clone()
                };
                spans.push(self.span(format!("{short:<VERDICT$}"), style));
                // Behind the number, the mark, the name and a space, as in the line above.
                let x = inside.x + (2 + NAME + 1 + column * VERDICT) as u16;
                let cell = Rect {
                    x: x.min(inside.right()),
                    width: (VERDICT as u16).min(inside.right().saturating_sub(x)),
                    ..at
                };
                self.hit(cell, HitTarget::Walker(index));
            }

            // With one start there is room for the verdict in words, and for its cause.
            if let Some(walk) = stepper.state.walks.get(*first).filter(|_| end - first == 1) {
                let cause = walk
                    .cause
                    .as_ref()
                    .map_or(walk.end.code, |cause| cause.code);
                spans.push(Span::raw(walk.verdict.word));
                let cause = if walk.letter == '.' {
                    String::new()
                } else {
                    format!(" {cause}")
                };
                spans.push(self.span(cause, FAINT));
            }

            // A wrong row does not have to make the walk wrong, so it has a mark of its own.
            if stepper
                .state
                .faults
                .iter()
                .any(|fault| fault.unwinder == *name)
            {
                spans.push(self.span(" row wrong", BAD));
            }
            lines.push(Line::from(spans));
        }

        self.lines(lines, inside);
    }

    /// The steps of the walk that are made.
    pub(super) fn story(&mut self, area: Rect) {
        let stepper = self.stepper;
        let Some(walk) = stepper.walk() else { return };
        let made = stepper.steps_made();
        let name = stepper.walkers[stepper.walker].name();

        // While the user steps, the walk is told up to the step that was made; else it is told whole.
        let title = match stepper.step {
            Some(_) => format!("walk of {name}: step {made} of {}", walk.steps.len()),
            None => {
                let steps = counted(walk.steps.len() as u64, "step");
                format!("walk of {name}: {steps} (f: one by one)")
            }
        };

        let inside = self.block(title, area);
        self.hit(area, HitTarget::Pane(Pane::Story));
        let height = usize::from(inside.height);
        let width = usize::from(inside.width).saturating_sub(2);

        let mut lines: Vec<(usize, Line<'_>)> = Vec::new();

        // The last step is emphasised only while stepping.
        for (index, step) in walk.steps.iter().take(made).enumerate() {
            let is_last = stepper.step.is_some() && index + 1 == made;
            let style = step_style(step, walk.letter);
            let style = if is_last { style.patch(STRONG) } else { style };
            for (nth, text) in wrapped(&step.text, width).into_iter().enumerate() {
                let mark = match (nth, is_last) {
                    (0, true) => "> ",
                    (0, false) => mark_of(step),
                    _ => "  ",
                };
                let spans = vec![Span::raw(mark), self.span(text, style)];
                lines.push((index + 1, Line::from(spans)));
            }
        }

        // A wrong row at this instruction is told at the end, when the reader has seen the walk use
        // it.
        for fault in &stepper.state.faults {
            if fault.unwinder == stepper.walkers[stepper.walker].unwinder
                && made == walk.steps.len()
            {
                let given = match fault.given {
                    Some(given) => format!("gives {given}"),
                    None => "gives nothing".to_owned(),
                };
                let text = format!(
                    "The row here is wrong ({}): for {} it {given}; true is {}.",
                    fault.code, fault.register, fault.truth
                );
                for text in wrapped(&text, width) {
                    lines.push((
                        made,
                        Line::from(vec![Span::raw("! "), self.span(text, BAD)]),
                    ));
                }
            }
        }
        // The head is shown, or the step that was made last.
        let first = match stepper.step {
            Some(_) => following(lines.len().saturating_sub(1), height),
            None => 0,
        };
        let first = scrolled(first, stepper.scroll.story, lines.len(), height);

        // The last line says how much there is below it.
        let below = lines.len().saturating_sub(first + height);
        if below > 0 && height > 1 {
            let text = format!("  .. {} below", counted(below as u64 + 1, "line"));
            let step = lines[first + height - 1].0;
            lines[first + height - 1] = (step, Line::from(self.span(text, FAINT)));
        }

        let mut shown = Vec::new();

        // A click on any line of a wrapped step chooses the step.
        for (nth, (step, line)) in lines.into_iter().skip(first).take(height).enumerate() {
            self.hit(row(inside, nth), HitTarget::Step(step));
            shown.push(line);
        }
        self.lines(shown, inside);
    }
}

/// A mark that says what the colour says.
fn mark_of(step: &Step) -> &'static str {
    match (step.kind, step.judged) {
        // Where a row is to blame matters more than that its frame is the true one.
        _ if step.blamed => "! ",
        (StepKind::Frame, Some("wrong")) => "w ",
        (StepKind::Frame, Some("extra")) => "x ",
        (StepKind::Frame, Some("same")) => ". ",
        (StepKind::Frame, _) => "? ",
        (StepKind::Missing, _) => "m ",
        _ => "- ",
    }
}

fn step_style(step: &Step, letter: char) -> Style {
    match (step.kind, step.judged) {
        _ if step.blamed => BAD,
        (StepKind::Frame, Some("wrong" | "extra")) | (StepKind::Missing, _) => BAD,
        (StepKind::Frame, Some("same")) => GOOD,
        (StepKind::Ended | StepKind::Rejected, _) => verdict_style(letter),
        (StepKind::Fallback | StepKind::RegisterLost | StepKind::Skipped, _) => OPEN,
        _ => Style::new(),
    }
}
