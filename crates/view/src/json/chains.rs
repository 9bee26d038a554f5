//! Writes the chains of many samples. To serialize each chain anew costs far more than the walks,
//! and most of a chain is as in the sample before: the outer frames, the verdict, the end. So the
//! text of what the last chain of the same column had is kept, and below that the text of each
//! place and of each row.

mod texts;

use super::kernel::KernelPart;
use super::{CrashLine, SCHEMA, event_lines, found_name, judged_end_line, verdict_line};
use serde::Serialize;
use texts::Texts;
use unwind_sim_judge::engine::Outcome;
use unwind_sim_judge::run::{Column, Describe, Run, RunError};
use unwind_sim_judge::unjudged::Unjudged;
use unwind_sim_judge::whole::Whole;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::chain::{Chain, End, How, ReadWords, RowRef, Step};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::image::{AddressSpace, Contents};
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::verdict::{Ground, Verdict};

/// Writes the lines of [`super::chain`] for the outcomes of a run.
pub struct ChainWriter<'r> {
    run: &'r Run,
    columns: Vec<(Column, LastColumn)>,
    texts: Texts,
    /// Most unwinders start at the same registers.
    events: Option<(Contents, CachedText<Vec<Event>>)>,
}

impl<'r> ChainWriter<'r> {
    /// For the columns of `run`.
    pub fn new(run: &'r Run) -> ChainWriter<'r> {
        let columns = run.columns().into_iter();
        ChainWriter {
            run,
            columns: columns
                .map(|column| (column, LastColumn::default()))
                .collect(),
            texts: Texts::default(),
            events: None,
        }
    }
}

impl Describe for ChainWriter<'_> {
    fn describe(
        &mut self,
        view: &View<'_>,
        column: usize,
        outcome: &Outcome,
        line: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        let ChainWriter {
            run,
            columns,
            texts,
            events,
        } = self;
        let (column, last) = &mut columns[column];
        let unwinder = run.engines[column.engine].name();

        head(view, unwinder, column.variant_for(view).as_str(), line)?;

        // Everything that the text depends on is part of the key, or a line would keep what is no
        // longer true.
        let verdict = (outcome.verdict, outcome.ground, outcome.unjudged);
        CachedText::write(&mut last.verdict, &verdict, line, |_, out| {
            field(",\"verdict\":", &verdict_line(outcome), out)
        })?;
        let end = (outcome.chain.end, outcome.whole, outcome.end_kind());
        CachedText::write(&mut last.end, &end, line, |_, out| {
            field(",\"end\":", &judged_end_line(outcome), out)
        })?;

        line.extend_from_slice(b",\"frames\":[");

        // The frames have a store of their own: mostly only the innermost ones change.
        last.frames.write(texts, view.space, &outcome.chain, line)?;
        line.push(b']');

        // Events name places, so their text holds only as long as the same images are mapped.
        let contents = view.space.contents();

        // Taken out, so that what belongs to another address space is dropped here.
        let known = events.take().filter(|(of, _)| *of == contents);
        let mut kept = known.map(|(_, kept)| kept);
        CachedText::write(&mut kept, &outcome.chain.events, line, |events, out| {
            field(",\"events\":", &event_lines(view.space, events), out)
        })?;
        *events = kept.map(|kept| (contents, kept));

        let kernel = KernelPart::new(view, &outcome.chain);
        if !kernel.is_empty() {
            // An object of its own: its opening brace becomes the comma, the closing one goes.
            let from = line.len();
            serde_json::to_writer(&mut *line, &kernel)?;
            line[from] = b',';
            line.pop();
        }

        // The cause has no text that is kept as a whole: its values differ from sample to sample.
        if let Some(diagnosis) = &outcome.diagnosis {
            line.extend_from_slice(b",\"cause\":");
            texts.cause(view.space, diagnosis, line)?;
        }

        line.extend_from_slice(b"}\n");
        Ok(())
    }
}

/// The fields before the verdict.
fn head(
    view: &View<'_>,
    unwinder: &str,
    start: &'static str,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let sample = view.sample;
    field("{\"type\":\"chain\",\"schema\":", SCHEMA, out)?;
    field(",\"sample\":", &view.number, out)?;
    field(",\"pid\":", &sample.pid, out)?;
    field(",\"tid\":", &sample.tid, out)?;
    field(",\"time\":", &sample.time, out)?;
    field(",\"unwinder\":", unwinder, out)?;
    field(",\"start\":", start, out)?;
    if let Some(crash) = sample.crash() {
        field(",\"crash\":", &CrashLine::from(crash), out)?;
    }
    Ok(())
}

/// What was written last for a column.
#[derive(Default)]
struct LastColumn {
    verdict: Option<CachedText<(Verdict, Ground, Option<Unjudged>)>>,
    end: Option<CachedText<(End, Option<Whole>, &'static str)>>,
    frames: CachedFrames,
}

/// A value and its text.
struct CachedText<T> {
    value: T,
    text: Vec<u8>,
}

impl<T: PartialEq + Clone> CachedText<T> {
    /// Adds the text of `value`: the one of `kept`, or else what `write` adds, which is kept.
    fn write(
        kept: &mut Option<CachedText<T>>,
        value: &T,
        out: &mut Vec<u8>,
        write: impl FnOnce(&T, &mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        match kept {
            Some(kept) if kept.value == *value => out.extend_from_slice(&kept.text),
            _ => {
                let from = out.len();
                write(value, out)?;
                *kept = Some(CachedText {
                    value: value.clone(),
                    text: out[from..].to_vec(),
                });
            }
        }
        Ok(())
    }
}

/// The frames of a chain and their texts, as a stack: the outermost first, as those stay longest.
#[derive(Default)]
struct CachedFrames {
    contents: Option<Contents>,
    frames: Vec<FrameKey>,
    text: Vec<u8>,
    /// Where the text of each frame ends.
    ends: Vec<usize>,
}

impl CachedFrames {
    /// Adds the texts of the chain's frames, innermost first.
    fn write(
        &mut self,
        texts: &mut Texts,
        space: &AddressSpace,
        chain: &Chain,
        out: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        let contents = Some(space.contents());
        // Chains that follow each other share their outer frames, so frames are kept outermost
        // first.
        let pairs = self.frames.iter().zip(chain.steps().rev());
        let same = if self.contents == contents {
            pairs.take_while(|(kept, step)| kept.is(step)).count()
        } else {
            0
        };

        // What is behind the first frame that differs is forgotten: the texts lie one behind the
        // other.
        self.contents = contents;
        self.frames.truncate(same);
        self.ends.truncate(same);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));

        // The outer frames are there; the others are added from the outside in.
        for step in chain.steps().rev().skip(same) {
            self.frames.push(FrameKey::new(&step));
            texts.frame(space, &step, &mut self.text)?;
            self.ends.push(self.text.len());
        }

        // The line has the innermost frame first, so the texts are taken from the end.
        let mut end = self.text.len();
        for i in (0..self.ends.len()).rev() {
            let start = i.checked_sub(1).map_or(0, |outer| self.ends[outer]);
            out.extend_from_slice(&self.text[start..end]);
            if i > 0 {
                out.push(b',');
            }
            end = start;
        }

        Ok(())
    }
}

/// What the text of a frame depends on.
struct FrameKey {
    place: (CodeAddress, u64, Option<u64>),
    found: &'static str,
    row: Option<Row>,
    words: ReadWords,
}

impl FrameKey {
    fn new(step: &Step<'_>) -> FrameKey {
        let mut words = ReadWords::new();
        let row = match step.how {
            How::Rule { row, words: read } => {
                read.iter().for_each(|&word| words.push(word));
                Some(row.row())
            }
            _ => None,
        };
        FrameKey {
            place: (step.pc, step.sp, step.slot),
            found: found_name(step),
            row,
            words,
        }
    }

    /// Whether the frame has the same text.
    fn is(&self, step: &Step<'_>) -> bool {
        self.place == (step.pc, step.sp, step.slot)
            && match (step.how, &self.row) {
                (How::Rule { row, words }, Some(kept)) => {
                    *self.words == *words && RowRef::from(kept) == row
                }
                (_, kept) => kept.is_none() && self.found == found_name(step),
            }
    }
}

/// Adds `name`, which must be written as JSON, and a value.
fn field(
    name: &str,
    value: &(impl Serialize + ?Sized),
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    out.extend_from_slice(name.as_bytes());
    serde_json::to_writer(out, value)
}

#[cfg(test)]
mod tests;
