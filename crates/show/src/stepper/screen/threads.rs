//! The threads with their true chains.

use super::super::hit::HitTarget;
use super::{FAINT, GOOD, Painter, STRONG, following, row};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

impl Painter<'_, '_, '_> {
    pub(super) fn threads(&mut self, area: Rect) {
        let count = self.stepper.state.threads.len();
        let title = match count {
            0 | 1 => "true chain".to_owned(),
            _ => format!("{count} threads and their true chains"),
        };
        let inside = self.block(title, area);
        // With many threads, the one that runs comes into view.
        let tid = self.stepper.state.tid;
        let threads = &self.stepper.state.threads;
        let own = threads.iter().position(|thread| thread.tid == tid);
        let first = following(own.unwrap_or(0), usize::from(inside.height));
        self.thread_list(inside, first);
    }

    /// The threads in a line each and the true chain of the one that runs, from line `first` on.
    pub(super) fn thread_list(&mut self, area: Rect, first: usize) {
        let state = &self.stepper.state;
        let mut lines: Vec<(Option<u32>, Line<'_>)> = Vec::new();

        for thread in &state.threads {
            let is_own = thread.tid == state.tid;
            let (mark, style) = if is_own {
                (">", STRONG)
            } else {
                (" ", Style::new())
            };

            let (pid, tid) = (thread.pid, thread.tid);
            let head = format!("{mark} {pid}/{tid} {} {}", thread.name, thread.doing);
            let mut spans = vec![self.span(head, style)];

            // The own thread's chain is listed below, a frame per line.
            if !is_own {
                let places = thread.frames.iter().map(ToString::to_string);
                let chain = places.collect::<Vec<_>>().join(" < ");
                spans.push(self.span(format!(": {chain}"), FAINT));
            }

            // A click on the own thread would lead nowhere.
            lines.push((Some(tid).filter(|_| !is_own), Line::from(spans)));
        }

        // A recording may have no list of threads; then the one that runs is known from its sample.
        if state.threads.is_empty() {
            let name = state.name.as_deref().unwrap_or("");
            let own = format!("> {}/{} {name}", state.pid, state.tid);
            lines.push((None, Line::from(self.span(own, STRONG))));
        }

        if state.frames.is_empty() {
            lines.push((None, Line::raw("  the true chain is not known")));
        }
        for (index, frame) in state.frames.iter().enumerate() {
            let text = format!("  #{index} {}", frame.place);
            lines.push((None, Line::from(self.span(text, GOOD))));
        }

        // A chain that ends here has not ended in the program.
        if !state.frames.is_empty() && state.truth != "complete" {
            let text = "  further out it is not known";
            lines.push((None, Line::from(self.span(text, FAINT))));
        }

        let mut shown = Vec::new();
        let height = usize::from(area.height);

        // Areas are remembered for the lines that are seen, by where they are on the screen.
        for (nth, (tid, line)) in lines.into_iter().skip(first).take(height).enumerate() {
            if let Some(tid) = tid {
                self.hit(row(area, nth), HitTarget::Thread(tid));
            }
            shown.push(line);
        }
        self.lines(shown, area);
    }
}
