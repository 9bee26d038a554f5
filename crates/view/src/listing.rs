//! Lists the frames that a walk found, line by line, beside the true ones.

use crate::fold::{FoldedItem, fold};
use std::fmt::Write as _;
use std::ops::Range;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::chain::{How, Step};
use unwind_sim_unwind::printable::Printable;
use unwind_sim_unwind::verdict::align_chain;

/// The maximum width, in characters, of the left side of a wrong frame's line up to which the right
/// sides are aligned.
const LEFT_MAX: usize = 80;

/// What one line of a listing shows. Numbers count from the innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "numbers of frames: of the found ones, of the true ones"
)]
pub enum Row {
    /// A true frame that was found.
    Same { found: usize, truth: usize },
    /// A frame in the place of the true one.
    Wrong { found: usize, truth: usize },
    /// A frame that is not true.
    Extra { found: usize },
    /// A true frame that was not found.
    Absent { truth: usize },
    /// A frame whose truth is not known.
    Unjudged { found: usize },
}

impl Row {
    /// The number of the frame found.
    pub fn found(self) -> Option<usize> {
        match self {
            Row::Same { found, .. }
            | Row::Wrong { found, .. }
            | Row::Extra { found }
            | Row::Unjudged { found } => Some(found),
            Row::Absent { .. } => None,
        }
    }
}

/// The rows of a walk. Between two frames that are in the same slots as true ones, found frames and
/// true frames are paired in order.
pub fn rows(view: &View<'_>, outcome: &Outcome) -> Vec<Row> {
    let (chain, truth) = (&outcome.chain, &view.sample.truth);
    let len = chain.frames.len();
    if !outcome.verdict.is_judged() {
        return (0..len).map(|found| Row::Unjudged { found }).collect();
    }
    let hits = align_chain(chain, truth, outcome.from);
    let mut rows = Vec::new();
    let (mut found, mut next) = (0, outcome.from);
    for (i, hit) in hits.iter().enumerate() {
        let Some(t) = *hit else { continue };
        between(&mut rows, found..i, next..t, true);
        let same = truth.frames()[t].pc == chain.frames[i].pc.value();
        rows.push(if same {
            Row::Same { found: i, truth: t }
        } else {
            Row::Wrong { found: i, truth: t }
        });
        (found, next) = (i + 1, t + 1);
    }
    let rest = next..truth.frames().len();
    between(&mut rows, found..len, rest, truth.is_complete());
    rows
}

/// Adds the rows of the found and the true frames between two aligned ones. `complete` says that
/// there are no other true frames here.
fn between(rows: &mut Vec<Row>, found: Range<usize>, truth: Range<usize>, complete: bool) {
    let pairs = found.len().min(truth.len());
    rows.extend(
        found
            .clone()
            .zip(truth.clone())
            .map(|(found, truth)| Row::Wrong { found, truth }),
    );
    rows.extend(found.skip(pairs).map(|found| {
        if complete {
            Row::Extra { found }
        } else {
            Row::Unjudged { found }
        }
    }));
    rows.extend(truth.skip(pairs).map(|truth| Row::Absent { truth }));
}

/// The pc of a true frame and its location.
pub(crate) fn true_place(view: &View<'_>, truth: usize) -> (u64, Location) {
    let frame = view.sample.truth.frames()[truth];
    (frame.pc, Location::of(view.space, frame.address()))
}

/// `w 2 7ffff7fcb12a main+0x4a (prog)  [eh_frame]`, in columns.
pub(crate) fn frame_line(mark: char, index: usize, pc: u64, place: &Location, by: &str) -> String {
    let mut out = format!("  {mark} {index:>3} {pc:>16x}  {place}{}", image(place));
    if !by.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(out, "  [{by}]");
    }
    out
}

/// The image's name in parentheses, if the place has a function.
fn image(place: &Location) -> String {
    match (&place.function, &place.image) {
        (Some(_), Some(image)) => format!(" ({})", Printable::new(image)),
        _ => String::new(),
    }
}

/// How much of a listing is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListingLength {
    /// All frames, however often they repeat.
    All,
    /// Of frames that repeat, as in a deep recursion, the first and the last ones.
    Folded,
}

/// The rows as pieces: those that repeat are folded, if that is wanted.
pub(crate) fn pieces(
    view: &View<'_>,
    outcome: &Outcome,
    rows: &[Row],
    shown: ListingLength,
) -> Vec<FoldedItem> {
    if shown == ListingLength::All {
        return (0..rows.len()).map(FoldedItem::Item).collect();
    }
    let key = |row: &Row| {
        let found = row.found().map(|found| outcome.chain.step(found));
        let by = found.map(|step| (step.pc.value(), found_by(&step)));
        let truth = match *row {
            Row::Wrong { truth, .. } | Row::Absent { truth } => {
                Some(view.sample.truth.frames()[truth].pc)
            }
            _ => None,
        };
        (std::mem::discriminant(row), by, truth)
    };
    fold(&rows.iter().map(key).collect::<Vec<_>>())
}

/// Writes the lines of frames that are the same where their pcs are, folded if that is wanted.
pub(crate) fn write_pieces(
    out: &mut String,
    pcs: &[u64],
    shown: ListingLength,
    line: impl Fn(usize) -> String,
) {
    let pieces = match shown {
        ListingLength::All => (0..pcs.len()).map(FoldedItem::Item).collect(),
        ListingLength::Folded => fold(pcs),
    };
    for piece in pieces {
        let text = match piece {
            FoldedItem::Item(at) => line(at),
            FoldedItem::Repeated { count, period } => {
                format!("      {}", repeated_line(count, period))
            }
        };
        out.push_str(&text);
        out.push('\n');
    }
}

/// The line of frames that are left out because they repeat the ones before them.
pub(crate) fn repeated_line(count: usize, period: usize) -> String {
    let above = match period {
        1 => "frame".to_owned(),
        n => counted(n, "frame"),
    };
    format!(
        "... {} that repeat the {above} above (--all shows them)",
        counted(count, "frame")
    )
}

/// The lines of a walk's frames.
pub(crate) fn listing(view: &View<'_>, outcome: &Outcome, shown: ListingLength) -> String {
    let left = |mark: char, i: usize| {
        let step = outcome.chain.step(i);
        let place = Location::of(view.space, step.pc);
        frame_line(mark, i, step.pc.value(), &place, found_by(&step))
    };

    let line = |row: &Row| match *row {
        Row::Same { found, .. } | Row::Unjudged { found } => left(' ', found),
        Row::Wrong { found, .. } => left('w', found),
        Row::Extra { found } => left('+', found),
        Row::Absent { truth } => {
            let (pc, place) = true_place(view, truth);
            frame_line('-', truth, pc, &place, "true, absent")
        }
    };

    // Rows are folded before they are formatted: only what is shown is symbolized.
    let rows = rows(view, outcome);
    let pieces = pieces(view, outcome, &rows, shown);

    let lines: Vec<(String, Option<usize>)> = pieces
        .into_iter()
        .map(|piece| match piece {
            FoldedItem::Item(at) => match rows[at] {
                Row::Wrong { truth, .. } => (line(&rows[at]), Some(truth)),
                _ => (line(&rows[at]), None),
            },
            FoldedItem::Repeated { count, period } => {
                (format!("      {}", repeated_line(count, period)), None)
            }
        })
        .collect();

    // The true frames stand in one column, unless some line is very long.
    let wrong = lines.iter().filter(|(_, truth)| truth.is_some());
    let widths = wrong.map(|(line, _)| line.chars().count());
    let width = widths.max().unwrap_or(0).min(LEFT_MAX);

    let mut out = String::new();
    for (line, truth) in &lines {
        match *truth {
            // A wrong frame has the true one beside it, so that both can be compared at a glance.
            Some(truth) => {
                let (pc, place) = true_place(view, truth);
                let image = image(&place);
                let _ = writeln!(out, "{line:width$}  | true {truth}: {pc:x}  {place}{image}");
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }

    out
}

/// How a frame was found, in one or two words: the table, or `start`, `guess`.
pub fn found_by(step: &Step<'_>) -> &'static str {
    match step.how {
        How::Start => "start",
        How::SampledIp => "sampled ip",
        How::Rule { row, .. } => row.source().table.as_str(),
        How::Guess => "guess",
        How::Branch {
            stitched: false, ..
        } => "branch record",
        How::Branch { stitched: true, .. } => "stitched",
        How::External => "",
    }
}
