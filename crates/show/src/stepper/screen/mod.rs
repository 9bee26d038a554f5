//! Draws the stepper: which panes fit on the screen. What is in each is in the files of this
//! folder. Colour only repeats what a letter or mark says.

mod cover;
mod panes;
mod rules;
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
use unwind_sim_unwind::printable::{Printable, printable};
use unwind_sim_view::timeline::SourceKind;

const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red);
const OPEN: Style = Style::new().fg(Color::Yellow);
const MARK: Style = Style::new().fg(Color::Cyan);
const NOW: Style = Style::new().add_modifier(Modifier::REVERSED);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

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
            .border_style(FAINT)
            .title(Span::styled(printable(&title), STRONG));
        let inside = block.inner(area);
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

    fn body(&mut self, body: Rect) {
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
            let [unwinders, story] = Layout::vertical([
                Constraint::Length(matrix.min(body.height / 2)),
                Constraint::Fill(1),
            ])
            .areas(right);

            self.code(code);
            self.registers(registers);
            self.stack(stack);
            self.threads(threads);
            self.matrix(unwinders);
            self.story(story);
        } else if body.width >= WIDE && body.height >= HIGH - 2 {
            let [left, right] =
                Layout::horizontal([Constraint::Percentage(50), Constraint::Fill(1)]).areas(body);

            let [code, stack] =
                Layout::vertical([Constraint::Percentage(50), Constraint::Fill(1)]).areas(left);

            // With few rows, the registers that matter least are cut off.
            let registers = (body.height / 5).clamp(4, 8);
            let [unwinders, story, registers] = Layout::vertical([
                Constraint::Length(matrix.min(body.height / 3)),
                Constraint::Fill(1),
                Constraint::Length(registers),
            ])
            .areas(right);

            self.code(code);
            self.stack(stack);
            self.matrix(unwinders);
            self.story(story);
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

        let name = state.name.as_deref().unwrap_or("");

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
        let task = format!("  process {} thread {} {name}", state.pid, state.tid);

        let line = Line::from(vec![
            self.span(place, STRONG),
            Span::raw(task),
            self.span(self.progress(), FAINT),
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
                let keys =
                    "  ? help  q quit  s/S step  n/N over  f/F walk  c/C wrong  g go  / find";
                spans.push(self.span(keys, FAINT));
                Line::from(spans)
            }
            (_, message) => Line::from(self.span(message, STRONG)),
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

/// The first of the lines that are shown: `first` moved by `scroll`, within what there is.
fn scrolled(first: usize, scroll: i32, len: usize, height: usize) -> usize {
    let last = len.saturating_sub(height.max(1));
    let moved = i64::try_from(first).unwrap_or(i64::MAX) + i64::from(scroll);
    usize::try_from(moved.max(0))
        .unwrap_or(usize::MAX)
        .min(last)
}

/// Breaks a text into lines of at most `width` columns, at spaces where possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    // With less, a wide character would fit on no line at all.
    let width = width.max(4);
    let mut lines: Vec<String> = Vec::new();
    for part in text.split('\n') {
        let mut line = String::new();

        for word in part.split(' ') {
            let mut word = word;

            // Columns are counted, not bytes or characters: a wide character takes two.
            let used = columns(&line);
            let space = usize::from(!line.is_empty());
            if used + space + columns(word) > width && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }

            // A word that is wider than the pane is broken, as none would fit.
            while columns(word) > width {
                let mut end = 0;
                let mut used = 0;
                for (at, c) in word.char_indices() {
                    used += columns(c.encode_utf8(&mut [0; 4]));
                    if used > width {
                        break;
                    }
                    end = at + c.len_utf8();
                }

                // A pane has at least four columns here, so one character always fits and the loop
                // ends.
                let (first, rest) = word.split_at(end.max(1));
                lines.push(first.to_owned());
                word = rest;
            }

            line.push_str(word);
        }

        lines.push(line);
    }
    lines
}

fn columns(text: &str) -> usize {
    Span::raw(text).width()
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
