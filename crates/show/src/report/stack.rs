//! The picture of a stack: its words, and arrows from them to the true frames and to those that an
//! unwinder found.
//!
//! Words and frames are lists whose rows all have the same height, so that an arrow is known by the
//! numbers of its two rows. The arrows repeat what the lists say, for the eye.

use super::pieces::Fragment;
use super::words;
use maud::{PreEscaped, html};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use unwind_sim_view::timeline::{
    Hex, Note, Register, State, StepKind, TrueFrame, Walk, Walker, Word,
};

/// Units of the drawing for each row; ten units are 1 em.
const ROW: usize = 18;
/// The width of the arrows, in the same units.
const WIDTH: usize = 60;
/// The number of words shown, at most.
const WORDS_MAX: usize = 160;
/// The number of frames shown, at most.
pub(super) const FRAMES_MAX: usize = 64;
/// The number of words in a row of which nothing is known that are shown.
const PLAIN_MAX: usize = 2;

/// A line of the list of words.
enum Line {
    Word {
        address: Hex,
        value: Option<Hex>,
        notes: Vec<Note>,
    },
    /// Words of which nothing is known.
    Folded(usize),
    /// Words behind the last one that is shown.
    More(usize),
}

/// Adds the picture.
pub(super) fn picture(state: &State, walkers: &[Walker], out: &mut Fragment) {
    if state.stack.words.is_empty() {
        out.put(html! { p .note { "No stack memory was recorded."
        @if !state.knows_rsp() { " Nor was rsp, so no unwinder can start." } } });
    }

    // Arrows connect rows by their numbers, so the rows are settled before anything is drawn.
    let lines = lines(state);
    let mut rows: HashMap<u64, usize> = HashMap::new();
    for (row, line) in lines.iter().enumerate() {
        if let Line::Word { address, .. } = line {
            rows.insert(address.0, row);
        }
    }

    // The longest list decides, since the arrows between the lists have one height.
    let height = lines
        .len()
        .max(state.frames.len().min(FRAMES_MAX + 1))
        .max(1);

    out.tag("<div class=\"picture\" tabindex=\"0\" role=\"region\" aria-label=\"Stack\">");

    // The pictures of all unwinders are in the page, and the script shows the chosen one.
    for (walk, walker) in state.walks.iter().zip(walkers) {
        found(walk, &walker.name(), &rows, height, out);
    }

    out.tag("<div class=\"side\"><h4>Stack</h4><ol class=\"words\">");
    word_list(state, &lines, out);
    truth(state, &rows, height, out);
    out.tag("</div>");
}

/// The lines of the list of words: those of which something is known or that were read, with their
/// neighbours.
fn lines(state: &State) -> Vec<Line> {
    let mut words: BTreeMap<u64, (Option<Hex>, &[Note])> = BTreeMap::new();
    let mut kept = BTreeSet::new();
    for Word {
        address,
        value,
        notes,
    } in &state.stack.words
    {
        words.insert(address.0, (*value, notes));
        // That a word is outside of the copy says nothing about the word.
        let is_known = |note: &Note| !matches!(note, Note::BelowCopy | Note::BeyondCopy);
        if notes.iter().any(is_known) || *address == state.stack.rsp {
            kept.insert(address.0);
        }
    }

    // Walks also read words of other memory, which the state does not list.
    // This is how a word of another stack comes into the list, if a walk crossed to it.
    let steps = state.walks.iter().flat_map(|walk| &walk.steps);
    for frame in steps.filter_map(|step| step.frame.as_ref()) {
        for [address, value] in &frame.words {
            if let (Some(address), Some(value)) = (number(address), number(value)) {
                words.entry(address).or_insert((Some(Hex(value)), &[]));
                kept.insert(address);
            }
        }
    }

    let mut out = Vec::new();
    let mut plain: Vec<Line> = Vec::new();

    // A short run of unremarkable words is shown, a long one folded: the neighbours of known words
    // give context.
    let flush = |plain: &mut Vec<Line>, out: &mut Vec<Line>| match plain.len() {
        0..=PLAIN_MAX => out.append(plain),
        n => {
            plain.clear();
            out.push(Line::Folded(n));
        }
    };

    for (address, (value, notes)) in words {
        let line = Line::Word {
            address: Hex(address),
            value,
            notes: notes.to_vec(),
        };
        if kept.contains(&address) {
            flush(&mut plain, &mut out);
            out.push(line);
        } else {
            plain.push(line)
        }
    }

    flush(&mut plain, &mut out);

    // The list grows upward from rsp, so what is cut off is farthest from the innermost frame.
    if out.len() > WORDS_MAX {
        // A folded line stands for many words, and each counts as left out.
        let words = |line: &Line| match line {
            Line::Folded(n) => *n,
            _ => 1,
        };
        let more = out[WORDS_MAX..].iter().map(words).sum();
        out.truncate(WORDS_MAX);
        out.push(Line::More(more));
    }
    out
}

/// A number such as `0x1f`.
pub(super) fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn word_list(state: &State, lines: &[Line], out: &mut Fragment) {
    // `data-word` is what the script finds a word by when a step that reads it is chosen.
    for line in lines {
        match line {
            Line::Word {
                address,
                value,
                notes,
            } => {
                let is_top = *address == state.stack.rsp;
                if is_top {
                    out.tag("<li class=\"top\" data-word=\"");
                } else {
                    out.tag("<li data-word=\"");
                }
                let value = value.map_or_else(|| "not recorded".to_owned(), |v| v.to_string());
                out.put(html! {
                    (address) (PreEscaped("\"><code>")) (address) (PreEscaped("</code> <code>"))
                    (value) (PreEscaped("</code> "))
                });
                if is_top {
                    out.tag("<b>rsp</b> ");
                }

                // A word may be several things, such as a saved register of one frame and the CFA
                // of another.
                for (nth, note) in notes.iter().enumerate() {
                    if nth > 0 {
                        out.tag(", ");
                    }
                    note_text(note, state.truth == "complete", out);
                }
                out.tag("</li>");
            }
            Line::Folded(n) => out.put(html! { li .fold { "… " (n) " words" } }),
            Line::More(n) => out.put(html! { li .fold { "… " (n) " more words further up" } }),
        }
    }
    out.tag("</ol></div>");
}

/// `is_known`: all true frames are known, and so what is not a return address.
fn note_text(note: &Note, is_known: bool, out: &mut Fragment) {
    match note {
        Note::ReturnAddress { frame, place } => {
            out.tag("<span class=\"ret\">return to #");
            out.text(&frame.to_string());
            out.text(&format!(", {place}"));
            out.tag("</span>");
        }
        Note::Saved { register, frame } => {
            out.put(html! { "saved " (register) " of #" });
            out.text(&frame.to_string());
        }
        Note::Cfa { frame } => {
            out.tag("CFA of #");
            out.text(&frame.to_string());
        }

        // The reason why a word is outside of the copy does not matter to the reader of the
        // picture.
        Note::BelowCopy | Note::BeyondCopy => out.tag("outside the copy"),
        Note::BelowRsp => out.tag("below rsp"),
        Note::Poisoned => out.tag("poisoned"),
        // Only if all true frames are known can an address of code be called stale.
        Note::CodeAddress { place } if is_known => {
            out.text(&format!("not a return address: {place}"));
        }
        Note::CodeAddress { place } => out.text(&format!("an address of code: {place}")),
    }
}

/// The true frames, with arrows to them.
fn truth(state: &State, rows: &HashMap<u64, usize>, height: usize, out: &mut Fragment) {
    start_arrows(height, out);

    // Only frames that are listed can have an arrow.
    let shown = state.frames.iter().take(FRAMES_MAX).enumerate();
    for (index, frame) in shown.clone() {
        if let Some(&row) = frame.slot.and_then(|slot| rows.get(&slot.0)) {
            arrow("ret", row, index, true, out);
        }
    }

    // The words in which the frames saved registers have thinner arrows.
    for word in &state.stack.words {
        for note in &word.notes {
            if let Note::Saved { frame, .. } = note
                && let Some(&row) = rows.get(&word.address.0)
                && *frame < FRAMES_MAX
            {
                arrow("saved", row, *frame, true, out);
            }
        }
    }

    // The arrows stand between the words that they start at and the frames that they lead to.
    out.tag("</svg>");
    out.tag("<div class=\"side\"><h4>True frames</h4><ol class=\"frames\">");
    for (index, frame) in shown {
        true_frame(index, frame, out);
    }

    more(state.frames.len(), out);

    // With a truth that ends early, missing frames are not lost ones.
    if state.truth != "complete" {
        let known = match state.truth {
            "unknown" => "The true chain is not known.",
            _ => "The true chain is known to this depth.",
        };
        out.put(html! { li .fold { (known) } });
    }

    out.tag("</ol></div>");
}

fn true_frame(index: usize, frame: &TrueFrame, out: &mut Fragment) {
    out.put(html! { (PreEscaped("<li tabindex=\"0\" data-frame=\"")) });
    out.text(&index.to_string());
    let slot = frame.slot.map(|slot| slot.to_string()).unwrap_or_default();
    out.put(html! { (PreEscaped("\" data-reads=\"")) (slot) (PreEscaped("\">#")) });
    out.text(&index.to_string());
    out.put(html! {
        " " (words::short(&frame.place))
        span .card {
            @if let Some(image) = &frame.place.image { (image) ". " }
            @if frame.kind != "call" { (frame.kind) ". " }
            "pc " code { (frame.place.pc) }
            @if let Some(slot) = frame.slot { ", read from " code { (slot) } }
            ". CFA " code { (frame.cfa) } "."
            (registers(&frame.saved))
        }
        (PreEscaped("</li>"))
    });
}

/// Registers in one line.
pub(super) fn registers(registers: &[Register]) -> maud::Markup {
    html! {
        @if !registers.is_empty() {
            " " span .regs {
                @for register in registers { (register.name) "=" (register.value) " " }
            }
        }
    }
}

/// The frames that an unwinder found, with arrows to them from the words that it read. Shown once
/// the unwinder is chosen.
fn found(walk: &Walk, name: &str, rows: &HashMap<u64, usize>, height: usize, out: &mut Fragment) {
    out.put(html! {
        (PreEscaped("<div class=\"side\" hidden data-walker=\"")) (name)
        (PreEscaped("\"><h4>Found by ")) (name) (PreEscaped("</h4><ol class=\"frames\">"))
    });

    // Frames that a walk missed are listed, too, so that the eye sees the gap.
    let steps = walk.steps.iter().enumerate();
    let frames = steps.filter(|(_, s)| matches!(s.kind, StepKind::Frame | StepKind::Missing));
    for (step, at) in frames.clone().take(FRAMES_MAX) {
        let (mark, class, word) = mark(at.judged, at.kind);
        let reads: Vec<String> = at.reads.iter().map(ToString::to_string).collect();

        let place = match &at.frame {
            Some(frame) => words::short(&frame.place),
            None => format!("missing: true frame {}", at.truth.unwrap_or_default()),
        };

        // `data-step` and `data-reads` let the script light up the words that a step has read.
        out.put(html! {
            (PreEscaped("<li tabindex=\"0\" class=\"")) (class) (PreEscaped("\" data-step=\""))
        });
        out.text(&step.to_string());
        out.put(html! {
            (PreEscaped("\" data-reads=\"")) (reads.join(" ")) (PreEscaped("\">"))
            span .mark title=(word) { (mark) } " " (place) (PreEscaped("</li>"))
        });
    }

    more(frames.clone().count(), out);
    out.put(html! { (PreEscaped("</ol></div><div class=\"arrows\" hidden data-walker=\"")) (name) (PreEscaped("\">")) });
    start_arrows(height, out);

    for (nth, (_, at)) in frames.take(FRAMES_MAX).enumerate() {
        let class = mark(at.judged, at.kind).1;
        let slot = at.frame.as_ref().and_then(|frame| frame.slot.as_deref());
        for read in &at.reads {
            // The word may be folded, or beyond those that are shown.
            let Some(&row) = rows.get(&read.0) else {
                continue;
            };

            // The word of the return address has a strong arrow, all others that the rule read a
            // thin one.
            if slot.and_then(number) == Some(read.0) {
                arrow(class, row, nth, false, out)
            } else {
                arrow(&format!("{class} saved"), row, nth, false, out)
            }
        }
    }

    out.tag("</svg></div>");
}

/// The sign of a frame that was found, its class and what it means.
pub(super) fn mark(
    judged: Option<&str>,
    kind: StepKind,
) -> (&'static str, &'static str, &'static str) {
    match (kind, judged) {
        (StepKind::Missing, _) => ("-", "missing", "a true frame that was not found"),
        (_, Some("same")) => ("=", "same", "a true frame"),
        (_, Some("wrong")) => ("w", "wrong", "not the true frame"),
        (_, Some("extra")) => ("+", "extra", "there is no true frame here"),
        _ => ("?", "open", "not judged"),
    }
}

fn more(count: usize, out: &mut Fragment) {
    if count > FRAMES_MAX {
        out.put(html! { li .fold { "… " (count - FRAMES_MAX) " more frames" } });
    }
}

fn start_arrows(height: usize, out: &mut Fragment) {
    let units = height * ROW;
    out.put(html! {
        (PreEscaped(format!(
            "<svg class=\"arrows\" aria-hidden=\"true\" width=\"{}em\" height=\"{}.{}em\" \
             viewBox=\"0 0 {WIDTH} {units}\">",
            WIDTH / 10, units / 10, units % 10
        )))
    });
}

/// An arrow from the word in `row` to a frame, which is on the right or on the left.
fn arrow(class: &str, row: usize, frame: usize, to_right: bool, out: &mut Fragment) {
    let middle = |row: usize| row * ROW + ROW / 2;
    let (from, to) = (middle(row), middle(frame));
    let (a, b, c, d, tip) = if to_right {
        (0, 30, WIDTH - 30, WIDTH - 2, -6)
    } else {
        (WIDTH, WIDTH - 30, 30, 2, 6)
    };
    out.tag(&format!(
        "<path class=\"{class}\" data-frame=\"{frame}\" \
         d=\"M{a} {from}C{b} {from} {c} {to} {d} {to}m{tip}-4l{} 4l{tip} 4\"/>",
        -tip
    ));
}
