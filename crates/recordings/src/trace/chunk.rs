//! Reads one chunk of a trace: a samples block with the events before and between its samples.
//!
//! Chunks are independent of each other and can be read in parallel.

use super::error::TraceError;
use super::reader::Trace;
use super::stream::{Events, Samples};
use crate::model::{Event, Item};
use std::ops::Range;

/// The blocks of a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// The events blocks, as indices into the list of all blocks.
    pub(crate) events: Vec<usize>,
    /// The details blocks before the samples block.
    pub(crate) details: Vec<usize>,
    /// The samples block; `None` at the end of a trace.
    pub(crate) samples: Option<usize>,
    /// The numbers of its samples.
    pub(crate) numbers: Range<u64>,
}

/// A part of a trace that can be read independently.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'t> {
    pub(crate) trace: &'t Trace,
    pub(crate) span: &'t Span,
    pub(crate) number: usize,
}

impl<'t> Chunk<'t> {
    /// The numbers of its samples; empty if the chunk has only events.
    pub fn samples(&self) -> Range<u64> {
        self.span.numbers.clone()
    }

    /// Its index among the chunks of the trace.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Starts reading the chunk.
    ///
    /// # Errors
    /// If its samples block is damaged.
    pub fn read(&self) -> Result<ChunkReader<'t>, TraceError> {
        let samples = match self.span.samples {
            Some(block) => Some(Samples::open(self.trace, block, &self.span.details)?),
            None => None,
        };
        let events = Events::new(self.trace, &self.span.events);
        Ok(ChunkReader {
            trace: self.trace,
            events,
            samples,
            next_event: None,
            state: State::Open,
        })
    }

    /// Its events only, without reading its samples.
    pub(crate) fn events(&self) -> Events<'t> {
        Events::new(self.trace, &self.span.events)
    }

    /// Its samples only.
    pub(crate) fn sample_reader(&self) -> Result<Option<Samples>, TraceError> {
        self.span
            .samples
            .map(|block| Samples::open(self.trace, block, &self.span.details))
            .transpose()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// An error was returned; nothing follows it.
    Failed,
}

/// Reads the items of a chunk in order.
#[derive(Debug)]
pub struct ChunkReader<'t> {
    trace: &'t Trace,
    events: Events<'t>,
    samples: Option<Samples>,
    next_event: Option<(u32, Event)>,
    state: State,
}

impl ChunkReader<'_> {
    /// The next item, borrowed from the reader; `None` at the end and after an error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Item<'_>, TraceError>> {
        if self.state == State::Failed {
            return None;
        }
        match self.advance() {
            Ok(Advance::Event(event)) => Some(Ok(Item::Event(event))),
            Ok(Advance::Sample) => {
                let samples = self.samples.as_ref()?;
                Some(Ok(Item::Sample(self.trace.complete(samples.sample()))))
            }
            Ok(Advance::End) => None,
            Err(error) => {
                self.state = State::Failed;
                Some(Err(error))
            }
        }
    }

    fn advance(&mut self) -> Result<Advance, TraceError> {
        if self.next_event.is_none() {
            self.next_event = self.events.next()?;
        }
        let done = self.samples.as_ref().map_or(0, |s| s.done);
        let count = self.samples.as_ref().map_or(0, |s| s.count);
        match self.next_event.take_if(|(position, _)| *position <= done) {
            Some((_, event)) => return Ok(Advance::Event(event)),
            None if done == count => {
                return match self.next_event.take() {
                    Some(_) => self.events.misplaced(self.samples.is_none()),
                    None => Ok(()),
                }
                .map(|()| Advance::End);
            }
            None => {}
        }
        match &mut self.samples {
            Some(samples) => samples.step().map(|()| Advance::Sample),
            None => Ok(Advance::End),
        }
    }
}

/// What the chunk continues with.
enum Advance {
    Event(Event),
    Sample,
    End,
}
