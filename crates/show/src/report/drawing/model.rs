//! What a drawing shows, in words: the frames found, the words, the true frames, and what leads from
//! one to another. Where it is drawn is decided in [`svg`](super::svg).

use super::super::stack::{mark, number};
use super::super::words;
use super::lines::{Line, Lines, Places, lines};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::reason::Code;
use unwind_sim_view::timeline::{self, Note, State, Step, StepKind, Walk, Walker};

/// The number of frames of a list, at most.
const FRAMES_MAX: usize = 16;
/// The number of names of a chain in the text for those who cannot see the image.
const NAMES_MAX: usize = 12;

/// What is drawn of a state and a walk.
pub(super) struct Model {
    /// The image in a sentence.
    pub(super) title: String,
    /// The image in many sentences.
    pub(super) description: String,
    /// Where the state is, and its instruction.
    pub(super) place: String,
    /// What each unwinder makes of it.
    pub(super) verdicts: Vec<VerdictText>,
    /// Whose walk it is.
    pub(super) walker: String,
    pub(super) found: Vec<DrawnFrame>,
    pub(super) lines: Vec<Line>,
    pub(super) truth: Vec<DrawnFrame>,
    /// From words to frames that the walk found, and to true ones.
    pub(super) read: Vec<Arrow>,
    pub(super) held: Vec<Arrow>,
}

/// What an unwinder makes of a state.
pub(super) struct VerdictText {
    pub(super) text: String,
    /// `right`, `luck`, `wrong` or `open`.
    pub(super) class: &'static str,
    /// Whether its walk is drawn.
    pub(super) is_drawn: bool,
}

/// A frame of a list.
#[derive(Default)]
pub(super) struct DrawnFrame {
    /// One character that says what became of it.
    pub(super) mark: &'static str,
    /// `same`, `wrong`, `missing`, `extra`, `open` or `note`.
    pub(super) class: &'static str,
    pub(super) name: String,
    /// A second line: the rule that found it, or its CFA.
    pub(super) detail: String,
    /// A third line, if it is asked for: what the table stores for the rule.
    pub(super) bytes: String,
}

/// An arrow from a line to a frame.
pub(super) struct Arrow {
    pub(super) line: usize,
    pub(super) frame: usize,
    pub(super) class: &'static str,
    /// Whether the word is not the one with the return address.
    pub(super) is_thin: bool,
}

impl Model {
    /// The drawing of a state with the walk number `walker`; with `view`, what recorded the state, also with the
    /// bytes of the rows.
    pub(super) fn of(
        state: &State,
        walkers: &[Walker],
        walker: usize,
        view: Option<&View<'_>>,
    ) -> Model {
        let walk = &state.walks[walker];
        let name = walkers[walker].name();
        let (Lines { lines, rows }, places) = lines(state, walk);

        let (found, read) = found(state, walk, &rows, view);
        let (truth, held) = truth(state, walk, &places, &rows);

        let mut model = Model {
            title: title(state, walk, &name),
            // Made below, of all the rest.
            description: String::new(),
            place: match &state.instruction {
                Some(instruction) => {
                    format!("{}: {}", words::short(&state.place), instruction.text)
                }
                None => words::short(&state.place),
            },
            verdicts: {
                let all = state.walks.iter().zip(walkers).enumerate();
                let text = |(place, (walk, of)): (usize, (&Walk, &Walker))| VerdictText {
                    text: verdict(walk, &of.name(), state),
                    class: words::class(walk.letter),
                    is_drawn: place == walker,
                };
                all.map(text).collect()
            },
            walker: name,
            found,
            lines,
            truth,
            read,
            held,
        };
        model.description = description(&model);
        model
    }
}

/// `fp: missing, 3 of 4 frames: US510 frame pointer not yet set up in leaf+0x0`.
fn verdict(walk: &Walk, name: &str, state: &State) -> String {
    let of = &walk.verdict;
    let mut text = format!("{name}: {}", of.word);
    if state.truth != "unknown" && words::class(walk.letter) != "open" {
        let known = counted(u64::from(of.known), "frame");
        let _ = write!(text, ", {} of {known}", of.found);
    }
    if let Some(cause) = &walk.cause {
        let what = Code::from_name(cause.code).map_or("", Code::description);
        let place = words::short(&cause.place);
        let _ = write!(text, ": {} {what} in {place}", cause.code);
    }
    if let Some(why) = &of.why {
        let _ = write!(text, ": {}", words::limited(&why.text));
    }
    text
}

/// The frames that a walk found, those that it missed on its way, and its end.
fn found(
    state: &State,
    walk: &Walk,
    rows: &std::collections::HashMap<u64, usize>,
    view: Option<&View<'_>>,
) -> (Vec<DrawnFrame>, Vec<Arrow>) {
    // At a root there is no caller, and so no step that could have found one.
    let is_root = walk.end.code == Code::RootReached.as_str();
    let is_drawn = |step: &&Step| match step.kind {
        StepKind::Frame | StepKind::Missing => true,
        StepKind::Rejected => !is_root || step.blamed,
        _ => false,
    };
    let steps: Vec<&Step> = walk.steps.iter().filter(is_drawn).collect();

    let (mut frames, mut arrows) = (Vec::new(), Vec::new());
    let mut number_of = 0;
    for step in &steps {
        if frames.len() == FRAMES_MAX {
            break;
        }
        let drawn = DrawnFrame {
            bytes: view.map_or(String::new(), |view| bytes(view, step)),
            ..of_step(state, walk, step, number_of)
        };
        number_of += usize::from(step.kind == StepKind::Frame);

        // The word with the return address has a strong arrow, all others that the rule read a
        // thin one.
        let slot = step.frame.as_ref().and_then(|frame| frame.slot.as_deref());
        for read in &step.reads {
            if let Some(&line) = rows.get(&read.0) {
                arrows.push(Arrow {
                    line,
                    frame: frames.len(),
                    class: drawn.class,
                    is_thin: slot.and_then(number) != Some(read.0),
                });
            }
        }
        frames.push(drawn);
    }

    if steps.len() > frames.len() {
        frames.push(note(format!("… {} more", steps.len() - frames.len())));
    }
    let end = &walk.end;
    let what = Code::from_name(end.code).map_or("", Code::description);
    frames.push(DrawnFrame {
        detail: what.to_owned(),
        ..note(format!("end: {}", end.code))
    });
    (frames, arrows)
}

fn of_step(state: &State, walk: &Walk, step: &Step, number_of: usize) -> DrawnFrame {
    let (sign, class, _) = mark(step.judged, step.kind);
    let (sign, class) = match step.kind {
        _ if step.blamed => ("!", "wrong"),
        StepKind::Rejected => ("×", "open"),
        _ => (sign, class),
    };

    let rule = step.frame.as_ref().and_then(|frame| frame.row.as_ref());
    // A step that found no frame has the rule that it applied only if that is to blame.
    let blamed = walk.cause.as_ref().and_then(|cause| cause.row.as_ref());
    let blamed = blamed.filter(|_| step.blamed && step.kind == StepKind::Rejected);
    // That a frame is one of a call is what a reader assumes.
    let said = |rule: &str| rule.strip_prefix("call ").unwrap_or(rule).to_owned();
    let rule = rule.or(blamed).map(|row| said(&row.rule));

    let (name, detail) = match (&step.frame, step.kind) {
        (Some(frame), _) => {
            let how = match frame.found {
                "start" => "the walk starts here",
                "guess" => "the word is an address of code",
                "branch record" => "there is a record of this call",
                "stitched" => "an earlier sample has a record of it",
                _ => "",
            };
            let place = words::short(&frame.place);
            let rule = rule.unwrap_or_else(|| how.to_owned());
            (format!("#{number_of} {place}"), rule)
        }
        (None, StepKind::Missing) => {
            let truth = step.truth.unwrap_or_default();
            let frame = state.frames.get(truth);
            let place = frame.map(|frame| words::short(&frame.place));
            let place = place.unwrap_or_default();
            (place, format!("missing: true frame #{truth}"))
        }
        _ => ("no frame".to_owned(), rule.unwrap_or_default()),
    };

    DrawnFrame {
        mark: sign,
        class,
        name: if step.blamed {
            format!("{name} (to blame)")
        } else {
            name
        },
        detail,
        ..DrawnFrame::default()
    }
}

/// `eh_frame 44 0e 10 86 02`: what the table stores for the row that a step applied.
fn bytes(view: &View<'_>, step: &Step) -> String {
    let Some(row) = &step.applied else {
        return String::new();
    };
    let bytes = timeline::row_bytes(view, row).unwrap_or_default();
    if bytes.is_empty() {
        return String::new();
    }
    let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
    format!("{}{bytes}", row.source.table.as_str())
}

/// The true frames, and which of them the walk has.
fn truth(
    state: &State,
    walk: &Walk,
    places: &Places,
    rows: &std::collections::HashMap<u64, usize>,
) -> (Vec<DrawnFrame>, Vec<Arrow>) {
    let kept: BTreeSet<usize> = walk
        .steps
        .iter()
        .filter(|step| step.judged == Some("same"))
        .filter_map(|step| step.truth)
        .collect();
    let is_judged = words::class(walk.letter) != "open";
    // A walk may start further out than at the innermost frame; what it does not claim is not lost.
    let from = state
        .frames
        .len()
        .saturating_sub(walk.verdict.known as usize);

    let (mut frames, mut arrows) = (Vec::new(), Vec::new());
    for (index, frame) in state.frames.iter().enumerate().take(FRAMES_MAX) {
        let (mark, class) = match kept.contains(&index) {
            _ if !is_judged || index < from => ("", "open"),
            true => ("=", "same"),
            false => ("-", "missing"),
        };
        // The outermost frame has no caller whose rsp its CFA could be.
        let is_last = index + 1 == state.frames.len();
        let cfa = if is_last {
            None
        } else {
            places.name(frame.cfa.0)
        };
        if let Some(&line) = frame.slot.and_then(|slot| rows.get(&slot.0)) {
            arrows.push(Arrow {
                line,
                frame: index,
                class: "held",
                is_thin: false,
            });
        }
        frames.push(DrawnFrame {
            mark,
            class,
            name: format!("#{index} {}", words::short(&frame.place)),
            detail: cfa.map_or(String::new(), |cfa| format!("CFA = {cfa}")),
            ..DrawnFrame::default()
        });
    }

    for word in &state.stack.words {
        for note in &word.notes {
            if let Note::Saved { frame, .. } = note
                && let Some(&line) = rows.get(&word.address.0)
                && *frame < frames.len()
            {
                arrows.push(Arrow {
                    line,
                    frame: *frame,
                    class: "held",
                    is_thin: true,
                });
            }
        }
    }

    if state.frames.len() > FRAMES_MAX {
        let more = state.frames.len() - FRAMES_MAX;
        frames.push(note(format!("… {more} more")));
    }
    // With a truth that ends early, missing frames are not lost ones.
    match state.truth {
        "complete" => {}
        "unknown" => frames.push(note("not known".to_owned())),
        _ => frames.push(note("known to this depth".to_owned())),
    }
    (frames, arrows)
}

fn note(name: String) -> DrawnFrame {
    DrawnFrame {
        class: "note",
        name,
        ..DrawnFrame::default()
    }
}

/// `The walk of fp at leaf+0x0 finds leaf < outer; true is leaf < mid < outer.`
fn title(state: &State, walk: &Walk, name: &str) -> String {
    let found = walk.steps.iter().filter_map(|step| step.frame.as_ref());
    let found = chain(found.map(|frame| words::frame(&frame.place)));
    let from = state
        .frames
        .len()
        .saturating_sub(walk.verdict.known as usize);
    let truth = state.frames.iter().skip(from);
    let names = chain(truth.map(|frame| words::frame(&frame.place)));

    let place = words::short(&state.place);
    let is_judged = words::class(walk.letter) != "open";
    let truth = match (state.truth, words::class(walk.letter)) {
        ("unknown", _) => "the true chain is not known".to_owned(),
        (_, "right" | "luck") => "that is the true chain".to_owned(),
        _ if !is_judged => "it is not judged".to_owned(),
        ("complete", _) => format!("true is {names}"),
        _ => format!("true is {names} < ?"),
    };
    // All frames can be right, and the end wrong.
    let truth = if found == names && words::class(walk.letter) == "wrong" {
        format!(
            "these are true, but it ends wrongly, with {}",
            walk.end.code
        )
    } else {
        truth
    };
    let found = if found.is_empty() { "nothing" } else { &found };
    format!("The walk of {name} at {place} finds {found}; {truth}.")
}

/// Names of functions, innermost first.
fn chain(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    if names.len() > NAMES_MAX {
        let left = names.len() - (NAMES_MAX - 1);
        names.splice(NAMES_MAX - 2..names.len() - 1, [format!("({left} more)")]);
    }
    names.join(" < ")
}

/// What the image shows, for those who cannot see it.
fn description(model: &Model) -> String {
    let mut out = format!("{}. ", model.place);
    for verdict in &model.verdicts {
        let _ = write!(out, "{}. ", verdict.text);
    }

    out.push_str("Words of the stack: ");
    for line in &model.lines {
        let _ = match line {
            Line::Gap(text) => write!(out, "{text}; "),
            Line::Word(word) => {
                let parts = [&word.register, &word.place, &word.value, &word.note];
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                let parts: Vec<&str> = parts.map(String::as_str).collect();
                write!(out, "{}; ", parts.join(" "))
            }
        };
    }

    let sides = [
        (
            format!("Found by {}", model.walker),
            &model.found,
            &model.read,
        ),
        ("True frames".to_owned(), &model.truth, &model.held),
    ];
    for (heading, frames, arrows) in sides {
        let _ = write!(out, "{heading}: ");
        for (nth, frame) in frames.iter().enumerate() {
            let parts = [frame.mark, &frame.name, &frame.detail, &frame.bytes];
            out.push_str(&parts.join(" "));
            let words = arrows.iter().filter(|arrow| arrow.frame == nth);
            let words = words.filter_map(|arrow| match &model.lines[arrow.line] {
                Line::Word(word) => Some(word.place.as_str()),
                Line::Gap(_) => None,
            });
            let words: Vec<&str> = words.collect();
            if !words.is_empty() {
                let _ = write!(out, ", from {}", words.join(" and "));
            }
            out.push_str("; ");
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}
