//! The panes of the machine: code, stack and registers.

use super::super::hit::{HitTarget, Pane};
use super::{BAD, FAINT, MARK, NOW, OPEN, Painter, STRONG, row, scrolled};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unwind_sim_recordings::counted::counted;
use unwind_sim_view::timeline::{Note, Register, Word};

/// The registers in the order in which they matter to an unwinder.
const ORDER: [&str; 19] = [
    "rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15", "rax", "rdi", "rsi", "rdx", "rcx",
    "r8", "r9", "r10", "r11", "rflags", "cs",
];
/// The width of a register's name with a mark, and of a cell besides the digits of its value.
const NAME: usize = 5;
const DIGITS_MIN: usize = 12;
/// The number of words without a note that are shown behind rsp or between two notes.
const PLAIN_MAX: usize = 4;

impl Painter<'_, '_, '_> {
    pub(super) fn code(&mut self, area: Rect) {
        let stepper = self.stepper;
        let inside = self.block(stepper.code_title(), area);
        self.hit(area, HitTarget::Pane(Pane::Code));

        // Without the line of the pc in the listing there is no place to centre on.
        let pc = stepper.code_pc;
        let current = stepper.code.as_ref().and_then(|code| code.line_of(pc));
        let (Some(code), Some(current)) = (&stepper.code, current) else {
            let text = format!("the code at {:#x} is not known", pc.value());
            return self.lines(vec![Line::raw(text)], inside);
        };

        // The current line is in the upper third: what comes next is of more interest than what
        // was.
        let height = usize::from(inside.height);
        let first = current.saturating_sub(height / 3);
        let first = scrolled(first, stepper.scroll.code, code.lines.len(), height);
        let start = code.lines.first().map_or(0, |line| line.address.0);
        let is_wide = inside.width >= 56;

        let mut lines = Vec::new();
        for (nth, line) in code.lines.iter().skip(first).take(height).enumerate() {
            let is_now = first + nth == current;
            // A letter for each unwinder that has a row which starts here.
            let names = line.rows.iter().filter_map(|name| name.chars().next());
            let rows: String = names.collect();

            // A narrow pane has no room for addresses; within a function the distance says as much.
            let address = match (is_wide, &code.function) {
                (false, Some(_)) => format!("+{:<5x}", line.address.0 - start),
                _ => format!("{:x} ", line.address.0),
            };

            let now = if is_now { NOW } else { Style::new() };
            lines.push(Line::from(vec![
                self.span(format!("{rows:>3}"), MARK),
                Span::raw(if is_now { ">" } else { " " }),
                self.span(address, FAINT),
                self.span(line.text.clone(), now),
            ]));

            // A click on a line goes to a state at which it is executed.
            self.hit(row(inside, nth), HitTarget::Code(line.address.0));
        }

        self.lines(lines, inside);
    }

    pub(super) fn stack(&mut self, area: Rect) {
        let stepper = self.stepper;
        let state = &stepper.state;
        let stack = &state.stack;
        let (now, read) = stepper.reads();

        // What words hold is told by the truth; without one, the title says so.
        let unknown = match state.truth {
            "unknown" => ": what is in it is not known",
            _ => "",
        };
        let title = if state.knows_rsp() {
            format!("stack from rsp {}{unknown}", stack.rsp)
        } else {
            "stack: rsp was not recorded".to_owned()
        };

        let inside = self.block(title, area);
        self.hit(area, HitTarget::Pane(Pane::Stack));

        // Without memory there are still chains that other tools recorded, which are shown as they
        // are.
        if stack.words.iter().all(|word| word.value.is_none()) {
            let mut lines = vec![Line::raw("no memory of the stack was recorded")];
            for chain in &state.recorded {
                lines.push(Line::raw(format!(
                    "recorded by {}, not judged:",
                    chain.source
                )));
                let kernel = chain
                    .kernel
                    .iter()
                    .map(|pc| format!("  {pc} in the kernel"));
                let frames = chain.frames.iter().map(|place| format!("  {place}"));
                lines.extend(kernel.chain(frames).map(Line::raw));
            }
            lines.truncate(usize::from(inside.height));
            return self.lines(lines, inside);
        }

        let height = usize::from(inside.height);

        // Words are shown by index, since most of a large stack is left out.
        let shown = self.shown_words();
        let at =
            |address: u64| shown.partition_point(|&index| stack.words[index].address.0 < address);
        let at_rsp = at(stack.rsp.0);
        let first = match now.iter().min() {
            // The words that are read come into view.
            Some(&lowest) => match at(lowest) {
                lowest if lowest < at_rsp + height.saturating_sub(3) => at_rsp,
                lowest => lowest.saturating_sub(height / 3),
            },
            None => at_rsp,
        };
        let first = first.saturating_sub(height / 8);
        // rsp stays at the top, however few words there are.
        let first = scrolled(first, stepper.scroll.stack, shown.len(), 1);
        let value_of = |name: &str| {
            let found = state.registers.iter().find(|r| r.name == name);
            found.map(|r| r.value)
        };

        let rbp = value_of("rbp");
        let mut lines = Vec::new();
        let mut last: Option<u64> = None;

        // Addresses ascend down the pane, so callers are further down.
        for &index in shown.iter().skip(first) {
            let word = &stack.words[index];
            let address = word.address.0;
            if let Some(gap) = last.and_then(|last| address.checked_sub(last + 8))
                && gap > 0
            {
                let words = counted(gap / 8, "word");
                // Between two stacks, the number of words says nothing.
                let text = if gap < 1 << 20 {
                    format!("     ... {words}")
                } else {
                    "     ... another stack".to_owned()
                };
                lines.push(Line::from(self.span(text, FAINT)));
            }
            last = Some(address);
            let pointer = if word.address == stack.rsp {
                "rsp"
            } else if Some(word.address) == rbp {
                "rbp"
            } else {
                ""
            };

            // What the last step has read is stronger than what the whole walk has.
            let mark = if now.contains(&address) {
                "=>"
            } else if read.contains(&address) {
                "->"
            } else {
                ""
            };
            // A word of another stack is far away; there the distance says less than the address.
            let distance = address.wrapping_sub(stack.rsp.0) as i64;
            let distance = if distance.unsigned_abs() < 1 << 20 {
                format!("{distance:>+5}")
            } else {
                format!("{address:x}")
            };
            let value = match word.value {
                Some(value) => format!("{:x}", value.0),
                None => "?".to_owned(),
            };

            // What lies below rsp is left from calls that have returned, or in the red zone.
            let is_below = word.notes.contains(&Note::BelowRsp);
            let content = if is_below { FAINT } else { Style::new() };
            lines.push(Line::from(vec![
                self.span(format!("{pointer:<3}"), MARK),
                self.span(format!("{mark:>2}"), MARK),
                self.span(format!("{distance} "), FAINT),
                self.span(format!("{value:>12} "), content),
                self.span(notes(word), note_style(word)),
            ]));
            if lines.len() >= height {
                break;
            }
        }

        lines.truncate(height);
        self.lines(lines, inside);
    }

    /// The indices of the words that are shown: those with a note, those that the walk has read, and
    /// a few behind rsp; or all.
    fn shown_words(&self) -> Vec<usize> {
        let stepper = self.stepper;
        let stack = &stepper.state.stack;
        let (_, read) = stepper.reads();
        let mut shown = Vec::new();
        let mut plain: Vec<usize> = Vec::new();

        let keep = if stepper.all_words {
            usize::MAX
        } else {
            PLAIN_MAX
        };

        // Words without a note are shown only if few are between two with one.
        for (index, word) in stack.words.iter().enumerate() {
            let is_known = word
                .notes
                .iter()
                .any(|note| rank(note) < rank(&Note::Poisoned));
            // The first words at rsp are shown whatever is known of them.
            let is_near =
                word.address >= stack.rsp && word.address.0 < stack.rsp.0.saturating_add(32);
            let is_below = word.address < stack.rsp;
            let is_read = read.contains(&word.address.0);

            if is_known || is_near || is_below || is_read {
                // The line that says how many words are left out takes room, too.
                if plain.len() <= keep {
                    shown.append(&mut plain);
                }
                plain.clear();
                shown.push(index);
            } else {
                plain.push(index);
            }
        }

        if stepper.all_words {
            shown.append(&mut plain);
        }
        shown
    }

    pub(super) fn registers(&mut self, area: Rect) {
        let stepper = self.stepper;
        // While the user goes through a walk, its registers are of more interest than the thread's.
        let carried = stepper.last_step().filter(|step| !step.carried.is_empty());
        let (title, registers): (String, &[Register]) = match carried {
            Some(step) => {
                let place = step.frame.as_ref().map(|frame| frame.place.to_string());
                let place = place.unwrap_or_default();
                (format!("registers carried to {place}"), &step.carried)
            }
            None => ("registers".to_owned(), &stepper.state.registers),
        };

        let inside = self.block(title, area);
        if registers.is_empty() {
            return self.lines(vec![Line::raw("no registers were recorded")], inside);
        }

        // What an unwinder needs comes first: rip, rsp, rbp, the callee-saved registers.
        let mut ordered: Vec<&Register> = registers.iter().collect();
        let rank = |r: &&Register| ORDER.iter().position(|name| *name == r.name);
        ordered.sort_by_key(|r| rank(r).unwrap_or(ORDER.len()));

        let changed = &stepper.state.changed;
        // All values of a column end in the same place.
        let longest = registers.iter().map(|r| format!("{:x}", r.value.0).len());
        let digits = longest.max().unwrap_or(0).max(DIGITS_MIN);
        let cell = NAME + digits + 1;
        let per_row = (usize::from(inside.width) / cell).max(1);

        // Rows beyond the pane are cut off: the order puts the least important last.
        let rows = ordered.chunks(per_row).take(usize::from(inside.height));
        let lines: Vec<Line<'_>> = rows
            .map(|row| {
                let cells = row.iter().map(|register| {
                    let is_changed = carried.is_none() && changed.contains(&register.name);
                    let mark = if is_changed { '*' } else { ' ' };
                    let text =
                        format!("{mark}{:<3} {:<digits$x} ", register.name, register.value.0);
                    self.span(text, if is_changed { OPEN } else { Style::new() })
                });
                Line::from(cells.collect::<Vec<_>>())
            })
            .collect();

        self.lines(lines, inside);
    }
}

/// The order in which notes are told.
fn rank(note: &Note) -> u8 {
    match note {
        Note::ReturnAddress { .. } => 0,
        Note::Saved { .. } => 1,
        Note::BeyondCopy => 2,
        Note::Cfa { .. } => 3,
        Note::Poisoned => 4,
        Note::BelowCopy => 5,
        Note::BelowRsp => 6,
        Note::CodeAddress { .. } => 7,
    }
}

fn note_style(word: &Word) -> Style {
    match word.notes.iter().min_by_key(|note| rank(note)) {
        Some(Note::ReturnAddress { .. }) => STRONG,
        Some(Note::Saved { .. }) => Style::new(),
        Some(Note::BeyondCopy | Note::BelowCopy) => BAD,
        _ => FAINT,
    }
}

/// What is known of a word, in a few words.
fn notes(word: &Word) -> String {
    let text = |note: &&Note| match note {
        Note::ReturnAddress { frame, place } => format!("return to #{frame} {place}"),
        Note::Saved { register, frame } => format!("{register} of #{frame}"),
        Note::Cfa { frame } => format!("CFA of #{frame}"),
        Note::BelowRsp => "below rsp".to_owned(),
        Note::BelowCopy => "below the copy".to_owned(),
        Note::BeyondCopy => "outside the copy".to_owned(),
        Note::Poisoned => "poisoned".to_owned(),
        Note::CodeAddress { place } => format!("({place})"),
    };
    let mut notes: Vec<&Note> = word.notes.iter().collect();
    notes.sort_by_key(|note| rank(note));
    notes.iter().map(text).collect::<Vec<_>>().join(", ")
}
