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
use unwind_sim_unwind::chain::{Chain, End, How, RowRef, Step, Words};
use unwind_sim_unwind::event::Event;
use unwind_sim_unwind::image::{AddressSpace, Contents};
use unwind_sim_unwind::row::Row;
use unwind_sim_unwind::verdict::{Ground, Verdict};

/// Writes the lines of [`super::chain`] for the outcomes of a run.
pub struct ChainWriter<'r> {
    run: &'r Run,
    columns: Vec<(Column, Last)>,
    texts: Texts,
    /// Most unwinders start at the same registers.
    events: Option<(Contents, Kept<Vec<Event>>)>,
}

impl<'r> ChainWriter<'r> {
    /// For the columns of `run`.
    pub fn new(run: &'r Run) -> ChainWriter<'r> {
        let columns = run.columns().into_iter();
        ChainWriter {
            run,
            columns: columns.map(|column| (column, Last::default())).collect(),
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

        let verdict = (outcome.verdict, outcome.ground, outcome.unjudged);
        Kept::write(&mut last.verdict, &verdict, line, |_, out| {
            field(",\"verdict\":", &verdict_line(outcome), out)
        })?;
        let end = (outcome.chain.end, outcome.whole, outcome.end_kind());
        Kept::write(&mut last.end, &end, line, |_, out| {
            field(",\"end\":", &judged_end_line(outcome), out)
        })?;

        line.extend_from_slice(b",\"frames\":[");
        last.frames.write(texts, view.space, &outcome.chain, line)?;
        line.push(b']');

        // Events name places, so their text holds only as long as the same images are mapped.
        let contents = view.space.contents();
        let known = events.take().filter(|(of, _)| *of == contents);
        let mut kept = known.map(|(_, kept)| kept);
        Kept::write(&mut kept, &outcome.chain.events, line, |events, out| {
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
struct Last {
    verdict: Option<Kept<(Verdict, Ground, Option<Unjudged>)>>,
    end: Option<Kept<(End, Option<Whole>, &'static str)>>,
    frames: Frames,
}

/// A value and its text.
struct Kept<T> {
    value: T,
    text: Vec<u8>,
}

impl<T: PartialEq + Clone> Kept<T> {
    /// Adds the text of `value`: the one of `kept`, or else what `write` adds, which is kept.
    fn write(
        kept: &mut Option<Kept<T>>,
        value: &T,
        out: &mut Vec<u8>,
        write: impl FnOnce(&T, &mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        match kept {
            Some(kept) if kept.value == *value => out.extend_from_slice(&kept.text),
            _ => {
                let from = out.len();
                write(value, out)?;
                *kept = Some(Kept {
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
struct Frames {
    contents: Option<Contents>,
    frames: Vec<KeptFrame>,
    text: Vec<u8>,
    /// Where the text of each frame ends.
    ends: Vec<usize>,
}

impl Frames {
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
        let same = match self.contents == contents {
            true => pairs.take_while(|(kept, step)| kept.is(step)).count(),
            false => 0,
        };

        self.contents = contents;
        self.frames.truncate(same);
        self.ends.truncate(same);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));

        for step in chain.steps().rev().skip(same) {
            self.frames.push(KeptFrame::new(&step));
            texts.frame(space, &step, &mut self.text)?;
            self.ends.push(self.text.len());
        }

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
struct KeptFrame {
    place: (CodeAddress, u64, Option<u64>),
    found: &'static str,
    row: Option<Row>,
    words: Words,
}

impl KeptFrame {
    fn new(step: &Step<'_>) -> KeptFrame {
        let mut words = Words::new();
        let row = match step.how {
            How::Rule { row, words: read } => {
                read.iter().for_each(|&word| words.push(word));
                Some(row.row())
            }
            _ => None,
        };
        KeptFrame {
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
