//! What covers the panes: help, a page, the threads.

use super::super::hit::{HitTarget, Pane};
use super::prose::flowed;
use super::{Overlay, Painter, STRONG, fitted, scrolled, wrapped};
use ratatui::layout::{Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear};
use unwind_sim_unwind::printable::printable;
use unwind_sim_view::pages;

const HELP: &str = "\
s S      one instruction forward, back (also Right, Left)
n N      the same, over calls
f F      one step of the walk forward, back
c C      next, previous place where an unwinder becomes wrong
g        go to a number, a function or 0xADDRESS
/        go to the next instruction or function with a text
t T      next, previous place where another thread runs
i I      next, previous place where the kernel is entered
Tab d    all threads, and the true chain; the text of the demo
1-9 r    choose an unwinder, its next start path (--regs hw,fake:v5.2)
Enter    the page of the reason for its end or error
y        copy the command that leads here
w        all words of the stack, or those of which something is known
u        the unwinders' rules beside the code, and what is true there
e        edit the case in $VISUAL or $EDITOR, and come back
Up Down  scroll the stack (also PageUp, PageDown)
Home End first, last state
? q      this help (any key closes it), quit; Ctrl-Z suspends
mouse    choose an unwinder, a step, an instruction; scroll

In the code, the letters at the left say whose row starts there
(d dwarf, s sframe, o orc); beside it (u), a row goes from one rule
to the next, and !cfa, !ra or !rbp is what is wrong with it. In the
stack, => is read by the last step of the walk, -> by an earlier one.
Verdicts: . right  ~ right by luck  m missing  x extra  w wrong
t truncated  r refused  l looped  u not modelled  ? not judged";

impl Painter<'_, '_, '_> {
    pub(super) fn cover(&mut self, area: Rect) {
        // A prompt has a line of its own and covers nothing.
        let stepper = self.stepper;
        let (title, text) = match &stepper.over {
            Overlay::Nothing | Overlay::Prompt(..) => return,
            Overlay::Help => ("keys".to_owned(), HELP.into()),
            Overlay::Page(code) => (code.to_string(), pages::page(*code)),
            Overlay::Threads => ("threads".to_owned(), String::new()),
            Overlay::Prose => {
                let all = stepper.notes.iter().map(|note| flowed(&note.text));
                ("demo".to_owned(), all.collect::<Vec<_>>().join("\n\n"))
            }
        };

        // The margin shrinks with the screen, so that on a small one the text gets all the room, and a
        // text that does not fit gets the lines above and below.
        let margin = Margin::new((area.width / 16).min(4), (area.height / 12).min(2));
        let lines = wrapped(
            &text,
            usize::from(area.inner(margin).width.saturating_sub(2)),
        );
        let threads = stepper.state.threads.len() + stepper.state.frames.len() + 2;
        let len = match stepper.over {
            Overlay::Threads => threads,
            _ => lines.len(),
        };
        let outside = match area.inner(margin) {
            inner if len + 2 <= usize::from(inner.height) => inner,
            _ => area.inner(Margin::new(margin.horizontal, 0)),
        };
        // What is below must not show through.
        self.frame.render_widget(Clear, outside);

        let block =
            Block::bordered().title(Span::styled(format!(" {} ", printable(&title)), STRONG));
        let inside = block.inner(outside);
        let height = usize::from(inside.height);
        let first = scrolled(0, stepper.scroll.over, len, height);
        let last = len.saturating_sub(height.max(1));
        (stepper.cover_last).set(i32::try_from(last).unwrap_or(i32::MAX));

        // That there is more is said on the lower border.
        let block = if len > height && height > 0 {
            let (last, keys) = ((first + height).min(len), "Down and Up scroll");
            let more = format!(" lines {} to {last} of {len}; {keys} ", first + 1);
            let more = fitted(&more, usize::from(inside.width)).into_owned();
            block.title_bottom(Span::styled(more, STRONG))
        } else {
            block
        };
        self.frame.render_widget(block, outside);

        // Remembered after the panes below, so a click goes to what covers them.
        self.hit(outside, HitTarget::Pane(Pane::Over));

        // Threads are drawn as lines that can be clicked, all other covers as text.
        if stepper.over == Overlay::Threads {
            return self.thread_list(inside, first);
        }

        let lines = lines.into_iter().skip(first).take(height);
        self.lines(lines.map(Line::raw).collect(), inside);
    }
}
