//! Reads details blocks: what samples have beside their records, so that a reader can skip what it
//! does not know. Such a block stands before its samples block.

use super::block::Block;
use super::error::{Bad, TraceError};
use super::reader::Trace;
use super::sample::details::Detail;
use super::varint::Cursor;
use unwind_sim_unwind::image::Bytes;

/// Reads a details block, along with the samples that it is about.
#[derive(Debug)]
pub(super) struct Details {
    block: Block,
    payload: Bytes,
    at: usize,
    left: u32,
    /// The sample of the next detail, once that much was read.
    next: Option<u32>,
    last: u32,
}

impl Details {
    pub(super) fn open(trace: &Trace, number: usize) -> Result<Details, TraceError> {
        let (block, payload) = trace.block_payload(number)?;
        let left = block.count();
        Ok(Details {
            block,
            payload,
            at: 0,
            left,
            next: None,
            last: 0,
        })
    }

    /// The next detail of the sample number `place` of the samples block. Fields of unknown numbers
    /// are skipped.
    pub(super) fn of(&mut self, place: u32) -> Result<Option<Detail>, TraceError> {
        self.step(place).map_err(|bad| self.block.error(bad))
    }

    /// Reports a detail of a sample that does not exist, or bytes after the last one.
    pub(super) fn end(&self) -> Result<(), TraceError> {
        let cursor = Cursor::new(&self.payload, self.at);
        let ended = match self.left {
            0 => cursor.end(),
            _ => Err(cursor.bad("a detail of more samples than there are")),
        };
        ended.map_err(|bad| self.block.error(bad))
    }

    /// An error at the last detail read.
    pub(super) fn error(&self, what: &'static str) -> TraceError {
        self.block.error(Bad { what, at: self.at })
    }

    fn step(&mut self, place: u32) -> Result<Option<Detail>, Bad> {
        let mut cursor = Cursor::new(&self.payload, self.at);
        while self.left > 0 {
            // The place of a detail is read only once, even if it is of a later sample.
            let next = match self.next {
                Some(next) => next,
                None => {
                    let next = self.last.checked_add(cursor.u32()?);
                    next.ok_or_else(|| cursor.bad("a detail of more samples than there are"))?
                }
            };

            self.at = cursor.at();
            // It is of a later sample, and stays until then.
            if next != place {
                self.next = Some(next);
                return Ok(None);
            }

            (self.next, self.last) = (None, next);
            let (field, length) = (cursor.u64()?, cursor.u64()?);
            let start = cursor.at();
            cursor.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            self.left -= 1;
            self.at = cursor.at();

            // What follows the known parts is ignored: later versions may add to them.
            let mut content = Cursor::new(&self.payload[..cursor.at()], start);
            if let Some(detail) = Detail::read(field, &mut content)? {
                return Ok(Some(detail));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
