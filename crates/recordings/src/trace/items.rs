//! Access to a trace: item by item, by sample number, and the state of processes at a sample.

use super::chunk::{Chunk, ChunkReader};
use super::error::{TraceError, TraceErrorKind};
use super::reader::Trace;
use super::stream::Samples;
use crate::model::{Item, Sample};
use crate::world::World;

impl Trace {
    fn chunk_of(&self, sample: u64) -> Result<Chunk<'_>, TraceError> {
        let number = self.spans.partition_point(|s| s.numbers.end <= sample);
        match self.spans.get(number) {
            Some(span) => Ok(Chunk {
                trace: self,
                span,
                number,
            }),
            None => {
                let kind = TraceErrorKind::NoSample {
                    number: sample,
                    count: self.len(),
                };
                Err(self.in_file(kind.at(0, None)))
            }
        }
    }

    /// Sample `number`, counted from 0. Reads one chunk.
    ///
    /// # Errors
    /// If there is no such sample, or its block is damaged.
    pub fn sample(&self, number: u64) -> Result<Sample<'_>, TraceError> {
        let chunk = self.chunk_of(number)?;
        let samples = chunk.sample_reader()?;
        let find = |mut samples: Samples| {
            for _ in chunk.span.numbers.start..=number {
                samples.step()?;
            }
            Ok(self.complete(samples.sample().into_owned()))
        };
        match samples {
            Some(samples) => find(samples).map_err(|e| self.in_file(e)),
            None => Err(TraceErrorKind::NoSample {
                number,
                count: self.len(),
            }
            .at(0, None)),
        }
    }

    /// The processes and their mappings at sample `number`. Reads all events before it.
    ///
    /// # Errors
    /// If there is no such sample, or an events block before it is damaged.
    pub fn world_at(&self, number: u64) -> Result<World, TraceError> {
        let chunk = self.chunk_of(number)?;
        let mut world = self.world_before(&chunk)?;
        let position = number - chunk.span.numbers.start;
        self.apply(&mut world, &chunk, position as u32)?;
        Ok(world)
    }

    /// The processes and their mappings before the first item of `chunk`.
    ///
    /// # Errors
    /// If an events block before it is damaged.
    pub fn world_before(&self, chunk: &Chunk<'_>) -> Result<World, TraceError> {
        let mut world = World::new();
        for earlier in self.chunks().take(chunk.number()) {
            self.apply_events(&mut world, &earlier)?;
        }
        Ok(world)
    }

    /// Applies all events of `chunk` to `world`, which is as before it.
    pub(crate) fn apply_events(
        &self,
        world: &mut World,
        chunk: &Chunk<'_>,
    ) -> Result<(), TraceError> {
        self.apply(world, chunk, u32::MAX)
    }

    fn apply(&self, world: &mut World, chunk: &Chunk<'_>, position: u32) -> Result<(), TraceError> {
        let mut events = chunk.events();
        while let Some((at, event)) = events.next().map_err(|e| self.in_file(e))? {
            if at > position {
                break;
            }
            world.apply(&event, self.images());
        }
        Ok(())
    }
}

/// All items of a trace; see [`Trace::items`].
#[derive(Debug)]
pub struct Items<'t> {
    trace: &'t Trace,
    next: usize,
    reader: Option<ChunkReader<'t>>,
}

impl<'t> Items<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Items<'t> {
        Items {
            trace,
            next: 0,
            reader: None,
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item<'static>, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(reader) = &mut self.reader {
                match reader.next() {
                    Some(Ok(item)) => return Some(Ok(item.into_owned())),
                    Some(Err(error)) => return Some(Err(self.trace.in_file(error))),
                    None => self.reader = None,
                }
            }
            let (trace, number) = (self.trace, self.next);
            let span = trace.spans.get(number)?;
            let chunk = Chunk {
                trace,
                span,
                number,
            };
            self.next += 1;
            match chunk.read() {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => return Some(Err(self.trace.in_file(error))),
            }
        }
    }
}
