//! A walk, step by step, in the order in which it happened. The sentence of each is in [`story`].

use super::state::known;
use super::{Hex, Register, story};
use crate::again::{LastStep, again, blamed_frame};
use crate::json::{
    CauseLine, EndLine, FrameLine, VerdictLine, cause_line, frame_line, judged_end_line,
    verdict_line,
};
use crate::listing::{self, Row};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::engine::{Engine, Outcome, Setting};
use unwind_sim_judge::hex::hex_bytes;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{self, Frame, How};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::row::{self, RowSource};
use unwind_sim_unwind::row_bytes;
use unwind_sim_unwind::start::Variant;

/// The number of bytes of a table that are shown from the start of a row's item.
const TABLE_BYTES_MAX: usize = 16;

/// A walk and its verdict.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Walk {
    /// The start variant.
    pub start: &'static str,
    /// The verdict.
    pub verdict: VerdictLine,
    /// The verdict's letter.
    pub letter: char,
    /// What happened, in order. The last step is the end.
    pub steps: Vec<Step>,
    /// Why it ended.
    pub end: EndLine,
    /// What is to blame, if it is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseLine>,
}

/// What a step of a walk did.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The walk started.
    Started,
    /// A frame was found and left out.
    Skipped,
    /// Another table was used.
    Fallback,
    /// A register is unknown from here on.
    RegisterLost,
    /// The chain continues on another stack.
    StackChanged,
    /// The state of a kernel's unwinder.
    KernelState,
    /// A frame was found.
    Frame,
    /// The last frame's row was applied, and gave no frame.
    Rejected,
    /// A true frame was not found.
    Missing,
    /// The walk ended.
    Ended,
}

/// The bytes of a table that a row was made from.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TableBytes {
    /// The section.
    pub section: &'static str,
    /// Offset in the section, bytes.
    pub offset: Hex,
    /// The bytes from there on, two digits each. The item of the row may be shorter.
    pub bytes: String,
}

/// A step of a walk.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Step {
    /// What it did.
    pub kind: StepKind,
    /// In a sentence.
    pub text: String,
    /// The frame that was found, with its row and the words read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameLine>,
    /// The bytes of the row's table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableBytes>,
    /// The row that was applied. It has more than the other fields say.
    #[serde(skip)]
    #[cfg_attr(test, schemars(skip))]
    pub applied: Option<row::Row>,
    /// Addresses of the stack words that were read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Hex>,
    /// The registers that the unwinder knows in the frame; empty if it does not find rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Register>,
    /// Whether the frame is the true one: `same`, `wrong`, `extra` or `unjudged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<&'static str>,
    /// The number of the true frame that it is, or should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truth: Option<usize>,
    /// Whether the row that was applied is to blame for what is wrong with the walk.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blamed: bool,
}

impl Step {
    fn new(kind: StepKind, text: String) -> Step {
        Step {
            kind,
            text,
            frame: None,
            table: None,
            applied: None,
            reads: Vec::new(),
            carried: Vec::new(),
            judged: None,
            truth: None,
            blamed: false,
        }
    }
}

impl Walk {
    /// Whether the chain is wrong: as [`Verdict::is_wrong`].
    ///
    /// [`Verdict::is_wrong`]: unwind_sim_unwind::verdict::Verdict::is_wrong
    pub fn is_wrong(&self) -> bool {
        !matches!(self.letter, '.' | '~' | 'u' | '?')
    }

    pub(super) fn of(
        view: &View<'_>,
        engine: &Engine,
        variant: Variant,
        setting: &Setting,
        outcome: &Outcome,
        cache: &mut Cache,
    ) -> Walk {
        let mut steps = Vec::new();
        let frames = &outcome.chain.frames;
        let rows = listing::rows(view, outcome);

        // The chain has the words that were read, but neither the registers nor the step that found
        // no frame; they are computed again.
        let again = again(view, engine, setting, outcome, cache);

        // Said at the step that applied the row to blame.
        let blamed = blamed_frame(outcome, &rows);
        let mark = |step: &mut Step, applied: Option<usize>| {
            if let Some(diagnosis) = &outcome.diagnosis
                && applied.is_some()
                && applied == blamed
            {
                step.blamed = true;
                step.text.push_str(&story::blame(view, diagnosis));
            }
        };

        // The first frame was found by the row of the last frame that was skipped.
        let skipped = outcome
            .chain
            .events
            .iter()
            .rev()
            .find_map(|event| match event {
                Event::Skipped { pc, .. } => Some(*pc),
                _ => None,
            });

        // True frames that were not found are told where they would have been.
        let (before, behind) = absent(&rows, frames.len());
        let of_frame = |index: usize| {
            let row = rows.iter().copied().find(|row| row.found() == Some(index));
            let registers = again.regs.get(index).and_then(Option::as_ref);
            let last = index.checked_sub(1).and_then(|last| frames.get(last));
            let last = last.map(|last| last.pc).or(skipped);

            // The step is told by the address of the frame before, since the row that found it is
            // that frame's.
            let mut step = frame_step(view, engine, (last, index, outcome.chain.step(index)), row);
            step.carried = registers.map(known).unwrap_or_default();
            mark(&mut step, index.checked_sub(1));
            let missing = before[index].iter().map(|&truth| missing_step(view, truth));
            missing.chain([step]).collect::<Vec<_>>()
        };

        // Frames and events are two lists of one walk, which are told in the order of the walk.
        let mut next = 0;

        for event in &outcome.chain.events {
            let until = frames_before(event, &frames[next..]);
            steps.extend((next..next + until).flat_map(of_frame));
            next += until;
            steps.push(Step::new(kind_of(event), story::event(event, view)));
        }
        steps.extend((next..frames.len()).flat_map(of_frame));

        if let Some(last) = &again.last {
            let mut step = rejected_step(view, engine, last, frames.last().map(|f| f.pc));
            mark(&mut step, frames.len().checked_sub(1));
            steps.push(step);
        }

        // Frames that are missing behind the last one are part of the ending.
        let text = story::ending(view, outcome, &behind);
        steps.push(Step::new(StepKind::Ended, text));

        Walk {
            start: variant.as_str(),
            verdict: verdict_line(outcome),
            letter: outcome.verdict.letter(),
            steps,
            end: judged_end_line(outcome),
            cause: outcome
                .diagnosis
                .as_ref()
                .map(|d| cause_line(view.space, d)),
        }
    }
}

/// The true frames that were not found: before each found frame, and behind the last one.
fn absent(rows: &[Row], found: usize) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut before = vec![Vec::new(); found];
    let mut waiting = Vec::new();
    for row in rows {
        match (*row, row.found()) {
            (Row::Absent { truth }, _) => waiting.push(truth),
            (_, Some(index)) => before[index].append(&mut waiting),
            (_, None) => {}
        }
    }
    (before, waiting)
}

/// The number of `frames` that were found before `event`.
fn frames_before(event: &Event, frames: &[Frame]) -> usize {
    let at = match event {
        Event::Fallback { pc, .. } | Event::RegisterLost { pc, .. } => {
            frames.iter().position(|frame| frame.pc == *pc)
        }
        Event::StackChanged { from, .. } => frames.iter().position(|frame| frame.sp == *from),
        _ => None,
    };
    at.map_or(0, |index| index + 1)
}

fn kind_of(event: &Event) -> StepKind {
    match event {
        Event::Started { .. } => StepKind::Started,
        Event::Skipped { .. } => StepKind::Skipped,
        Event::Fallback { .. } => StepKind::Fallback,
        Event::RegisterLost { .. } => StepKind::RegisterLost,
        Event::StackChanged { .. } => StepKind::StackChanged,
        _ => StepKind::KernelState,
    }
}

/// The step at which a frame was found. `last` is the address of the frame before it.
fn frame_step(
    view: &View<'_>,
    engine: &Engine,
    (last, index, frame): (Option<CodeAddress>, usize, chain::Step<'_>),
    row: Option<Row>,
) -> Step {
    let mut step = Step::new(
        StepKind::Frame,
        story::found(view, engine, last, (index, &frame)),
    );

    if let How::Rule { row, words } = frame.how {
        // The words of a rule, among them the one with the pc.
        step.reads = words.iter().map(|word| Hex(word.address)).collect();
        step.table = table_bytes(view, &row.source());
        step.applied = Some(row.row());
    }

    // Without a rule, as in a walk by guesses, the word that held the pc is what was read.
    if step.reads.is_empty() {
        step.reads.extend(frame.slot.map(Hex));
    }

    (step.judged, step.truth) = match row {
        Some(Row::Same { truth, .. }) => (Some("same"), Some(truth)),
        Some(Row::Wrong { truth, .. }) => (Some("wrong"), Some(truth)),
        Some(Row::Extra { .. }) => (Some("extra"), None),
        Some(Row::Unjudged { .. }) => (Some("unjudged"), None),
        Some(Row::Absent { .. }) | None => (None, None),
    };

    // The verdict is at the end of the sentence, so that it does not hide how the frame was found.
    step.text.push_str(&match row {
        Some(Row::Wrong { truth, .. }) => {
            let (_, place) = listing::true_place(view, truth);
            format!(" Wrong: the true frame is {place}.")
        }
        Some(Row::Extra { .. }) => " Wrong: there is no true frame here.".to_owned(),
        _ => String::new(),
    });

    step.frame = Some(frame_line(view.space, &frame));
    step
}

/// The step that found no frame. `last` is the address of the last frame.
fn rejected_step(
    view: &View<'_>,
    engine: &Engine,
    step: &LastStep,
    last: Option<CodeAddress>,
) -> Step {
    let text = story::rejected(view, engine, step, last);
    Step {
        table: table_bytes(view, &step.row.source),
        applied: Some(step.row),
        reads: step.words.iter().map(|word| Hex(word.address)).collect(),
        ..Step::new(StepKind::Rejected, text)
    }
}

/// A true frame that the walk did not find.
fn missing_step(view: &View<'_>, truth: usize) -> Step {
    let (_, place) = listing::true_place(view, truth);
    let text = format!("Missing: true frame {truth}, {place}.");
    Step {
        truth: Some(truth),
        ..Step::new(StepKind::Missing, text)
    }
}

/// What a table stores for a row, byte by byte.
///
/// See [`row_bytes`](row_bytes::row_bytes).
pub fn row_bytes(view: &View<'_>, row: &row::Row) -> Option<Vec<u8>> {
    let image = image_of(view, &row.source)?;
    row_bytes::row_bytes(image, row)
}

/// The image that has a row's table.
fn image_of<'a>(view: &View<'a>, source: &RowSource) -> Option<&'a Image> {
    let id = source.image?;
    let mappings = view.space.mappings().iter();
    let mut images = mappings.filter_map(|mapping| mapping.image.as_deref());
    images.find(|image| image.id() == id)
}

fn table_bytes(view: &View<'_>, source: &RowSource) -> Option<TableBytes> {
    let kind = source.table.section()?;
    let image = image_of(view, source)?;
    let data = &image.section(kind)?.data;
    let start = usize::try_from(source.row_offset).ok()?;
    let end = start.saturating_add(TABLE_BYTES_MAX).min(data.len());
    Some(TableBytes {
        section: kind.as_str(),
        offset: Hex(source.row_offset),
        bytes: hex_bytes(data.get(start..end)?),
    })
}
