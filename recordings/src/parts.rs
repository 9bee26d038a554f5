//! Parts of a recording that can be read at the same time.

use crate::convert::ImportError;
use crate::recording::{Recording, TakeView, views_of_chunk};
use crate::trace::Trace;
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

impl Part<'_> {
    /// Passes every sample of the part to `take` until it stops.
    ///
    /// # Errors
    /// If a block of the part is damaged, or an earlier block of events.
    pub fn views(&self, take: &mut TakeView<'_>) -> Result<(), ImportError> {
        let mut chunks = self.trace.chunks().skip(self.chunks.start);
        let Some(first) = chunks.next() else {
            return Ok(());
        };
        let mut world = self.trace.world_before(&first)?;
        let chunks = std::iter::once(first).chain(chunks);
        for chunk in chunks.take(self.chunks.len()) {
            if views_of_chunk(self.trace, &chunk, &mut world, take)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
