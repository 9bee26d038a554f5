//! Parts of a recording that can be read at the same time.

use crate::convert::ImportError;
use crate::recording::{Recording, TakeView, views_of_chunk};
use crate::trace::Trace;
use crate::world::World;
use std::ops::Range;

/// Successive blocks of a trace.
#[derive(Clone, Debug)]
pub struct Part<'t> {
    trace: &'t Trace,
    chunks: Range<usize>,
}

impl Recording {
    /// The recording in at most `count` parts, in order; `None` if it must be read as a whole.
    pub fn parts(&self, count: usize) -> Option<Vec<Part<'_>>> {
        let trace = self.trace()?;
        let chunks = trace.chunks().len();
        let count = count.clamp(1, chunks.max(1));
        let part = |i: usize| Part {
            trace,
            chunks: i * chunks / count..(i + 1) * chunks / count,
        };
        Some((0..count).map(part).collect())
    }
}

/// Reads parts of one recording. What it knows of the processes after a part serves for later
/// parts, and whatever is remembered of an address space is still true there.
#[derive(Debug, Default)]
pub struct PartReader {
    world: World,
    /// The number of the chunk before which the world is like this; `None` after an error, or if a
    /// part was not read to its end.
    at: Option<usize>,
}

impl PartReader {
    /// Passes every sample of the part to `take` until it stops. All parts must be of one recording.
    ///
    /// # Errors
    /// If a block of the part is damaged, or an earlier block of events.
    pub fn views(&mut self, part: &Part<'_>, take: &mut TakeView<'_>) -> Result<(), ImportError> {
        let Part { trace, chunks } = part;
        let from = self.at.take().filter(|&at| at <= chunks.start);
        if from.is_none() {
            self.world = World::new();
        }
        let events = trace.chunks().take(chunks.start);
        for earlier in events.skip(from.unwrap_or(0)) {
            trace.apply_events(&mut self.world, &earlier)?;
        }
        for chunk in trace.chunks().take(chunks.end).skip(chunks.start) {
            if views_of_chunk(trace, &chunk, &mut self.world, take)?.is_break() {
                return Ok(());
            }
        }
        self.at = Some(chunks.end);
        Ok(())
    }
}
