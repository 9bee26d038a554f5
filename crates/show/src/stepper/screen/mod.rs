//! Draws the stepper: which panes fit on the screen. What is in each is in the files of this
//! folder. Colour only repeats what a letter or mark says.

mod cover;
mod panes;
mod prose;
mod rules;
mod text;
mod threads;
mod walks;

use super::hit::{HitArea, HitTarget};
use super::{Overlay, Stepper};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};
use std::borrow::Cow;
use text::{columns, fitted, fitted_items, wrapped};
use unwind_sim_unwind::printable::{Printable, printable};
use unwind_sim_view::timeline::SourceKind;

// Red is the only colour: terminals with a light and with a dark background can both show it (5.8 and
// 3.6 times as bright, in xterm's colours). Green, yellow and cyan are hard to read on white. All
// else has the colour of the terminal's own text.
const GOOD: Style = Style::new();
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const OPEN: Style = STRONG;
const MARK: Style = STRONG;
const NOW: Style = Style::new().add_modifier(Modifier::REVERSED);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// The keys in the last line, as many of them as fit.
const KEYS: [&str; 8] = [
    "? help",
    "q quit",
    "s/S step",
    "n/N over",
    "f/F walk",
    "c/C wrong",
    "g go",
    "/ find",
];

/// The narrowest screen with panes side by side, in columns.
const WIDE: u16 = 72;
/// The narrowest screen with three panes side by side, in columns.
const VERY_WIDE: u16 = 150;
/// The lowest screen with all panes, in rows.
const HIGH: u16 = 20;

/// Draws the stepper. Without `colour`, only letters, marks, and bold or reversed text are left.
pub fn draw(stepper: &Stepper<'_>, frame: &mut Frame<'_>, colour: bool) {
    stepper.hits.borrow_mut().clear();
    let area = frame.area();
    let bars = u16::from(area.height > 3);
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(bars),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height > 1)),
    ])
    .areas(area);
    let mut painter = Painter {
        stepper,
        frame,
        colour,
    };
    painter.head(head);
    painter.body(body);
    painter.foot(foot);
    painter.cover(area);
}

/// Draws into a frame.
struct Painter<'p, 'f, 's> {
    stepper: &'p Stepper<'s>,
    frame: &'p mut Frame<'f>,
    colour: bool,
}

impl Painter<'_, '_, '_> {
    fn style(&self, style: Style) -> Style {
        if self.colour {
            style
        } else {
            Style {
                fg: None,
                bg: None,
                ..style
            }
        }
    }

    fn span<'t>(&self, text: impl Into<Cow<'t, str>>, style: Style) -> Span<'t> {
        Span::styled(text, self.style(style))
    }

    /// Draws the line above a pane, and one at its left if it is not the leftmost. Returns the area
    /// inside.
    fn block(&mut self, title: String, area: Rect) -> Rect {
        let left = if area.x > 0 {
            Borders::LEFT
        } else {
            Borders::NONE
        };
        let block = Block::new()
            .borders(Borders::TOP | left)
            .border_style(FAINT);
        let inside = block.inner(area);
        let title = printable(&title);
        let title = fitted(&title, usize::from(inside.width));
        let block = block.title(Span::styled(title, STRONG));
        self.frame.render_widget(block, area);
        inside
    }

    fn lines(&mut self, mut lines: Vec<Line<'_>>, area: Rect) {
        for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
            if !Printable::new(&*span.content).is_unchanged() {
                span.content = printable(&span.content).into_owned().into();
            }
        }
        self.frame.render_widget(Paragraph::new(lines), area);
    }

    fn hit(&self, area: Rect, what: HitTarget) {
        self.stepper.hits.borrow_mut().push(HitArea { area, what });
    }

    fn body(&mut self, mut body: Rect) {
        // A screen without room for all panes has the text of a demo below them, in a third of it.
        let is_small = body.width < WIDE || body.height < HIGH - 2;
        let rows = self.prose_rows(body.width).min(body.height / 3);
        if is_small && rows > 2 {
            let [panes, prose] =
                Layout::vertical([Constraint::Fill(1), Constraint::Length(rows)]).areas(body);
            self.prose(prose);
            body = panes;
        }

        // Rules need the whole width.
        if self.stepper.rules.is_some() {
            return self.rules_body(body);
        }

        // With the line above the pane.
        let matrix = self.matrix_rows() + 1;
        if body.width >= VERY_WIDE && body.height >= HIGH {
            // Everything fits: the machine to the left, its stack in the middle, what unwinders
            // make of it to the right.
            let [left, middle, right] = Layout::horizontal([
                Constraint::Percentage(33),
                Constraint::Percentage(33),
                Constraint::Fill(1),
            ])
            .areas(body);

            let [code, registers] =
                Layout::vertical([Constraint::Fill(1), Constraint::Length(8)]).areas(left);
            let [stack, threads] =
                Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(middle);
            let prose = self.prose_rows(right.width.saturating_sub(1));
            let [unwinders, story, prose] = Layout::vertical([
                Constraint::Length(matrix.min(body.height / 2)),
                Constraint::Fill(1),
                Constraint::Length(prose.min(body.height / 3)),
            ])
            .areas(right);

            self.code(code);
            self.registers(registers);
            self.stack(stack);
            self.threads(threads);
            self.matrix(unwinders);
            self.story(story);
            self.prose(prose);
        } else if body.width >= WIDE && body.height >= HIGH - 2 {
            let [left, right] =
                Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(body);

            let [code, stack] =
                Layout::vertical([Constraint::Percentage(50), Constraint::Fill(1)]).areas(left);

            // With few rows, the registers that matter least are cut off.
            let registers = (body.height / 5).clamp(4, 8);
            // The text of a demo takes their place, unless there is room for both.
            let prose = self.prose_rows(right.width.saturating_sub(1));
            let prose = prose.min(body.height * 2 / 5);
            let has_both = prose == 0 || body.height >= 2 * HIGH;
            let [unwinders, story, prose, registers] = Layout::vertical([
                Constraint::Length(matrix.min(body.height / 3)),
                Constraint::Fill(1),
                Constraint::Length(prose),
                Constraint::Length(if has_both { registers } else { 0 }),
            ])
            .areas(right);

            self.code(code);
            self.stack(stack);
            self.matrix(unwinders);
            self.story(story);
            self.prose(prose);
            self.registers(registers);
        } else if body.width >= WIDE {
            // A low screen has room only for what every walk starts from.
            let [left, right] =
                Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(body);
            self.code(left);
            self.stack(right);
        } else {
            // On a narrow screen, panes are one below the other.
            let [code, stack] =
                Layout::vertical([Constraint::Percentage(50), Constraint::Fill(1)]).areas(body);
            self.code(code);
            self.stack(stack);
        }
    }

    fn head(&mut self, area: Rect) {
        let state = &self.stepper.state;

        let kind = match unwind_sim_view::timeline::kind_of(&self.stepper.states) {
            SourceKind::Program => "instruction",
            SourceKind::Recording => "sample",
        };

        // How long a recording is may not be known before it was read to its end.
        let total = match self.stepper.states.total() {
            Some(total) => format!(" of {total}"),
            None => String::new(),
        };

        // A complete truth is the usual case and needs no words.
        let truth = match state.truth {
            "complete" => "",
            "unknown" => "  the truth is not known: nothing is judged",
            _ => "  the truth is known to a depth",
        };
        // The image is in the title of the code.
        let function = match &state.place.function {
            Some(function) => format!("{function}+{}", state.place.offset),
            None => state.place.to_string(),
        };
        let place = format!("{kind} {}{total}  {function}{truth}", state.number);
        let place = printable(&place);

        // What does not fit is left out as a whole: first the name of the thread, then its number.
        let thread = format!("  process {} thread {}", state.pid, state.tid);
        let named = match state.name.as_deref() {
            Some(name) if !name.is_empty() => format!("{thread} {}", printable(name)),
            _ => thread.clone(),
        };
        let progress = self.progress();
        let progress = progress.as_str();
        let width = usize::from(area.width);
        let rest = [
            (named, progress),
            (thread, progress),
            (String::new(), progress),
        ];
        let fits = |(task, progress): &(String, &str)| {
            columns(&place) + columns(task) + columns(progress) <= width
        };
        let (task, progress) = rest.into_iter().find(fits).unwrap_or_default();

        let line = Line::from(vec![
            self.span(fitted(&place, width), STRONG),
            Span::raw(task),
            self.span(progress, FAINT),
        ]);
        self.lines(vec![line], area);
    }

    /// How much of the run is indexed, or what the index has found.
    fn progress(&self) -> String {
        let index = &self.stepper.index;
        if index.covered() == 0 {
            return String::new();
        }
        if !index.is_complete() {
            return match self.stepper.states.total() {
                Some(total) if total > 0 => {
                    format!("  index {} %", index.covered().saturating_mul(100) / total)
                }
                _ => format!("  index to {}", index.covered()),
            };
        }
        let marks = index.marks();
        format!("  {} wrong places", marks.wrong.len())
    }

    fn foot(&mut self, area: Rect) {
        let stepper = self.stepper;
        let line = match (&stepper.over, stepper.message.as_str()) {
            (Overlay::Prompt(super::PromptFor::Go, typed), _) => {
                Line::raw(format!("go to a number, function or 0xADDRESS: {typed}_"))
            }
            (Overlay::Prompt(super::PromptFor::Search, typed), _) => {
                Line::raw(format!("search for an instruction or function: {typed}_"))
            }
            (_, "") => {
                let mut spans = self.letters();
                let used: usize = spans.iter().map(Span::width).sum();
                let room = usize::from(area.width).saturating_sub(used + 2);
                let keys = format!("  {}", fitted_items(&KEYS, room));
                spans.push(self.span(keys, FAINT));
                Line::from(spans)
            }
            (_, message) => {
                // It may have a name of the recording in it.
                let message = printable(message);
                let message = fitted(&message, usize::from(area.width)).into_owned();
                Line::from(self.span(message, STRONG))
            }
        };

        self.lines(vec![line], area);
    }

    /// `dwarf:. fp:mw`, a letter for each start path: so that the verdicts are seen also where the
    /// matrix has no room.
    fn letters(&self) -> Vec<Span<'static>> {
        let stepper = self.stepper;
        let pairs = stepper.walkers.iter().zip(&stepper.state.walks);
        let mut spans = Vec::new();
        let mut last = None;
        for (index, (walker, walk)) in pairs.enumerate() {
            if last != Some(&walker.unwinder) {
                let is_chosen = stepper.walkers[stepper.walker].unwinder == walker.unwinder;
                let style = if is_chosen { STRONG } else { FAINT };
                let space = if index == 0 { "" } else { " " };
                spans.push(self.span(format!("{space}{}:", walker.unwinder), style));
                last = Some(&walker.unwinder);
            }
            spans.push(self.span(walk.letter.to_string(), verdict_style(walk.letter)));
        }
        spans
    }
}

fn verdict_style(letter: char) -> Style {
    match letter {
        '.' => GOOD,
        '~' | '?' | 'u' => OPEN,
        _ => BAD,
    }
}

/// The first of the lines that are shown so that line `chosen` is among them, from the head on if it
/// can be.
fn following(chosen: usize, height: usize) -> usize {
    (chosen + 1).saturating_sub(height.max(1))
}

/// The first of the lines that are shown: `first` moved by `scroll`, within what there is.
fn scrolled(first: usize, scroll: i32, len: usize, height: usize) -> usize {
    let last = len.saturating_sub(height.max(1));
    let moved = i64::try_from(first).unwrap_or(i64::MAX) + i64::from(scroll);
    usize::try_from(moved.max(0))
        .unwrap_or(usize::MAX)
        .min(last)
}

/// The rows of an area, from the top.
fn row(area: Rect, index: usize) -> Rect {
    let y = area
        .y
        .saturating_add(u16::try_from(index).unwrap_or(u16::MAX));
    Rect {
        y,
        height: u16::from(y < area.bottom()),
        ..area
    }
}
