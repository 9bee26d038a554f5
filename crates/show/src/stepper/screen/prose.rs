//! What a demo tells of the state, beside the panes.

use super::super::Stepper;
use super::{FAINT, Painter, wrapped};
use ratatui::layout::Rect;
use ratatui::text::Line;
use unwind_sim_recordings::counted::counted;

impl Painter<'_, '_, '_> {
    /// The number of rows that the text takes in this many columns, with the line above it; 0 without a
    /// text.
    pub(super) fn prose_rows(&self, columns: u16) -> u16 {
        let lines = self
            .stepper
            .note()
            .map(|(_, text)| wrapped(&flowed(text), columns.into()));
        let rows = lines.map_or(0, |lines| lines.len() + 1);
        u16::try_from(rows).unwrap_or(u16::MAX)
    }

    /// The text of the demo.
    pub(super) fn prose(&mut self, area: Rect) {
        let stepper: &Stepper<'_> = self.stepper;
        let Some((nth, text)) = stepper.note() else {
            return;
        };
        let title = match stepper.notes.len() {
            1 => "demo".to_owned(),
            count => format!("demo: {} of {count}", nth + 1),
        };

        let inside = self.block(title, area);
        let height = usize::from(inside.height);
        let mut lines: Vec<Line<'_>> = wrapped(&flowed(text), inside.width.into())
            .into_iter()
            .map(Line::raw)
            .collect();

        // The last line says how much there is below it.
        let below = lines.len().saturating_sub(height);
        if below > 0 && height > 0 {
            let more = counted(below as u64 + 1, "line");
            let text = format!(".. {more} below (d: all)");
            lines[height - 1] = Line::from(self.span(text, FAINT));
        }
        lines.truncate(height);
        self.lines(lines, inside);
    }
}

/// A text whose paragraphs are a line each, as the panes have widths of their own. Indented lines, which
/// are commands, stay lines.
pub(super) fn flowed(text: &str) -> String {
    let mut out = String::new();
    let mut is_joined = false;
    for line in text.trim().lines() {
        let is_text = !line.is_empty() && !line.starts_with(' ');
        if !out.is_empty() {
            out.push(if is_joined && is_text { ' ' } else { '\n' });
        }
        out.push_str(line);
        is_joined = is_text;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_commands_stay_lines() {
        let text = "\none\ntwo:\n\nthree\n  a command\n  another\nfour\n";
        let flow = "one two:\n\nthree\n  a command\n  another\nfour";
        assert_eq!(flowed(text), flow);
        assert_eq!(flowed(""), "");
    }
}
